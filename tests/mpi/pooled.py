"""Programs that were begun by themselves on nodes whose daemons are a pool.

    pooled.py write MEMORY STEPS [N] writes so many steps, N milliseconds apart; without readers it waits for one
    pooled.py read MEMORY STEPS [N]  reads so many, and says `begun` when it has the first one; opens the stream anew if the node does not answer,
                                     and reads on until that has happened N times
    pooled.py persist MEMORY STEPS FILES    writes and records so many steps in a folder that is known to nobody else, and waits for nobody
    pooled.py spill MEMORY STEPS FILES      the same with memory for a few, and a reader that it waits for
    pooled.py together MEMORY STEPS         writes so many as the ranks of a job of MPI, each its rows, and waits for a reader
    pooled.py first MEMORY STEPS RANK RANKS reads them, as a rank of a group, from the first one on
    pooled.py behind MEMORY STEPS           reads them, and is not waited for

The daemon of the node is that of $STEAD_SOCKET, and MEMORY may have variables of the environment in it. A reader prints the steps that it had, all of which are as they were written. Those who
record say `half` when they have written half of the steps, `done` when they have written all, and go on with a line of input; so does who is behind
when it has said that it has begun.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import stead

SHAPE = (300, 500)


def values(step: int) -> np.ndarray:
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return step * 1e6 + y * 1000.0 + x


def write(memory: str, steps: int, apart: int = 0) -> None:
    with stead.writer("pooled", readers=1, timeout=60, dataspaces={"memory": memory}) as w:
        for n in range(steps):
            with w.step():
                w.put("T", values(n), dims=("y", "x"))
            time.sleep(apart / 1000)


def read(memory: str, steps: int, times: int = 0) -> None:
    had: list[int] = []
    again = 0
    while len(had) < steps or again < times:
        try:
            for step in stead.reader("pooled", timeout=60, dataspaces={"memory": memory}):
                assert np.array_equal(step.get("T", np.s_[10:200, 7:]), values(step.number)[10:200, 7:]), step.number
                if not had:
                    print("begun", flush=True)
                if step.number not in had:
                    had.append(step.number)
                if len(had) >= steps and again >= times:
                    break
            else:
                break
        except stead.PeerError as e:
            assert "node 'n0'" in str(e), e
            again += 1
    print(had, again, flush=True)


def pause(said: str) -> None:
    print(said, flush=True)
    assert sys.stdin.readline() == "go on\n"


def record(at: str, steps: int, files: str, **how) -> None:
    with stead.writer("pooled", timeout=60, dataspaces={"memory": at, "files": files}, **how) as w:
        for n in range(steps):
            with w.step():
                w.put("T", values(n), dims=("y", "x"))
            if n == steps // 2:
                pause("half")
        pause("done")


def persist(memory: str, steps: int, files: str) -> None:
    record(memory, steps, files, persist="files://run")


def spill(memory: str, steps: int, files: str) -> None:
    # Each step is of 1.2 MB.
    record(memory, steps, files, spill="files://run", readers=1, queue=1, memory=6 << 20)


def together(memory: str, steps: int) -> None:
    from mpi4py import MPI

    with stead.couple(MPI.COMM_WORLD, "simulation", dataspaces={"memory": memory}) as part:
        rows = slice(SHAPE[0] * part.rank // part.size, SHAPE[0] * (part.rank + 1) // part.size)
        with stead.writer("pooled", comm=part, readers=1, timeout=60) as w:
            for n in range(steps):
                with w.step():
                    w.put("T", values(n)[rows], shape=SHAPE, start=(rows.start, 0), dims=("y", "x"))


def first(memory: str, steps: int, rank: int, ranks: int) -> None:
    had = []
    rows = np.s_[SHAPE[0] * rank // ranks : SHAPE[0] * (rank + 1) // ranks]
    for step in stead.reader("pooled", rank=rank, ranks=ranks, start="first", timeout=60, dataspaces={"memory": memory}):
        assert np.array_equal(step.get("T", np.s_[rows, 3:]), values(step.number)[rows, 3:]), step.number
        had.append(step.number)
        if len(had) == 1:
            print("begun", flush=True)
    assert had == list(range(steps)), had
    print(had, flush=True)


def behind(memory: str, steps: int) -> None:
    had = []
    for step in stead.reader("pooled", behind="spill", timeout=60, dataspaces={"memory": memory}):
        assert np.array_equal(step["T"], values(step.number)), step.number
        had.append(step.number)
        if len(had) == 1:
            pause("begun")
    assert had == list(range(steps)), had
    print(had, flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](os.path.expandvars(sys.argv[2]), *(int(word) if word.isdigit() else word for word in sys.argv[3:]))
