"""Programs of jobs that Slurm has begun by themselves: the tasks of a job are the ranks of a program.

    scheduled.py write STEPS BY [WORD=VALUE]...   writes so many steps, each rank its rows, and says which readers have gone
    scheduled.py read STEPS BY [WORD=VALUE]...    reads them, each rank its columns, and says which it had, and of what error it was told

BY is how they know each other: `tasks` by what Slurm tells, `ranks` by MPI, `part` by MPI on several nodes. Each says `begun` at first,
then `with MPI` and `coupled` where it is so. In step `at` each says `half` and goes on when there is a file `go`: who writes has not ended
the step then. Who writes waits with `gone=N` until it has been told of so many readers that are gone. Any other word is for who writes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import stead
from pooled import SHAPE, values

TIMEOUT = 60


def say(line: object) -> None:
    """Whole, whatever others say at the same time."""
    os.write(1, f"{line}\n".encode())


def pause(go: str) -> None:
    say("half")
    until = time.monotonic() + TIMEOUT
    while not Path(go).exists():
        assert time.monotonic() < until, "nobody has said that it goes on"
        time.sleep(0.01)


@contextlib.contextmanager
def ranks(by: str, who: str) -> Iterator[tuple[int, int, dict]]:
    """Which rank of how many this is, and what a stream is told of that."""
    if by == "tasks":
        rank, n = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
        yield rank, n, {"rank": rank, "writers" if who == "write" else "ranks": n}
        return
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    say("with MPI")
    if by == "ranks":
        yield comm.rank, comm.size, {"comm": comm}
    else:
        # No longer than others wait for what it writes.
        with stead.couple(comm, "simulation", timeout=TIMEOUT) as part:
            say("coupled")
            yield comm.rank, comm.size, {"comm": part}


def share(length: int, rank: int, n: int) -> slice:
    return slice(length * rank // n, length * (rank + 1) // n)


def write(steps: int, rank: int, n: int, how: dict, at: int = -1, go: str = "", gone: int = 0, **words: int) -> None:
    rows = share(SHAPE[0], rank, n)
    told: dict[int, str] = {}
    with stead.writer("T", timeout=TIMEOUT, **how, **words) as w:
        for number in range(steps):
            with w.step():
                w.put("T", values(number)[rows], shape=SHAPE, start=(rows.start, 0), dims=("y", "x"))
                if number == at:
                    pause(go)
        until = time.monotonic() + TIMEOUT
        while rank == 0 and len(told) < gone:
            told |= {event["rank"]: event["presence"] for event in w.events() if event["presence"] != "here"}
            assert time.monotonic() < until, f"only of {told}"
            time.sleep(0.01)
    say(f"written {steps} {sorted(told.items())}")


def read(steps: int, rank: int, n: int, how: dict, at: int = -1, go: str = "") -> None:
    columns = share(SHAPE[1], rank, n)
    had = []
    try:
        for step in stead.reader("T", timeout=TIMEOUT, **how):
            assert np.array_equal(step.get("T", np.s_[:, columns]), values(step.number)[:, columns]), step.number
            had.append(step.number)
            if step.number == at:
                pause(go)
    except stead.PeerError as e:
        say(f"told: {str(e).splitlines()[0]}")
    assert had == list(range(steps)), had
    say(f"read {steps}")


def main() -> None:
    who, steps, by, *given = sys.argv[1:]
    words = {name: int(value) if value.isdigit() else value for name, value in (word.split("=") for word in given)}
    say("begun")
    with ranks(by, who) as (rank, n, how):
        {"write": write, "read": read}[who](int(steps), rank, n, how, **words)


main()
