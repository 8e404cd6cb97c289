"""Tree pieces of Charm4py, many more than cores, load their particles of a Tipsy snapshot through one read session for each
process.

    pip install charm4py
    python -m charmrun.start +p2 tree_pieces.py SNAPSHOT [PIECES]

Each piece asks for its records and goes on; the scheduler runs other pieces meanwhile. When all have asked, each takes what
came, whole records whatever the number of pieces, and adds up mass and centre of mass.
"""

import functools
import sys

import numpy as np
import stead
from charm4py import Array, Chare, Future, Reducer, charm

SPECIES = ("gas", "dark", "star")


# --8<-- [start:piece]
@functools.cache
def snapshot(path):
    """The snapshot of this process, for all of its pieces."""
    return stead.Tipsy(path)


class TreePiece(Chare):
    """One share of the particles."""

    def ask(self, path, pieces, asked):
        s, i = snapshot(path), self.thisIndex[0]
        self.reads = {k: s.read(k, i, pieces) for k in SPECIES}
        self.reduce(asked)

    def build(self, path, done):
        sums = np.zeros((3, 5))
        for k, species in enumerate(SPECIES):
            # They came while others asked, and lie in memory that all pieces of the machine share.
            view = self.reads.pop(species).result()
            records = view.array(snapshot(path).dtype(species))
            mass = records["mass"].astype("f8")
            sums[k] = [len(mass), mass.sum(), *(np.sum(mass * records[axis]) for axis in "xyz")]
            view.check()
        self.reduce(done, sums.reshape(-1), Reducer.sum)

# --8<-- [end:piece]


def main(args):
    path, pieces = args[1], int(args[2]) if len(args) > 2 else 1024
    tree = Array(TreePiece, pieces)
    asked, done = Future(), Future()
    tree.ask(path, pieces, asked)
    asked.get()
    tree.build(path, done)
    print(f"{pieces} pieces on {charm.numPes()} processes")
    for species, (n, mass, *moments) in zip(SPECIES, done.get().reshape(3, 5)):
        x, y, z = (m / mass if n else 0 for m in moments)
        print(f"{species:4} {n:.0f} particles, mass {mass:.6f}, centre {x:.6f} {y:.6f} {z:.6f}", flush=True)
    sys.exit()


charm.start(main)
