#!/bin/sh
#SBATCH --job-name=simulation
#SBATCH --nodes=1 --ntasks=2 --mem=1G
export STEAD_SOCKET=/dev/shm/steadd-$(id -u).sock
srun --mpi=pmix python coupled_simulation.py
