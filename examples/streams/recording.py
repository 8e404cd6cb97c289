import numpy as np
import stead

with stead.writer("sim", persist="nvme0://runs/sim") as w:
    for step in range(100):
        T = np.full((1000, 800), float(step))
        with w.step():
            w.put("T", T, dims=("y", "x"), units="K")
