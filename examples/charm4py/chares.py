"""Chares of Charm4py, many more than cores, read a file through read sessions: one for each process, shared by its
chares. How the file is cut into chares and how it is read have nothing to do with each other.

    pip install charm4py
    python -m charmrun.start +p2 chares.py FILE [CHARES]

Each chare asks for its share and goes on; the scheduler runs other chares meanwhile. When all have asked, each takes
its answer and adds up its bytes.
"""

import functools
import sys

import numpy as np
import stead
from charm4py import Array, Chare, Future, Reducer, charm


# --8<-- [start:chare]
@functools.cache
def session(path):
    """The session of this process."""
    return stead.read_session(path)


class Part(Chare):
    """One share of the file."""

    def ask(self, path, chares, asked):
        s = session(path)
        share = -(-s.size // chares)
        start = min(self.thisIndex[0] * share, s.size)
        self.read = s.read(start, min(share, s.size - start))
        self.reduce(asked)

    def work(self, done):
        # It came while others asked; the view is of memory that all chares of the machine share.
        view = self.read.result()
        sums = np.array([len(view), np.sum(view.array(), dtype=np.int64), np.count_nonzero(view.array() == 10)])
        del self.read
        self.reduce(done, sums, Reducer.sum)

# --8<-- [end:chare]


def main(args):
    path, chares = args[1], int(args[2]) if len(args) > 2 else 256
    parts = Array(Part, chares)
    asked, done = Future(), Future()
    parts.ask(path, chares, asked)
    asked.get()
    parts.work(done)
    size, total, lines = done.get()
    print(f"{chares} chares on {charm.numPes()} processes: {size} bytes, sum {total}, {lines} lines", flush=True)
    sys.exit()


charm.start(main)
