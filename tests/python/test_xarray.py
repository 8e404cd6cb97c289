"""Data sets of xarray and zarr by their `stead://` names, in folders and in buckets."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pytest
import stead

xr = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")
V3 = int(zarr.__version__.split(".")[0]) >= 3
FORMATS = [2, 3] if V3 else [2]


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("STEAD_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def store():
    pytest.importorskip("moto")
    from stores import Store

    one = Store()
    yield one
    one.end()


class Place:
    """A dataspace `fast`: a folder, or what lies below a prefix of a bucket."""

    def __init__(self, options: dict, folder: Path | None, objects):
        self.options, self.folder, self.objects = options, folder, objects
        self.fs = stead.FileSystem(**options)

    def keys(self, below: str) -> list[str]:
        """All files there, as the system or the store says it."""
        if self.folder is None:
            return sorted(self.objects(below))
        return sorted(str(p.relative_to(self.folder / below)) for p in (self.folder / below).rglob("*") if p.is_file())


@pytest.fixture(params=["folder", "bucket"])
def place(request, tmp_path, monkeypatch):
    if request.param == "folder":
        (tmp_path / "fast").mkdir()
        yield Place({"dataspaces": {"fast": str(tmp_path / "fast")}, "durable": False}, tmp_path / "fast", None)
        return
    store = request.getfixturevalue("store")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in store.env.items():
        monkeypatch.setenv(name, value)
    store.anew("bkt")
    options = {"dataspaces": {"fast": "s3://bkt/below"}}
    yield Place(options, None, lambda below: store.objects("bkt", f"below/{below}/"))


def weather(days: int = 12) -> xr.Dataset:
    r = np.random.default_rng(4)
    time = pd.date_range("2026-01-01", periods=days)
    t = r.normal(280, 9, size=(days, 20, 30)).astype("f4")
    t[3, 2:9, 5] = np.nan
    return xr.Dataset(
        {"t": (("time", "y", "x"), t, {"units": "K"}), "station": (("y",), [f"n{i:02}" for i in range(20)])},
        coords={"time": time, "y": np.arange(20.0), "x": np.linspace(0, 1, 30)},
        attrs={"title": "weather"},
    )


def bring(place: Place, data: xr.Dataset, name: str, engine: str, folder: Path) -> None:
    """NetCDF is written anywhere in a file, which is what a path is for; then it is brought to its place."""
    data.to_netcdf(folder / "own.nc", engine=engine)
    place.fs.put(str(folder / "own.nc"), name)


def version(number: int) -> dict:
    return {"zarr_format": number} if V3 else {"zarr_version": number}


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("consolidated", [True, False])
def test_zarr_is_written_and_read(place, number, consolidated):
    data = weather()
    name = "stead://fast/run 1/a.zarr"
    data.to_zarr(name, storage_options=place.options, consolidated=consolidated, encoding={"t": {"chunks": (5, 7, 30)}}, **version(number))
    xr.testing.assert_identical(xr.open_zarr(name, storage_options=place.options, consolidated=consolidated).load(), data)
    xr.testing.assert_identical(xr.open_dataset(name, engine="zarr", storage_options=place.options).load(), data)
    keys = place.keys("run 1/a.zarr")
    assert sum(key.startswith("t/") for key in keys) >= 9 and not any(".stead" in key for key in keys)
    assert ("zarr.json" if number == 3 else ".zgroup") in keys and (".zmetadata" in keys) == (consolidated and number == 2)
    if place.folder:
        # As a folder that others read by its path.
        xr.testing.assert_identical(xr.open_zarr(place.folder / "run 1" / "a.zarr", consolidated=consolidated).load(), data)
    # Again, in its place: what it had and has no more is gone.
    smaller = data.drop_vars("station").isel(time=slice(4))
    smaller.to_zarr(name, mode="w", storage_options=place.options, consolidated=consolidated, **version(number))
    xr.testing.assert_identical(xr.open_zarr(name, storage_options=place.options, consolidated=consolidated).load(), smaller)
    assert not any(key.startswith("station/") for key in place.keys("run 1/a.zarr"))
    with pytest.raises(FileExistsError):
        smaller.to_zarr(name, mode="w-", storage_options=place.options, **version(number))


@pytest.mark.parametrize("number", FORMATS)
def test_zarr_grows_and_is_written_in_parts(place, number):
    data, name = weather(), "stead://fast/grows.zarr"
    data.isel(time=slice(6)).to_zarr(name, storage_options=place.options, encoding={"t": {"chunks": (3, 20, 30)}}, **version(number))
    data.isel(time=slice(6, None)).to_zarr(name, append_dim="time", storage_options=place.options)
    xr.testing.assert_equal(xr.open_zarr(name, storage_options=place.options).load(), data)
    other = (data[["t"]].isel(time=slice(3, 6)) * 2).drop_vars(["y", "x"])
    other.to_zarr(name, region={"time": slice(3, 6)}, storage_options=place.options)
    expected = data.t.copy()
    expected[3:6] *= 2
    xr.testing.assert_equal(xr.open_zarr(name, storage_options=place.options).t.load(), expected)


def test_data_of_dask(place):
    pytest.importorskip("dask.array")
    data = weather(40).chunk(time=4, y=10)
    name = "stead://fast/dask.zarr"
    later = data.to_zarr(name, storage_options=place.options, compute=False)
    later.compute(scheduler="threads", num_workers=4)
    back = xr.open_zarr(name, storage_options=place.options, chunks={})
    assert back.t.chunks == data.t.chunks
    with_dask = back.t.mean(("y", "x")).compute(scheduler="threads", num_workers=4)
    xr.testing.assert_allclose(with_dask, data.t.mean(("y", "x")).compute())
    xr.testing.assert_identical(back.load(), data.load())
    # Processes get the file system by its options.
    import dask

    with dask.config.set(scheduler="processes", num_workers=2):
        total = xr.open_zarr(name, storage_options=place.options, chunks={}).t.sum().compute()
    np.testing.assert_allclose(total, data.t.sum(), rtol=1e-6)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_netcdf_is_brought_and_read(place, engine, tmp_path):
    pytest.importorskip(engine)
    data = weather().drop_vars("station") if engine == "scipy" else weather()
    name = "stead://fast/nc/a.nc"
    bring(place, data, name, engine, tmp_path)
    with place.fs.open(name) as file:
        xr.testing.assert_identical(xr.open_dataset(file, engine=engine).load(), data)
    if engine == "h5netcdf":
        with xr.open_dataset(name, engine=engine, storage_options=place.options) as back:
            xr.testing.assert_identical(back.load(), data)
            # A part of it, of which only parts are read.
            xr.testing.assert_identical(back.t[2:4, 3].load(), data.t[2:4, 3])
        with xr.open_dataset(name, engine=engine, storage_options=place.options, chunks={"time": 5}) as back:
            xr.testing.assert_allclose(back.t.mean().compute(), data.t.mean())


def test_netcdf_of_several_files(place, tmp_path):
    pytest.importorskip("h5netcdf")
    data = weather()
    for i in range(3):
        bring(place, data.isel(time=slice(4 * i, 4 * i + 4)), f"stead://fast/many/{i}.nc", "h5netcdf", tmp_path)
    names = [f"stead://{name}" for name in place.fs.glob("fast/many/*.nc")]
    assert len(names) == 3
    with xr.open_mfdataset(names, engine="h5netcdf", backend_kwargs={"storage_options": place.options}, data_vars="minimal") as back:
        xr.testing.assert_equal(back.t.load(), data.t)
    files = fsspec.open_files("stead://fast/many/*.nc", **place.options)
    with files as opened, xr.open_mfdataset(opened, engine="h5netcdf", data_vars="minimal") as back:
        xr.testing.assert_equal(back.t.load(), data.t)


def test_what_is_in_memory_is_written_as_a_whole(place):
    pytest.importorskip("h5netcdf")
    if tuple(map(int, xr.__version__.split(".")[:2])) < (2026, 1):
        pytest.skip("this xarray makes no NetCDF 4 in memory")
    place.fs.pipe_file("fast/m.nc", weather().to_netcdf(engine="h5netcdf"))
    with xr.open_dataset("stead://fast/m.nc", engine="h5netcdf", storage_options=place.options) as back:
        xr.testing.assert_identical(back.load(), weather())


def test_netcdf4_reads_what_is_brought_to_a_file(place, tmp_path):
    """Libraries in C open paths: fsspec keeps a copy of what lies in a bucket; a folder has one."""
    pytest.importorskip("netCDF4")
    data = weather()
    bring(place, data, "stead://fast/a.nc", "netcdf4", tmp_path)
    path = fsspec.open_local("simplecache::stead://fast/a.nc", stead=place.options, simplecache={"cache_storage": str(tmp_path / "cache")})
    xr.testing.assert_identical(xr.open_dataset(path, engine="netcdf4").load(), data)


@pytest.mark.skipif(not V3, reason="zarr before 3 has stores of its own")
def test_zarr_by_itself(place):
    name = "stead://fast/g.zarr"
    group = zarr.open_group(name, mode="w", storage_options=place.options)
    values = np.arange(10_000.0).reshape(100, 100)
    array = group.create_array("deep/x", shape=(100, 100), chunks=(10, 50), dtype="f8", fill_value=0)
    array[:] = values
    shards = group.create_array("shards", shape=(100, 100), chunks=(10, 10), shards=(50, 50), dtype="f8")
    shards[:] = values
    group.attrs["who"] = "stead"
    back = zarr.open_group(name, mode="r", storage_options=place.options)
    assert sorted(back.members())[0][0] == "deep" and set(back.array_keys()) == {"shards"} and back.attrs["who"] == "stead"
    np.testing.assert_array_equal(back["deep/x"][:], values)
    # Of a shard only what is asked for is read, by its ends.
    np.testing.assert_array_equal(back["shards"][55:61, 5], values[55:61, 5])
    assert back["deep/x"].nchunks_initialized == 20
    # Chunks of nothing but the fill value go, and what goes is not there.
    array[:50] = 0
    assert sum("deep/x/c/" in key for key in place.keys("g.zarr")) == 10
    expected = values.copy()
    expected[:50] = 0
    np.testing.assert_array_equal(zarr.open_array(name, path="deep/x", mode="r", storage_options=place.options)[:], expected)
    del group["deep"]
    assert "deep" not in zarr.open_group(name, mode="r", storage_options=place.options)
    assert not any(key.startswith("deep") for key in place.keys("g.zarr"))
    with pytest.raises((FileNotFoundError, KeyError)):
        zarr.open_group("stead://fast/none.zarr", mode="r", storage_options=place.options)
    zarr.consolidate_metadata(group.store)
    assert zarr.open_consolidated(name, storage_options=place.options)["shards"].shape == (100, 100)


def test_a_mapper_is_a_store_of_bytes(place):
    mapper = fsspec.get_mapper("stead://fast/map", **place.options)
    assert list(mapper) == [] and "a" not in mapper and len(mapper) == 0
    with pytest.raises(KeyError):
        mapper["a"]
    mapper["a"] = b"one"
    mapper.setitems({"b/c": b"two", "b/d": b"three"})
    assert sorted(mapper) == place.keys("map") == ["a", "b/c", "b/d"] and len(mapper) == 3
    assert mapper["b/c"] == b"two" and mapper.get("none") is None
    assert mapper.getitems(["a", "b/d"]) == {"a": b"one", "b/d": b"three"}
    assert mapper.getitems(["a", "none"], on_error="omit") == {"a": b"one"}
    assert isinstance(mapper.getitems(["a", "none"], on_error="return")["none"], KeyError | FileNotFoundError)
    del mapper["a"]
    mapper.delitems(["b/c"])
    assert place.keys("map") == ["b/d"] and mapper.pop("b/d") == b"three"
    assert dict(mapper) == {}


def test_a_chunk_is_there_as_a_whole_or_not_at_all(place):
    """Who ends in the middle of it leaves what was there."""
    place.fs.pipe_file("fast/c.zarr/c/0", b"old" * 1000)
    with pytest.raises(RuntimeError), place.fs.open("fast/c.zarr/c/0", "wb") as file:
        file.write(b"new")
        raise RuntimeError("in the middle")
    assert place.fs.cat_file("fast/c.zarr/c/0") == b"old" * 1000 and place.keys("c.zarr") == ["c/0"]


def test_references_to_parts_of_files(place):
    """As kerchunk makes them: chunks of a zarr store are parts of other files."""
    values = np.arange(600, dtype="<f4")
    place.fs.pipe_file("fast/raw/a.bin", b"head" + values.tobytes())
    meta = '{"chunks": [200], "compressor": null, "dtype": "<f4", "fill_value": null, "filters": null, "order": "C", "shape": [600], "zarr_format": 2}'
    refs = {".zgroup": '{"zarr_format": 2}', "v/.zarray": meta, "v/.zattrs": '{"_ARRAY_DIMENSIONS": ["i"]}'}
    refs |= {f"v/{i}": ["stead://fast/raw/a.bin", 4 + 800 * i, 800] for i in range(3)}
    options = {"fo": {"version": 1, "refs": refs}, "remote_protocol": "stead", "remote_options": place.options}
    back = xr.open_dataset("reference://", engine="zarr", backend_kwargs={"consolidated": False, "storage_options": options})
    np.testing.assert_array_equal(back.v.load(), values)
