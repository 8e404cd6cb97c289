"""The mean squared displacement of the atoms, computed while they move."""

import numpy as np
import stead

first = None
for step in stead.reader("melt"):
    x = np.empty(step.variable("x").shape)
    x[step["id"] - 1] = step["x"]
    first = x if first is None else first
    print(step.variable("id").attributes["timestep"], ((x - first) ** 2).sum(axis=1).mean())
