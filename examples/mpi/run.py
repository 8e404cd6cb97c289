"""All ranks of an MPI job run kernels over files that they all see: each takes a share of the bytes, and all get the results.

STEAD_MPI_LIBRARY=.../libstead_mpi.so mpirun -n 4 python run.py FILE KERNEL...
"""

import sys

import stead
from mpi4py import MPI

comm = MPI.COMM_WORLD
report = stead.run(sys.argv[1], *sys.argv[2:], comm=comm)
if comm.rank == 0:
    print(report.to_json())
