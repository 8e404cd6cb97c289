"""Begins the processes of a case, does to one of them what the case says, and judges what they tell."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import stead
from cases import Case
from ranks import PATIENCE_S, Voice, read, write

# Longer than anybody waits for anybody, and for what this machine does beside.
HANGS_S = 2 * PATIENCE_S


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


class Job:
    """The processes of a case. They are forked: what starts them must have no stream, and no threads."""

    def __init__(self, name: str, case: Case, spaces: dict[str, str] | None) -> None:
        self.name, self.case, self.spaces = name, case, spaces
        self.heard, self.mouth = os.pipe()
        # It is open, for writers, when nobody holds its other end any more.
        self.gate, self.latch = os.pipe()
        self.rest = b""
        self.ranks: list[Rank] = []
        self.was_hit = False

    def begin(self, role: str, rank: int) -> None:
        pid = os.fork()
        if pid:
            self.ranks.append(Rank(role, rank, pid))
            return
        code = 1
        try:
            os.close(self.heard)
            os.close(self.latch)
            voice = Voice(self.mouth, role, rank)
            try:
                if role == "writer":
                    write(self.name, self.case, rank, self.spaces, voice, self.gate)
                else:
                    read(self.name, self.case, int(role.removeprefix("group")), rank, self.spaces, voice)
                voice.say(at="end")
                code = 0
            except BaseException as e:
                voice.say(at="error", kind=type(e).__name__, text=str(e)[:2000])
        finally:
            sys.stdout.flush()
            os._exit(code)

    def hear(self, within: float) -> None:
        """What was told meanwhile, and who has ended."""
        if select.select([self.heard], [], [], within)[0]:
            *lines, self.rest = (self.rest + os.read(self.heard, 1 << 16)).split(b"\n")
            for line in map(json.loads, lines):
                next(r for r in self.ranks if (r.role, r.rank) == (line["role"], line["rank"])).told.append(line)
        for one in self.ranks:
            if one.status is None and os.waitpid(one.pid, os.WNOHANG)[0]:
                one.status = 1

    def open_gate(self, now: bool) -> None:
        if now and self.latch >= 0:
            os.close(self.latch)
            self.latch = -1

    def hit(self) -> None:
        """Does what the case says, if its time has come."""
        fault = self.case.fault
        if fault is None or self.was_hit or not all(one.has("here") for one in self.ranks):
            return
        victim = next(r for r in self.ranks if (r.role, r.rank) == (fault.role, fault.rank))
        if victim.status is not None or max(victim.steps(), default=-1) < fault.step:
            return
        self.was_hit = True
        time.sleep(fault.delay_ms / 1000)
        if fault.what == "kill":
            os.kill(victim.pid, signal.SIGKILL)
        else:
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(fault.pause_ms / 1000)
            os.kill(victim.pid, signal.SIGCONT)

    def run(self) -> list[str]:
        """What was wrong: nothing, it is to be hoped."""
        case = self.case
        readers = [(f"group{n}", rank) for n, group in enumerate(case.groups) for rank in range(group.ranks)]
        begun = time.monotonic()
        try:
            for role, rank in [("writer", rank) for rank in range(case.writers)] + readers:
                self.begin(role, rank)
            os.close(self.mouth)
            # Ranks that nobody waits for may come too late for all: these are waited for here.
            self.open_gate(not any(g.behind == "drop" and g.ranks > 1 for g in case.groups))
            while any(one.status is None for one in self.ranks):
                self.hear(0.05)
                self.open_gate(all(one.has("here") for one in self.ranks))
                self.hit()
                if time.monotonic() - begun > HANGS_S:
                    return [f"{one} hangs; the last that it told is {one.told[-1:]}" for one in self.ranks if one.status is None]
            self.hear(0)
            while self.rest or select.select([self.heard], [], [], 0)[0]:
                before = self.rest
                self.hear(0)
                if self.rest == before:
                    break
            return self.judge()
        finally:
            for one in self.ranks:
                if one.status is None:
                    os.kill(one.pid, signal.SIGKILL)
                    os.waitpid(one.pid, 0)
            self.open_gate(True)
            os.close(self.gate)
            os.close(self.heard)

    # --- What is right ---------------------------------------------------------------------------------------------------------------

    def judge(self) -> list[str]:
        case, fault = self.case, self.case.fault
        killed = [r for r in self.ranks if self.was_hit and fault and fault.what == "kill" and (r.role, r.rank) == (fault.role, fault.rank)]
        # A process that is killed when it has told that it closes may have done so, and one that has told of its end has.
        dead = killed[0] if killed and not killed[0].has("end") else None
        writer_died = dead is not None and dead.role == "writer"
        found = []
        for one in self.ranks:
            if one is dead:
                continue
            if one.error and not (writer_died and self.names(one.error, dead)):
                found.append(f"{one}: {one.error['kind']}: {one.error['text']}")
            elif not one.error and not one.has("end"):
                found.append(f"{one} has ended without a word")
        found += self.judge_steps(dead, writer_died)
        return found + self.judge_rest(killed)

    @staticmethod
    def names(error: dict, dead: Rank) -> bool:
        """An error that tells who is gone, and says so."""
        return error["kind"] == "PeerError" and f"writer {dead.rank} of stream" in error["text"] and f"(process {dead.pid})" in error["text"]

    def judge_steps(self, dead: Rank | None, writer_died: bool) -> list[str]:
        """All readers have had all complete steps, but for those that they were told they have missed."""
        case, found = self.case, []
        writers = [r for r in self.ranks if r.role == "writer"]
        # A step that all writers have ended is complete, and none is that one of them has not come to.
        least = min(len(w.steps("ended")) for w in writers)
        most = min(len(w.steps()) for w in writers)
        readers = [r for r in self.ranks if r.role != "writer" and r is not dead]
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
                if line["dropped"] and group.behind == "block":
                    found.append(f"{one}, which is waited for, has missed {line['dropped']} steps before {line['step']}")
                expected = line["step"] + 1
            if expected != complete:
                found.append(f"{one} has had steps up to {expected - 1}, and {complete} are complete")
            if one.error and complete and f"after step {complete - 1}" not in one.error["text"]:
                found.append(f"{one} is told '{one.error['text']}' after step {complete - 1}")
            if over and not one.error:
                found.append(f"{one} is not told that a writer has died, and others are")
        return found

    def judge_rest(self, killed: list[Rank]) -> list[str]:
        """Nothing is left of the stream in memory."""
        if self.spaces is None:
            return []
        if killed:
            # Those who come next clear up what a process has left that was killed.
            try:
                stead.reader(f"{self.name}.sweep", timeout=0, dataspaces=self.spaces)
            except stead.TimedOutError:
                pass
        left = [str(p) for p in Path(self.spaces["memory"]).glob(".streams-*/*") if p.name.lstrip(".").startswith(self.name)]
        return [f"left in memory: {', '.join(left)}"] if left else []
