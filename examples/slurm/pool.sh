#!/bin/sh
# A daemon on each node, until the job is cancelled: scancel --name=pool
#SBATCH --job-name=pool
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --mem=1G
export STEAD_SOCKET=/dev/shm/steadd-$(id -u).sock
exec srun --mpi=pmix --kill-on-bad-exit stead daemon --pool --state "$HOME/.stead-pool/%r"
