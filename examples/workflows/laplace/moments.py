"""Raw and central moments, of the first four orders, of each step of a field, by ranks each of which has some columns.

One pass over the data: moments of parts are merged as in P. Pébay, "Formulas for robust, one-pass parallel computation of covariances and
arbitrary-order statistical moments", Sandia report SAND2008-6212 (2008), so that nothing is lost to large sums.
"""

import json

import numpy as np
import stead
from mpi4py import MPI


def moments(x):
    """How many there are, the means of the first four powers, and the sums of powers 2 to 4 of what they differ from the mean."""
    d = x - x.mean()
    return x.size, np.array([(x**k).mean() for k in range(1, 5)]), *((d**k).sum() for k in range(2, 5))


def merge(a, b):
    """The moments of two parts together."""
    (na, raw_a, a2, a3, a4), (nb, raw_b, b2, b3, b4) = a, b
    if na == 0 or nb == 0:
        return b if na == 0 else a
    n, delta = na + nb, raw_b[0] - raw_a[0]
    m2 = a2 + b2 + delta**2 * na * nb / n
    m3 = a3 + b3 + delta**3 * na * nb * (na - nb) / n**2 + 3 * delta * (na * b2 - nb * a2) / n
    m4 = a4 + b4 + delta**4 * na * nb * (na**2 - na * nb + nb**2) / n**3
    m4 += 6 * delta**2 * (na**2 * b2 + nb**2 * a2) / n**2 + 4 * delta * (na * b3 - nb * a3) / n
    return n, raw_a + (raw_b - raw_a) * (nb / n), m2, m3, m4


comm = MPI.COMM_WORLD
for step in stead.reader("laplace", comm=comm):
    columns = step.variable("u").shape[1]
    mine = np.s_[:, columns * comm.rank // comm.size : columns * (comm.rank + 1) // comm.size]
    some = (0, np.zeros(4), 0.0, 0.0, 0.0)
    for rows in np.array_split(step.get("u", mine), 16):
        some = merge(some, moments(rows)) if rows.size else some
    if whole := comm.reduce(some, merge):
        n, raw, *powers = whole
        print(json.dumps({"step": step.number, "raw": raw.tolist(), "central": [0.0, *(p / n for p in powers)]}), flush=True)
