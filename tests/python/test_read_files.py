"""File-like objects over read sessions: what reads files reads from them."""

from __future__ import annotations

import io
import tarfile
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import stead
from hypothesis import given, settings
from hypothesis import strategies as st

SIZE = 500_009


@pytest.fixture(scope="module")
def data() -> bytes:
    return np.random.default_rng(7).bytes(SIZE)


@pytest.fixture(scope="module")
def path(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("read") / "data.bin"
    path.write_bytes(data)
    return path


STEPS = st.one_of(
    st.tuples(st.just("read"), st.integers(-1, 3000)),
    st.tuples(st.just("readinto"), st.integers(0, 3000)),
    st.tuples(st.just("seek"), st.integers(0, SIZE + 100), st.just(0)),
    st.tuples(st.just("seek"), st.integers(-2000, 2000), st.just(1)),
    st.tuples(st.just("seek"), st.integers(-SIZE, 100), st.just(2)),
    st.tuples(st.just("readline")),
)


def outcome(file, name, *arguments):
    """What a call gives, or the sort of error, and where the file is afterwards."""
    try:
        if name == "readinto":
            buffer = bytearray(b"." * arguments[0])
            return file.readinto(buffer), bytes(buffer), file.tell()
        return getattr(file, name)(*arguments), file.tell()
    except (ValueError, OSError):
        return "error", file.tell()


@pytest.mark.parametrize("options", [{}, {"engine": "pread", "block": 4096, "memory": 65536}], ids=["mapped", "blocks"])
@pytest.mark.parametrize("buffered", [False, True])
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=30))
def test_as_the_files_of_python(path, options, buffered, steps):
    with stead.open_reader(path, **options) as raw, open(path, "rb", buffering=0) as plain:
        ours = io.BufferedReader(raw, 512) if buffered else raw
        theirs = io.BufferedReader(plain, 512) if buffered else plain
        for step in steps:
            assert outcome(ours, *step) == outcome(theirs, *step), step


def test_a_reader_is_a_raw_file(path, data):
    with stead.open_reader(path) as f:
        assert isinstance(f, io.RawIOBase) and f.readable() and f.seekable() and not f.writable()
        assert (f.name, f.mode, f.size(), f.tell(), f.isatty()) == (str(path), "rb", SIZE, 0, False)
        assert f.readall() == data and f.read() == f.read(5) == b"" and f.readinto(bytearray(3)) == 0
        for bad in (lambda: f.write(b"x"), lambda: f.truncate(1), f.fileno):
            with pytest.raises(io.UnsupportedOperation):
                bad()
        with pytest.raises(ValueError):
            f.seek(0, 3)
        with pytest.raises(stead.UsageError):
            f.seek(-1)
        assert f.seek(SIZE + 5) == SIZE + 5 and f.read() == b"" and f.seek(-5, 2) == SIZE - 5
    assert f.closed and f.session.closed
    for bad in (f.tell, f.read, lambda: f.seek(0), lambda: f.readinto(bytearray(1))):
        with pytest.raises(ValueError, match="closed"):
            bad()


def test_positions_are_those_of_the_file(path, data):
    with stead.read_session(path, 1000, 3000) as s:
        f, other = s.reader(), s.reader()
        assert f.tell() == 1000 and f.read(10) == data[1000:1010] and other.tell() == 1000
        assert f.seek(2995) == 2995 and f.read() == data[2995:3000] and f.seek(0, 2) == f.size() == 3000
        with pytest.raises(stead.UsageError):
            f.seek(999)
        f.close()
        assert not s.closed and other.read(1) == data[1000:1001]
    with stead.open_reader(path, 1000, 3000, readers=2) as f:
        assert f.read() == data[1000:3000]


def test_lines(flights):
    with stead.open_reader(flights) as raw, open(flights, encoding="utf-8") as plain:
        ours = io.TextIOWrapper(io.BufferedReader(raw, 1 << 20), encoding="utf-8")
        assert sum(a == b for a, b in zip(ours, plain, strict=True)) == 336_777


def test_numpy(tmp_path):
    arrays = {"a": np.arange(30_000.0).reshape(100, 300), "b": np.array([1, 2, 3], np.int16)}
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez_compressed(tmp_path / "c.npz", **arrays)
    np.save(tmp_path / "a.npy", arrays["a"])
    with stead.open_reader(tmp_path / "a.npy") as f:
        assert (np.load(f) == arrays["a"]).all() and f.tell() == f.size()
    for name in ("a.npz", "c.npz"):
        with stead.open_reader(tmp_path / name) as f, np.load(f) as found:
            assert all((found[k] == v).all() for k, v in arrays.items())
    np.savetxt(tmp_path / "a.txt", arrays["a"][:10])
    with stead.open_reader(tmp_path / "a.txt") as f:
        assert (np.loadtxt(f) == arrays["a"][:10]).all()


def test_pandas(flights, frame):
    import pandas as pd

    with stead.open_reader(flights) as f:
        pd.testing.assert_frame_equal(pd.read_csv(f), frame)


def test_h5py(tmp_path):
    values = np.random.default_rng(0).normal(size=(2000, 30))
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["plain"] = values
        f.create_dataset("chunked", data=values, chunks=(100, 30), compression="gzip")
        f["plain"].attrs["unit"] = "m"
    with stead.open_reader(tmp_path / "a.h5") as raw, h5py.File(raw, "r") as f:
        assert (f["plain"][:] == values).all() and (f["chunked"][100:300, 3] == values[100:300, 3]).all()
        assert f["plain"].attrs["unit"] == "m"


def test_pyarrow(tmp_path):
    table = pa.table({"x": np.arange(100_000), "y": np.random.default_rng(0).normal(size=100_000)})
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=10_000)
    with stead.open_reader(tmp_path / "t.parquet") as f:
        assert pa.parquet.read_table(f).equals(table)
    with stead.open_reader(tmp_path / "t.parquet") as f:
        file = pa.PythonFile(f, mode="r")
        assert pa.parquet.ParquetFile(file).read_row_group(3, ["x"])["x"].to_pylist() == list(range(30_000, 40_000))
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    with stead.open_reader(tmp_path / "t.arrow") as f, pa.ipc.open_file(f) as found:
        assert found.read_all().equals(table)
    # A view is a buffer of Arrow without a copy.
    with stead.read_session(tmp_path / "t.arrow") as s:
        view = s.pread(0, s.size)
        buffer = pa.py_buffer(view)
        assert buffer.address == np.asarray(view).ctypes.data
        assert pa.ipc.open_file(buffer).read_all().equals(table)


def test_archives(tmp_path, path, data):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.write(path, "data.bin")
    with stead.open_reader(tmp_path / "a.zip") as f, zipfile.ZipFile(f) as z:
        assert z.testzip() is None and z.read("data.bin") == data
    for kind in ("", "gz", "xz"):
        with tarfile.open(tmp_path / "a.tar", f"w:{kind}") as t:
            t.add(path, "data.bin")
        with stead.open_reader(tmp_path / "a.tar") as f, tarfile.open(fileobj=f) as t:
            assert t.extractfile("data.bin").read() == data


def test_a_file_that_becomes_shorter(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(bytes(1_000_000))
    f = stead.open_reader(path, ahead=False)
    assert f.read(10) == bytes(10)
    with open(path, "r+b") as w:
        w.truncate(100)
    f.seek(900_000)
    with pytest.raises(stead.ChangedError):
        f.read(10)
    with pytest.raises(OSError):
        f.readinto(bytearray(10))
    with pytest.raises(stead.ChangedError):
        f.close()
    assert f.closed
