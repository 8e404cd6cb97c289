"""What each writer and each reader does, in a process of its own. All that happens is told as a line of JSON."""

from __future__ import annotations

import json
import os
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import stead
from cases import Case
from layouts import parts, values, wrong

PATIENCE_S = 60


class Voice:
    """Tells of one rank by a pipe. Lines of several processes do not mix: each is written at once."""

    def __init__(self, pipe: int, role: str, rank: int) -> None:
        self.pipe, self.who = pipe, {"role": role, "rank": rank}

    def say(self, **told: object) -> None:
        os.write(self.pipe, (json.dumps(self.who | told)[:4000] + "\n").encode())


@dataclass
class Place:
    """Where a rank is: how it comes to the stream, and a folder for what its node records."""

    files: str
    dataspaces: dict[str, str] | None = None
    # Of a coupling: it knows the ranks, and where memory is.
    comm: object = None

    def of(self, **ranks: int) -> dict:
        """What the stream is opened with, by one of so many ranks."""
        return {"comm": self.comm} if self.comm else ranks | {"dataspaces": self.dataspaces}


def compute(chance: random.Random, pace_ms: float) -> None:
    if pace_ms:
        time.sleep(chance.uniform(0, pace_ms) / 1000)


def write(name: str, case: Case, rank: int, place: Place, voice: Voice, ready: Callable[[], object]) -> None:
    """One of the writers. It begins when `ready` returns."""
    chance = random.Random(f"{case.seed} writer {rank}")
    given = {"memory": case.memory} if case.memory else {}
    policy = {"keep": case.keep, "queue": case.queue, "readers": len(case.groups)}
    if case.persist or case.spills():
        policy["persist" if case.persist else "spill"] = place.files
    with stead.writer(name, timeout=PATIENCE_S, **place.of(rank=rank, writers=case.writers), **policy, **given) as w:
        voice.say(at="here")
        ready()
        for step in range(case.steps):
            shape = case.shape_at(step)
            boxes = parts(case.layout, shape, case.writers, case.seed)[rank]
            voice.say(at="step", step=step)
            with w.step():
                for start, count in boxes:
                    for variable, dtype in case.variables().items():
                        mine = values(variable, step, shape, (start, count), dtype)
                        if case.made == "empty":
                            room = w.empty(variable, shape, dtype, start=start, count=count)
                            room[...] = mine
                            mine = room
                        w.put(variable, mine, shape=shape, start=start, dims=tuple("abcd"[: len(shape)]), units="1")
                voice.say(at="put", step=step)
                compute(chance, case.pace_ms)
            voice.say(at="ended", step=step)
        voice.say(at="closing")


def replay(case: Case, place: Place, voice: Voice) -> None:
    """Reads all that was recorded, as the first rank of the first group."""
    with stead.reader(place.files, timeout=PATIENCE_S, dataspaces=place.dataspaces) as r:
        for step in r:
            found = looked_at(case, step, 0, 0)
            voice.say(at="step", step=step.number, dropped=step.dropped, bytes=sum(array.nbytes for *_, array in found))


def read(name: str, case: Case, group: int, rank: int, place: Place, voice: Voice, ready: Callable[[], object] = lambda: None) -> None:
    """One of the ranks of a group of readers. It looks at each element that it gets, again when it has gone on, and now and then at older
    steps that are still there."""
    mine = case.groups[group]
    chance = random.Random(f"{case.seed} group {group} reader {rank}")
    how = {"group": f"group{group}", "start": mine.start, "behind": mine.behind}
    with stead.reader(name, timeout=PATIENCE_S, **place.of(rank=rank, ranks=mine.ranks), **how) as r:
        voice.say(at="here")
        ready()
        held: deque = deque()
        for step in r:
            found = looked_at(case, step, group, rank)
            voice.say(at="step", step=step.number, dropped=step.dropped, bytes=sum(array.nbytes for *_, array in found))
            held.append(found)
            while len(held) > mine.hold:
                look_again(held.popleft())
            compute(chance, mine.pace_ms)
            if chance.random() < 0.2 and (there := r.steps):
                try:
                    looked_at(case, r.at(chance.choice(there)), group, rank)
                except stead.NotFoundError:
                    # It has gone meanwhile.
                    pass
        for found in held:
            look_again(found)
        voice.say(at="closing")


def looked_at(case: Case, step: stead.Step, group: int, rank: int) -> list:
    """What a rank gets of a step; an error if any of it is wrong."""
    mine, shape = case.groups[group], case.shape_at(step.number)
    if sorted(step) != sorted(case.variables()):
        raise AssertionError(f"step {step.number} has {sorted(step)}")
    had = []
    for variable, dtype in case.variables().items():
        known = step.variable(variable)
        if (known.shape, known.dtype.str[1:], known.units) != (shape, dtype, "1"):
            raise AssertionError(f"step {step.number} has {known!r} {known.units!r}")
        for box in parts(mine.layout, shape, mine.ranks, case.seed + 1 + group)[rank]:
            had.append((variable, step.number, shape, box, step.get(variable, box)))
    look_again(had)
    return had


def look_again(had: list) -> None:
    for what in had:
        if said := wrong(*what):
            raise AssertionError(said)
