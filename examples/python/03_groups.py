"""Answers by group, as a data frame of pandas.

Needs flights.csv in the current directory: `make demo` fetches it to .build/demo.
"""

import stead

r = stead.run(
    "flights.csv",
    stead.rows(),
    stead.mean("arr_delay"),
    stead.max("arr_delay"),
    where="dep_delay > 0",
    by="origin",
)
flights = r.to_pandas()
print(flights.round(2).to_string())
print(flights["mean:arr_delay"].idxmax())

# Prints:
#          rows  mean:arr_delay  max:arr_delay
# origin
# EWR     52711           33.92         1109.0
# JFK     42031           32.74         1272.0
# LGA     33690           38.11          915.0
# LGA
