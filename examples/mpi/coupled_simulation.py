import numpy as np
import stead
from mpi4py import MPI

sim = stead.couple(MPI.COMM_WORLD, "sim")
rows = np.full((100, 800), float(sim.rank))
with stead.writer("plate", comm=sim, readers=1) as w:
    for n in range(3):
        with w.step():
            w.put("T", rows + 10 * n, shape=(100 * sim.size, 800), start=(100 * sim.rank, 0))
