"""Ranks that Slurm starts, by srun alone: over two nodes of a Slurm that is raised for it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from jobs import BUILT, HASTY
from slurm import NODES, Slurm, missing
from support import ROOT
from test_mpi4py import env  # noqa: F401
from test_place import worked
from test_run import KERNELS, STEAD, alone, asked, folder  # noqa: F401


@pytest.fixture(scope="module")
def slurm():
    if why := missing():
        pytest.skip(f"no Slurm: {why}")
    if not STEAD.exists():
        pytest.skip("openmpi is not installed")
    slurm = Slurm()
    yield slurm
    slurm.end()


def told(done: subprocess.CompletedProcess) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_srun_starts_ranks_that_run_together(slurm, folder):  # noqa: F811
    words = [folder / "t.csv", *asked(KERNELS), "--by", "group"]
    report = told(slurm.srun("openmpi", 4, STEAD, "run", *words, "--format", "json"))
    assert report["results"] == alone(*words)["results"]
    assert (report["plan"]["ranks"], report["plan"]["nodes"]) == (4, 2)
    assert {r["host"] for r in report["metrics"]["ranks"]} == set(NODES)


@pytest.mark.parametrize("place", ["push", "pull", "split"])
def test_nodes_of_slurm_are_storage_hosts(slurm, folder, place):  # noqa: F811
    words = [folder / "t.csv", *asked(KERNELS)]
    how = ["--storage-hosts", NODES[1], "--place", place, "--format", "json"]
    report = told(slurm.srun("openmpi", 3, STEAD, "run", *words, *how, STEAD_PROFILE=""))
    assert report["results"] == alone(*words)["results"]
    chosen = report["plan"]["place"]
    assert (chosen["place"], chosen["storage_ranks"], chosen["compute_ranks"]) == (place, 1, 2)


def test_nodes_of_slurm_have_parts_of_a_layout(slurm, folder, tmp_path):  # noqa: F811
    own = tmp_path / "stead.toml"
    for node in NODES:
        (tmp_path / node).mkdir()
    own.write_text(f'[dataspace.nvme]\npath = "{tmp_path}/${{NODE}}"\n')
    file = tmp_path / "t.csv"
    file.write_bytes((folder / "t.csv").read_bytes())
    given = 'export NODE=$SLURMD_NODENAME; exec "$@"'
    stead = ["sh", "-c", given, "sh", STEAD]
    done = slurm.srun("openmpi", 2, *stead, "put", file, "--over", f"nvme@sn[1-2]", "--align", "record", STEAD_CONFIG=str(own))
    assert done.returncode == 0, done.stderr
    assert all(list((tmp_path / node).iterdir()) for node in NODES)
    words = asked(KERNELS)
    layout = f"{file}.stead-layout.toml"
    report = told(slurm.srun("openmpi", 4, *stead, "run", layout, *words, "--format", "json", STEAD_CONFIG=str(own)))
    assert report["results"] == alone(file, *words)["results"] and report["plan"]["nodes"] == 2


def test_programs_of_both_mpis_ask_storage_nodes(slurm, mpi, tmp_path):
    path, n = tmp_path / "doubles", 1 << 20
    np.arange(n, dtype="f8").tofile(path)
    done = slurm.srun(mpi, 4, BUILT / mpi / "read_ex", path, NODES[1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"sum: {n * (n - 1) // 2}"


def test_another_kind_of_start_is_told(slurm, folder):  # noqa: F811
    """Open MPI says so itself, and at length; ranks that MPICH starts alone are found out by who should be together."""
    done = slurm.srun("none", 2, STEAD, "run", folder / "t.csv", "-k", "rows")
    assert done.returncode != 0 and done.stdout == "" and "srun" in done.stderr, done.stderr


def test_a_rank_that_is_killed_is_named(slurm, tmp_path):
    path = tmp_path / "zeros.bin"
    path.touch()
    os.truncate(path, 8 << 30)
    wrapped = f'h={tmp_path}/pid.$SLURM_PROCID; echo $$ >$h.part; mv $h.part $h; exec "$@"'
    words = ["sh", "-c", wrapped, "sh", STEAD, "run", path, "--type", "raw", "--dtype", "f64", "-k", "quantile:value", "--threads", "1"]
    done: list[subprocess.CompletedProcess] = []
    job = threading.Thread(target=lambda: done.append(slurm.srun("openmpi", 4, *words, **HASTY)))
    job.start()
    victim, end = tmp_path / "pid.3", time.monotonic() + 180
    try:
        while not victim.exists():
            assert job.is_alive() and time.monotonic() < end
            time.sleep(0.01)
        pid = int(victim.read_text())
        # It computes for longer than MPI takes to start.
        while worked(pid) < 1.5:
            assert job.is_alive() and time.monotonic() < end
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
    finally:
        job.join()
    (done,) = done
    assert done.returncode != 0 and done.stdout == ""
    assert re.search(rf"error: rank 3 on {NODES[1]}: |task 3: Killed", done.stderr), done.stderr


@pytest.fixture
def base():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def left(base: Path) -> list[Path]:
    return [path for path in base.rglob("*") if path.is_file()]


def test_ranks_on_nodes_of_slurm_hand_arrays_to_each_other(slurm, mpi, env, base):  # noqa: F811
    done = slurm.srun(mpi, 4, sys.executable, ROOT / "tests" / "mpi" / "streams.py", base, 2, **env)
    assert done.returncode == 0, done.stderr
    had = dict(re.findall(r"right (\d+) on \d+: (.*)", done.stdout))
    assert had == {"0": "None", "1": "None", "2": "[0, 1, 2, 3, 4, 5]", "3": "[0, 1, 2, 3, 4, 5]"}, done
    # Of a memory each.
    assert len(set(re.findall(r"on (\d+):", done.stdout))) == 2
    own = [memory / base.name for memory in slurm.memories()]
    assert all(any(folder.iterdir()) for folder in own) and [path for folder in own for path in left(folder)] == []
