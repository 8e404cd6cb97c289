"""Streams between two nodes whose daemons are a pool, of which somebody is killed or stopped: cases of the tester of the examples, by seeds.

    campaign.py POOL MEMORY0,MEMORY1 DAEMON0,DAEMON1 SEED CASES [--kill-daemon NODE]

POOL has the sockets of the daemons, whose processes are said, and each node has a memory. All write on the first node, and read on both. Each
element that is had is compared. Readers of a node whose connections were cut, as a daemon or the process that it has for the user was killed,
are told so in time, or have had all; all others go on as if nothing had been. Afterwards nothing is left: no process that hangs, no stream in
memory, and no descriptor or thread with a daemon. Before the cases comes one in which nobody is killed or stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Who begins the others and clears up asks nobody.
os.environ["STEAD_SOCKET"] = "none"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "streams" / "tester"))

import stead  # noqa: E402
from cases import Case, Fault, drawn  # noqa: E402
from job import Job  # noqa: E402
from judge import Rank  # noqa: E402
from ranks import PATIENCE_S, Place  # noqa: E402

#: In any so many seeds in a row each of these is done.
FAULTS = (
    ("kill", "worker"),
    ("kill", "reader"),
    ("stop", "worker"),
    ("kill", "writer"),
    ("kill", "worker"),
    ("stop", "broker"),
    ("stop", "reader"),
    ("stop", "writer"),
)


def node_of(role: str, rank: int) -> int:
    """Two of three readers are on the other node."""
    if not role.startswith("group"):
        return 0
    return 0 if (rank + 2 * int(role.removeprefix("group"))) % 3 == 2 else 1


def case_of(seed: int, daemon: int | None) -> Case:
    case, chance = drawn(seed, faults=False), random.Random(f"{seed} over nodes")
    what, role = FAULTS[seed % len(FAULTS)]
    rank = chance.randrange(2)
    # Not all is over before somebody is hit.
    case.pace_ms = 5
    if daemon is not None:
        what, role, rank = "kill", "broker", daemon
        case.groups[0].behind = "block"
    elif role == "writer":
        rank = chance.randrange(case.writers)
    elif role == "reader":
        role, rank = chance.choice([(f"group{n}", rank) for n, group in enumerate(case.groups) for rank in range(group.ranks)])
    times = {"delay_ms": chance.choice((0, chance.uniform(0, 2), chance.uniform(0, 20))), "pause_ms": chance.choice((5, 100, 400))}
    case.fault = Fault(what, role, rank, step=chance.randrange(case.steps // 2), **times)
    return case


def workers(broker: int) -> list[int]:
    """The processes that a daemon has for users."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_text().split("\0")
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            if "--worker" in words and int(parent) == broker:
                found.append(int(path.name))
    return found


def census(brokers: list[int]) -> list[int]:
    """Descriptors and threads of each daemon, then of what each has for users."""
    found = []
    for pids in [*([broker] for broker in brokers), *map(workers, brokers)]:
        for what in ("fd", "task"):
            count = 0
            for pid in pids:
                # A process may end just then.
                with contextlib.suppress(OSError):
                    count += len(os.listdir(f"/proc/{pid}/{what}"))
            found.append(count)
    return found


class Pooled(Job):
    """A case between both nodes."""

    def __init__(self, case: Case, pool: Path, memories: list[str], brokers: list[int]) -> None:
        super().__init__(f"pooled{case.seed}", case, {"memory": memories[0]})
        self.pool, self.memories, self.brokers = pool, memories, brokers

    def place_of(self, role: str, rank: int) -> Place:
        node = node_of(role, rank)
        os.environ["STEAD_SOCKET"] = str(self.pool / f"n{node}" / "s")
        return Place(self.place.files, {"memory": self.memories[node]})

    def hit(self) -> None:
        fault = self.case.fault
        if fault is None or fault.role not in ("worker", "broker"):
            super().hit()
            return
        first = next(one for one in self.ranks if one.role == "writer")
        ended = max(first.steps("ended"), default=-1)
        if self.was_hit or first.status is not None or ended < fault.step or not all(one.has("here") for one in self.ranks):
            return
        self.was_hit = True
        time.sleep(fault.delay_ms / 1000)
        broker = self.brokers[fault.rank]
        for pid in [broker] if fault.role == "broker" else workers(broker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if fault.what == "kill" else signal.SIGSTOP)
                if fault.what == "stop":
                    time.sleep(fault.pause_ms / 1000)
                    os.kill(pid, signal.SIGCONT)

    def is_cut(self, one: Rank) -> bool:
        """True of a reader that was told that its connections were cut, as they were."""
        fault = self.case.fault
        was_cut = self.was_hit and fault is not None and fault.what == "kill" and fault.role in ("worker", "broker")
        told = one.error is not None and one.error["kind"] == "PeerError" and "node 'n0'" in one.error["text"]
        return was_cut and told and node_of(one.role, one.rank) == 1

    def judge(self) -> list[str]:
        all_ranks, found = self.ranks, []
        for one in filter(self.is_cut, all_ranks):
            expected, behind = 0, self.case.groups[int(one.role.removeprefix("group"))].behind
            for line in (line for line in one.told if line["at"] == "step"):
                if line["step"] != expected + line["dropped"] or (line["dropped"] and behind != "drop"):
                    found.append(f"{one} was given step {line['step']} after {expected - 1}, and told of {line['dropped']} dropped ones")
                expected = line["step"] + 1
        try:
            # What the others have had is all.
            self.ranks = [one for one in all_ranks if not self.is_cut(one)]
            return found + super().judge()
        finally:
            self.ranks = all_ranks

    def judge_rest(self, killed: list[Rank]) -> list[str]:
        """Nothing is left in memory of either node, when all connections have had time to go."""
        until = time.monotonic() + PATIENCE_S
        while left := self.left():
            if time.monotonic() > until:
                return [f"left in memory: {', '.join(left)}"]
            for memory in self.memories:
                # Who comes next clears up what others have left that were killed.
                with contextlib.suppress(stead.TimedOutError):
                    stead.reader(f"{self.name}.sweep", timeout=0, dataspaces={"memory": memory})
            time.sleep(0.02)
        return []

    def left(self) -> list[str]:
        found = [] if self.case.persist else [str(path) for path in Path(self.memories[0]).glob(f"files-{self.name}")]
        return found + [str(path) for memory in self.memories for path in Path(memory).glob(f".streams-*/*{self.name}*")]


def given_back(brokers: list[int], before: list[int]) -> list[str]:
    """That daemons have more than they had, which they have no more in a moment. A new process for the user may have a little more than the one before."""
    until, now = time.monotonic() + PATIENCE_S, census(brokers)
    while any(count > then + 2 for count, then in zip(now, before)):
        if time.monotonic() > until:
            return [f"daemons, and their processes for the user, have {now} descriptors and threads, and had {before}"]
        time.sleep(0.05)
        now = census(brokers)
    return []


def several(text: str) -> list[str]:
    return text.split(",")


def main() -> int:
    parse = argparse.ArgumentParser("campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("pool", type=Path)
    parse.add_argument("memories", type=several)
    parse.add_argument("daemons", type=several)
    parse.add_argument("seed", type=int)
    parse.add_argument("cases", type=int)
    parse.add_argument("--kill-daemon", type=int, choices=(0, 1), metavar="NODE")
    given = parse.parse_args()
    brokers = [int(pid) for pid in given.daemons]

    def run(case: Case) -> tuple[list[str], bool]:
        job = Pooled(case, given.pool, given.memories, brokers)
        return job.run(), job.was_hit

    # What daemons have when somebody has read and gone.
    warm, _ = run(drawn(given.seed, faults=False))
    before = census(brokers)
    failed = 0
    for seed in range(given.seed, given.seed + given.cases):
        case, begun = case_of(seed, given.kill_daemon), time.monotonic()
        wrong, was_hit = run(case)
        if given.kill_daemon is None:
            wrong += given_back(brokers, before)
        hit = f"; {case.fault}" if was_hit else ""
        print(f"{'WRONG' if wrong else 'right'}  seed {seed}: {time.monotonic() - begun:.2f} s{hit}", flush=True)
        if wrong:
            failed += 1
            print("       " + "\n       ".join([str(case), *wrong]), flush=True)
    for line in warm:
        print(f"       without a fault: {line}")
    print(f"{given.cases} cases, {failed + bool(warm)} wrong", flush=True)
    return 1 if failed or warm else 0


if __name__ == "__main__":
    sys.exit(main())
