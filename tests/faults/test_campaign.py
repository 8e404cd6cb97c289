"""The daemon, its worker, or both are killed at random times while several transfers are under way; files of sources change between two
kills. Nothing is lost, half written or left over, and what was taken comes to its end by itself.

STEAD_CRASHES is how many kills there are; each run tells its seed. `bench/crashes.py` keeps a record of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

from rigs import stopped
from test_daemon import Daemon, daemon  # noqa: F401
from test_transfers import named, tree, write

KILLS = int(os.environ.get("STEAD_CRASHES", "16"))
OVER = {"finished", "failed", "cancelled"}


class Run:
    """Transfers of one seed: a copy, a move to another file system, and a sync that waits for the copy."""

    def __init__(self, daemon: Daemon, at: Path, other: Path, seed: int):  # noqa: F811
        self.daemon, self.at, self.other, self.rng, self.kills = daemon, at, other, random.Random(seed), 0
        self.files = {name: tree(at / name, self.rng) for name in ("copied", "moved", "synced")}
        self.old = {name: b"old" for name in self.rng.sample(sorted(self.files["synced"]), 3)} | {"stale": b"stale"}
        write(at / "sync", self.old)
        # What a file of the moved ones had become when nobody was there to see it.
        self.grown: dict[str, bytes] = {}
        first = daemon.taken(at / "copied", at / "copy")
        self.taken = [first, daemon.taken("--move", at / "moved", other / "move"), daemon.taken("--sync", "--delete", at / "synced", at / "sync", "--after", first)]

    def states(self) -> list[str]:
        return [self.daemon.status(one, 0)["state"] for one in self.taken]

    def kill(self) -> None:
        who = self.rng.choice(["daemon", "worker", "both"])
        if who != "worker":
            # Else it may start another worker meanwhile, of which nobody would know here.
            stopped(self.daemon.process)
        workers = self.daemon.workers()
        for pid in workers if who != "daemon" else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                # It has ended by itself.
                pass
        if who != "worker":
            self.daemon.end(signal.SIGKILL)
            # A worker ends with its daemon: nobody is to write when the next one begins, or when it is looked.
            for pid in workers:
                self.gone(pid)
            self.look()
            self.change()
            self.daemon.begin()
        self.kills += 1

    @staticmethod
    def gone(pid: int) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    return
            except OSError:
                return
            time.sleep(0.002)
        raise AssertionError("a worker outlives its daemon")

    def change(self) -> None:
        """Something is added to a file that is still there."""
        left = sorted(named(self.at / "moved"))
        if left and self.rng.random() < 0.5:
            name = self.rng.choice(left)
            with open(self.at / "moved" / name, "ab") as f:
                f.write(b" and more")
            self.grown[name] = (self.at / "moved" / name).read_bytes()

    def look(self) -> None:
        """At each name, all of a file or nothing of it, and each file somewhere."""
        for name, data in named(self.at / "copy").items():
            assert data == self.files["copied"][name], name
        for name, data in named(self.at / "sync").items():
            assert data in (self.files["synced"].get(name), self.old.get(name)), name
        there, left = named(self.other / "move"), named(self.at / "moved")
        for name, data in self.files["moved"].items():
            wanted = self.grown.get(name, data)
            assert wanted in (there.get(name), left.get(name)), f"{name} is lost"

    def end(self) -> None:
        until = time.monotonic() + 120
        while not set(states := self.states()) <= OVER:
            assert time.monotonic() < until, f"{states}: they do not end"
            time.sleep(0.01)
        self.look()
        assert (states[0], states[2]) == ("finished", "finished"), states
        # A file that has grown may be one that the move has no say in any more.
        assert states[1] == "finished" or self.grown, states
        assert named(self.at / "copy") == self.files["copied"] and named(self.at / "sync") == self.files["synced"]
        assert named(self.at / "copied") == self.files["copied"] and named(self.at / "synced") == self.files["synced"]
        if states[1] == "finished" and not self.grown:
            assert named(self.at / "moved") == {} and named(self.other / "move") == self.files["moved"]
        assert not [path for top in (self.at, self.other) for path in top.rglob(".stead-*")]


def test_the_daemon_is_killed_at_any_time(daemon, tmp_path, record_property):  # noqa: F811
    other = Path("/dev/shm") / f"stead-campaign-{os.getpid()}"
    kills, seed, typical = 0, 0, 0.5
    # Those of a bare user may be watched as those of all may: one process for each.
    daemon.begin("--transfers", "2")
    try:
        while kills < KILLS:
            for folder in (tmp_path / "run", other):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
            print(f"seed {seed}, after {kills} kills", flush=True)
            run, begun = Run(daemon, tmp_path / "run", other, seed), time.monotonic()
            if seed > 0:
                tries = run.rng.randrange(1, 6)
                while run.kills < tries and not set(run.states()) <= OVER:
                    time.sleep(run.rng.random() ** 2 * typical)
                    run.kill()
            run.end()
            if seed == 0:
                # The first one says how long they take.
                typical = time.monotonic() - begun
            kills, seed = kills + run.kills, seed + 1
    finally:
        shutil.rmtree(other, ignore_errors=True)
        record_property("seeds", seed)
        record_property("kills", kills)
