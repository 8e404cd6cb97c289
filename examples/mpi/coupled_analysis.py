import numpy as np
import stead
from mpi4py import MPI

analysis = stead.couple(MPI.COMM_WORLD, "analysis")
first, last = (800 * n // analysis.size for n in (analysis.rank, analysis.rank + 1))
for step in stead.reader("plate", comm=analysis):
    columns = step.get("T", np.s_[:, first:last])
    total = analysis.comm.reduce(columns.sum())
    if analysis.rank == 0:
        print(step.number, total / np.prod(step.variable("T").shape))
