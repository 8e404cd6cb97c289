"""Ranks of one MPI job, of which some simulate and the others analyse what those make while it is made: each kind by itself divides the work
as it likes.

    mpirun -n 5 python examples/mpi/stream.py 3

The first three have rows of a wave, and the other two get columns of it.
"""

import sys

import numpy as np
import stead
from mpi4py import MPI

world = MPI.COMM_WORLD
simulates = world.rank < int(sys.argv[1])
comm = world.Split(simulates, world.rank)


def share(length):
    """Which part of so many is this rank's."""
    return length * comm.rank // comm.size, length * (comm.rank + 1) // comm.size


if simulates:
    first, last = share(120)
    y, x = np.ogrid[first:last, 0:80]
    with stead.writer("wave", comm=comm, readers=1) as w:
        for n in range(10):
            with w.step():
                wave = w.empty("u", (120, 80), start=(first, 0), count=(last - first, 80), dims=("y", "x"))
                np.sin(0.1 * x + 0.2 * y - 0.3 * n, out=wave)
                w.put("u", wave)
else:
    for step in stead.reader("wave", comm=comm):
        first, last = share(80)
        energy = comm.reduce(float((step.get("u", np.s_[:, first:last]) ** 2).sum()))
        if comm.rank == 0:
            print(step.number, f"{energy:.6f}", flush=True)
