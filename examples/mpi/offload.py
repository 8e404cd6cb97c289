"""Some ranks of an MPI job are where the data are, and work for the others, which ask when they like.

STEAD_MPI_LIBRARY=.../libstead_mpi.so mpirun -n 4 python offload.py FILE KERNEL...
"""

import sys

import stead
from mpi4py import MPI

comm = MPI.COMM_WORLD
# Of a cluster the hosts are named that have the data, storage="node[1-2]"; here it is the first rank.
site = stead.offload(comm, storage=comm.rank == 0)
# The storage ranks stay in that call until the others are done, and get None.
if site is not None:
    with site:
        report = site.run(sys.argv[1], *sys.argv[2:])
    if comm.rank == 1:
        print(report.to_json())
