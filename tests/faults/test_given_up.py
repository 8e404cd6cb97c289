"""Transfers that one process does and another one gives up or waits for, without a daemon; both may be killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stead as library
from rigs import stopped

STEAD = os.path.abspath(os.environ.get("STEAD", "target/debug/stead"))
KILLS = int(os.environ.get("STEAD_CRASHES", "40"))
MiB = 1 << 20


class Node:
    """Processes of one user, without a daemon."""

    def __init__(self, at: Path):
        self.at, self.state, self.begun = at, at / "state", []

    def begin(self, *words) -> subprocess.Popen:
        env = os.environ | {"STEAD_STATE": str(self.state), "STEAD_SOCKET": "none"}
        command = [STEAD, "stage", *map(str, words), "--format", "json"]
        self.begun.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.begun[-1]

    def end(self, process: subprocess.Popen) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=100)
        assert "panicked" not in err, err
        return process.returncode, out, err

    def run(self, *words) -> tuple[int, str, str]:
        return self.end(self.begin(*words))

    def list(self) -> dict[int, str]:
        code, out, err = self.run("--list", "--all")
        assert code == 0, err
        return {status["id"]: status["state"] for status in json.loads(out)}

    def lock(self, id: int) -> Path:
        return self.state / "transfers" / str(id)

    def moves(self, runner: subprocess.Popen, what: str = ".stead-*") -> None:
        """Waits until something of a transfer is there."""
        until(lambda: runner.poll() is not None or any(self.at.joinpath("to").rglob(what)))
        assert runner.poll() is None, runner.communicate()

    def holds(self, runner: subprocess.Popen) -> None:
        """Stops it where it has the journal not locked, for which others would wait."""
        journal = sqlite3.connect(self.state / "transfers.db", timeout=0, isolation_level=None)
        deadline = time.monotonic() + 60
        while True:
            stopped(runner)
            try:
                journal.execute("BEGIN IMMEDIATE")
                journal.execute("ROLLBACK")
                return journal.close()
            except sqlite3.OperationalError:
                assert time.monotonic() < deadline
            runner.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    def tidy(self, files: dict[str, bytes]) -> int:
        """Nothing is there that is not whole; gives how many files are."""
        there = [path for path in self.at.joinpath("to").rglob("*") if path.is_file()]
        for path in there:
            assert path.read_bytes() == files[path.name], path
        return len(there)


def until(what) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    for process in node.begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def files(tmp_path) -> dict[str, bytes]:
    """Some small ones, and one that goes on in the middle."""
    rng = random.Random(3)
    files = {f"f{i}": rng.randbytes(1000 * i) for i in range(40)}
    files["large"] = rng.randbytes(1 << 20) * 300
    (tmp_path / "from").mkdir()
    for name, data in files.items():
        (tmp_path / "from" / name).write_bytes(data)
    return files


def slow(node: Node, limit: str = "16MiB") -> subprocess.Popen:
    return node.begin(node.at / "from", node.at / "to", "--limit", limit, "--no-sync")


def test_another_process_gives_it_up(node, files):
    runner = slow(node)
    node.moves(runner)
    code, out, err = node.run("--cancel", 1)
    assert code == 0 and json.loads(out)["state"] == "cancelled", err
    # It has ended when that is told, and says so itself.
    assert node.tidy(files) < len(files)
    code, out, err = node.end(runner)
    assert code == 1 and "transfer 1 was cancelled" in err, err
    assert json.loads(out)["state"] == "cancelled"
    assert node.list() == {1: "cancelled"} and not node.lock(1).exists()
    for words in (("--cancel", 1), ("--resume", 1)):
        code, _, err = node.run(*words)
        assert code == 2 and "cancelled already" in err, err
    # The same again begins anew.
    code, out, err = node.run(node.at / "from", node.at / "to", "--sync", "--no-sync")
    assert code == 0 and json.loads(out)["id"] == 2, err


def test_it_is_stopped_wherever_it_is(node, files):
    """Also while it waits for others, where nothing of it is begun."""
    (node.at / "stead.toml").write_text(f"[dataspace.one]\npath = '{node.at}'\ntransfers = 1\n")
    program = f"""
import stead, sys
spaces = None
a = stead.stage("{node.at}/from", "one://to", limit="4MiB", durable=False, state="{node.state}")
while a.progress is None: pass
b = stead.stage("{node.at}/from", "one://other", durable=False, state="{node.state}")
print(a.id, b.id, flush=True)
for t in (b, a):
    try:
        t.wait(60)
        sys.exit("it was not cancelled")
    except stead.CancelledError as e:
        print(str(e).splitlines()[0], flush=True)
"""
    env = os.environ | {"STEAD_CONFIG": str(node.at / "stead.toml")}
    runner = subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True)
    node.begun.append(runner)
    assert runner.stdout.readline() == "1 2\n"
    assert library.cancel_transfer(2, state=node.state).state == "cancelled"
    assert "transfer 2 was cancelled" in runner.stdout.readline()
    assert node.list() == {1: "running", 2: "cancelled"}
    assert library.cancel_transfer(1, state=node.state).state == "cancelled"
    assert "transfer 1 was cancelled" in runner.stdout.readline()
    assert runner.wait(60) == 0
    node.tidy(files)
    assert not (node.at / "other").exists()


def test_of_one_that_was_killed_the_asker_removes_what_there_is(node, files):
    runner = slow(node)
    node.moves(runner)
    assert node.list() == {1: "running"}
    runner.kill()
    runner.communicate()
    assert node.list() == {1: "interrupted"}
    assert list((node.at / "to").rglob(".stead-*"))
    code, out, err = node.run("--cancel", 1)
    assert code == 0 and json.loads(out)["state"] == "cancelled", err
    node.tidy(files)


def test_the_one_that_is_asked_is_killed_before_it_hears(node, files):
    runner = slow(node)
    node.moves(runner)
    node.holds(runner)
    askers = []
    for _ in range(2):
        askers.append(node.begin("--cancel", 1))
        until(lambda: node.lock(1).stat().st_size > 0)
        # The other one is seen to ask, too.
        stopped(askers[-1])
        os.truncate(node.lock(1), 0)
    for asker in askers:
        asker.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    assert all(asker.poll() is None for asker in askers)
    runner.kill()
    runner.communicate()
    ended = sorted(node.end(asker) for asker in askers)
    # Both have asked, and both are told.
    assert [json.loads(out)["state"] for _, out, _ in ended] == ["cancelled"] * 2, ended
    assert node.list() == {1: "cancelled"}
    node.tidy(files)


def test_what_was_asked_holds_if_the_asker_is_killed(node, files):
    runner = slow(node)
    node.moves(runner)
    node.holds(runner)
    asker = node.begin("--cancel", 1)
    until(lambda: node.lock(1).stat().st_size > 0)
    asker.kill()
    asker.communicate()
    runner.send_signal(signal.SIGCONT)
    code, _, err = node.end(runner)
    assert code == 1 and "was cancelled" in err, err
    assert node.list() == {1: "cancelled"}
    node.tidy(files)


def test_what_was_asked_of_one_that_was_killed_is_forgotten(node, files):
    runner = slow(node, "50MiB")
    node.moves(runner)
    node.holds(runner)
    asker = node.begin("--cancel", 1)
    until(lambda: node.lock(1).stat().st_size > 0)
    asker.kill()
    runner.kill()
    asker.communicate(), runner.communicate()
    # Who goes on with it knows what it wants.
    code, out, err = node.run("--resume", 1)
    assert code == 0 and json.loads(out)["state"] == "finished", err
    assert node.tidy(files) == len(files)


def test_another_process_waits(node, files):
    runner = slow(node, "50MiB")
    node.moves(runner)
    # It does not end before they have been seen to wait.
    node.holds(runner)
    waits = [node.begin("--wait", 1), node.begin("--here", "--wait", 1)]
    with pytest.raises(library.TimedOutError, match="goes on"):
        library.wait_transfer(1, 0.2, state=node.state)
    assert all(one.poll() is None for one in waits)
    runner.send_signal(signal.SIGCONT)
    done = library.wait_transfer(1, 100, state=node.state)
    assert done.state == "finished" and done.bytes_done == sum(map(len, files.values()))
    for one in [runner, *waits]:
        code, out, err = node.end(one)
        assert code == 0 and json.loads(out)["state"] == "finished", err
    assert library.wait_transfer(1, 0, state=node.state).state == "finished"
    code, _, err = node.run("--wait", 7)
    assert code == 2 and "no transfer 7" in err, err


def test_who_waits_is_told_that_it_is_cancelled_or_killed(node, files):
    for id, code_of, words in ((1, 1, "was cancelled"), (2, 1, "was interrupted")):
        shutil.rmtree(node.at / "to", ignore_errors=True)
        runner = slow(node)
        node.moves(runner)
        waits = node.begin("--wait", id)
        until(lambda: len(node.list()) == id)
        if id == 1:
            assert node.run("--cancel", id)[0] == 0
        else:
            runner.kill()
        runner.communicate()
        code, _, err = node.end(waits)
        assert code == code_of and words in err, err
        assert node.list()[id] == ("cancelled" if id == 1 else "interrupted")


def test_given_up_and_killed_at_any_time(node, files, record_property):
    (node.at / "from" / "large").write_bytes(files["large"][: 40 * MiB])
    files["large"] = files["large"][: 40 * MiB]
    outcomes: dict[str, int] = {}
    kills = 0
    for seed in range(max(KILLS // 4, 6)):
        rng = random.Random(f"given up {seed}")
        shutil.rmtree(node.at / "to", ignore_errors=True)
        shutil.rmtree(node.state, ignore_errors=True)
        runner = node.begin(node.at / "from", node.at / "to", "--limit", rng.choice(["20MiB", "80MiB", "2GiB"]))
        until(lambda: node.lock(1).exists() or runner.poll() is not None)
        time.sleep(rng.random() ** 2 * 0.6)
        asker = node.begin("--cancel", 1)
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.05)
            kills += runner.poll() is None
            runner.kill()
        code, out, err = node.end(asker)
        runner.communicate(timeout=60)
        (state,) = node.list().values()
        if code == 0:
            assert json.loads(out)["state"] == state == "cancelled"
            node.tidy(files)
        else:
            # It was faster.
            assert code == 2 and "finished" in err and state == "finished", err
            assert node.tidy(files) == len(files)
        outcomes[state] = outcomes.get(state, 0) + 1
    record_property("seeds", seed + 1)
    record_property("kills", kills)
    assert outcomes.get("cancelled"), outcomes
