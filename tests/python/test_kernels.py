"""Every kernel gives through Python what the command gives, to the last bit, and what NumPy and pandas give."""

from __future__ import annotations

import json

import numpy as np
import pytest
import stead
from support import bits, plain, same

#: Specifications on the flights, as constructors write them.
FLIGHTS = [
    stead.lines(),
    stead.rows(),
    stead.digits(),
    stead.entropy(),
    stead.grep("JFK.*LAX"),
    stead.grep("UA,1545", fixed=True, lines=True, max=3),
    stead.kmeans("dep_delay", "distance", k=3, seed=1, rounds=5),
    stead.count("*"),
    stead.sum("arr_delay"),
    stead.mean("arr_delay", "dep_delay"),
    stead.var("arr_delay", ddof=0),
    stead.std("air_time"),
    stead.min("dep_delay"),
    stead.max("dep_delay"),
    stead.hist("arr_delay", bins=24, min=-60, max=180),
    stead.quantile("arr_delay", q=[0.1, 0.5, 0.99]),
    stead.quantile("air_time", q=0.5, exact=True),
    stead.gram("dep_delay", "arr_delay", "distance"),
]
#: They write files, and are tested apart.
WRITERS = {"normalize", "render"}


def alike(ours, theirs) -> bool:
    """Equal to the last bit: our objects, and the command's JSON."""
    if isinstance(ours, np.ndarray):
        return alike(ours.tolist(), theirs)
    if isinstance(ours, float):
        return isinstance(theirs, (int, float)) and same(ours, float(theirs))
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(alike(v, theirs[k]) for k, v in ours.items())
    return type(ours) is type(theirs) and ours == theirs


def test_no_kernel_is_left_out():
    assert {str(s).partition(":")[0] for s in FLIGHTS} | WRITERS == {k.name for k in stead.kernels()}


@pytest.mark.parametrize("options", [{}, {"where": "dep_delay > 0 and origin == 'JFK'"}, {"by": ["origin", "month"]}])
def test_results_are_those_of_the_command(cli, flights, options):
    specs = FLIGHTS if "by" not in options else [s for s in FLIGHTS if not s.startswith("kmeans")]
    report = stead.open(flights).run(specs, **options)
    by = {"by": ",".join(options["by"])} if "by" in options else {}
    theirs = cli.document(flights, *specs, **options | by)
    assert json.loads(report.to_json())["results"] == theirs["results"]
    assert list(report) == specs
    for s in specs:
        assert alike(report[s], plain(theirs["results"][s])), s
    assert report.plan["kernels"] == theirs["plan"]["kernels"]


def test_results_are_those_of_pandas(flights, frame):
    r = stead.open(flights).run("rows", "mean:arr_delay", "max:arr_delay", stead.gram("distance", "year"))
    assert r["rows"] == len(frame)
    assert r["mean:arr_delay"] == pytest.approx(frame.arr_delay.mean(), rel=1e-14)
    assert r["max:arr_delay"] == frame.arr_delay.max()
    a = frame[["distance", "year"]].to_numpy(dtype=float)
    np.testing.assert_array_equal(r["gram:distance,year"]["matrix"], a.T @ a)

    grouped = stead.run(flights, "count:arr_delay", "min:distance", by="carrier").to_pandas()
    theirs = frame.groupby("carrier").agg(count=("arr_delay", "count"), min=("distance", "min"))
    assert list(grouped.index) == list(theirs.index)
    assert list(grouped["count:arr_delay"]) == list(theirs["count"])
    assert list(grouped["min:distance"]) == list(theirs["min"])


def test_results_are_those_of_numpy(points):
    r = stead.open(points, names=["x", "y", "z"]).run(
        stead.hist("x", bins=17),
        stead.quantile("y", q=[0.25, 0.5], exact=True),
        stead.gram("*"),
        stead.std("z", ddof=0),
        stead.kmeans(k=4, rounds=3, init="first"),
    )
    counts, edges = np.histogram(points[:, 0], bins=17)
    hist = r[stead.hist("x", bins=17)]
    np.testing.assert_array_equal(hist["counts"], counts)
    np.testing.assert_array_equal(hist["edges"], edges)
    assert hist["counts"].dtype == np.int64 and hist["edges"].dtype == np.float64
    q = r["quantile:y,q=0.25;0.5,exact"]
    lower = np.quantile(points[:, 1], [0.25, 0.5], method="inverted_cdf")
    assert [q["0.25"], q["0.5"]] == list(lower)
    gram = r["gram:*"]["matrix"]
    assert gram.shape == (3, 3) and (gram == gram.T).all()
    np.testing.assert_allclose(gram, points.T @ points, rtol=1e-11)
    assert r["std:z,ddof=0"] == pytest.approx(points[:, 2].std(), rel=1e-12)
    clusters = r["kmeans:k=4,rounds=3,init=first"]
    assert clusters["centroids"].shape == (4, 3) and clusters["sizes"].sum() == len(points)


def test_kernels_that_write_files(cli, tmp_path, points):
    np.save(tmp_path / "points.npy", points)
    cli("run", "points.npy", "-k", "normalize:*,method=zscore,out=theirs.npy")
    spec = stead.normalize("*", method="zscore", out=tmp_path / "ours.npy")
    r = stead.open(points).run(spec)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
    assert r[spec]["rows"] == len(points)
    np.testing.assert_allclose(np.load(tmp_path / "ours.npy").mean(axis=0), 0, atol=1e-12)

    volume = np.random.default_rng(1).random((9, 8, 7), dtype=np.float32)
    np.save(tmp_path / "volume.npy", volume)
    cli("run", "volume.npy", "-k", "render:out=theirs.png,width=40,height=30,opacity=0:0;1:0.5")
    r = stead.run(volume, stead.render(out=tmp_path / "ours.png", width=40, height=30, opacity=[(0, 0), (1, 0.5)]))
    assert (tmp_path / "ours.png").read_bytes() == (tmp_path / "theirs.png").read_bytes()


def test_specifications_are_written_as_the_grammar_has_it():
    written = {
        stead.mean("a", "b"): "mean:a,b",
        stead.mean(["a", "b"]): "mean:a,b",
        stead.mean("a,b"): "mean:'a,b'",
        stead.mean("it's"): "mean:'it''s'",
        stead.grep("a=b", fixed=True, invert=False): "grep:'a=b',fixed",
        stead.quantile("x", q=np.array([0.5, 0.9])): "quantile:x,q=0.5;0.9",
        stead.kmeans(k=np.int64(3), tol=np.float64(1e-3)): "kmeans:k=3,tol=0.001",
        stead.rows(): "rows",
    }
    for ours, text in written.items():
        assert ours == text
    odd = {"a,b": np.arange(3.0), "it's": np.ones(3), "k=1": np.zeros(3)}
    r = stead.open(odd).run([stead.sum(c) for c in odd])
    assert [r[stead.sum(c)] for c in odd] == [3.0, 3.0, 0.0]


def test_floats_keep_their_bits():
    tiny = np.array([5e-324, -0.0, 0.1 + 0.2])
    r = stead.open(tiny).run("min:value", "sum:value", "max:value")
    assert bits(r["sum:value"]) == bits(0.1 + 0.2 + 5e-324) and bits(r["min:value"]) in (bits(-0.0), bits(0.0))
    nan = stead.open(np.array([1.0, np.nan])).run("mean:value", "count:value")
    assert np.isnan(nan["mean:value"]) and nan["count:value"] == 2
    missing = stead.open(np.array([1.0, stead.MISSING])).run("mean:value", "count:value")
    assert missing["mean:value"] == 1.0 and missing["count:value"] == 1
    assert stead.open(np.array([stead.MISSING])).run("mean:value")["mean:value"] is None


def test_every_kernel_is_explained():
    for k in stead.kernels():
        constructor = getattr(stead, k.name)
        assert k.usage in constructor.__doc__ and "Examples:" in constructor.__doc__
        assert all(getattr(k, a) for a in ("summary", "definition", "error", "cost", "source", "examples"))
    assert "and" in stead.where_help()
