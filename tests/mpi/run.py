"""What a rank of the tests of runs in Python does: run.py FOLDER OUTPUTS."""

import json
import sys
from pathlib import Path

import numpy as np
import stead
from mpi4py import MPI

comm = MPI.COMM_WORLD
folder, outputs = map(Path, sys.argv[1:])
path = folder / "t.csv"


@stead.kernel(["x", "y"])
class Largest:
    """Where y is largest, and the largest x there: any order gives it."""

    def init(self):
        return (-1.0, -np.inf)

    def update(self, state, x, y):
        at = y == y.max()
        return self.merge(state, (float(y.max()), float(x[at].max())))

    def merge(self, a, b):
        return max(a, b)

    def finish(self, state):
        return list(state)


@stead.kernel(["x"])
class Fails:
    def __init__(self, at):
        self.at = at

    def init(self):
        return 0.0

    def update(self, state, x):
        return state + 1.0

    def merge(self, a, b):
        return a + b

    def finish(self, state):
        if comm.rank == self.at:
            raise ZeroDivisionError("of this rank")
        return 1.0


data = stead.open(path)
for options in {}, {"where": "y > 3", "threads": 2, "chunk": "8KiB"}, {"by": "group"}:
    kernels = [stead.rows(), stead.mean("x"), stead.quantile("y", q=0.5), Largest()]
    together, alone = data.run(*kernels, **options, comm=comm), data.run(*kernels, **options)
    together, alone = (json.loads(r.to_json())["results"] for r in (together, alone))
    assert together == alone, (together, alone)
    assert len(set(comm.allgather(str(together)))) == 1
name = f"normalize:x,out={outputs}/"
data.run(name + "all.npy", comm=comm)
if comm.rank == 0:
    data.run(name + "one.npy")
    assert (outputs / "all.npy").read_bytes() == (outputs / "one.npy").read_bytes()


def refused(kind, says, work):
    try:
        work()
    except kind as e:
        assert says in str(e), e
        return
    raise AssertionError(f"{says}: it was not refused")


last = comm.size - 1
# What one rank gives, all hear of: before the extension module, and in it.
for bad in {"memory": "much"}, {"engine": "steam"}, {"threads": -1}, {"where": "x >"}:
    options = bad if comm.rank == last else {}
    refused((stead.Error, ValueError, OverflowError, TypeError), "", lambda: data.run("rows", comm=comm, **options))
refused((TypeError, stead.UsageError), "", lambda: data.run(5 if comm.rank == last else "rows", comm=comm))
refused(stead.Error, "", lambda: stead.run(f"{path}.no" if comm.rank == last else path, "rows", comm=comm))
refused(stead.UsageError, "ranks differ", lambda: data.run("rows" if comm.rank == last else "lines", comm=comm))
refused(stead.UsageError, "memory", lambda: stead.run(np.arange(10.0), stead.rows(), comm=comm))
kind, says = (ZeroDivisionError, "of this rank") if comm.rank == last else (stead.DataError, "of this rank")
refused(kind, says, lambda: data.run(Fails(last), comm=comm))
assert data.run("rows", comm=comm)["rows"] == 20_000
print("right")
