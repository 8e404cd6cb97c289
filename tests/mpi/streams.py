"""Ranks of one job that hand arrays to each other, whatever nodes they are on: the first so many write, the others read.

    streams.py BASE WRITERS [HOW]

Nodes have a memory each below the folder BASE, as those of a lab are one machine, and a folder each for files if readers are `late`.
Prints `right` and the steps that were had, for each rank.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import stead
from mpi4py import MPI

SHAPE = (600, 800)
STEPS = 6


def values(step: int, rows: slice, columns: slice) -> np.ndarray:
    y, x = np.mgrid[rows, columns]
    return step * 1e6 + y * 1000.0 + x


def share(n: int, rank: int, ranks: int) -> slice:
    return slice(n * rank // ranks, n * (rank + 1) // ranks)


def write(part: stead.Coupling, how: str, files: Path, memory: Path) -> None:
    rows = share(SHAPE[0], part.rank, part.size)
    late = how == "late"
    with stead.writer("T", comm=part, readers=0 if late else 1, persist=files if late else None, timeout=60) as w:
        for n in range(STEPS):
            if how in ("killed", "writer dies") and n == 3:
                # All have ended step 2, and nobody ends another one.
                part.comm.Barrier()
                if how == "writer dies" and part.rank == part.size - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == "killed" and part.rank == part.size - 1:
                    raise ValueError("as it is told to")
                hear_of_it(memory)
            with w.step():
                block = w.empty("T", SHAPE, start=(rows.start, 0), count=(rows.stop - rows.start, SHAPE[1]), dims=("y", "x"), units="K")
                block[:] = values(n, rows, slice(0, SHAPE[1]))
                w.put("T", block)
    if not how.endswith("dies"):
        # Its own messages and those of streams do not meet.
        assert part.comm.allreduce(1) == part.size


def hear_of_it(memory: Path) -> None:
    """Waits until this node knows that a writer has failed. A stream that has failed goes with its last reader."""
    until = time.monotonic() + 60
    with contextlib.suppress(stead.NotFoundError):
        while stead.stream_info("T", dataspaces={"memory": memory})["state"] == "live":
            assert time.monotonic() < until, "nobody was told"
            time.sleep(0.01)


def read(part: stead.Coupling, how: str) -> list[int]:
    columns, had = share(SHAPE[1], part.rank, part.size), []
    for step in stead.reader("T", comm=part, start="first" if how == "late" else "oldest", timeout=60):
        got = step.get("T", np.s_[:, columns])
        assert np.array_equal(got, values(step.number, slice(0, SHAPE[0]), columns)), step.number
        told = step.variable("T")
        assert (tuple(told.dims), told.units) == (("y", "x"), "K")
        had.append(step.number)
        if how == "reader dies" and part.rank == part.size - 1 and step.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return had


def wait_for_others(base: Path, ranks: int) -> None:
    """Until so many are through, of those that live: a file says so of each."""
    (base / "through").mkdir(exist_ok=True)
    (base / "through" / str(os.getpid())).mkdir()
    until = time.monotonic() + 60
    while len(os.listdir(base / "through")) < ranks and time.monotonic() < until:
        time.sleep(0.01)


def say(line: str) -> None:
    """Whole, whatever others say at the same time."""
    os.write(1, f"{line}\n".encode())


def main() -> None:
    base, writers, how = Path(sys.argv[1]), int(sys.argv[2]), (sys.argv[3:] or ["well"])[0]
    world = MPI.COMM_WORLD
    node = world.Split_type(MPI.COMM_TYPE_SHARED).allreduce(world.rank, MPI.MIN)
    folder = base / str(node)
    folder.mkdir(parents=True, exist_ok=True)
    name = "sim" if world.rank < writers else "ana"
    with stead.couple(world, name, dataspaces={"memory": folder}) as part:
        for end in (stead.writer, stead.reader):
            try:
                end("T", comm=part, dataspaces={"memory": folder})
            except stead.UsageError as e:
                assert "those of the coupling" in str(e), e
            else:
                raise AssertionError("two memories")
        assert part.parts == {"sim": list(range(writers)), "ana": list(range(writers, world.size))}
        try:
            if name == "sim":
                had = write(part, how, base / f"files{node}", folder)
            if how == "late":
                # All steps but the last one have gone from memory by then.
                world.Barrier()
            if name == "ana":
                had = read(part, how)
            say(f"right {world.rank} on {node}: {had}")
        except (stead.PeerError, ValueError) as e:
            say(f"told {world.rank}: {str(e).splitlines()[0]}")
        if how.endswith("dies"):
            # Others may still read; MPI does not end without all of its ranks.
            wait_for_others(base, world.size - 1)
            os._exit(0)
    if how != "well":
        # Nobody ends MPI before all have been told.
        world.Barrier()


main()
