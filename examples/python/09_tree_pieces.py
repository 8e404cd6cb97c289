"""Tree pieces: many more tasks than threads, each with its own particles of a snapshot (Tipsy). A piece awaits its share, and the
loop of its thread has others work meanwhile: no thread ever waits while one of its pieces has something to do.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import stead

PIECES, THREADS = 1024, 2


def build(positions, axis=0):
    """Halves particles along one axis after the other, until a bucket has eight; the number of buckets."""
    if len(positions) <= 8:
        return 1
    half = len(positions) // 2
    positions = positions[np.argpartition(positions[:, axis], half)]
    return build(positions[:half], (axis + 1) % 3) + build(positions[half:], (axis + 1) % 3)


async def piece(snapshot, index):
    """For each species: how many particles, their mass, and mass times position."""
    found, all_positions = [], []
    for species in snapshot.counts:
        # Asked for at once; a task that waits lets others work.
        records = (await snapshot.read(species, index, PIECES)).array(snapshot.dtype(species))
        mass = records["mass"].astype("f8")
        positions = np.column_stack([records[axis].astype("f8") for axis in "xyz"])
        found.append([len(records), mass.sum(), *(mass @ positions)])
        all_positions.append(positions)
    build(np.concatenate(all_positions))
    return np.array(found)


def work(snapshot, thread):
    """One thread with a loop of its own, and its share of the pieces."""

    async def pieces():
        return sum(await asyncio.gather(*(piece(snapshot, i) for i in range(thread, PIECES, THREADS))))

    return asyncio.run(pieces())


with stead.Tipsy(sys.argv[1] if len(sys.argv) > 1 else "galaxy.tipsy") as snapshot:
    with ThreadPoolExecutor(THREADS) as threads:
        sums = sum(threads.map(lambda thread: work(snapshot, thread), range(THREADS)))
    print(f"{PIECES} pieces on {THREADS} threads")
    for species, (n, mass, *moment) in zip(snapshot.counts, sums, strict=True):
        x, y, z = np.array(moment) / mass
        print(f"{species:4} {n:.0f} particles, mass {mass:.6f}, centre {x:.6f} {y:.6f} {z:.6f}")
