"""What is in each element of a variable, and which parts of a variable each rank has."""

from __future__ import annotations

import math
import random
import zlib

import numpy as np

Box = tuple[tuple[int, ...], tuple[int, ...]]

# How an array is divided. What writers have together is all of it, once; readers may also have all of it each, or boxes anywhere.
LAYOUTS = ("rows", "columns", "blocks", "several", "cuts", "one")
READERS = (*LAYOUTS, "all", "boxes")
DTYPES = ("f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1")


def values(name: str, step: int, shape: tuple[int, ...], box: Box, dtype: str) -> np.ndarray:
    """A part of a variable: each element depends on its place, the step and the name of the variable, and on nothing else."""
    start, count = box
    place = np.zeros(count, np.uint64)
    for axis, (first, n) in enumerate(zip(start, count)):
        beyond = math.prod(shape[axis + 1 :])
        along = np.arange(first, first + n, dtype=np.uint64) * np.uint64(beyond)
        place = place + along.reshape([-1 if at == axis else 1 for at in range(len(shape))])
    salt = (zlib.crc32(name.encode()) << 32 | step) * 0xD1B54A32D192ED03 % 2**64
    with np.errstate(over="ignore"):
        x = (place + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(salt)
        x = (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    # Floats have whole numbers that they are exact for.
    kept = {"f8": 12, "f4": 40}.get(dtype, 0)
    return np.asarray(x >> np.uint64(kept)).astype(dtype)


def wrong(name: str, step: int, shape: tuple[int, ...], box: Box, found: np.ndarray) -> str | None:
    """The first element that is not what it should be, in words."""
    right = values(name, step, shape, box, found.dtype.str[1:])
    if found.shape != right.shape:
        return f"'{name}' of step {step} at {box} has the shape {found.shape}"
    where = np.argwhere(found != right)
    if len(where) == 0:
        return None
    at = tuple(int(i) for i in where[0])
    place = tuple(i + first for i, first in zip(at, box[0]))
    return f"'{name}' of step {step} is {found[at]} and not {right[at]} at {place}, as are {len(where)} elements of {box}"


def parts(layout: str, shape: tuple[int, ...], ranks: int, seed: int) -> list[list[Box]]:
    """The boxes of each rank."""
    chance = random.Random(f"{layout} {shape} {ranks} {seed}")
    whole: Box = ((0,) * len(shape), tuple(shape))
    if not shape or layout == "one":
        return [[whole] if rank == 0 else [] for rank in range(ranks)]
    if layout == "all":
        return [[whole] for _ in range(ranks)]
    if layout == "boxes":
        return [[anywhere(shape, chance) for _ in range(3)] for _ in range(ranks)]
    if layout == "cuts":
        return deal(cuts(whole, chance.randint(ranks, 4 * ranks), chance), ranks, chance)
    last = [1] * (len(shape) - 1)
    if layout == "rows":
        ways = [ranks, *last]
    elif layout == "columns":
        ways = [*last, ranks]
    elif layout == "several":
        return deal(grid(shape, [3 * ranks, *last[1:], 2][: len(shape)]), ranks, None)
    else:
        few = max(n for n in range(1, ranks + 1) if ranks % n == 0 and n * n <= ranks)
        ways = [few, ranks // few, *last[1:]] if last else [ranks]
    return [[box] for box in grid(shape, ways)]


def grid(shape: tuple[int, ...], ways: list[int]) -> list[Box]:
    """All of an array, cut in so many ways along each dimension."""
    boxes: list[Box] = [((), ())]
    for length, n in zip(shape, ways):
        along = [(i * length // n, (i + 1) * length // n) for i in range(n)]
        boxes = [((*start, first), (*count, stop - first)) for start, count in boxes for first, stop in along]
    return boxes


def cuts(box: Box, n: int, chance: random.Random) -> list[Box]:
    """A box cut into so many, the largest one each time, anywhere."""
    boxes = [box]
    while len(boxes) < n:
        start, count = boxes.pop(max(range(len(boxes)), key=lambda i: math.prod(boxes[i][1])))
        axis = chance.choices(range(len(count)), [max(c, 1) for c in count])[0]
        at = chance.randint(0, count[axis])
        boxes.append((start, (*count[:axis], at, *count[axis + 1 :])))
        boxes.append(((*start[:axis], start[axis] + at, *start[axis + 1 :]), (*count[:axis], count[axis] - at, *count[axis + 1 :])))
    return boxes


def deal(boxes: list[Box], ranks: int, chance: random.Random | None) -> list[list[Box]]:
    """Boxes for all ranks, in turn or by chance: some may have none."""
    hands: list[list[Box]] = [[] for _ in range(ranks)]
    for i, box in enumerate(boxes):
        hands[chance.randrange(ranks) if chance else i % ranks].append(box)
    return hands


def anywhere(shape: tuple[int, ...], chance: random.Random) -> Box:
    """Some box of an array."""
    ends = [sorted(chance.randint(0, length) for _ in range(2)) for length in shape]
    return tuple(first for first, _ in ends), tuple(stop - first for first, stop in ends)
