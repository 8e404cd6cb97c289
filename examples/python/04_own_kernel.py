"""A kernel of one's own: which flight of each month was the longest, and how many were longer than six hours?

A state is made for each thread, blocks are added to it, states are merged, and the last one says the result. What is written
here works with filters, groups and any number of threads, and the answer does not depend on how the work was split.
"""

import sys

import numpy as np
import stead


@stead.kernel(["air_time"], name="long flights")
class LongFlights:
    def __init__(self, limit=360.0):
        self.limit = limit

    def init(self):
        return 0.0, 0

    def update(self, state, minutes):
        # A missing value is a NaN: it is not greater than anything.
        if np.any(minutes < 0):
            raise ValueError("a flight of negative length")
        return self.merge(state, (np.nanmax(minutes, initial=0.0), np.count_nonzero(minutes > self.limit)))

    def merge(self, state, other):
        return max(state[0], other[0]), state[1] + other[1]

    def finish(self, state):
        return {"longest": state[0], "long": state[1]}


# Where one function says it all, it is a kernel, too.
@stead.kernel(["air_time"], merge=max)
def longest(minutes):
    return np.nanmax(minutes, initial=0.0)


report = stead.run(sys.argv[1] if len(sys.argv) > 1 else "flights.csv", LongFlights, longest, by="month")
for month, found in report[LongFlights].items():
    assert found["longest"] == report[longest][month]
    print(f"{month:>2}  {found['longest']:4.0f}  {found['long']:5}")
