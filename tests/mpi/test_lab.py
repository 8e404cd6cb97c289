"""Hosts of the lab that are slower than others, or busy: for what computes where data lie."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import LIMIT, run
from support import ROOT
from test_mpi import LAB, lab, over  # noqa: F401
from test_put import sent

#: Threads as there are processors compute for a while; prints what they got of the processors' time, in processors.
COMPUTE = """
import multiprocessing, os, time

def compute(seconds):
    end, begun = time.monotonic() + seconds, time.process_time()
    while time.monotonic() < end:
        pass
    return (time.process_time() - begun) / seconds

with multiprocessing.Pool(os.cpu_count()) as all:
    print(sum(all.map(compute, [1.0] * os.cpu_count())))
"""


def tell(*words: str | int, expect: int = 0, **env: str) -> subprocess.CompletedProcess:
    command = [str(word) for word in (LAB, *words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=os.environ | env)
    assert done.returncode == expect, done.stderr
    return done


def is_braked(lab: str) -> None:  # noqa: F811
    """Waits until what runs on the second host is stopped now and then: who does that takes a while to begin."""
    end = time.monotonic() + 60
    with subprocess.Popen([LAB, "exec", lab, "2", "sleep", "100"]) as one:
        try:
            while Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                assert time.monotonic() < end
                time.sleep(0.001)
        finally:
            one.kill()


@pytest.mark.parametrize("way", ["control groups", "stopped and continued"])
def test_a_slow_host_gets_a_part_of_the_processors(lab, way):  # noqa: F811
    without = {} if way == "control groups" else {"LAB_NO_CGROUPS": "1"}
    if not without and not os.access("/sys/fs/cgroup/cpu/cpu.shares", os.W_OK) and not os.access("/sys/fs/cgroup/cgroup.subtree_control", os.W_OK):
        pytest.skip("control groups cannot be written here")
    factor = 6.8
    tell("slow", lab, 2, factor, **without)
    if without:
        is_braked(lab)
    got = float(tell("exec", lab, 2, sys.executable, "-c", COMPUTE).stdout)
    tell("slow", lab, 2, 1, **without)
    # A bound whatever else runs; in periods, and with what it takes to find the processes that are to be stopped.
    assert 0 < got < 2 * os.cpu_count() / factor


def busy(lab: str) -> int:  # noqa: F811
    """Threads of others that compute on the first host."""
    pids = subprocess.run(["ip", "netns", "pids", f"{lab}-1"], capture_output=True, text=True).stdout.split()

    def name(pid: str) -> str:
        try:
            return Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            return ""  # it has ended

    return sum(name(pid).startswith("stress-ng-cpu") for pid in pids)


@pytest.mark.skipif(not shutil.which("stress-ng"), reason="stress-ng is not installed")
def test_a_busy_host(lab):  # noqa: F811
    tell("stress", lab, 1, 3)
    end = time.monotonic() + 60
    while busy(lab) != 3:
        assert time.monotonic() < end
        time.sleep(0.05)
    tell("calm", lab, 1)
    while busy(lab):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_nothing_but_the_network_is_between_hosts(lab, mpi, tmp_path):  # noqa: F811
    # MPIs look for faster ways between processes of one machine; MPICH has to be told.
    mpicc = f"mpicc.{mpi}" if shutil.which(f"mpicc.{mpi}") else "mpicc"
    run([mpicc, "-std=c11", ROOT / "bench" / "mpi" / "wire.c", "-o", tmp_path / "wire"])
    before, size = sent(lab), 8 << 20
    command = ["env", "UCX_TLS=tcp,self", *over(lab, mpi), "-n", 2, tmp_path / "wire", size, 1 << 20, 4]
    try:
        # It takes a second.
        out = run(command, within=60 if mpi == "mpich" else LIMIT)
    except AssertionError as e:
        # The program, which has nothing of stead, was through: UCX may wait for ever at the end for a process that has gone before.
        if mpi != "mpich" or "hung" not in str(e) or str(e).count("seconds") != 3:
            raise
        out = run(command)
    assert out.count("seconds") == 3
    assert sent(lab) - before > 3 * size


def test_what_a_lab_cannot_do(lab):  # noqa: F811
    for words, says in [
        (("slow", lab, 2, "0.5"), "from 1 to 1000"),
        (("slow", lab, 2, "2; id"), "from 1 to 1000"),
        (("slow", lab, 4, 2), "has no host 4"),
        (("stress", lab, 1, 0), "threads are a number"),
        (("calm", "steadlab97x1", 1), "no lab"),
    ]:
        assert says in tell(*words, expect=1).stderr
