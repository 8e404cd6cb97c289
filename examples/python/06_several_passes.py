"""A kernel that reads the data several times: the median delay at each airport, to the minute.

The first pass finds the least and the greatest value; each one that follows counts how many values lie in the lower
half of what is left, and goes on with the half that holds the median.
"""

import sys

import numpy as np
import stead


@stead.kernel(["arr_delay"])
class Ends:
    """The first pass: the number of values, the least and the greatest."""

    def init(self):
        return 0, np.inf, -np.inf

    def update(self, state, x):
        x = x[~np.isnan(x)]
        return self.merge(state, (len(x), x.min(initial=np.inf), x.max(initial=-np.inf)))

    def merge(self, a, b):
        return a[0] + b[0], min(a[1], b[1]), max(a[2], b[2])

    def finish(self, state):
        return Half(*state)


@stead.kernel(["arr_delay"])
class Half:
    """Another pass: how many values are no greater than the middle?"""

    def __init__(self, values, least, greatest):
        self.values, self.least, self.greatest = values, least, greatest
        self.middle = (least + greatest) // 2

    def init(self):
        return 0

    def update(self, below, x):
        return below + np.count_nonzero(x <= self.middle)

    def merge(self, a, b):
        return a + b

    def finish(self, below):
        if self.least >= self.greatest:
            return self.least
        # A kernel in place of an answer: the data are read once more, with this one.
        if below >= self.values / 2:
            return Half(self.values, self.least, self.middle)
        return Half(self.values, self.middle + 1, self.greatest)


report = stead.run(sys.argv[1] if len(sys.argv) > 1 else "flights.csv", Ends, by="origin")
for airport, minutes in report[Ends].items():
    print(f"{airport} {minutes:.0f}")
