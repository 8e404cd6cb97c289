"""`stead read`: the same bytes for any tasks, options and order, by NumPy's word; errors are those of the request."""

from __future__ import annotations

import json
import os

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
