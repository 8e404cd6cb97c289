import os

import numpy as np
import stead

rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
first, last = (800 * n // ranks for n in (rank, rank + 1))
for step in stead.reader("plate", rank=rank, ranks=ranks):
    print(step.number, f"{first}-{last}", step.get("T", np.s_[:, first:last]).mean(), flush=True)
