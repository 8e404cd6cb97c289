"""What is right: who has had which steps, who was told of whom, and what is left."""

from __future__ import annotations

from dataclasses import dataclass, field

from cases import Case


@dataclass
class Rank:
    """A process, and what it has told."""

    role: str
    rank: int
    pid: int
    told: list[dict] = field(default_factory=list)
    status: int | None = None

    def __str__(self) -> str:
        return f"{self.role} {self.rank}"

    def steps(self, at: str = "step") -> list[int]:
        return [line["step"] for line in self.told if line["at"] == at]

    def has(self, at: str) -> bool:
        return any(line["at"] == at for line in self.told)

    @property
    def error(self) -> dict | None:
        return next((line for line in self.told if line["at"] == "error"), None)


def names(error: dict, dead: Rank) -> bool:
    """An error that tells who is gone, and says so."""
    return error["kind"] == "PeerError" and f"writer {dead.rank} of stream" in error["text"] and f"(process {dead.pid})" in error["text"]


def ends(ranks: list[Rank], dead: Rank | None) -> list[str]:
    """All have come to their end, but for who was killed; those who are told of that are told who it was."""
    writer_died, found = dead is not None and dead.role == "writer", []
    for one in ranks:
        if one is dead:
            continue
        if one.error and not (writer_died and names(one.error, dead)):
            found.append(f"{one}: {one.error['kind']}: {one.error['text']}")
        elif not one.error and not one.has("end"):
            found.append(f"{one} has ended without a word")
    return found


def steps(case: Case, ranks: list[Rank], dead: Rank | None) -> list[str]:
    """All readers have had all complete steps, but for those that they were told they have missed."""
    found, writer_died = [], dead is not None and dead.role == "writer"
    writers = [r for r in ranks if r.role == "writer"]
    # A step that all writers have ended is complete, and none is that one of them has not come to.
    least = min(len(w.steps("ended")) for w in writers)
    most = min(len(w.steps()) for w in writers)
    readers = [r for r in ranks if r.role not in ("writer", "replay") and r is not dead]
    over = writer_died and any(r.error for r in readers)
    complete = max((r.steps()[-1] + 1 for r in readers if r.steps()), default=0) if over else case.steps
    if readers and not (least <= complete <= most):
        found.append(f"{complete} steps are complete: writers have ended {least}, and begun {most}")
    for one in readers:
        group = case.groups[int(one.role.removeprefix("group"))]
        expected = 0
        for line in one.told:
            if line["at"] != "step":
                continue
            if line["step"] != expected + line["dropped"]:
                found.append(f"{one} is given step {line['step']} after {expected - 1}, and told of {line['dropped']} dropped ones")
            if line["dropped"] and group.behind != "drop":
                found.append(f"{one}, which is waited for, has missed {line['dropped']} steps before {line['step']}")
            expected = line["step"] + 1
        if expected != complete:
            found.append(f"{one} has had steps up to {expected - 1}, and {complete} are complete")
        if one.error and complete and f"after step {complete - 1}" not in one.error["text"]:
            found.append(f"{one} is told '{one.error['text']}' after step {complete - 1}")
        if over and not one.error:
            found.append(f"{one} is not told that a writer has died, and others are")
    for one in ranks:
        # A writer that has died may have recorded fewer steps than it has ended.
        if one.role == "replay":
            had = one.steps()
            if had != list(range(len(had))) or len(had) > most or (len(had) != case.steps and not writer_died):
                found.append(f"{one} has had {had}, of which writers have ended {least} and begun {most}")
    return found + alike(case, readers)


def alike(case: Case, readers: list[Rank]) -> list[str]:
    """All ranks of a group are given the same steps, also where it may miss some."""
    found = []
    for n, group in enumerate(case.groups):
        first, *others = [one for one in readers if one.role == f"group{n}"] or [None]
        for one in others:
            mine, theirs = one.steps(), first.steps()
            if mine != theirs:
                at = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b), min(len(mine), len(theirs)))
                said = f"{mine[at : at + 3]} after {at} of them, and {first} steps {theirs[at : at + 3]}"
                found.append(f"{one} ({group.behind}) is given steps {said}")
    return found
