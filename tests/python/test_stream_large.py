"""Shapes of more than 32 bits can count, of which little is put: in memory, in files, and by way of ADIOS2."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import stead
import stead.adios2
from test_streams import space

__all__ = ["space"]

LINE = 1 << 40
PLANE = (1 << 20, 1 << 20)
B32, B39 = 1 << 32, 1 << 39
#: Where blocks begin, and of how many elements they are: one that begins below 2**32 and ends above, one right after it, and those far beyond.
BLOCKS = [(B32 - 1000, 1500), (B32 + 500, 1000), (B39 + 1, 5000), (LINE - 7, 7)]
#: Of the plane: over the place where elements are more than 32 bits can count, a column after it, and the last corner.
PARTS = [((4095, 7), (2, 300)), ((4097, 7), (600_000, 1)), ((PLANE[0] - 2, PLANE[1] - 3), (2, 3))]


def at(places: np.ndarray, dtype: str) -> np.ndarray:
    """What is at these places of an array, in C order."""
    return ((places.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)).astype(dtype)


def along(start: int, count: int, dtype: str) -> np.ndarray:
    return at(np.arange(start, start + count, dtype=np.uint64), dtype)


def over(start: tuple[int, int], count: tuple[int, int], dtype: str) -> np.ndarray:
    y = np.arange(start[0], start[0] + count[0], dtype=np.uint64)[:, None]
    return at(y * np.uint64(PLANE[1]) + np.arange(start[1], start[1] + count[1], dtype=np.uint64), dtype)


def put(w: stead.StreamWriter, line: str, plane: str) -> None:
    with w.step():
        for start, count in BLOCKS:
            w.put("line", along(start, count, line), shape=(LINE,), start=(start,), dims="x")
        for start, count in PARTS:
            w.put("plane", over(start, count, plane), shape=PLANE, start=start, dims=("y", "x"))


def blocks(step: stead.Step) -> list[tuple[int, int]]:
    return [(one.start, one.stop - one.start) for _, (one,) in step.parts("line")]


def right(step: stead.Step, line: str, plane: str) -> None:
    assert step.variable("line").shape == (LINE,) and step.variable("plane").shape == PLANE
    assert step.variable("line").nbytes == LINE * np.dtype(line).itemsize
    for start, count in [*BLOCKS, (B32 - 3, 6), (B32 - 1000, 2500), (B32 + 499, 2), (B39 + 4990, 11), (LINE - 1, 1)]:
        wanted = along(start, count, line)
        for got in (step.get("line", np.s_[start : start + count]), step.get("line", ((start,), (count,)))):
            assert got.dtype == line and got.shape == (count,) and (got == wanted).all(), (start, count)
        assert (step.get("line", np.s_[start : start + count : 2]) == wanted[::2]).all()
        out = np.zeros(count, line)
        assert (step.get_into("line", np.s_[start : start + count], out) == wanted).all()
    assert (step.get("line", np.s_[-7:]) == along(LINE - 7, 7, line)).all() and step.get("line", B39 + 3) == along(B39 + 3, 1, line)[0]
    for start, count in [*PARTS, ((4095, 7), (3, 1)), ((4096, 300), (1, 7)), ((604_000, 7), (97, 1))]:
        box = tuple(slice(s, s + n) for s, n in zip(start, count))
        got = step.get("plane", box)
        assert got.dtype == plane and (got == over(start, count, plane)).all(), (start, count)
    # Nobody has put what lies between.
    with pytest.raises(stead.NotFoundError, match=rf"nobody has put \[{B39}:{B39 + 1}\]"):
        step.get("line", np.s_[B39 : B39 + 2])
    filled = step.get("line", np.s_[B39 - 1 : B39 + 4], fill=77)
    assert (filled[:2] == 77).all() and (filled[2:] == along(B39 + 1, 3, line)).all()
    # What is 2**32 further is not taken for what is here.
    with pytest.raises(stead.NotFoundError, match="nobody has put"):
        step.get("line", np.s_[B39 + 1 + B32 : B39 + 2 + B32])
    with pytest.raises(stead.UsageError, match="is not within"):
        step.get("line", ((LINE - 1,), (2,)))


def test_boxes_beyond_32_bits_are_had_from_memory_and_from_files(space, tmp_path):
    with stead.writer("far", keep=1, persist=tmp_path / "run", dataspaces=space) as w, stead.reader("far", dataspaces=space) as r:
        for _ in range(2):
            put(w, "u1", "i2")
            step = r.next()
            right(step, "u1", "i2")
            assert not step.get("line", np.s_[B39 + 5 : B39 + 9]).flags.owndata
            assert blocks(step) == BLOCKS
            told = {v["name"]: v["shape"] for v in stead.stream_info("far", dataspaces=space)["variables"]}
            assert told == {"line": [LINE], "plane": list(PLANE)}
            assert stead.explain_stream("far", dataspaces=space)["bytes"] == step.bytes
            del step
        # The first step has gone from memory.
        with stead.reader("far", group="late", start="first", dataspaces=space) as late:
            for n in range(2):
                step = late.next()
                assert step.number == n
                right(step, "u1", "i2")
                del step
    for step in stead.reader(tmp_path / "run", dataspaces=space):
        right(step, "u1", "i2")
    assert step.number == 1


@pytest.mark.skipif(importlib.util.find_spec("adios2") is None, reason="the package adios2 is not installed")
def test_boxes_beyond_32_bits_go_to_adios2_and_come_back(space, tmp_path):
    """Of types of more than a byte: of the others ADIOS2 does not tell the blocks."""
    with stead.writer("out", keep=1, dataspaces=space) as w:
        put(w, "i4", "i2")
    assert stead.adios2.copy_out("out", tmp_path / "far.bp", dataspaces=space) == 1
    assert stead.adios2.copy_in(tmp_path / "far.bp", "in", keep=1, dataspaces=space) == 1
    with stead.reader("in", dataspaces=space) as r:
        step = r.next()
        right(step, "i4", "i2")
        assert sorted(blocks(step)) == BLOCKS
        del step
