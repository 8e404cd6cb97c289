"""A file that a thousand tasks of asyncio read, each its own part; few readers fetch it in large blocks.

Needs flights.csv in the current directory: `make demo` fetches it to .build/demo.
"""

import asyncio

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


async def main():
    async with stead.read_session("flights.csv") as s:
        lines = await asyncio.gather(*(count(s, task) for task in range(TASKS)))
        print(f"{TASKS} tasks: {sum(lines)} lines")

        # Bytes may come into memory of the program's own.
        first = await s.read_into(bytearray(4), 0)
        print("the first bytes:", first.decode())

        # An error is that of one request, and the session goes on.
        try:
            await s.read(s.size, 1)
        except stead.UsageError:
            print("past the end: an error")

        # Threads take results where tasks await them.
        print("the last byte:", bytes(s.read(s.size - 1, 1).result(timeout=60)))


asyncio.run(main())

# A file-like object, for whatever reads files.
with stead.open_reader("flights.csv") as f:
    table = np.genfromtxt(f, delimiter=",", skip_header=1, usecols=(5, 8), max_rows=3)
print("delays of the first flights:", table.tolist())

# Prints:
# 1000 tasks: 336777 lines
# the first bytes: year
# past the end: an error
# the last byte: b'\n'
# delays of the first flights: [[2.0, 11.0], [4.0, 20.0], [2.0, 33.0]]
