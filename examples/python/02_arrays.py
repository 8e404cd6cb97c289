"""NumPy arrays are datasets too. They are lent, not copied; sums are exact."""

import numpy as np
import stead

points = np.random.default_rng(0).normal(size=(100_000, 3))
points[:, 2] = points[:, 0] + 0.1 * points[:, 1]

ds = stead.open(points, names=["x", "y", "z"])
r = ds.run(stead.mean("*"), stead.gram("*"), stead.hist("x", bins=5, min=-5, max=5))

print(np.round(r["gram:*"]["matrix"] / len(points), 2))
print(r["hist:x,bins=5,min=-5,max=5"]["counts"])
print(sorted(r["mean:*"]))

# The parts cancel; a running sum would lose the one that does not.
print(stead.run(np.array([1e100, 1.0, -1e100]), stead.sum("value"))["sum:value"])

# Prints:
# [[ 1.01 -0.    1.01]
#  [-0.    0.99  0.1 ]
#  [ 1.01  0.1   1.02]]
# [  140 15834 68149 15730   147]
# ['x', 'y', 'z']
# 1.0
