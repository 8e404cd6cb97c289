#!/bin/sh
#SBATCH --job-name=analysis
#SBATCH --nodes=2 --ntasks=3 --mem=1G
export STEAD_SOCKET=/dev/shm/steadd-$(id -u).sock
srun python analysis.py
