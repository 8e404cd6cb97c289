"""The system's calls fail, or give less than was asked for: each face gives one typed error to whoever asked for those
bytes, and the right bytes to all others."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import time

import pytest
from rigs import CHANGED, DIRECT, IO, ON_DEMAND, PREAD, URING, right
from support import repeats

SIZE = 3_000_005
BAD, END = 1_500_000, 1_500_100


@pytest.fixture(scope="module")
def data() -> bytes:
    return random.Random(7).randbytes(SIZE)


@pytest.fixture
def path(data, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(data)
    return path


@pytest.fixture
def faults(shim, path, tmp_path):
    """The environment of a program for which reads of the file are faulty; and what was done, by and by."""
    counts = tmp_path / "counts"
    counts.write_bytes(bytes(24))

    def env(**more: str) -> dict[str, str]:
        return {"LD_PRELOAD": str(shim), "SHIM_FILE": str(path), "SHIM_COUNTS": str(counts), **more}

    env.counts = lambda: struct.unpack("<3Q", counts.read_bytes())
    return env


@pytest.mark.parametrize("flags", [PREAD, PREAD | ON_DEMAND])
def test_bad_bytes_are_errors_of_those_who_ask_for_them(face, path, data, faults, flags):
    repeats(face.is_thin and flags != PREAD)
    reader = face(path, flags, **faults(SHIM_BAD=f"{BAD}-{END}"))
    for way in face.ways:
        for offset, length in [(0, 5000), (BAD - 5000, 5000), (END, 5000), (SIZE - 3000, 3000), (BAD - 400_000, 400_000)]:
            reader.gives(way, offset, length, data)
        # Twice: what has failed is tried again.
        for _ in range(2):
            for offset, length in [(BAD - 2000, 4000), (BAD + 10, 50), (BAD - 500_000, 1_000_000)]:
                reader.fails(way, offset, length, IO, max(BAD, offset))
    if face.strides:
        reader.strides(BAD, data)
    reader.end()
    assert faults.counts()[1] > 0


def test_short_reads_give_the_right_bytes(face, path, data, faults):
    reader = face(path, PREAD | ON_DEMAND, **faults(SHIM_SHORT="20000"))
    for way in face.ways:
        for offset, length in [(0, 400_000), (777_777, 1), (SIZE - 100_000, 100_000)]:
            reader.gives(way, offset, length, data)
    if face.strides:
        reader.gives("strided", 12_345, 200_000, data)
    reader.end()
    assert faults.counts()[2] > 10


def test_the_command_says_what_and_where(stead, path, data, faults):
    env = os.environ | faults(SHIM_BAD=f"{BAD}-{END}")
    for args in [("read", path, "--tasks", 100), ("run", path, "-k", "entropy", "--type", "lines"), ("read", path, "--tasks", 9, "--buffers")]:
        stead.fails(*args, "--engine", "pread", code=1, says=(str(path), str(BAD), "input/output error"), env=env)
    for part in (f"0-{BAD}", f"{END}-"):
        stead("read", path, "--engine", "pread", "--tasks", 100, "--range", part, env=env)
    failed = faults.counts()[1]
    assert failed >= 3
    env = os.environ | faults(SHIM_SHORT="5000")
    for args in [("read", path, "--tasks", 100, "--explain"), ("run", path, "-k", "digits", "--type", "lines")]:
        stead(*args, "--engine", "pread", env=env)
    for kernel in ("digits", "entropy"):
        plain = stead.result(path, kernel, type="lines")
        cut = stead("run", path, "-k", kernel, "--type", "lines", "--engine", "pread", "--format", "csv", env=env).stdout
        assert cut == stead("run", path, "-k", kernel, "--type", "lines", "--format", "csv").stdout, plain
    assert faults.counts()[2] > 100 and faults.counts()[1] == failed


@pytest.mark.parametrize("flags", [0, ON_DEMAND, ON_DEMAND | DIRECT, ON_DEMAND | URING, ON_DEMAND | PREAD])
def test_a_file_becomes_shorter_during_the_session(face, path, data, flags):
    repeats(face.is_thin and flags != 0)
    reader = face(path, flags)
    now = 1_000_123
    for way in face.ways:
        reader.gives(way, 0, 5000, data)
    os.truncate(path, now)
    for way in face.ways:
        for offset in (now + 1_000_000, now, SIZE - 10_000):
            answer = reader.ask(way, offset, 5000)
            assert answer[:2] == ("error", str(CHANGED)) and answer[3] == str(path), (way, offset, answer)
        # Bytes that are still there may be refused, and are never others.
        answer = reader.ask(way, 4000, 5000)
        assert answer == right(way, 4000, 5000, data) or answer[:2] == ("error", str(CHANGED)), (way, answer)
    reader.end()


def test_the_command_does_not_wait_for_ever(stead, path, faults):
    env = os.environ | faults(SHIM_HELD=f"{BAD}-{END}")
    args = ["read", path, "--tasks", "100", "--engine", "pread"]
    stead.fails(*args, "--deadline", "1", code=1, says=(str(path), "in time"), env=env, timeout=100)
    stead(*args, "--deadline", "60", "--on-demand", "--range", "0-1000000", "--block", "4KiB", env=env)


def test_ctrl_c_while_the_device_hangs(stead, path, faults):
    """Once is enough, and there is one message."""
    env = os.environ | faults(SHIM_HELD=f"{BAD}-{END}")
    before = faults.counts()[0]
    p = subprocess.Popen(
        [stead.path, "read", path, "--tasks", "100", "--engine", "pread"], cwd=stead.cwd, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while faults.counts()[0] == before and p.poll() is None:
        time.sleep(0.005)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=100)
    assert (p.returncode, out) == (130, b"") and err.count(b"stead:") == 1, err
