"""Ranks of an MPI job, and chares of Charm4py, that read one file: sessions beside what these have of their own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from run import command

HERE = Path(__file__).parent
# More ranks than cores must not keep each other from their work; root is who runs tests in containers.
MPIRUN = ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]


def ranks(library, data, file, tasks, runs, count=2):
    """Seconds of each way of mpi/tasks.c by number of tasks; None where there is no Open MPI or no libstead_mpi."""
    library = Path(library).resolve()
    mpicc = next(filter(shutil.which, ["mpicc.openmpi", "mpicc"]), None)
    if mpicc is None or not (library / "libstead_mpi.so").exists():
        return None
    program = Path(data).resolve() / "mpi-tasks"
    words = [mpicc, "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{HERE.parent / 'include'}", HERE / "mpi" / "tasks.c",
             "-o", program, f"-L{library}", "-lstead_mpi", "-lstead", f"-Wl,-rpath,{library}"]
    subprocess.run([*map(str, words)], check=True)
    launch = MPIRUN + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    rows, sums = {}, set()
    for n in tasks:
        if n < count:
            continue
        out = command([*launch, "-n", str(count), str(program), file, str(n), str(runs)])
        for line in out.splitlines():
            found = json.loads(line)
            rows.setdefault(found["way"], {})[n] = found["seconds"]
            sums.add(found["sum"])
    if len(sums) != 1:
        raise SystemExit(f"the ways of ranks have read different bytes: {sums}")
    return rows


def chares(file, counts, runs):
    """Seconds of each way of charm4py_peer.py by number of chares; None without charm4py or the package of stead."""
    for package in ("charm4py", "stead"):
        if subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True).returncode:
            return None
    rows = {}
    for n in counts:
        for how in ("sessions", "pread", "fromfile"):
            words = [sys.executable, "-m", "charmrun.start", "+p2", "++local", str(HERE / "charm4py_peer.py"), how, file,
                     str(n), str(runs)]
            out = command(words)
            rows.setdefault(how, {})[n] = [float(took) for took in re.findall(r"chares: ([0-9.]+) s", out)]
    return rows
