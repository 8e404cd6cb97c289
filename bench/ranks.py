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


def build(library, data, name):
    """A program of mpi/, built; None where there is no Open MPI or no libstead_mpi."""
    library = Path(library).resolve()
    mpicc = next(filter(shutil.which, ["mpicc.openmpi", "mpicc"]), None)
    if mpicc is None or not (library / "libstead_mpi.so").exists():
        return None
    program = Path(data).resolve() / f"mpi-{name}"
    words = [mpicc, "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{HERE.parent / 'include'}", HERE / "mpi" / f"{name}.c",
             "-o", program, f"-L{library}", "-lstead_mpi", "-lstead", f"-Wl,-rpath,{library}"]
    subprocess.run([*map(str, words)], check=True)
    return program


def launch(program, count, *words):
    """What so many ranks of a program have found, one object for each way."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    out = command([*MPIRUN, *root, "-n", str(count), str(program), *map(str, words)])
    found = [json.loads(line) for line in out.splitlines()]
    if len({way["sum"] for way in found}) != 1:
        raise SystemExit(f"the ways of {count} ranks have read different bytes: {found}")
    return found


def ranks(library, data, file, tasks, runs, count=2):
    """Seconds, and those of processors, of each way of mpi/tasks.c by number of tasks; None where it cannot be built."""
    program = build(library, data, "tasks")
    if program is None:
        return None
    rows, processor = {}, {}
    for n in tasks:
        if n >= count:
            for found in launch(program, count, file, n, runs):
                rows.setdefault(found["way"], {})[n] = found["seconds"]
                processor.setdefault(found["way"], {})[n] = found["processor"]
    return {"seconds": rows, "processor": processor}


def same(library, data, file, counts, runs):
    """Each rank reads all of a file: seconds of each way of mpi/same.c by number of ranks, those of processors, and bytes that
    all together have read from it; None where it cannot be built."""
    program = build(library, data, "same")
    if program is None:
        return None
    all_of = {"seconds": {}, "processor": {}, "bytes": {}}
    for count in counts:
        for found in launch(program, count, file, runs):
            for what, rows in all_of.items():
                rows.setdefault(found["way"], {})[count] = found[what]
    return {"seconds": all_of["seconds"], "processor": all_of["processor"], "read": all_of["bytes"]}


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
