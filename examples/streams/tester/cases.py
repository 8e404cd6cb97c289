"""What a run of the tester does, and cases that are drawn by chance from a seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import numpy as np
from layouts import DTYPES, LAYOUTS, READERS


@dataclass
class Group:
    """Readers that go through the steps together."""

    ranks: int = 1
    layout: str = "rows"
    behind: str = "block"
    start: str = "oldest"
    # Milliseconds that a rank computes for each step, at most.
    pace_ms: float = 0
    # Steps whose arrays a rank still has when it goes on.
    hold: int = 0


@dataclass
class Fault:
    """What is done to one of the processes, or to the daemon of the node: when it, or the first writer, has come to this step, so many
    milliseconds later."""

    what: str = "kill"
    role: str = "writer"
    rank: int = 0
    step: int = 0
    delay_ms: float = 0
    # Of a process that is stopped.
    pause_ms: float = 0

    def __str__(self) -> str:
        who = self.role if self.role == "daemon" else f"{self.role} {self.rank}"
        return f"{self.what} {who} at step {self.step} + {self.delay_ms:.2f} ms"


@dataclass
class Case:
    """A run."""

    seed: int = 0
    writers: int = 1
    layout: str = "rows"
    groups: list[Group] = field(default_factory=lambda: [Group()])
    shape: tuple[int, ...] = (60, 40)
    dtypes: tuple[str, ...] = ("f8",)
    # The first length grows by so much with each step.
    grows: int = 0
    steps: int = 10
    keep: int = 1
    queue: int = 2
    memory: int = 0
    made: str = "copied"
    pace_ms: float = 0
    # All steps are recorded, and read again at the end.
    persist: bool = False
    fault: Fault | None = None

    def variables(self) -> dict[str, str]:
        """Names, and types of elements."""
        return {f"v{n}": dtype for n, dtype in enumerate(self.dtypes)}

    def shape_at(self, step: int) -> tuple[int, ...]:
        """The shape of all variables in a step."""
        return (self.shape[0] + self.grows * step, *self.shape[1:]) if self.shape else ()

    def step_bytes(self) -> int:
        """Bytes of the largest step."""
        return math.prod(self.shape_at(self.steps)) * sum(np.dtype(kind).itemsize for kind in self.dtypes)

    def spills(self) -> bool:
        """Some of the readers are not waited for and have all steps."""
        return any(group.behind == "spill" for group in self.groups)

    def __str__(self) -> str:
        groups = ", ".join(f"{g.ranks} {g.layout} {g.behind} {g.start}" for g in self.groups)
        shape = "x".join(map(str, self.shape)) or "a number"
        policy = f"keep {self.keep} queue {self.queue} memory {self.memory}{' persist' if self.persist else ''}"
        told = f"{self.writers} {self.layout} {self.made} -> {groups}; {self.steps} steps of {shape} {'+'.join(self.dtypes)}; {policy}"
        return f"{told}; {self.fault or 'no fault'}"


def drawn(seed: int, faults: bool = True) -> Case:
    """A case by chance, the same for the same seed. In any so many in a row each layout of writers meets each one of readers."""
    chance = random.Random(seed)
    case = Case(
        seed=seed,
        writers=chance.choice((1, 1, 2, 3, 4)),
        layout=LAYOUTS[seed % len(LAYOUTS)],
        shape=tuple(chance.choice((1, 2, 5, 17, 40)) for _ in range(chance.choice((0, 1, 2, 2, 3, 4)))),
        dtypes=tuple(chance.choices(DTYPES, k=chance.choice((1, 1, 2, 5)))),
        grows=chance.choice((0, 0, 0, 3)),
        steps=chance.randint(4, 20),
        keep=chance.choice((0, 1, 1, 4)),
        queue=chance.choice((1, 2, 3)),
        made=chance.choice(("copied", "empty")),
        pace_ms=chance.choice((0, 0, 1)),
    )
    case.groups = [
        Group(
            ranks=chance.choice((1, 1, 2, 3)),
            layout=chance.choice(READERS) if n else READERS[seed // len(LAYOUTS) % len(READERS)],
            behind=chance.choice(("block", "block", "drop")),
            start=chance.choice(("oldest", "oldest", "next")),
            pace_ms=chance.choice((0, 0, 3)),
            hold=chance.choice((0, 0, 1, 3)),
        )
        for n in range(chance.choice((1, 1, 2)))
    ]
    if chance.random() < 0.5:
        # For the steps that stay, are waited for or looked at, and are made, and no more.
        there = max(case.keep, 1) + case.queue + 2 + sum(g.hold * g.ranks for g in case.groups)
        blocks = 4 * case.writers * len(case.dtypes)
        case.memory = there * (case.step_bytes() + blocks * 4096)
    if faults and chance.random() < 0.75:
        role, ranks = chance.choice([("writer", case.writers), *((f"group{n}", g.ranks) for n, g in enumerate(case.groups))])
        case.fault = Fault(
            what=chance.choice(("kill", "kill", "stop")),
            role=role,
            rank=chance.randrange(ranks),
            step=chance.randrange(case.steps),
            delay_ms=chance.choice((0, chance.uniform(0, 0.5), chance.uniform(0, 5))),
            pause_ms=chance.choice((5, 100, 400)),
        )
    for group in case.groups:
        if group.behind == "block" and chance.random() < 0.3:
            group.behind = "spill"
    case.persist = chance.random() < 0.3
    if faults and seed % 16 == 7:
        # Nobody is to notice it.
        case.fault = Fault("kill", "daemon", step=chance.randrange(case.steps), pause_ms=chance.choice((0, 20)))
    return case
