import numpy as np
import stead

with stead.writer("sim", readers=1) as w:
    for n in range(5):
        with w.step():
            w.put("T", np.full((100, 100), n / 2), dims=("y", "x"), units="K")
