#!/bin/sh
# The same three in one job, of whose nodes no other job gets a part.
#SBATCH --nodes=2 --ntasks-per-node=3 --exclusive
export STEAD_SOCKET=/dev/shm/steadd-$(id -u).sock
srun --overlap --mpi=pmix --kill-on-bad-exit --ntasks=2 --ntasks-per-node=1 stead daemon --pool --state "$HOME/.stead-pool/%r" &
pool=$!
srun --overlap --mpi=pmix --nodes=1 --ntasks=2 python coupled_simulation.py &
srun --overlap --nodes=2 --ntasks=3 python analysis.py
kill $pool
wait
