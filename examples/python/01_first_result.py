"""A file, several questions, one scan.

Needs flights.csv in the current directory: `make demo` fetches it to .build/demo.
"""

import stead

ds = stead.open("flights.csv")
r = ds.run(stead.rows(), stead.mean("arr_delay"), stead.quantile("arr_delay", q=[0.5, 0.99]), where="dep_delay > 0")

print(r)
print(f"a delayed flight arrives {r['mean:arr_delay']:.1f} minutes late on average")

# Prints:
#  kernel                result
# ──────────────────────────────
#  rows                 128,432
#  mean:arr_delay   34.63020862
#
# quantile:arr_delay,q=0.5;0.99
#  0.5    17.0
#  0.99   252.0
# a delayed flight arrives 34.6 minutes late on average
