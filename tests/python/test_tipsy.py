"""Snapshots as arrays: every task its own particles."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import stead
from tipsy_files import SPECIES, galaxy, write


@pytest.mark.parametrize("order, length, pos, vel", [(">", 32, "f4", "f4"), ("<", 28, "f8", "f4"), (">", 28, "f8", "f8")])
def test_shares_make_the_whole(tmp_path, order, length, pos, vel):
    kept = write(tmp_path / "run.00001", galaxy(9000, 70_000, 3), order, length, pos, vel)
    with stead.Tipsy(tmp_path / "run.00001") as snapshot:
        assert snapshot.counts == {k: len(kept[k]) for k in SPECIES}
        assert (snapshot.time, snapshot.byte_order) == (0.25, "big" if order == ">" else "little")
        for k in SPECIES:
            assert snapshot.dtype(k) == kept[k].dtype
            for tasks in (1, 7, 300):
                with ThreadPoolExecutor(4) as pool:
                    parts = list(pool.map(lambda t: snapshot.load(k, t, tasks), range(tasks)))  # noqa: B023
                assert [len(p["mass"]) for p in parts] == [len(snapshot.part(k, t, tasks)) for t in range(tasks)]
                for name in SPECIES[k]:
                    whole = np.concatenate([p[name] for p in parts])
                    assert whole.dtype == kept[k][name].dtype.newbyteorder("=")
                    assert np.array_equal(whole, kept[k][name])


def test_some_columns_and_who_owns_them(tmp_path):
    kept = write(tmp_path / "s.std", galaxy(10, 20, 30))
    snapshot = stead.Tipsy(str(tmp_path / "s.std"), memory="1MiB")
    arrays = snapshot.load("star", 1, 3, ["tform", "x"])
    snapshot.close()
    snapshot.close()
    assert list(arrays) == ["x", "tform"]
    assert list(snapshot.part("star", 1, 3)) == list(range(10, 20))
    x = arrays.pop("x")
    assert np.array_equal(x, kept["star"]["x"][10:20]) and x.flags.writeable
    x += 1
    assert np.array_equal(x, kept["star"]["x"][10:20] + np.float32(1))
    with pytest.raises(stead.UsageError, match="closed"):
        snapshot.load("gas")
    # Arrays are tables.
    assert stead.open(stead.Tipsy(tmp_path / "s.std").load("gas")).run("max:rho")["max:rho"] == kept["gas"]["rho"].max()
    assert repr(snapshot) == "<stead.Tipsy: 10 gas, 20 dark, 30 star, time 0.25>"


def test_reads_that_do_not_wait(tmp_path):
    kept = write(tmp_path / "s.std", galaxy(900, 20_000, 3), ">", 32, "f8", "f4")

    async def piece(snapshot, species, i, pieces):
        view = await snapshot.read(species, i, pieces)
        return view.array(snapshot.dtype(species))

    async def pieces(snapshot, species, n):
        return np.concatenate(await asyncio.gather(*(piece(snapshot, species, i, n) for i in range(n))))

    for engine in ("auto", "pread"):
        with stead.Tipsy(tmp_path / "s.std", engine=engine) as snapshot:
            for species in SPECIES:
                assert np.array_equal(asyncio.run(pieces(snapshot, species, 1500)), kept[species])
            view = snapshot.read("gas", 1, 2, deadline=60).result()
        # What came stays.
        assert np.array_equal(np.frombuffer(view, kept["gas"].dtype), kept["gas"][450:])
        with pytest.raises(stead.UsageError, match="closed"):
            snapshot.read("gas")
        with pytest.raises(stead.UsageError, match="no task 2 of 2"):
            snapshot.read("gas", 2, 2)


def test_how_to_read_is_told_as_elsewhere(tmp_path):
    kept = write(tmp_path / "s.std", galaxy(5000, 20, 30))
    given = {"readers": 2, "block": "64KiB", "depth": 3, "memory": "4MiB", "deadline": 60.0, "engine": "pread"}
    with stead.Tipsy(tmp_path / "s.std", **given) as snapshot:
        said = snapshot.session.explain()
        assert said["readers"].startswith("2") and "64" in said["block"], said
        assert said["bytes"].startswith("blocks in memory") and snapshot.session.size == (tmp_path / "s.std").stat().st_size
        assert np.array_equal(snapshot.load("gas")["rho"], kept["gas"]["rho"])
        # What is read is what is asked for.
        assert snapshot.session.counts["bytes"] <= snapshot.session.size
        session = snapshot.session
    assert session.closed
    with stead.Tipsy(tmp_path / "s.std", direct=True) as snapshot:
        assert np.array_equal(snapshot.load("star")["tform"], kept["star"]["tform"])
    os.utime(tmp_path / "s.std", (1.7e9, 1.7e9))  # what was changed a moment ago is shared with nobody
    with stead.Tipsy(tmp_path / "s.std", engine="pread", share=False) as snapshot:
        assert snapshot.session.explain()["shared"].endswith("as asked for")
    with pytest.raises(TypeError, match="no option 'reader'"):
        stead.Tipsy(tmp_path / "s.std", reader=3)
    for wrong in {"block": -1}, {"engine": "steam"}, {"memory": 0}, {"readers": 0}:
        with pytest.raises(stead.UsageError):
            stead.Tipsy(tmp_path / "s.std", **wrong)
    with pytest.raises(ValueError):
        stead.Tipsy(tmp_path / "s.std", deadline=float("nan"))
    with pytest.raises(TypeError, match="mpi4py"):
        stead.Tipsy(tmp_path / "s.std", comm=5)


def test_what_is_wrong_is_said(tmp_path):
    write(tmp_path / "s.std", galaxy(10, 20, 30))
    snapshot = stead.Tipsy(tmp_path / "s.std")
    for wrong in [("gold",), ("gas", 3, 3), ("gas", 0, 0), ("gas", 0, 1, "eps")]:
        with pytest.raises(stead.UsageError):
            snapshot.load(*wrong)
    with pytest.raises(stead.NotFoundError):
        stead.Tipsy(tmp_path / "none")
    (tmp_path / "cut.std").write_bytes((tmp_path / "s.std").read_bytes()[:-1])
    with pytest.raises(stead.FormatError, match="truncated"):
        stead.Tipsy(tmp_path / "cut.std")
    # Changed while it was open; an exception on its way is the one that comes out.
    with pytest.raises(stead.ChangedError), stead.Tipsy(tmp_path / "s.std"):
        (tmp_path / "s.std").write_bytes(b"")
    with pytest.raises(ZeroDivisionError), stead.Tipsy(write_again(tmp_path)):
        (tmp_path / "s.std").write_bytes(b"")
        1 / 0


def write_again(tmp_path):
    write(tmp_path / "s.std", galaxy(10, 20, 30))
    return tmp_path / "s.std"


def test_kernels_on_species(tmp_path, cli):
    kept = write(tmp_path / "s.std", galaxy(1000, 2000, 300))
    ds = stead.open(str(tmp_path / "s.std"))
    assert (ds.format, len(ds.columns)) == ("tipsy", 47)
    dark = stead.open(str(tmp_path / "s.std"), species="dark")
    r = dark.run(stead.rows(), stead.mean("vx"))
    assert r["rows"] == 2000
    assert r["mean:vx"] == cli.result("s.std", "mean:dark.vx")
    assert np.isclose(r["mean:vx"], kept["dark"]["vx"].astype("f8").mean())
