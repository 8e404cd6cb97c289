"""Arrays, tables and bytes in memory: every type and order, lent and not copied, alive as long as needed."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pandas as pd
import pytest
import stead

DTYPES = ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


def sums(ds: stead.Dataset) -> list[float]:
    r = ds.run([stead.sum(c) for c in ds.columns], chunk=4096)
    return list(r.results.values())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F", "gaps", "reversed", "swapped"])
def test_every_type_in_every_order(dtype, order):
    wide = np.random.default_rng(7).integers(0, 100, size=(3000, 8)).astype(dtype)
    a = {
        "C": lambda: np.ascontiguousarray(wide[:, :4]),
        "F": lambda: np.asfortranarray(wide[:, :4]),
        "gaps": lambda: wide[::2, ::2],
        "reversed": lambda: wide[::-1, :4],
        "swapped": lambda: wide[:, :4].astype(np.dtype(dtype).newbyteorder()),
    }[order]()
    ds = stead.open(a)
    assert ds.shape == a.shape and ds.format == "raw" and ds.columns == ["0", "1", "2", "3"]
    assert sums(ds) == list(a.astype("f8").sum(axis=0))
    assert ds.types["0"] == {"?": "u8"}.get(dtype, f"{dtype[0]}{int(dtype[1]) * 8}" if dtype != "?" else "u8")
    table = stead.open({str(i): a[:, i] for i in range(4)})
    assert sums(table) == list(a.astype("f8").sum(axis=0))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 3), (4, 0), (1, 1), (7, 1), (1, 7), (3, 4, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_shape(shape, order):
    a = np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype="f8", order=order)
    ds = stead.open(a)
    assert ds.shape == shape
    if len(shape) == 2:
        assert ds.columns == [str(i) for i in range(shape[1])]
        rows = shape[0] if shape[1] else 0
    else:
        assert ds.columns == ["value"]
        rows = a.size
    r = ds.run("rows", *[f"sum:{c}" for c in ds.columns])
    assert r["rows"] == rows
    assert sum(v for k, v in r.items() if k != "rows") == a.sum()


def test_arrays_are_lent_and_not_copied():
    a = np.zeros((1000, 2))
    f = np.asfortranarray(np.zeros((1000, 2)))
    table = {"x": np.zeros(1000), "n": np.zeros(1000, dtype="i2")}
    text = bytearray(b"x\n1\n2\n")
    opened = [(stead.open(a), a[:, 1], "1"), (stead.open(f), f[:, 1], "1")]
    opened += [(stead.open(table), column, name) for name, column in table.items()]
    for ds, values, column in opened:
        values[7] = 42
        assert ds.run(f"sum:{column}")[f"sum:{column}"] == 42, column
    ds = stead.open(text)
    text[2:3] = b"5"
    assert ds.run("sum:x")["sum:x"] == 7
    with pytest.raises(BufferError):
        text.extend(b"longer")


def test_arrays_live_as_long_as_their_dataset():
    class Array(np.ndarray):
        """An array that can be watched."""

    a = np.arange(100_000.0).view(Array)
    watched, base = weakref.ref(a), weakref.ref(a.base) if a.base is not None else None
    ds = stead.open(a)
    total = float(a.sum())
    del a
    gc.collect()
    # Other arrays would take the memory if it were free.
    others = [np.full(100_000, -1.0) for _ in range(20)]
    assert ds.run("sum:value")["sum:value"] == total
    del ds, others
    gc.collect()
    assert watched() is None and (base is None or base() is None)


def test_no_reference_is_lost_or_kept():
    import sys

    a = np.arange(1000.0)
    before = sys.getrefcount(a)
    for _ in range(50):
        ds = stead.open({"x": a, "y": a})
        ds.run("mean:x")
    del ds
    gc.collect()
    assert sys.getrefcount(a) == before


def test_data_frames():
    df = pd.DataFrame(
        {
            "x": [1.0, np.nan, 3.0, 4.0],
            "n": np.array([1, 2, 2, 1], dtype="i4"),
            "flag": [True, False, True, True],
            "text": ["a", "b", "c", "d"],
            "masked": pd.array([1, None, 3, None], dtype="Int64"),
            7: [0.5, 0.25, 0.125, 0.0],
        }
    )
    ds = stead.open(df)
    assert ds.columns == ["x", "n", "flag", "masked", "7"] and list(ds.left_out) == ["text"]
    ours = ds.run("mean:x", "count:x", "sum:flag", "sum:masked", "count:masked", "sum:'7'", by="n").to_pandas()
    theirs = df.groupby("n").agg(mean=("x", "mean"), count=("x", "count"), flag=("flag", "sum"), masked=("masked", "sum"))
    assert list(ours.index) == [1, 2] and ours.index.name == "n"
    assert list(ours["mean:x"]) == list(theirs["mean"]) and list(ours["count:x"]) == list(theirs["count"])
    assert list(ours["sum:flag"]) == list(theirs["flag"]) and list(ours["sum:masked"]) == list(theirs["masked"])
    assert list(ours["count:masked"]) == [1, 1]
    with pytest.raises(stead.UsageError, match="column 'text' holds (object|str).*\n.*hint: convert"):
        ds.run("mean:text")
    with pytest.raises(stead.UsageError, match="no column 'nope'"):
        ds.run("mean:nope")
    with pytest.raises(stead.UsageError, match="none of the columns holds numbers"):
        stead.open(df[["text"]])
    assert np.isnan(stead.open(df, nan="value").run("mean:x")["mean:x"])
    assert stead.open(df["x"]).run("count:x")["count:x"] == 3
    empty = stead.open(df.iloc[:0]).run("rows", "mean:x")
    assert empty["rows"] == 0 and empty["mean:x"] is None


COLUMNS = {
    "x": [1.0, None, 3.0, 4.0],
    "n": [1, 2, 2, 1],
    "big": [2**40, None, 7, 8],
    "flag": [True, False, True, None],
    "text": ["a", "b", "c", "d"],
}


def polars_frame():
    polars = pytest.importorskip("polars")
    return polars.DataFrame(COLUMNS, schema_overrides={"n": polars.Int32})


def arrow_table():
    pyarrow = pytest.importorskip("pyarrow")
    columns = {name: pyarrow.array(values, pyarrow.int32() if name == "n" else None) for name, values in COLUMNS.items()}
    return pyarrow.table(columns)


def arrow_table_in_chunks():
    pyarrow = pytest.importorskip("pyarrow")
    table = arrow_table()
    return pyarrow.concat_tables([table.slice(0, 1), table.slice(1)])


@pytest.mark.parametrize("made", [polars_frame, arrow_table, arrow_table_in_chunks])
def test_data_frames_of_polars_and_tables_of_arrow(made):
    ds = stead.open(made())
    assert ds.format == "table" and ds.columns == ["x", "n", "big", "flag"] and list(ds.left_out) == ["text"]
    r = ds.run("rows", "count:x", "mean:x", "sum:n", "count:big", "sum:big", "count:flag", "sum:flag")
    assert list(r.values()) == [4, 3, 8 / 3, 6.0, 3, 2.0**40 + 15, 3, 2.0]
    grouped = ds.run("count:x", "sum:x", by="n", where="x > 0")
    assert grouped["sum:x"] == {"1": 5.0, "2": 3.0} and grouped["count:x"] == {"1": 2, "2": 1}
    with pytest.raises(stead.UsageError, match="column 'text' holds .*\n.*hint: convert"):
        ds.run("mean:text")


def test_columns_of_arrow_are_not_copied():
    pyarrow = pytest.importorskip("pyarrow")
    values = np.arange(1000.0)
    ds = stead.open(pyarrow.table({"x": pyarrow.array(values)}))
    assert ds.run("sum:x")["sum:x"] == values.sum()
    # Arrow looks at the array where it lies, and so do we.
    values[7] += 1000
    assert ds.run("sum:x")["sum:x"] == values.sum()


def test_masked_and_structured_arrays():
    masked = np.ma.array([1, 2, 3, 4], mask=[0, 1, 0, 0])
    assert stead.open(masked).run("sum:value", "count:value").results == {"sum:value": 8.0, "count:value": 3}
    assert stead.open({"m": masked}).run("count:m")["count:m"] == 3
    pairs = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
    assert stead.open(pairs).run("sum:a", "sum:b").results == {"sum:a": 4.0, "sum:b": 7.0}
    assert stead.open(np.array([1.0, np.nan]), nan="missing").run("mean:value")["mean:value"] == 1.0


def test_elements_may_look_like_something_else():
    for magic in [b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"\x93NUMPY\x01\x00"]:
        a = np.frombuffer(magic * 3, dtype="u1")
        assert stead.open(a).run("sum:value")["sum:value"] == a.sum()


def test_anything_that_becomes_an_array():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return np.arange(4.0)

    class Frame:
        columns = ["a", "b"]

        def __getitem__(self, key):
            return np.arange(3) + self.columns.index(key)

    assert stead.open(Wrapped()).run("sum:value")["sum:value"] == 6.0
    assert stead.open(Frame()).run("sum:a", "sum:b").results == {"sum:a": 3.0, "sum:b": 6.0}


def test_bytes_are_what_a_file_would_hold(tmp_path):
    text = b"x;y\n1;a\n2;b\n"
    for source in [text, bytearray(text), memoryview(text)]:
        ds = stead.open(source, delimiter=";", name="small.csv")
        assert ds.columns == ["x", "y"] and ds.files == ["small.csv"]
        assert ds.run("sum:x", by="y")["sum:x"] == {"a": 1.0, "b": 2.0}
    assert stead.open(text, type="lines").run("lines")["lines"] == 3
    np.save(tmp_path / "a.npy", np.arange(5))
    assert stead.open((tmp_path / "a.npy").read_bytes()).run("sum:value")["sum:value"] == 10.0
    raw = stead.open(np.arange(6, dtype=">i2").tobytes(), type="raw", dtype=">i2", shape=(3, 2), byte_order="big")
    assert sums(raw) == [6.0, 9.0]
    with pytest.raises(stead.DataError) as bad:
        stead.open(b"x\n1\nabc\n", name="bad.csv", column_types={"x": "number"}).run("sum:x")
    assert bad.value.path == "bad.csv" and bad.value.line == 3 and bad.value.column == "x"


@pytest.mark.parametrize(
    "source, options, error",
    [
        (np.zeros(3, dtype="c16"), {}, TypeError),
        (np.zeros(3, dtype="f2"), {}, TypeError),
        (np.array(["a"]), {}, TypeError),
        (np.array([object()]), {}, TypeError),
        (np.zeros((2, 2)), {"names": ["x"]}, stead.UsageError),
        (np.zeros((2, 2)), {"names": ["x", "x"]}, stead.UsageError),
        (np.zeros(3), {"delimiter": ","}, stead.UsageError),
        ({"x": np.zeros(3), "y": np.zeros(4)}, {}, stead.UsageError),
        ({"x": np.zeros((3, 2))}, {}, stead.UsageError),
        ({}, {}, stead.UsageError),
        (7, {}, TypeError),
        (None, {}, TypeError),
        (b"a\n", {"nan": "missing"}, stead.UsageError),
        (np.zeros(3), {"nan": "what"}, stead.UsageError),
        (b"a,b\n", {"quote": "ab"}, stead.UsageError),
        (b"a,b\n", {"header": "maybe"}, TypeError),
        (b"a,b\n", {"type": "xlsx"}, stead.UsageError),
        (b"a,b\n", {"skip": -1}, OverflowError),
    ],
)
def test_what_cannot_be_opened_is_an_error(source, options, error):
    with pytest.raises(error) as e:
        stead.open(source, **options)
    assert str(e.value)
