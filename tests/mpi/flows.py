"""Ranks of one job of which the first so many simulate, so many compute on it by a flow, and the last one compares with NumPy.

    flows.py BASE WRITERS RANKS

Nodes have a memory each below the folder BASE, as those of a lab are one machine. Prints `right` and the steps that were had, for each rank.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import numpy as np
import stead
from mpi4py import MPI

SHAPE = (400, 300)
STEPS = 6


def values(step: int) -> np.ndarray:
    """Of all sizes, so that a sum that is rounded on the way is another one."""
    random = np.random.default_rng(step)
    return random.normal(size=SHAPE) * 10.0 ** random.integers(-9, 9, size=SHAPE)


def simulate(part: stead.Coupling) -> int:
    rows = slice(SHAPE[0] * part.rank // part.size, SHAPE[0] * (part.rank + 1) // part.size)
    with stead.writer("sim", comm=part, readers=1, timeout=60) as w:
        for n in range(STEPS):
            with w.step():
                w.put("T", values(n)[rows], shape=SHAPE, start=(rows.start, 0), dims=("y", "x"))
    return STEPS


def compute(part: stead.Coupling) -> int:
    flow = stead.flow()
    seen = []
    T = flow.read("sim")["T"]
    looked = T.map(lambda x: seen.append(x.size) or x, elementwise=True)
    mean = T.mean()
    # All ranks look for the quantile, pass after pass; the corner one of them takes out of the whole.
    middle, corner = T.kernel("quantile:T,q=0.5,exact"), T.map(lambda x: x[-1, -1], shape=())
    scaled = T.kernel("normalize:T")
    flow.write("out", sum=looked.sum(), rows=T.sum(over="x"), low=T.min(), few=T[::7, 1::2], middle=middle, corner=corner, scaled=scaled, readers=1)
    flow.write("last", mean=mean.window(3, "max"), readers=1)
    done = flow.run(comm=part, timeout=60)
    # Each rank has looked at its own part.
    assert len(seen) == STEPS and max(seen) <= math.ceil(SHAPE[0] / part.size) * SHAPE[1], seen
    assert part.comm.allreduce(sum(seen)) == STEPS * math.prod(SHAPE)
    return done["steps"]


def compare(part: stead.Coupling) -> int:
    last = stead.reader("last", comm=part, timeout=60)
    n = 0
    for step in stead.reader("out", comm=part, timeout=60):
        T = values(step.number)
        assert step["sum"] == math.fsum(T.ravel())
        assert np.array_equal(step["rows"], [math.fsum(row) for row in T])
        assert step["low"] == T.min()
        assert np.array_equal(step["few"], T[::7, 1::2])
        assert step["middle"] == np.sort(T.ravel())[T.size // 2 - 1]
        assert step["corner"] == T[-1, -1]
        assert np.array_equal(step["scaled"], (T - T.min()) / (T.max() - T.min()))
        if step.number >= 2:
            window = last.next()
            means = [math.fsum(values(k).ravel()) / T.size for k in range(step.number - 2, step.number + 1)]
            assert math.isclose(float(window["mean"]), max(means), rel_tol=1e-15)
            assert window.variable("mean").attributes["sim.steps"] == [step.number - 2, step.number, 1]
        n += 1
    assert last.next() is None
    return n


def main() -> None:
    base, writers, ranks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    world = MPI.COMM_WORLD
    node = world.Split_type(MPI.COMM_TYPE_SHARED).allreduce(world.rank, MPI.MIN)
    folder = base / str(node)
    folder.mkdir(parents=True, exist_ok=True)
    name, work = ("sim", simulate) if world.rank < writers else ("flow", compute) if world.rank < writers + ranks else ("view", compare)
    with stead.couple(world, name, dataspaces={"memory": folder}) as part:
        had = work(part)
    # Whole, whatever others say at the same time.
    os.write(1, f"right {world.rank} on {node}: {had}\n".encode())


main()
