"""Files that all ranks of a job in Python read together, through mpi4py and libstead_mpi."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from jobs import BUILT, LENGTH, launch, run
from support import ROOT, repeats

RANKS = ROOT / "tests" / "mpi" / "ranks.py"
EXAMPLE = ROOT / "examples" / "mpi" / "read.py"


@pytest.fixture
def env(mpi, tmp_path) -> dict[str, str]:
    env = {"MPI4PY_MPIABI": mpi, "STEAD_MPI_LIBRARY": str(BUILT / mpi / "libstead_mpi.so")}
    if mpi == "mpich":
        # Where Debian has several MPIs, MPICH's library has a name that mpi4py does not look for.
        linked = subprocess.run(["ldd", env["STEAD_MPI_LIBRARY"]], capture_output=True, text=True).stdout
        if found := re.search(r"(/\S+/libmpich\.so\.12) ", linked):
            (tmp_path / "libmpi.so.12").symlink_to(found[1])
            env["LD_LIBRARY_PATH"] = str(tmp_path)
    return env


def job(mpi: str, ranks: int, env: dict[str, str], *words, program=RANKS) -> str:
    return run([*launch(mpi, ranks), sys.executable, program, *words], env)


@pytest.mark.parametrize("engine", ["auto", "pread"], ids=["page cache", "blocks in memory"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_and_tasks_read_any_ranges(mpi, env, file, ranks, engine):
    out = job(mpi, ranks, env, "read", file, engine)
    fetched = re.fullmatch(r"right, (\d+) bytes read", out.strip())
    assert fetched, out
    if engine == "pread":
        # From the file system once for all, whoever asks.
        assert int(fetched[1]) == LENGTH


@pytest.mark.parametrize("engine", ["auto", "pread"], ids=["page cache", "blocks in memory"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_load_their_shares_of_a_snapshot(mpi, env, snapshot, ranks, engine):
    repeats(mpi == "mpich" and ranks == 2)
    out = job(mpi, ranks, env, "tipsy", snapshot, engine)
    fetched = re.fullmatch(r"right, (\d+) bytes read", out.strip())
    assert fetched, out
    if engine == "pread":
        assert int(fetched[1]) == snapshot.stat().st_size


def test_ranks_that_wait_for_others_let_their_threads_run(mpi, env, file):
    assert job(mpi, 3, env, "lock", file).count("right") == 3


def test_a_part_of_the_ranks(mpi, env, file):
    assert job(mpi, 4, env, "split", file).count("right") == 4


def test_sessions_may_be_open_at_the_end(mpi, env, file):
    assert job(mpi, 3, env, "open", file).count("right") == 3


@pytest.mark.parametrize("ranks", [1, 1, 1, 2])
def test_sessions_may_be_open_when_the_program_ends_mpi(mpi, env, file, ranks):
    assert job(mpi, ranks, env, "end", file).count("right") == ranks


@pytest.mark.parametrize("ranks", [1, 2])
def test_sessions_may_be_open_at_the_end_where_many_want_to_hear_of_it(mpi, env, file, ranks):
    assert job(mpi, ranks, env, "full", file).count("right") == ranks


def test_what_ranks_do_wrong_is_told(mpi, env, file):
    assert job(mpi, 3, env, "wrong", file).count("right") == 3


def test_a_library_that_is_not_there_is_told(mpi, env, file):
    out = job(mpi, 2, env | {"STEAD_MPI_LIBRARY": "/nowhere/libstead_mpi.so"}, "one", file)
    assert out.count("libstead_mpi cannot be loaded: /nowhere/libstead_mpi.so") == 2 and out.count("STEAD_MPI_LIBRARY") == 2


def test_a_library_of_another_mpi_is_told(mpi, env, file):
    other = BUILT / {"openmpi": "mpich", "mpich": "openmpi"}[mpi] / "libstead_mpi.so"
    if not other.exists():
        pytest.skip("there is one MPI here")
    out = job(mpi, 2, env | {"STEAD_MPI_LIBRARY": str(other)}, "one", file)
    assert out.count("built with another MPI than the one that mpi4py uses") == 2


def test_the_example_sums_a_file(mpi, env, file):
    out = job(mpi, 3, env, file, program=EXAMPLE)
    assert out.strip() == f"sum of the bytes: {sum(file.read_bytes())}"
