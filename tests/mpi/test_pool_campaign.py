"""Streams between nodes whose daemons are a pool, of which writers, readers, daemons and their processes are killed or stopped, by seeds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from test_pool import STEAD, WITHIN, Pool, memories  # noqa: F401

pytestmark = pytest.mark.skipif(not STEAD.exists(), reason="there is no command with MPI")
# In eight in a row somebody is killed, or stopped, in each way.
CASES = max(8, int(os.environ.get("STEAD_CRASHES", "0")))
LONG = "STEAD_CRASHES" in os.environ


@pytest.fixture(scope="module")
def pool():
    """Of two nodes, on this machine."""
    at = Path(tempfile.mkdtemp(dir="/tmp"))
    one = Pool(at, 2)
    one.begin()
    yield one
    one.end()
    shutil.rmtree(at, ignore_errors=True)


def campaign(pool, memories: list[str], seed: int, cases: int, *more: str) -> None:  # noqa: F811
    daemons = [pid for rank in range(2) for pid in pool.processes(rank, worker=False)]
    assert len(daemons) == 2, pool.log()
    words = [Path(__file__).parent / "campaign.py", pool.at, ",".join(memories), ",".join(map(str, daemons)), seed, cases, *more]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=WITHIN + 60 * cases)
    assert done.returncode == 0 and done.stdout.endswith(f"{cases} cases, 0 wrong\n"), f"{done.stdout}\n{done.stderr}\n{pool.log()}"
    # Few have come to their ends before their time had come.
    assert done.stdout.count(" ms\n") >= cases * 3 // 4, done.stdout


@pytest.mark.parametrize("seed", range(0, CASES, 8))
def test_streams_of_two_nodes_whoever_is_killed_or_stopped(pool, memories, seed):  # noqa: F811
    campaign(pool, memories, seed, 8)


@pytest.mark.parametrize("node", [0, 1] if LONG else [0])
def test_streams_of_two_nodes_whose_daemon_is_killed(pool, memories, node):  # noqa: F811
    """It takes the other one along. When they are there again, so are streams."""
    campaign(pool, memories, 5000 + node, 1, "--kill-daemon", str(node))
    pool.process.wait(WITHIN)
    pool.begin()
    campaign(pool, memories, 5010 + node, 0)
