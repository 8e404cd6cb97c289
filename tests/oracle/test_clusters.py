"""kmeans: against scikit-learn from the same first centres, and by its own laws."""

import numpy as np
import pytest
from sklearn.cluster import KMeans


def blobs(seed, n=3000, k=5, d=3, spread=0.6):
    r = np.random.default_rng(seed)
    centres = r.uniform(-10, 10, size=(k, d))
    return centres[r.integers(k, size=n)] + r.normal(scale=spread, size=(n, d))


def oracle(points, first):
    """Lloyd's rounds from these centres until nothing moves."""
    model = KMeans(len(first), init=np.array(first), n_init=1, tol=0, max_iter=300, algorithm="lloyd")
    return model.fit(points)


@pytest.mark.parametrize("seed, k, spread", [(0, 5, 0.6), (1, 5, 3.0), (2, 8, 1.0), (3, 2, 5.0), (4, 12, 2.0)])
def test_centres_from_the_same_start(stead, tmp_path, seed, k, spread):
    points = blobs(seed, spread=spread)
    np.save(tmp_path / "p.npy", points)
    model = oracle(points, points[:k])
    got = stead.result("p.npy", f"kmeans:'*',k={k},init=first,tol=0,rounds=300", chunk="4KiB", threads=2)
    assert got["converged"] is True
    assert got["sizes"] == np.bincount(model.labels_, minlength=k).tolist()
    np.testing.assert_allclose(got["centroids"], model.cluster_centers_, rtol=1e-9, atol=1e-9)
    assert got["inertia"] == pytest.approx(model.inertia_, rel=1e-9)


def test_first_takes_distinct_points(stead, tmp_path):
    points = np.array([[0.0, 0], [0, 0], [9, 9], [0, 0], [9, 9], [0, 1], [9, 8]])
    np.save(tmp_path / "p.npy", points)
    got = stead.result("p.npy", "kmeans:k=2,init=first,tol=0")
    model = oracle(points, [[0, 0], [9, 9]])
    np.testing.assert_allclose(got["centroids"], model.cluster_centers_)
    got = stead.result("p.npy", "kmeans:k=10,init=first")
    assert len(got["centroids"]) == 4


def test_two_rounds_by_hand(stead, tmp_path):
    points = blobs(7, spread=4.0)
    np.save(tmp_path / "p.npy", points)
    centres = points[:4].copy()
    for _ in range(2):
        nearest = ((points[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
        centres = np.array([points[nearest == j].mean(axis=0) for j in range(4)])
    got = stead.result("p.npy", "kmeans:k=4,init=first,rounds=2,tol=0")
    assert got["rounds"] == 2 and got["converged"] is False
    np.testing.assert_allclose(got["centroids"], centres, rtol=1e-12)


@pytest.mark.parametrize("init", ["kmeans++", "random"])
def test_seeding_finds_clear_clusters(stead, tmp_path, init):
    points = blobs(3, k=4, spread=0.05)
    np.save(tmp_path / "p.npy", points)
    best = oracle(points, KMeans(4, n_init=10, random_state=0).fit(points).cluster_centers_).inertia_
    runs = [stead.result("p.npy", f"kmeans:k=4,init={init},seed={s}") for s in range(6)]
    assert min(r["inertia"] for r in runs) == pytest.approx(best, rel=1e-6)
    assert len({str(r["centroids"]) for r in runs}) > 1
    again = stead.result("p.npy", f"kmeans:k=4,init={init},seed=5", threads=1, chunk="4KiB")
    assert again == runs[5]


def test_centres_are_means_of_their_points(stead, flights, frame):
    columns = ["dep_delay", "arr_delay", "distance"]
    got = stead.result(flights, "kmeans:dep_delay,arr_delay,distance,k=6,seed=1,tol=0,rounds=500")
    assert got["columns"] == columns
    points = frame[columns].dropna().to_numpy()
    assert got["dropped"] == len(frame) - len(points)
    assert sum(got["sizes"]) == len(points)
    centres = np.array(got["centroids"])
    distances = ((points[:, None, :] - centres) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    assert got["inertia"] == pytest.approx(distances.min(axis=1).sum(), rel=1e-9)
    assert np.bincount(nearest, minlength=6).tolist() == got["sizes"]
    if got["converged"]:
        means = np.array([points[nearest == j].mean(axis=0) for j in range(6)])
        np.testing.assert_allclose(centres, means, rtol=1e-9, atol=1e-9)


def test_no_points(stead, tmp_path):
    np.save(tmp_path / "p.npy", np.full((5, 2), np.nan))
    got = stead.result("p.npy", "kmeans:k=3")
    assert (got["centroids"], got["inertia"], got["dropped"]) == ([], 0.0, 5)
