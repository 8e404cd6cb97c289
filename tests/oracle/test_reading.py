"""`stead read`: the same bytes for any tasks, options and order, by NumPy's word; errors are those of the request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("reading") / "data.bin"
    np.random.default_rng(3).integers(0, 256, 3_000_005, dtype=np.uint8).tofile(path)
    return path


def words(path, start=0, end=None) -> int:
    """The bytes as little-endian numbers of 64 bits, added up."""
    part = np.fromfile(path, dtype=np.uint8)[start:end]
    padded = np.concatenate([part, np.zeros(-len(part) % 8, np.uint8)])
    return int(padded.view("<u8").sum(dtype=np.uint64))


def read(stead, *args) -> dict:
    return json.loads(stead("read", *args, "--format", "json").stdout)


@pytest.mark.parametrize("tasks", [1, 3, 1000, 400_000, 5_000_000])
@pytest.mark.parametrize("way", [(), ("--scattered",), ("--buffers",), ("--engine", "pread"), ("--buffers", "--engine", "uring")])
def test_any_number_of_tasks_reads_the_same(stead, data, tasks, way):
    found = read(stead, data, "--tasks", tasks, "--block", "64KiB", "--memory", "1MiB", *way)
    assert (found["bytes"], found["sum"]) == (3_000_005, words(data))
    assert found["requests"] == tasks


def test_a_range_and_a_comparison(stead, data):
    for text, start, end in [("1000-2000008", 1000, 2_000_008), ("4KiB+80000", 4096, 84_096), ("-5", 0, 5), ("3000000-", 3_000_000, None), ("7-7", 7, 7)]:
        found = read(stead, data, f"--range={text}", "--compare", "--tasks", 50)
        assert found["sum"] == words(data, start, end)
        assert found["alone"]["seconds"] > 0


def test_what_was_chosen_is_told(stead, data):
    found = read(stead, data, "--readers", 3, "--block", "100000", "--queue-depth", 2, "--memory", "8MiB")
    chosen = {c["name"]: (c["value"], c["reason"]) for c in found["choices"]}
    assert chosen["readers"] == ("3", "as asked for")
    assert chosen["queue depth"][0] == "2"
    text = stead("read", data, "--explain", "--compare").stdout.decode()
    for word in ["tasks alone", "chosen", "readers", "block", "queue depth"]:
        assert word in text, text


def test_bytes_of_the_device_are_counted(stead, data):
    """Not those of the page cache, where views are of it."""
    found = read(stead, data, "--engine", "pread")
    assert found["bytes_fetched"] == found["bytes"] and found["blocks_fetched"] > 0


def test_an_empty_file(stead, tmp_path):
    (tmp_path / "empty").touch()
    found = read(stead, "empty", "--tasks", 10, "--compare")
    assert (found["bytes"], found["sum"]) == (0, 0)


def test_progress_goes_to_the_error_stream(stead, data):
    done = stead("read", data, "--progress", "always")
    assert b"100 %" in done.stderr


def test_nothing_is_read_before_a_task_asks(stead, data):
    """Each task has a block of its own, and comes first to it."""
    args = ["--range", "0-2MiB", "--tasks", 32, "--block", "64KiB", "--engine", "pread", "--threads", 1]
    found = read(stead, data, *args, "--on-demand")
    assert found["sum"] == words(data, 0, 2 << 20)
    assert (found["requests"], found["requests_answered_at_once"], found["blocks_fetched"]) == (32, 0, 32)


def test_blocks_are_shared_with_other_processes_or_not(stead, tmp_path):
    (tmp_path / "old").write_bytes(bytes(100_000))
    os.utime(tmp_path / "old", (1.7e9, 1.7e9))
    (tmp_path / "new").write_bytes(bytes(100_000))
    os.utime(tmp_path / "new", (2e9, time.time() + 1000))
    together, alone = "have blocks and memory together", "as asked for"
    for file, more, reason in [
        ("old", (), together), ("old", ("--no-share",), alone), ("new", (), "the file changed a moment ago"), ("new", ("--no-share",), alone),
    ]:  # fmt: skip
        found = read(stead, file, "--engine", "pread", "--tasks", 10, *more)
        (shared,) = [c for c in found["choices"] if c["name"] == "shared"]
        assert reason in shared["reason"] and shared["value"] == "with no other process"


def test_past_the_page_cache(stead, data):
    for engine in ("pread", "uring"):
        found = read(stead, data, "--direct", "--engine", engine, "--tasks", 70, "--compare", "--scattered")
        assert (found["sum"], found["bytes_fetched"]) == (words(data), found["bytes"])


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("way", [("--buffers",), ("--engine", "pread"), ("--engine", "pread", "--compare", "--scattered")])
def test_ctrl_c_ends_it_with_one_message(stead, tmp_path, sign, way):
    with open(tmp_path / "large", "wb") as f:
        f.truncate(1 << 40)
    # Jobs in the background of a shell do not hear Ctrl-C, and what they begin does not, either.
    p = subprocess.Popen(
        [stead.path, "read", "large", "--tasks", "1000000", *way], cwd=stead.cwd, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    begun = time.monotonic()
    while not any("stead-read" in name for name in threads(p.pid)) and time.monotonic() < begun + 60:
        time.sleep(0.005)
    time.sleep(0.2)
    p.send_signal(sign)
    out, err = p.communicate(timeout=60)
    assert (p.returncode, out) == (130, b""), err
    assert err.count(b"stead:") == 1 and b"stopped" in err, err


def threads(pid: int) -> list[str]:
    names = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm") as f:
                names.append(f.read())
        except OSError:
            pass  # it has ended
    return names


def test_bad_requests(stead, data, tmp_path):
    stead.fails("read", "missing.bin", code=1, says=("missing.bin",))
    assert not (tmp_path / "missing.bin").exists()
    stead.fails("read", ".", code=2, says=("directory",))
    stead.fails("read", data, "--range", "5-4", code=2, says=("do not lie within",))
    stead.fails("read", data, "--range", "0-3000006", code=2, says=("do not lie within",))
    stead.fails("read", data, "--range", "x", code=2, says=("FROM-TO",))
    stead.fails("read", data, "--tasks", "0", code=2, says=("--tasks",))
    os.mkfifo(tmp_path / "pipe")
    stead.fails("read", "pipe", code=2, says=("pipe",))


def test_measured_tiers_are_remembered_and_never_trusted(stead, data, tmp_path):
    cache = tmp_path / "cache"
    environment = {**os.environ, "STEAD_CACHE": str(cache)}
    (cache).mkdir()
    for text in [b"", b"stead tiers 1\n", b"stead tiers 9\nnonsense", b"\xff\xfe" * 100, b"x" * 1_000_000]:
        (cache / "tiers").write_bytes(text)
        found = json.loads(stead("read", data, "--format", "json", env=environment).stdout)
        assert found["sum"] == words(data)
        # Too little was read to say anything of the tier.
        assert (cache / "tiers").read_bytes() == text
