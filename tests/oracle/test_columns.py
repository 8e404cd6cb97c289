"""hist, quantile, gram, normalize: against NumPy and scikit-learn."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import minmax_scale, scale


def values(seed=3, n=5000):
    r = np.random.default_rng(seed)
    return np.concatenate([r.normal(10, 3, n), r.lognormal(0, 2, n), -r.lognormal(0, 1, n), [0.0, -0.0]])


@pytest.mark.parametrize("bins, low, high", [(10, None, None), (100, None, None), (7, -1.0, 9.0), (24, 0.0, 1e-3), (1, None, None)])
def test_histograms_are_those_of_numpy(stead, tmp_path, bins, low, high):
    a = values()
    np.save(tmp_path / "a.npy", a)
    spec = f"hist:0,bins={bins}" + (f",min={low!r},max={high!r}" if low is not None else "")
    got = stead.result("a.npy", spec, chunk="4KiB", threads=2)
    counts, edges = np.histogram(a, bins=bins, range=None if low is None else (low, high))
    assert got["counts"] == counts.tolist()
    assert got["edges"] == edges.tolist()
    assert got["below"] == (a < edges[0]).sum() and got["above"] == (a > edges[-1]).sum()


def test_values_on_edges(stead, tmp_path):
    a = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0000000000000002, -5e-324])
    np.save(tmp_path / "a.npy", a)
    got = stead.result("a.npy", "hist:0,bins=10,min=0,max=1")
    assert got["counts"] == np.histogram(a, bins=10, range=(0, 1))[0].tolist()
    assert (got["below"], got["above"]) == (1, 1)


def test_histogram_of_flights(stead, flights, frame):
    got = stead.result(flights, "hist:arr_delay,bins=40")
    delays = frame.arr_delay.dropna()
    counts, edges = np.histogram(delays, bins=40)
    assert got["counts"] == counts.tolist() and got["edges"] == edges.tolist()
    assert got["missing"] == len(frame) - len(delays)


QS = [0.0, 0.001, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]


def within(got: float, true: float, error: float) -> bool:
    return abs(got - true) <= error * abs(true) and abs(got) <= abs(true)


def test_quantiles_keep_their_bound(stead, tmp_path):
    a = values()
    np.save(tmp_path / "a.npy", a)
    text = ";".join(map(str, QS))
    sketch, fine, exact = stead.results(
        "a.npy", f"quantile:0,q={text}", f"quantile:0,q={text},error=1e-4", f"quantile:0,q={text},exact", chunk="4KiB"
    )
    for i, q in enumerate(QS):
        true = float(np.quantile(a, q, method="inverted_cdf"))
        assert list(exact.values())[i] == true
        assert within(list(sketch.values())[i], true, 2**-10)
        assert within(list(fine.values())[i], true, 1e-4)


def test_quantiles_of_flights(stead, flights, frame):
    for column in ["arr_delay", "distance"]:
        for q in [0.1, 0.5, 0.99]:
            got = stead.result(flights, f"quantile:{column},q={q}")
            assert got == np.quantile(frame[column].dropna(), q, method="inverted_cdf") or abs(got) > 2048
    medians = stead.result(flights, "quantile:air_time,exact", by="carrier")
    for carrier, g in frame.groupby("carrier").air_time:
        assert medians[carrier] == np.quantile(g.dropna(), 0.5, method="inverted_cdf")


def test_gram_matrices(stead, tmp_path):
    r = np.random.default_rng(9)
    a = r.normal(size=(4000, 6)) * [1, 10, 1e-3, 1e5, 1, 1]
    a[17, 3] = 1e12
    np.save(tmp_path / "a.npy", a)
    got, by_rows = stead.results("a.npy", "gram:*,exact", "gram:*", chunk="4KiB", threads=2)
    matrix = np.array(got["matrix"])
    np.testing.assert_allclose(by_rows["matrix"], matrix, rtol=0, atol=2.0**-45 * (abs(a).T @ abs(a)).max())
    # Products and sums are exact, and each sum is rounded once.
    exact = [[Fraction(v) for v in column] for column in a.T.tolist()]
    for i in range(6):
        for j in range(6):
            assert matrix[i, j] == float(sum(p * q for p, q in zip(exact[i], exact[j], strict=True)))
    np.testing.assert_allclose(matrix, a.T @ a, rtol=1e-9, atol=1e-6)
    assert got["rows"] == len(a) and got["dropped"] == 0


def test_gram_of_flights(stead, flights, frame):
    columns = ["dep_delay", "arr_delay", "distance"]
    got = stead.result(flights, "gram:" + ",".join(columns))
    a = frame[columns].dropna().to_numpy()
    assert got["columns"] == columns
    assert got["dropped"] == len(frame) - len(a)
    assert got["matrix"] == [[math.fsum(a[:, i] * a[:, j]) for j in range(3)] for i in range(3)]


METHODS = {
    "minmax": lambda a: minmax_scale(a),
    "zscore": lambda a: scale(a),
    "l2": lambda a: a / np.linalg.norm(a, axis=0),
}


@pytest.mark.parametrize("method", METHODS)
def test_normalised_arrays(stead, tmp_path, method):
    a = np.random.default_rng(4).normal(5, 2, size=(5000, 3))
    np.save(tmp_path / "a.npy", a)
    got = stead.result("a.npy", f"normalize:*,{method},out=n.npy", chunk="4KiB", threads=2)
    assert (got["out"], got["rows"]) == ("n.npy", 5000)
    written = np.load(tmp_path / "n.npy")
    np.testing.assert_allclose(written, METHODS[method](a), rtol=1e-12, atol=1e-12)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "n.npy"]


def test_normalised_volume_keeps_shape_and_order(stead, tmp_path):
    a = np.asfortranarray(np.random.default_rng(4).random((20, 30, 40)))
    np.save(tmp_path / "a.npy", a)
    stead.result("a.npy", "normalize:0,out=n.npy", chunk="4KiB", threads=2)
    written = np.load(tmp_path / "n.npy")
    assert written.flags.f_contiguous and written.shape == a.shape
    np.testing.assert_allclose(written, (a - a.min()) / (a.max() - a.min()), rtol=1e-14)


def test_normalised_columns_of_flights(stead, tmp_path, flights, frame):
    stead.result(flights, f"normalize:arr_delay,zscore,out={tmp_path}/n.npy")
    z = (frame.arr_delay - frame.arr_delay.mean()) / frame.arr_delay.std(ddof=0)
    np.testing.assert_allclose(np.load(tmp_path / "n.npy"), z, rtol=1e-9, atol=1e-12)
    stead.result(flights, f"normalize:dep_delay,distance,out={tmp_path}/n.csv", where="month == 2")
    written = pd.read_csv(tmp_path / "n.csv")
    kept = frame.loc[frame.month == 2, ["dep_delay", "distance"]].reset_index(drop=True)
    wanted = (kept - kept.min()) / (kept.max() - kept.min())
    pd.testing.assert_frame_equal(written, wanted, rtol=1e-12)
