"""The same bits for any number of threads, any chunk, any engine."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

WAYS = [
    {"threads": 1},
    {"threads": 2, "chunk": "4KiB"},
    {"threads": 3, "chunk": "64KiB", "engine": "pread"},
    {"threads": 4, "chunk": "7777", "engine": "uring"},
    {"threads": 2, "direct": True, "queue_depth": 1},
    {"threads": 4, "chunk": "333KiB", "memory": "64MiB", "queue_depth": 16},
]

FLIGHTS = [
    "lines", "rows", "digits", "entropy", "count:arr_delay", "sum:arr_delay", "mean:arr_delay", "var:air_time",
    "std:dep_delay", "min:arr_delay", "max:arr_delay", "hist:arr_delay", "quantile:arr_delay", "gram:dep_delay,arr_delay,distance",
    "grep:JFK,lines,max=20", "kmeans:dep_delay,arr_delay,k=4,seed=3",
]  # fmt: skip


def answer(stead, dataset, specs, **options):
    return json.dumps(stead.document(dataset, *specs, **options)["results"])


@pytest.fixture
def small(tmp_path, flights):
    """The first 40,000 flights: enough extents at the small chunks."""
    lines = flights.read_bytes().splitlines(keepends=True)[:40_001]
    (tmp_path / "small.csv").write_bytes(b"".join(lines))
    return "small.csv"


def test_flights_on_any_number_of_threads(stead, small):
    want = answer(stead, small, FLIGHTS, **WAYS[0])
    for way in WAYS[1:]:
        assert answer(stead, small, FLIGHTS, **way) == want, way


def test_all_flights(stead, flights):
    specs = ["mean:arr_delay", "var:air_time", "entropy", "gram:dep_delay,arr_delay"]
    want = answer(stead, flights, specs, threads=1)
    assert answer(stead, flights, specs, threads=4, chunk="100KiB") == want


def test_groups_on_any_number_of_threads(stead, small):
    specs = ["rows", "mean:arr_delay", "var:arr_delay", "quantile:arr_delay", "lines"]
    options = {"by": "carrier,origin", "where": "dep_delay > -5"}
    want = answer(stead, small, specs, **options, **WAYS[0])
    for way in WAYS[1:]:
        assert answer(stead, small, specs, **options, **way) == want, way


def test_outputs_on_any_number_of_threads(stead, small, tmp_path):
    want = None
    for i, way in enumerate(WAYS):
        stead.result(small, f"normalize:arr_delay,method=zscore,out=n{i}.npy", **way)
        got = (tmp_path / f"n{i}.npy").read_bytes()
        want = want or got
        assert got == want, way


def test_volume_on_any_number_of_threads(stead, tmp_path):
    r = np.random.default_rng(1)
    r.random((40, 50, 60), dtype="f4").tofile(tmp_path / "v.raw")
    options = {"type": "raw", "dtype": "f32", "shape": "40x50x60"}
    want = None
    for i, way in enumerate(WAYS):
        stead.result("v.raw", f"render:out=v{i}.png,width=64,height=48", **options, **way)
        got = (tmp_path / f"v{i}.png").read_bytes()
        want = want or got
        assert got == want, way


VECTORS = ["portable", "avx2", "avx512", "neon"]


def on_all_vectors(stead, monkeypatch, dataset, specs, **options):
    """The answer of each sort of vectors that the processor has; all of it is plain code and at least the best sort."""
    monkeypatch.delenv("STEAD_SIMD", raising=False)
    document = stead.document(dataset, *specs, **options)
    best, answers = document["plan"]["vectors"], {None: json.dumps(document["results"])}
    for name in VECTORS:
        monkeypatch.setenv("STEAD_SIMD", name)
        done = stead("run", dataset, "-k", "lines", *(f"--{k}={v}" for k, v in options.items()), code=None)
        if done.returncode == 0:
            document = stead.document(dataset, *specs, **options)
            assert document["plan"]["vectors"] == name
            answers[name] = json.dumps(document["results"])
        else:
            assert done.returncode == 2 and b"names vectors that this processor does not have" in done.stderr, done.stderr
    assert {"portable", best} <= answers.keys()
    return answers


def test_flights_with_any_vectors(stead, small, monkeypatch):
    answers = on_all_vectors(stead, monkeypatch, small, FLIGHTS)
    assert len(set(answers.values())) == 1, answers.keys()


def test_odd_numbers_with_any_vectors(stead, tmp_path, monkeypatch):
    r = np.random.default_rng(3)
    forms = ["{:.3f}", "{:.0f}", "{:e}", "{:.17g}", '"{:.2f}"', "{:.1E}", "+{:.4f}"]
    lines = [",".join(forms[k].format(x) for k, x in zip(r.integers(0, 7, 5), row)) for row in r.normal(size=(4000, 5)) * 1e4]
    (tmp_path / "odd.csv").write_text("a,b,c,d,e\r\n" + "\r\n".join(lines).replace("+-", "-") + "\r\n")
    specs = [f"{k}:{c}" for c in "abcde" for k in ("sum", "std", "min", "max", "hist")] + ["digits", "gram:a,b,c", "entropy"]
    answers = on_all_vectors(stead, monkeypatch, "odd.csv", specs)
    assert len(set(answers.values())) == 1, answers.keys()


def test_arrays_with_any_vectors(stead, tmp_path, monkeypatch):
    r = np.random.default_rng(4)
    np.save(tmp_path / "a.npy", r.normal(size=(20_000, 9)))
    answers = on_all_vectors(stead, monkeypatch, "a.npy", ["gram:*", "kmeans:k=5,delta=0.001,seed=1", "var:3", "hist:2"])
    assert len(set(answers.values())) == 1, answers.keys()


def test_volumes_with_any_vectors(stead, tmp_path, monkeypatch):
    r = np.random.default_rng(5)
    r.random((30, 40, 50), dtype="f4").tofile(tmp_path / "v.raw")
    pictures = []
    for name in [None, *VECTORS]:
        if name:
            monkeypatch.setenv("STEAD_SIMD", name)
        picture = tmp_path / f"{name}.png"
        stead("run", "v.raw", "--type=raw", "--dtype=f32", "--shape=30x40x50", "-k", f"render:out={picture.name},width=64,height=48", code=None)
        if picture.exists():
            pictures.append(picture.read_bytes())
    assert len(pictures) >= 2 and len(set(pictures)) == 1


def test_vectors_that_are_none_are_an_error(stead, small, monkeypatch):
    monkeypatch.setenv("STEAD_SIMD", "mmx")
    stead.fails("run", small, "-k", "rows", code=2, says=("STEAD_SIMD=mmx", "names no sort of vectors", "portable", "hint"))


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_arrays_on_any_number_of_threads(stead, tmp_path, order):
    r = np.random.default_rng(2)
    np.save(tmp_path / "a.npy", np.asarray(r.normal(size=(60_000, 7)), order=order))
    specs = ["gram:*", "gram:2,5", "kmeans:k=5,delta=0.001,seed=1", "std:3"]
    for options in ({}, {"where": "$0 > 0.25"}):
        want = answer(stead, "a.npy", specs, **options, **WAYS[0])
        for way in WAYS[1:]:
            assert answer(stead, "a.npy", specs, **options, **way) == want, way


cell = st.one_of(
    st.floats(allow_nan=False, width=64).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["", "NA", "inf", "-inf"]),
)
note = st.text(alphabet='ab ,"\n\r;é', max_size=6)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.tuples(cell, note, cell), min_size=1, max_size=60), crlf=st.booleans())
def test_any_table_on_any_split(stead, tmp_path, rows, crlf):
    end = "\r\n" if crlf else "\n"
    quoted = [f'{a},"{n.replace(chr(34), chr(34) * 2)}",{b}' for a, n, b in rows]
    # Padding rows, so that the smallest chunk cuts the file at many places.
    pad = [f'{i},"{"p" * (i % 41)}{end}",{i}' for i in range(300)]
    text = end.join(["x,note,y", *quoted, *pad, *quoted]) + end
    (tmp_path / "t.csv").write_bytes(text.encode())
    specs = ["rows", "lines", "count:x", "sum:x", "var:x", "min:y", "max:y", "grep:a", "entropy"]
    options = {"column_type": ["x=number", "y=number", "note=text"], "header": "yes", "type": "csv"}
    want = stead.document("t.csv", *specs, **options, threads=1)["results"]
    assert want["rows"] == 2 * len(rows) + 300
    got = stead.document("t.csv", *specs, **options, threads=3, chunk="4KiB")["results"]
    assert json.dumps(got) == json.dumps(want)
