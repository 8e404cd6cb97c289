"""Jobs of several ranks, under a time limit, so that nothing can hang."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
import time

import numpy as np
import pytest
from support import ROOT

BUILT = ROOT / ".build" / "mpi"
#: Seconds within which each job ends, whatever else this machine does.
LIMIT = 300
#: After so long without a sign of life a rank is gone. Of a job of which all live none is to be taken for gone that others keep from a processor;
#: one that is killed or stopped is found out sooner.
PATIENT = {"STEAD_PEER_SILENCE_S": "30"}
HASTY = {"STEAD_PEER_SILENCE_S": "8"}
LENGTH = 8_000_003
# All jobs of a user have one folder of Open MPI's unless they are told otherwise, and it is made and taken away without regard for others.
SESSIONS = tempfile.mkdtemp()
os.chmod(SESSIONS, 0o755)
atexit.register(shutil.rmtree, SESSIONS, ignore_errors=True)
os.environ["OMPI_MCA_orte_tmpdir_base"] = os.environ["PRTE_MCA_prte_tmpdir_base"] = SESSIONS


def contents(length: int) -> bytes:
    """As byte_at of ranks.c."""
    i = np.arange(length, dtype=np.uint64)
    return ((i * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(56)).astype(np.uint8).tobytes()


def launch(mpi: str, ranks: int, *options: str) -> list[str]:
    """mpirun for so many ranks on this host, which has fewer cores: those that wait let others run."""
    mpirun = f"mpirun.{mpi}"
    if subprocess.run(["which", mpirun], capture_output=True).returncode:
        mpirun = "mpirun"
    # Devices of a lab may be gone before an MPI, which looks at all there are, has come to them.
    if mpi == "openmpi":
        # Short, as sockets have short names.
        own = tempfile.mkdtemp(prefix="", dir=SESSIONS)
        os.chmod(own, 0o1777)
        few = ["--mca", "orte_tmpdir_base", own, "--oversubscribe", "--allow-run-as-root", "--mca", "mpi_yield_when_idle", "1", "--mca", "btl_tcp_if_include", "lo"]
        return [mpirun, *few, *options, "-n", str(ranks)]
    return [mpirun, "-genv", "UCX_NET_DEVICES", "lo", "-n", str(ranks)]


def run(command, env=None, expect: int | None = 0, within: float = LIMIT) -> str:
    """Of a job that may end in any way, as those do of which a rank is killed, what is printed."""
    env = os.environ | (HASTY if expect is None else PATIENT) | (env or {})
    limited = ["timeout", "--kill-after=10", str(within), *map(str, command)]
    begun = time.monotonic()
    done = subprocess.run(limited, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    said = f"{done.stdout}\n{done.stderr}"
    assert time.monotonic() - begun < within, f"it hung: {said}"
    if expect is not None:
        assert done.returncode == expect, said
    return done.stdout


def asleep(out: str) -> list[str]:
    """The ranks that say how they waited, all of which slept: how often they woke up does not depend on what else this
    machine does, and what that takes of a core does, but for a thread that never sleeps."""
    said = re.findall(r"(rank \d+): ([\d.]+) % of a core, (\d+) wake-ups a second", out)
    for _, share, woken in said:
        assert int(woken) < 300 and float(share) < 50, out
    return [rank for rank, _, _ in said]


def bound() -> list[str]:
    """What runs a command for which the rights of files count, whoever runs the tests."""
    if os.geteuid():
        return []
    words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if not shutil.which("setpriv") or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("the rights of root cannot be given up here")
    return words
