"""A peer of read sessions: chares of Charm4py, many more than cores, read a file and add up its bytes.

    python -m charmrun.start +p2 ++local charm4py_peer.py HOW FILE CHARES [RUNS]

HOW is `sessions` (one session for each process), `pread` (each chare reads its share with os.pread) or `fromfile`
(with numpy.fromfile). Prints a line for each run: seconds from the first question to the last sum.
"""

import functools
import os
import sys
import time

import numpy as np
from charm4py import Array, Chare, Future, Reducer, charm


@functools.cache
def session(path):
    import stead

    return stead.read_session(path)


@functools.cache
def descriptor(path):
    return os.open(path, os.O_RDONLY)


class Part(Chare):
    """One share of the file."""

    def ask(self, how, path, chares, asked):
        size = os.path.getsize(path)
        share = -(-size // chares)
        start = min(self.thisIndex[0] * share, size)
        length = min(share, size - start)
        if how == "sessions":
            self.take = session(path).read(start, length).result
        elif how == "pread":
            self.take = functools.partial(os.pread, descriptor(path), length, start)
        else:
            self.take = functools.partial(np.fromfile, path, np.uint8, length, offset=start)
        self.reduce(asked)

    def work(self, done):
        taken = np.frombuffer(self.take(), np.uint8)
        whole = len(taken) // 8 * 8
        total = int(taken[:whole].view(np.uint64).sum(dtype=np.uint64)) + int(taken[whole:].sum(dtype=np.uint64))
        del self.take, taken
        self.reduce(done, float(total), Reducer.sum)


def main(args):
    how, path, chares = args[1], args[2], int(args[3])
    for _ in range(int(args[4]) if len(args) > 4 else 1):
        parts = Array(Part, chares)
        begun = time.perf_counter()
        asked, done = Future(), Future()
        parts.ask(how, path, chares, asked)
        asked.get()
        parts.work(done)
        total = done.get()
        print(f"{how} {chares} chares: {time.perf_counter() - begun:.4f} s, {total:.0f}", flush=True)
    sys.exit()


charm.start(main)
