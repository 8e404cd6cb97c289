"""All ranks of an MPI job read one file together: each byte comes from the file system once, whichever rank asks.

STEAD_MPI_LIBRARY=.../libstead_mpi.so mpirun -n 4 python read.py FILE
"""

import sys

import numpy as np
import stead
from mpi4py import MPI

comm = MPI.COMM_WORLD
# Beginning a session is collective. Reads are not: any rank, any task, any range, at any time.
with stead.read_session(sys.argv[1], comm=comm) as session:
    first, end = (session.size * n // comm.size for n in (comm.rank, comm.rank + 1))
    view = session.pread(first, end - first)
    total = comm.reduce(int(view.array("u1").sum(dtype=np.int64)))
if comm.rank == 0:
    print(f"sum of the bytes: {total}")
