"""An array of the program's own is a dataset: it is lent, not copied. Results are NumPy arrays."""

import numpy as np
import stead

i = np.arange(1000)
points = np.column_stack([np.ones(1000), i, i * 7 % 13])

gram = stead.open(points).run(stead.gram("*"))["gram:*"]
for row in gram["matrix"]:
    print("".join(f"{x:12.0f}" for x in row))

# Sums are exact: the parts cancel, and a running sum would lose the one that does not.
assert stead.run(np.array([1e100, 1.0, -1e100]), stead.sum("value"))["sum:value"] == 1.0
