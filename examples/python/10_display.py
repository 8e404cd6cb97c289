"""What a notebook shows: a report is a table with a picture where there is something to draw."""

import numpy as np
import stead

waiting = {"minutes": np.random.default_rng(1).exponential(8, size=10_000), "counter": np.arange(10_000) % 3}
r = stead.open(waiting).run(stead.mean("minutes"), stead.max("minutes"), by="counter")

page = r._repr_html_()
print(page.count("<tr>"), "rows,", page.count("<img"), "picture")
print(r.to_svg()[:4])
print(r.to_pandas().shape)

# Prints:
# 4 rows, 1 picture
# <svg
# (3, 2)
