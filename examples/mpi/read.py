"""All ranks of an MPI job read one file together: mpirun -n 4 python read.py FILE"""

import sys

import numpy as np
import stead
from mpi4py import MPI

comm = MPI.COMM_WORLD
# Beginning a session is collective; reads are not: any rank, any task, any range, at any time.
with stead.read_session(sys.argv[1], comm=comm) as session:
    share = session.stop // comm.size
    view = session.pread(share * comm.rank, share)
    total = comm.reduce(int(view.array("u1").sum(dtype=np.int64)))
    if comm.rank == 0:
        print(f"sum of the bytes: {total}")
