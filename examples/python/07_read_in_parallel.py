"""A file that a thousand tasks of asyncio read, each its own part; few readers fetch it in large blocks."""

import asyncio
import sys

import numpy as np
import stead

TASKS = 1000


async def count(session, task):
    """The lines in one task's share."""
    share = -(-session.size // TASKS)
    start = min(task * share, session.size)
    view = await session.read(start, min(share, session.size - start))
    # The view shares memory with all other tasks: nothing is copied.
    return np.count_nonzero(view.array() == ord("\n"))


async def main(path):
    async with stead.read_session(path) as s:
        lines = await asyncio.gather(*(count(s, task) for task in range(TASKS)))
        print(f"{TASKS} tasks: {sum(lines)} lines")

        # Bytes may come into memory of the program's own; threads take results where tasks await them.
        first = s.read_into(bytearray(4), 0).result(timeout=60)
        print("the first bytes:", first.decode())

        # An error is that of one request, and the session goes on.
        try:
            await s.read(s.size, 1)
        except stead.UsageError:
            print("past the end: an error")


path = sys.argv[1] if len(sys.argv) > 1 else "flights.csv"
asyncio.run(main(path))

# A file-like object, for whatever reads files.
with stead.open_reader(path) as f:
    delays = np.genfromtxt(f, delimiter=",", skip_header=1, usecols=(5, 8), max_rows=3)
assert delays.shape == (3, 2)
