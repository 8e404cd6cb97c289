"""Processes of one user that read one file at once, each in its own way."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import stead

SIZE = 2_000_003

#: Reads all of a file in pieces, in an order of its own, with several threads; tells what it got, and how. Then, with all
#: still open, waits for a line, and tells its processor time meanwhile.
CHILD = """
import hashlib, json, random, sys, time
from concurrent.futures import ThreadPoolExecutor
import stead

path, seed, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
holds = options.pop("holds", 0)
with stead.read_session(path, engine="pread", **options) as s:
    starts = list(range(0, s.size, 50_021))
    random.Random(seed).shuffle(starts)
    def get(at):
        return at, hashlib.sha256(s.pread(at, min(50_021, s.size - at))).hexdigest()
    with ThreadPoolExecutor(4) as threads:
        got = sorted(threads.map(get, starts * 2))
    # Of more blocks than there is memory for: the last ones wait.
    reads = [s.read(i * options["block"], options["block"]) for i in range(holds)]
    # Those that there is memory for have come when nothing changes any more.
    came = None
    while reads and came != (came := sum(r.done() for r in reads)):
        time.sleep(0.5)
    print(json.dumps({"got": got, "how": s.explain()["shared"]}), flush=True)
    before = time.process_time()
    sys.stdin.readline()
    print(json.dumps({"cpu": time.process_time() - before, "waits": not all(r.done() for r in reads)}), flush=True)
    while reads:
        assert len(reads.pop(0).result(timeout=60)) == options["block"]
"""


@pytest.fixture(scope="module")
def data() -> bytes:
    return np.random.default_rng(6).bytes(SIZE)


@pytest.fixture
def path(data, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(data)
    # What was changed a moment ago is shared with nobody.
    os.utime(path, (1.7e9, 1.7e9))
    return path


def begin(path, options: list[dict]) -> list[subprocess.Popen]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, path, str(seed), json.dumps(o)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for seed, o in enumerate(options)
    ]


def told(children: list[subprocess.Popen]) -> list[dict]:
    """The next line of each."""
    return [json.loads(child.stdout.readline()) for child in children]


def end(children: list[subprocess.Popen]):
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    said = told(children)
    for child in children:
        child.stdin.close()
        assert child.wait(timeout=60) == 0
        child.stdout.close()
    return said


def sums(data: bytes) -> list[list]:
    starts = range(0, SIZE, 50_021)
    return sorted([at, hashlib.sha256(data[at : at + 50_021]).hexdigest()] for at in [*starts, *starts])


def test_with_blocks_of_different_sizes(path, data):
    sizes = [4096, 16384, 65536, 16384]
    children = begin(path, [{"block": size, "memory": "17MiB"} for size in sizes])
    for said in told(children):
        assert said["got"] == sums(data)
        assert "blocks and memory together" in said["how"]
    # And this one, in still another way, while they are there.
    with stead.read_session(path, engine="pread", block=8192, memory="20MiB") as s, ThreadPoolExecutor(3) as threads:
        pieces = list(threads.map(lambda at: s.pread(at, min(9_999, SIZE - at)) == data[at : at + 9_999], range(0, SIZE, 9_999)))
    assert all(pieces)
    end(children)


def test_while_they_wait_they_cost_nothing(path, data):
    """Two that have read all and keep it open, and one whose read waits for memory that its own views hold."""
    block = 1 << 20
    large = path.with_name("large")
    with open(large, "wb") as file:
        file.truncate(24 * block)
    os.utime(large, (1.7e9, 1.7e9))
    alike = {"block": 65536, "memory": "17MiB"}
    children = begin(path, [alike, alike])
    # So little memory is shared with nobody.
    children += begin(large, [{"block": block, "memory": 16 * block, "holds": 20, "ahead": False}])
    assert [said["got"] == sums(data) for said in told(children)] == [True, True, False]
    try:
        children[0].wait(timeout=1)
    except subprocess.TimeoutExpired:
        pass
    said = end(children)
    assert [one["waits"] for one in said] == [False, False, True]
    # Of a second and more.
    assert all(one["cpu"] < 0.1 for one in said), said
