"""Streams of programs that may have few files open, and in memory that is full: errors say so, nothing is left, and all goes on with room."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import stead
from test_streams import PATIENCE, ended, programs, space

__all__ = ["programs", "space"]

HEAD = """
import gc, resource

most = resource.getrlimit(resource.RLIMIT_NOFILE)

def opened():
    # Without the folder itself.
    return len(os.listdir("/proc/self/fd")) - 1

def limit(files):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most[1]))
"""


def test_a_program_that_may_have_no_more_files_open_is_told_wherever_it_lacks_one(space, programs):
    """Every number of files is the one too few for something else: nothing is left of what has failed, and it can be done again at once."""
    code = """
def cycle():
    with stead.writer("sim", dataspaces=S) as w:
        with w.step():
            w.put("T", np.arange(1000.0))
        with stead.reader("sim", dataspaces=S) as r:
            assert (r.next()["T"] == np.arange(1000.0)).all()

cycle()
gc.collect()
before, said = opened(), []
for free in range(60):
    limit(before + free)
    try:
        cycle()
        break
    except stead.LimitError as e:
        said.append(str(e))
    finally:
        limit(most[0])
    gc.collect()
    assert opened() == before, (free, opened(), before)
    # Its name is free, too.
    cycle()
else:
    raise AssertionError(said)
# That one may have lacked a file to clear up with.
cycle()
gc.collect()
assert opened() == before, (opened(), before)
for one in said:
    assert "too many open files" in one and "ulimit -n" in one, one
say(len(said))
"""
    assert int(ended(programs.begin(HEAD + code))) >= 5


def test_a_program_with_many_streams_goes_on_when_some_are_closed(space, programs):
    code = """
def begin(n):
    writers.append(stead.writer(f"s{n}", readers=1, dataspaces=S))
    readers.append(stead.reader(f"s{n}", dataspaces=S))

def hand(n, value):
    with writers[n].step():
        writers[n].put("T", np.full(10, value))
    assert (readers[n].next()["T"] == value).all()

writers, readers = [], []
begin(0)
hand(0, 0)
writers.pop().close()
readers.pop().close()
gc.collect()
before = opened()
limit(64)
try:
    for n in range(100):
        begin(n)
        hand(n, n)
    raise AssertionError("all of them")
except stead.LimitError as e:
    said = str(e)
assert "ulimit -n" in said, said
whole = len(readers) - 1
assert 3 <= whole < 30, whole
# What is not whole goes, and one that is.
while len(readers) >= whole:
    readers.pop().close()
while len(writers) > len(readers):
    writers.pop().abandon()
gc.collect()
for n in range(len(readers)):
    hand(n, 1000 + n)
begin("more")
hand(len(readers) - 1, 7)
for one in [*writers, *readers]:
    one.close()
del one, writers, readers
gc.collect()
limit(most[0])
assert opened() == before, (opened(), before)
for name in stead.streams(dataspaces=S):
    stead.remove_stream(name, force=True, dataspaces=S)
say(whole)
"""
    ended(programs.begin(HEAD + code))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")
def test_a_full_memory_is_told_and_a_stream_goes_on_when_there_is_room(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", small], check=True)
    try:
        own, other = small / "own", small / "other"
        own.mkdir(0o700)
        spaces = {"memory": str(own)}

        def fill(left: int) -> None:
            room = os.statvfs(small)
            other.write_bytes(bytes(room.f_bavail * room.f_frsize - left))

        with stead.writer("sim", keep=1, timeout=PATIENCE, dataspaces=spaces) as w, stead.reader("sim", timeout=PATIENCE, dataspaces=spaces) as r:
            with w.step():
                w.put("T", np.full(1 << 20, 7, "u1"))
            w.begin_step()
            fill(2 << 20)
            with pytest.raises(stead.NoSpaceError, match="cannot take 4.0 MiB of memory: .* are free here") as told:
                w.put("T", np.full(4 << 20, 8, "u1"))
            assert str(own) in str(told.value) and "made larger" in str(told.value)
            # What fits can be put, and what was complete is read.
            w.put("few", np.arange(9))
            assert (r.next()["T"] == 7).all()
            with pytest.raises(stead.NoSpaceError):
                w.put("T", np.full(4 << 20, 8, "u1"))
            # Somebody else gives some back: the same step goes on.
            other.unlink()
            w.put("T", np.full(4 << 20, 8, "u1"))
            w.end_step()
            step = r.next()
            assert (step["T"] == 8).all() and (step["few"] == np.arange(9)).all() and step["T"].size == 4 << 20
            # Nor is there room to begin a stream with, of which nothing is left then.
            fill(100 << 10)
            with pytest.raises(stead.NoSpaceError):
                stead.writer("more", dataspaces=spaces)
            assert stead.streams(dataspaces=spaces) == ["sim"] and len(list(Path(own).glob(".streams-*/*"))) == 1
            other.unlink()
            with stead.writer("more", dataspaces=spaces) as more, more.step():
                more.put("T", np.zeros(9))
            assert stead.remove_stream("more", dataspaces=spaces)
            del step
        assert stead.streams(dataspaces=spaces) == []
    finally:
        subprocess.run(["umount", "-l", small], check=True)
