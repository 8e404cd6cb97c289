"""Answers for each group, of the rows that a filter keeps: how late do flights arrive that left late, by carrier?

A grouped result is a dict from group to answer; `report.to_pandas()` makes a data frame of all of them.
"""

import sys

import stead

report = stead.run(
    sys.argv[1] if len(sys.argv) > 1 else "flights.csv",
    stead.rows(),
    stead.mean("arr_delay"),
    where="dep_delay > 60 and origin = 'JFK'",
    by="carrier",
)
for carrier, late in report["mean:arr_delay"].items():
    # A group without any value has no mean: then it is None.
    if late is not None:
        print(f"{carrier}  {report['rows'][carrier]:5}  {late:7.2f}")
