"""Streams between ranks of one job: on one node, and on hosts of the lab, which have a memory each."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import pytest
from jobs import BUILT, launch, run
from support import ROOT
from test_mpi import lab, over  # noqa: F401
from test_mpi4py import env  # noqa: F401

PROGRAM = ROOT / "tests" / "mpi" / "streams.py"


@pytest.fixture
def base():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def left(base: Path) -> list[Path]:
    """What streams have left in memory."""
    return [path for path in base.rglob("*") if path.is_file()]


def had(out: str) -> dict[int, str]:
    return {int(rank): steps for rank, steps in re.findall(r"right (\d+) on \d+: (.*)", out)}


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (2, 1), (3, 2)])
def test_ranks_of_one_node(mpi, env, base, writers, readers):  # noqa: F811
    out = run([*launch(mpi, writers + readers), sys.executable, PROGRAM, base, writers], env)
    steps = had(out)
    assert len(steps) == writers + readers, out
    assert all(steps[rank] == "[0, 1, 2, 3, 4, 5]" for rank in range(writers, writers + readers))
    assert left(base) == []


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (2, 1), (3, 3)])
def test_ranks_of_several_hosts(lab, mpi, env, base, writers, readers):  # noqa: F811
    """Ranks go around the hosts, so that writers and readers are on the same one, too, where there are six."""
    given = [word for name in env if mpi == "openmpi" for word in ("-x", name)]
    ranks = writers + readers
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", ranks, *spread, *given, sys.executable, PROGRAM, base, writers], env)
    steps = had(out)
    assert len(steps) == ranks, out
    assert all(steps[rank] == "[0, 1, 2, 3, 4, 5]" for rank in range(writers, ranks))
    nodes = set(re.findall(r"on (\d+):", out))
    assert len(nodes) == min(ranks, 3), out
    assert left(base) == []


def test_a_writer_of_another_host_that_fails_is_named(lab, mpi, env, base):  # noqa: F811
    given = [word for name in env if mpi == "openmpi" for word in ("-x", name)]
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", 3, *spread, *given, sys.executable, PROGRAM, base, 2, "killed"], env)
    assert "told 1: as it is told to" in out
    # The other writer is on another host, too.
    for rank in (0, 2):
        assert f"told {rank}: writer 1 of stream 'T', on another node, has closed it before the others, or within a step, after step 2" in out, out


def test_programs_of_one_job(mpi, env, base):  # noqa: F811
    """As on the page: two programs, begun by one command."""
    folder = base / "memory"
    folder.mkdir()
    (base / "stead.toml").write_text(f'[dataspace.memory]\npath = "{folder}"\n')
    sim, analysis = ([sys.executable, ROOT / "examples" / "mpi" / name] for name in ("coupled_simulation.py", "coupled_analysis.py"))
    out = run([*launch(mpi, 2), *sim, ":", "-n", 2, *analysis], env | {"STEAD_CONFIG": str(base / "stead.toml")})
    assert out.splitlines()[:3] == ["0 0.5", "1 10.5", "2 20.5"]
    assert left(folder) == []


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (3, 2)])
def test_ranks_in_c(mpi, base, writers, readers):
    (base / "memory").mkdir()
    (base / "stead.toml").write_text(f'[dataspace.memory]\npath = "{base / "memory"}"\n')
    out = run([*launch(mpi, writers + readers), BUILT / mpi / "coupled", writers], {"STEAD_CONFIG": str(base / "stead.toml")})
    assert out.count("right") == writers + readers
    assert left(base / "memory") == []


def test_ranks_of_several_hosts_in_c(lab, mpi, base):  # noqa: F811
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", 5, *spread, BUILT / mpi / "coupled", 3, base])
    assert out.count("right") == 5
    assert left(base) == []


def test_where_it_cannot_be(mpi, env, base):  # noqa: F811
    program = """
import os, sys, stead
from mpi4py import MPI
try:
    stead.couple(MPI.COMM_WORLD, "a part" if MPI.COMM_WORLD.rank else "sim", dataspaces={"memory": sys.argv[1]})
except stead.Error as e:
    os.write(1, f"{MPI.COMM_WORLD.rank} {type(e).__name__} {str(e).splitlines()[0]}\\n".encode())
"""
    (base / "memory").mkdir()
    said = sorted(run([*launch(mpi, 2), sys.executable, "-c", program, base / "memory"], env).strip().splitlines())
    assert said[0].startswith("0 PeerError"), said
    assert "rank 1" in said[0] and "cannot take part" in said[0], said
    assert said[1].startswith("1 UsageError 'a part' is no name"), said
