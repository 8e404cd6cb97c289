"""Steps as asyncio and xarray have them."""

from __future__ import annotations

import asyncio
import itertools
import sys

import numpy as np
import pytest
import stead
from test_streams import PATIENCE, grid, space

__all__ = ["space"]


# --- asyncio --------------------------------------------------------------------------------------------------------------------------


def test_tasks_of_asyncio_wait_for_steps_while_others_go_on(space):
    async def work() -> tuple[list[float], int]:
        turns, over = 0, False

        async def turn() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0.01)

        other = asyncio.create_task(turn())
        w = stead.writer("sim", readers=1, dataspaces=space)

        async def steps() -> None:
            for n in range(5):
                # The reader waits for this step meanwhile.
                before = turns
                while turns < before + 2:
                    await asyncio.sleep(0.01)
                with w.step():
                    w.put("T", grid(n))
            w.close()

        r = stead.reader("sim", timeout=PATIENCE, dataspaces=space)
        writes = asyncio.create_task(steps())
        sums = [float(step["T"].sum()) async for step in r]
        over = True
        await asyncio.gather(writes, other)
        r.close()
        return sums, turns

    sums, turns = asyncio.run(work())
    assert sums == [grid(n).sum() for n in range(5)]
    assert turns >= 10


def test_no_step_is_lost_when_a_task_is_cancelled(space):
    async def work() -> list[int]:
        had = []
        with stead.writer("sim", queue=50, dataspaces=space) as w, stead.reader("sim", dataspaces=space) as r:
            done = False

            async def read() -> None:
                async for step in r:
                    had.append(step.number)

            async def write() -> None:
                nonlocal done
                for n in range(50):
                    with w.step():
                        w.put("T", grid(n))
                    await asyncio.sleep(0.003)
                done = True

            writes = asyncio.create_task(write())
            for n in itertools.count():
                task = asyncio.create_task(read())
                await asyncio.sleep(0.001 * (n % 7))
                if done and len(had) == 50:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    break
                task.cancel()
                assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
            await writes
            # It was waiting, and what comes now is had by the next who asks.
            with w.step():
                w.put("T", grid(50))
            had.append(r.next().number)
        return had

    assert asyncio.run(asyncio.wait_for(work(), PATIENCE)) == list(range(51))


def test_failures_are_raised_in_tasks(space):
    async def work() -> None:
        w = stead.writer("sim", dataspaces=space)
        with stead.reader("sim", timeout=0.2, dataspaces=space) as r:
            with pytest.raises(stead.TimedOutError):
                await anext(r)
        with stead.reader("sim", timeout=PATIENCE, dataspaces=space) as r:
            waits = asyncio.create_task(anext(r))
            await asyncio.sleep(0.05)
            w.abandon()
            with pytest.raises(stead.PeerError):
                await waits
        with pytest.raises(stead.UsageError, match="closed"):
            await anext(r)

    asyncio.run(work())


# --- xarray --------------------------------------------------------------------------------------------------------------------------


def test_steps_are_data_sets_of_xarray(space):
    xr = pytest.importorskip("xarray")
    with stead.writer("sim", keep=3, dataspaces=space) as w:
        for n in range(3):
            with w.step():
                for rows in (0, 3, 6):
                    part = grid(n, (rows, 0), (3, 8))
                    w.put("T", part, shape=(9, 8), start=(rows, 0), dims=("y", "x"), units="K", attributes={"long_name": "temperature"})
                w.put("y", np.arange(9) * 0.5, dims="y", units="m")
                w.put("t", 0.25 * n)
                w.put("U", np.arange(12).reshape(3, 4))
                w.put("V", np.arange(12).reshape(4, 3))
    kept = []
    with stead.open_stream("sim", dataspaces=space) as all_of_it:
        for n, ds in enumerate(all_of_it):
            assert isinstance(ds, xr.Dataset) and ds.attrs == {"step": n}
            t = ds["T"]
            assert t.dims == ("y", "x") and t.attrs == {"long_name": "temperature", "units": "K"} and t.dtype == np.float64
            assert not t.variable._in_memory
            whole = grid(n)
            assert (ds["y"].values == np.arange(9) * 0.5).all() and "y" in ds.coords
            assert (t.sel(y=slice(1.0, 3.0))[:, ::-3].values == whole[2:7, ::-3]).all()
            assert (t.isel(y=[5, 1, 1], x=-1).values == whole[[5, 1, 1], -1]).all()
            assert (t.isel(y=xr.DataArray([5, 1], dims="z"), x=xr.DataArray([0, 2], dims="z")).values == whole[[5, 1], [0, 2]]).all()
            assert float(ds["t"]) == 0.25 * n and ds["U"].shape == (3, 4) and ds["V"].shape == (4, 3)
            assert t.mean().item() == whole.mean()
            # Where it lies in one block it is that memory.
            row = t.isel(y=4).values
            assert not row.flags.owndata and not row.flags.writeable
            kept.append(ds)
    together = xr.concat([ds[["T"]] for ds in kept], "step")
    assert together["T"].shape == (3, 9, 8) and (together["T"][2].values == grid(2)).all()
    del kept, ds, t, row, together


def test_data_sets_of_steps_that_stay_are_had_again(space):
    """And those that are dropped keep no step, also before garbage is collected."""
    pytest.importorskip("xarray")
    with stead.writer("sim", keep=3, dataspaces=space) as w, stead.open_stream("sim", dataspaces=space) as steps:
        for n in range(9):
            with w.step():
                w.put("T", grid(n), dims=("y", "x"))
            assert next(steps).attrs == {"step": n}
        for n in (8, 6, 7):
            ds = steps.at(n)
            assert ds.attrs == {"step": n} and ds["T"].dims == ("y", "x") and (ds["T"].values == grid(n)).all()
        with pytest.raises(stead.NotFoundError):
            steps.at(0)
        with pytest.raises(stead.NotFoundError):
            steps.at(9)


def test_tasks_of_asyncio_wait_for_data_sets_while_others_go_on(space):
    pytest.importorskip("xarray")

    async def work() -> tuple[list[tuple[int, float]], int]:
        turns, over, had = 0, False, []

        async def turn() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0.01)

        other = asyncio.create_task(turn())
        w = stead.writer("sim", readers=1, dataspaces=space)

        async def write() -> None:
            for n in range(4):
                before = turns
                while turns < before + 2:
                    await asyncio.sleep(0.01)
                with w.step():
                    w.put("T", grid(n), dims=("y", "x"))
            w.close()

        with stead.open_stream("sim", timeout=PATIENCE, dataspaces=space) as steps:
            writes = asyncio.create_task(write())
            async for ds in steps:
                had.append((ds.attrs["step"], float(ds["T"].sum())))
        over = True
        await asyncio.gather(writes, other)
        return had, turns

    had, turns = asyncio.run(asyncio.wait_for(work(), PATIENCE))
    assert had == [(n, grid(n).sum()) for n in range(4)] and turns >= 8


def test_without_xarray_it_is_said_what_is_missing(space, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match="stead.open_stream needs the package xarray"):
        stead.open_stream("sim", dataspaces=space)
