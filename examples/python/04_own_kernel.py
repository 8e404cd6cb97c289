"""Kernels of one's own: a function of one block and how to merge, or a class with a state.

Needs flights.csv in the current directory: `make demo` fetches it to .build/demo.
"""

import numpy as np
import stead


@stead.kernel(["arr_delay"], merge=max)
def longest(delay):
    """The longest delay. Missing values are NaN."""
    return np.nanmax(delay)


@stead.kernel(["dep_delay", "arr_delay"])
class Slope:
    """How much of a delay at departure is left at arrival: the slope of least squares."""

    def init(self):
        return np.zeros(5)

    def update(self, state, x, y):
        both = ~(np.isnan(x) | np.isnan(y))
        x, y = x[both], y[both]
        # Changed in place, so there is nothing to return.
        state += [len(x), x.sum(), y.sum(), x @ y, x @ x]

    def merge(self, state, other):
        state += other

    def finish(self, state):
        n, x, y, xy, xx = state
        return (n * xy - x * y) / (n * xx - x * x)


r = stead.run("flights.csv", longest, Slope, stead.max("arr_delay"), threads=2)
print(r[longest], r["max:arr_delay"])
print(f"{r[Slope]:.4f}")

# Prints:
# 1272.0 1272.0
# 1.0191
