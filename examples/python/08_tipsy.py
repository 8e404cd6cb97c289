"""A snapshot of particles (Tipsy) that tasks load, each its own part, as NumPy arrays. Where records begin, in which byte
order and precision they are: the library knows.
"""

import sys

import numpy as np
import stead

TASKS = 64

with stead.Tipsy(sys.argv[1] if len(sys.argv) > 1 else "galaxy.tipsy") as snapshot:
    print(f"time {snapshot.time:g}")
    for species, n in snapshot.counts.items():
        mass, moment = 0.0, np.zeros(3)
        for task in range(TASKS):
            # Any thread may do this.
            share = snapshot.load(species, task, TASKS, ["mass", "x", "y", "z"])
            m = share["mass"].astype("f8")
            mass += m.sum()
            moment += [m @ share[axis] for axis in "xyz"]
        x, y, z = moment / mass
        print(f"{species:4} {n} particles, mass {mass:.6f}, centre {x:.6f} {y:.6f} {z:.6f}")
