"""Begins the processes of a case, does to one of them what the case says, and judges what they tell."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import judge
import stead
from cases import Case
from judge import Rank
from ranks import PATIENCE_S, Place, Voice, read, replay, write

# Of the daemon: a build of one's own, or what is installed.
COMMAND = os.environ.get("STEAD") or shutil.which("stead")

# Longer than anybody waits for anybody, and for what this machine does beside.
HANGS_S = 2 * PATIENCE_S


class Daemon:
    """The daemon of a node, which has the dataspaces of the streams, and whose processes are killed, all at once."""

    def __init__(self, spaces: dict[str, str] | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stead-", dir="/tmp"))
        config = "".join(f"[dataspace.{name}]\npath = {json.dumps(path)}\n" for name, path in (spaces or {}).items())
        (self.folder / "stead.toml").write_text(config)
        self.begin()

    def begin(self) -> None:
        words = [COMMAND] if COMMAND else [sys.executable, "-m", "stead._cli"]
        words += ["daemon", "--socket", str(self.folder / "s"), "--state", str(self.folder / "state")]
        env = os.environ | {"STEAD_CONFIG": str(self.folder / "stead.toml")}
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(words, env=env, stderr=log, start_new_session=True)
        until = time.monotonic() + PATIENCE_S
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the daemon does not begin: {(self.folder / 'log').read_text()}")
            time.sleep(0.005)

    def listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as one:
            return one.connect_ex(str(self.folder / "s")) == 0

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Job:
    """The processes of a case. They are forked: what starts them must have no stream, and no threads."""

    def __init__(self, name: str, case: Case, spaces: dict[str, str] | None) -> None:
        self.name, self.case, self.spaces = name, case, spaces
        self.place = Place(str(Path(spaces["memory"] if spaces else "/dev/shm", f"files-{name}")), spaces)
        self.heard, self.mouth = os.pipe()
        # It is open, for writers, when nobody holds its other end any more.
        self.gate, self.latch = os.pipe()
        self.rest = b""
        self.ranks: list[Rank] = []
        self.was_hit = False
        self.daemon: Daemon | None = None

    def begin(self, role: str, rank: int) -> None:
        pid = os.fork()
        if pid:
            self.ranks.append(Rank(role, rank, pid))
            return
        code = 1
        try:
            os.close(self.heard)
            if self.latch >= 0:
                os.close(self.latch)
            voice, place = Voice(self.mouth, role, rank), self.place_of(role, rank)
            try:
                if role == "writer":
                    write(self.name, self.case, rank, place, voice, lambda: os.read(self.gate, 1))
                elif role == "replay":
                    replay(self.case, place, voice)
                else:
                    read(self.name, self.case, int(role.removeprefix("group")), rank, place, voice)
                voice.say(at="end")
                code = 0
            except BaseException as e:
                voice.say(at="error", kind=type(e).__name__, text=str(e)[:2000])
        finally:
            sys.stdout.flush()
            os._exit(code)

    def place_of(self, role: str, rank: int) -> Place:
        """Where a process is, which asks for it when it begins."""
        return self.place

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
        victim = next(r for r in self.ranks if (r.role, r.rank) == (fault.role, fault.rank) or (fault.role, r.role) == ("daemon", "writer"))
        if victim.status is not None or max(victim.steps(), default=-1) < fault.step:
            return
        self.was_hit = True
        time.sleep(fault.delay_ms / 1000)
        if self.daemon:
            self.daemon.kill()
            time.sleep(fault.pause_ms / 1000)
            self.daemon.begin()
        elif fault.what == "kill":
            os.kill(victim.pid, signal.SIGKILL)
        else:
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(fault.pause_ms / 1000)
            os.kill(victim.pid, signal.SIGCONT)

    def wait(self, begun: float) -> list[str]:
        """Until all have ended: those that do not."""
        while any(one.status is None for one in self.ranks):
            self.hear(0.05)
            self.open_gate(all(one.has("here") for one in self.ranks))
            self.hit()
            if time.monotonic() - begun > HANGS_S:
                return [f"{one} hangs; the last that it told is {one.told[-1:]}" for one in self.ranks if one.status is None]
        return []

    def run(self) -> list[str]:
        """What was wrong: nothing, it is to be hoped."""
        case = self.case
        readers = [(f"group{n}", rank) for n, group in enumerate(case.groups) for rank in range(group.ranks)]
        begun = time.monotonic()
        if case.fault and case.fault.role == "daemon":
            self.daemon = Daemon(self.spaces)
        try:
            for role, rank in [("writer", rank) for rank in range(case.writers)] + readers:
                self.begin(role, rank)
            # Ranks that nobody waits for may come too late for all: these are waited for here.
            self.open_gate(not any(g.behind != "block" and g.ranks > 1 for g in case.groups))
            if hanging := self.wait(begun):
                return hanging
            if case.persist:
                self.begin("replay", 0)
                if hanging := self.wait(begun):
                    return hanging
            os.close(self.mouth)
            self.mouth = -1
            self.hear(0)
            while self.rest or select.select([self.heard], [], [], 0)[0]:
                before = self.rest
                self.hear(0)
                if self.rest == before:
                    break
            return self.judge()
        finally:
            if self.daemon:
                self.daemon.end()
            for one in self.ranks:
                if one.status is None:
                    os.kill(one.pid, signal.SIGKILL)
                    os.waitpid(one.pid, 0)
            self.open_gate(True)
            if self.mouth >= 0:
                os.close(self.mouth)
            if case.persist and self.spaces is not None:
                shutil.rmtree(self.place.files, ignore_errors=True)
            os.close(self.gate)
            os.close(self.heard)

    def judge(self) -> list[str]:
        case, fault = self.case, self.case.fault
        killed = [r for r in self.ranks if self.was_hit and fault and fault.what == "kill" and (r.role, r.rank) == (fault.role, fault.rank)]
        # A process that is killed when it has told that it closes may have done so, and one that has told of its end has.
        dead = killed[0] if killed and not killed[0].has("end") else None
        return judge.ends(self.ranks, dead) + judge.steps(case, self.ranks, dead) + self.judge_rest(killed)

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
        left = [str(p) for p in Path(self.spaces["memory"]).glob(f"files-{self.name}")] if not self.case.persist else []
        left += [str(p) for p in Path(self.spaces["memory"]).glob(".streams-*/*") if p.name.lstrip(".").startswith(self.name)]
        return [f"left in memory: {', '.join(left)}"] if left else []
