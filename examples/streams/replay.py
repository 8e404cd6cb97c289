import numpy as np
import stead

for step in stead.reader("nvme0://runs/sim"):
    print(step.number, step.get("T", np.s_[10:20, :]).mean())
