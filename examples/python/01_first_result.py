"""Opens a file with everything detected, asks three questions of one scan, and reads the answers."""

import sys

import stead

flights = stead.open(sys.argv[1] if len(sys.argv) > 1 else "flights.csv")
report = flights.run(stead.rows(), stead.mean("arr_delay"), stead.max("arr_delay"))

print("rows ", report["rows"])
print(f"mean  {report['mean:arr_delay']:.6f}")
print(f"max   {report['max:arr_delay']:.0f}")
