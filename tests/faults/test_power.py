"""A real file system on a disk that loses its power at any moment, or fails to write what it is given: journal and targets on it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from rigs import HERE, stopped
from test_daemon import Daemon

STEAD = os.path.abspath(os.environ.get("STEAD", "target/debug/stead"))
KILLS = int(os.environ.get("STEAD_CRASHES", "40"))
FILE, DONE = 1, 1
IMAGE = 64 << 20
#: ext4 does not mend programs that forget to make files durable before they get their names.
OPTIONS = ["noauto_da_alloc,data=ordered", "noauto_da_alloc,data=writeback", "noauto_da_alloc,data=ordered,commit=1"]


def do(*command) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


class Power:
    """A disk that is written to, under a file system."""

    def __init__(self, at: Path, blank: Path, options: str):
        self.image, self.under, self.mounted, self.options = at / "image", at / "under", at / "mounted", options
        for path in (self.under, self.mounted):
            path.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(blank, self.image)
        command = [sys.executable, HERE / "power.py", self.image, self.under, self.mounted]
        self.server = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if self.server.stdout.readline() != "ready\n":
                raise OSError((self.server.stderr.read().strip().splitlines() or ["it ended"])[-1])
            self.mount(self.under / "disk", "--direct-io=on")
        except BaseException:
            self.end()
            raise

    def mount(self, disk: Path, *how: str) -> None:
        device = do("losetup", "--find", "--show", *how, disk).strip()
        try:
            do("mount", "-t", "ext4", "-o", self.options, device, self.mounted)
        finally:
            # It goes with the last that uses it.
            do("losetup", "--detach", device)

    def say(self, **rules) -> dict:
        self.server.stdin.write(json.dumps(rules) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def off(self) -> None:
        """What was mounted is no more, whatever it still had to write."""
        if self.server:
            self.server.stdin.close()
            self.server.wait(60)
            self.server.stdout.close()
            self.server.stderr.close()
            self.server = None

    def on(self, left: Path) -> None:
        """The power is back: what is left of the disk is mounted in its place."""
        self.off()
        self.mount(left)

    def end(self) -> None:
        self.off()
        while os.path.ismount(self.mounted):
            do("umount", "-l", self.mounted)
        self.image.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def blank(tmp_path_factory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("no disk that loses power can be made here: only root mounts file systems")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no disk that loses power can be made here: there is no /dev/fuse")
    image = tmp_path_factory.mktemp("blank") / "image"
    image.touch()
    os.truncate(image, IMAGE)
    try:
        do("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        Power(tmp_path_factory.mktemp("tried"), image, OPTIONS[0]).end()
    except OSError as e:
        pytest.skip(f"no disk that loses power can be made here: {e}")
    return image


@pytest.fixture
def power(blank):
    """A function that makes a disk on which nothing is yet."""
    made = []

    def make(options: str = OPTIONS[0]) -> Power:
        # Short, as sockets have short names.
        made.append(Power(Path(tempfile.mkdtemp(dir="/tmp")), blank, options))
        return made[-1]

    yield make
    for one in made:
        one.end()
        shutil.rmtree(one.mounted.parent, ignore_errors=True)


def tree(at: Path, rng: random.Random) -> dict[str, bytes]:
    """Files in few folders, which get their names together, or in many, which get them in several turns."""
    files, folders = {}, rng.choice([3, 300])
    for i in range(rng.randrange(3, 60) if folders == 3 else 260):
        name = "/".join([*(f"d{rng.randrange(folders)}" for _ in range(rng.randrange(1, 3))), f"f{i}"]) if i % 4 else f"f{i}"
        size = rng.choice([0, 1, 4096, 70_000, 1 << 20 if folders == 3 else 9000]) if i else 6_000_000
        files[name] = rng.randbytes(size)
    for name, data in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(data)
    return files


def named(at: Path) -> dict[str, bytes]:
    paths = [path for path in at.rglob("*") if path.is_file() and not path.name.startswith(".stead-")]
    return {str(path.relative_to(at)): path.read_bytes() for path in paths}


def begin(state: Path, *words) -> subprocess.Popen:
    env = os.environ | {"STEAD_STATE": str(state), "STEAD_SOCKET": "none"}
    command = [STEAD, "stage", *map(str, words), "--format", "json"]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(state: Path, *words) -> tuple[int, str, str]:
    process = begin(state, *words)
    out, err = process.communicate(timeout=100)
    assert "panicked" not in err, err
    return process.returncode, out, err


def said_to_be_done(state: Path) -> tuple[list[str], list[str]]:
    """What a journal says: the states of transfers, and the names of files that are done, of those that are not over."""
    journal = state / "transfers.db"
    if not journal.exists():
        return [], []
    # A copy of it: looking changes nothing.
    with tempfile.TemporaryDirectory() as at:
        for path in state.glob("transfers.db*"):
            shutil.copy(path, at)
        with sqlite3.connect(Path(at) / "transfers.db") as db:
            if not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                return [], []
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            states = [row[0] for row in db.execute("SELECT state FROM transfer ORDER BY id")]
            done = [os.fsdecode(row[0]) for row in db.execute("SELECT target FROM item WHERE done = ? AND task = ?", (DONE, FILE))]
    return states, done


@pytest.mark.parametrize("action", ["copy", "--move", "--sync"])
def test_power_that_fails_at_any_moment(power, tmp_path, action):
    begun = over = 0
    typical = 0.3
    for seed in range(max(KILLS // 8, 5) + 40):
        if seed >= max(KILLS // 8, 5) and begun > over:
            break
        rng = random.Random(f"power {seed} {action}")
        source, left = tmp_path / f"from{seed}", tmp_path / "left"
        files, old = tree(source, rng), {}
        disk = power(rng.choice(OPTIONS))
        to, state = disk.mounted / "to", disk.mounted / "state"
        words = [*([] if action == "copy" else [action]), source, to]
        if action == "--sync":
            to.mkdir()
            old = {name: b"old" for name in rng.sample(sorted(files), 2)}
            for name, data in old.items():
                (to / name).parent.mkdir(parents=True, exist_ok=True)
                (to / name).write_bytes(data)
            os.sync()
        disk.say()
        began = time.monotonic()
        process = begin(state, *words)
        time.sleep(rng.random() * typical)
        if action == "--move":
            # What it has removed from another disk is removed: that one has power.
            stopped(process)
        disk.say(cut=str(left), seed=str(seed))
        ended = process.poll() is not None
        process.kill()
        process.communicate(timeout=60)
        if ended:
            typical = max((time.monotonic() - began) * 0.8, 0.05)
        disk.on(left)

        states, done = said_to_be_done(state)
        there, kept = named(to), named(source)
        begun += bool(states)
        over += "finished" in states
        for name, data in there.items():
            assert data in (files[name], old.get(name)), f"{seed}: {name} is half there"
        for name in done if "finished" not in states else files:
            name = name.removeprefix("to/")
            assert there.get(name) == files[name], f"{seed}: the journal has {name}, and the disk has not"
        for name, data in files.items():
            assert data in (there.get(name), kept.get(name)), f"{seed}: {name} is lost"
        # What was planned is known before the first name is there.
        if there and action == "copy":
            assert states, f"{seed}: nothing is known of what is there"
        if "finished" not in states:
            # The same command, or by its number.
            again = ["--resume", 1] if states and rng.random() < 0.5 else words
            code, out, err = run(state, *again)
            assert code == 0, f"{seed}: {out}{err}"
            assert json.loads(out)["state"] == "finished", f"{seed}: {err}"
        assert named(to) == files and named(source) == ({} if action == "--move" else files)
        assert not [p for p in to.rglob(".stead-*")]
        disk.end()
    assert begun > over


def test_sources_that_change_before_the_power_is_back(power, tmp_path):
    """What has a name, and the journal does not have as done, is the transfer's own all the same: it is not taken for another one's."""
    rounds = 0
    for seed in range(60):
        if rounds >= 5:
            break
        rng = random.Random(f"sources {seed}")
        source, left = tmp_path / f"from{seed}", tmp_path / "left"
        # So many folders that their names come in several turns.
        files = {f"d{i}/f": rng.randbytes(rng.choice([1, 9000])) for i in range(260)}
        for name, data in files.items():
            (source / name).parent.mkdir(parents=True)
            (source / name).write_bytes(data)
        disk = power(rng.choice(OPTIONS))
        to, state = disk.mounted / "to", disk.mounted / "state"
        process = begin(state, source, to)
        end = time.monotonic() + 60
        while process.poll() is None and not named(to) and time.monotonic() < end:
            pass
        time.sleep(rng.random() * 0.03)
        disk.say(cut=str(left), seed=str(seed))
        process.kill()
        process.communicate(timeout=60)
        disk.on(left)
        states, done = said_to_be_done(state)
        if states and "finished" not in states:
            own = sorted(set(named(to)) - {name.removeprefix("to/") for name in done})
            rounds += bool(own)
            for name in own:
                files[name] = rng.randbytes(5000)
                (source / name).write_bytes(files[name])
            code, out, err = run(state, "--resume", 1)
            assert code == 0 and json.loads(out)["state"] == "finished", f"{seed}: {out}{err}"
            assert named(to) == files, seed
        disk.end()
    assert rounds


def test_power_that_fails_under_a_daemon(power, tmp_path):
    went_on = 0
    for seed in range(max(KILLS // 12, 3) + 20):
        if seed >= max(KILLS // 12, 3) and went_on:
            break
        rng = random.Random(f"daemon {seed}")
        source, left = tmp_path / f"from{seed}", tmp_path / "left"
        files = tree(source, rng)
        disk = power(rng.choice(OPTIONS))
        daemon = Daemon(disk.mounted)
        daemon.path = disk.mounted.parent / "s"
        daemon.env["STEAD_SOCKET"] = str(daemon.path)
        try:
            daemon.begin()
            taken = daemon.taken(source, disk.mounted / "to")
            time.sleep(rng.random() * 0.4)
            disk.say(cut=str(left), seed=str(seed))
            workers = daemon.workers()
            daemon.end(signal.SIGKILL)
            for pid in workers:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            disk.on(left)
            there = named(disk.mounted / "to")
            assert all(files[name] == data for name, data in there.items()), seed
            daemon.begin()
            listed = json.loads(daemon.stage("--list", "--all").stdout)
            if listed:
                # It goes on by itself.
                went_on += listed[0]["state"] != "finished"
                assert daemon.status(taken, 100)["state"] == "finished"
            else:
                # It was taken in the last moment, and nothing was begun.
                assert not there
                assert daemon.status(daemon.taken(source, disk.mounted / "to"), 100)["state"] == "finished"
            assert named(disk.mounted / "to") == files
        finally:
            daemon.end()
            disk.end()
    assert went_on


@pytest.mark.parametrize(("many", "times"), [("few", 1), ("few", 1000), ("many", 1), ("many", 1000), ("many folders", 1), ("many folders", 1000)])
def test_a_disk_that_fails_to_write(power, tmp_path, many, times):
    """What a file system has once failed to write it takes for written when it is asked again: bytes have to be written anew."""
    rng = random.Random(7)
    source = tmp_path / "from"
    source.mkdir()
    folder = "d{}/" if many == "many folders" else ""
    files = {folder.format(i % 100) + f"f{i}": rng.randbytes(20_000) for i in range(3 if many == "few" else 300)}
    bad = folder.format(1) + "f1"
    files[bad] = b"a poisoned page " * 4000
    for name, data in files.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(data)
    disk = power()
    state, to = tmp_path / "state", disk.mounted / "to"
    disk.say(poison="a poisoned page", times=times)
    code, out, err = run(state, source, to)
    assert disk.say()["failed"] >= 1, "nothing has failed"
    status = json.loads(out) if out else {}
    if times == 1:
        # It has passed.
        assert code == 0 and status["state"] == "finished", err
    else:
        assert code == 1 and "/output error" in out + err, (out, err)
        assert bad not in named(to)
        # All others are there, and it is told which one is not.
        assert status["state"] == "failed" and status["failed"] == 1 and len(named(to)) == len(files) - 1, status
        assert bad in status["failures"][0]["error"], status
        disk.say(poison="")
        code, out, err = run(state, "--resume", 1)
        assert code == 0 and json.loads(out)["state"] == "finished", err
    assert not [p for p in to.rglob(".stead-*")]
    # What the disk has, and not what is in memory of it, even if its power fails now.
    disk.say(cut=str(tmp_path / "left"), seed="none")
    disk.on(tmp_path / "left")
    assert named(to) == files


def test_a_disk_that_fails_to_flush(power, tmp_path):
    """The file system gives up then, whatever it had been given: nothing counts as done that it has not kept."""
    rng = random.Random(11)
    source, left = tmp_path / "from", tmp_path / "left"
    failed = 0
    for n in range(1, 13):
        shutil.rmtree(source, ignore_errors=True)
        files = tree(source, rng)
        disk = power()
        state, to = tmp_path / f"state{n}", disk.mounted / "to"
        # From the beginning on, or from somewhere in the middle, where all may be done before.
        if n % 2:
            disk.say(flushes=(n - 1) % 4 + 1)
        process = begin(state, source, to)
        time.sleep(rng.random() * 0.3)
        if n % 2 == 0:
            disk.say(flushes=(n - 1) % 4 + 1)
        out, err = process.communicate(timeout=100)
        assert "panicked" not in err, err
        failed += process.returncode != 0
        if process.returncode:
            assert process.returncode == 1 and "error" in (out + err).lower() or "read-only" in (out + err).lower(), (out, err)
        disk.say(cut=str(left), seed=str(n))
        disk.on(left)
        there = named(to)
        assert all(files[name] == data for name, data in there.items()), n
        states, done = said_to_be_done(state)
        for name in done if "finished" not in states else files:
            name = name.removeprefix("to/")
            assert there.get(name) == files[name], f"{n}: the journal has {name}, and the disk has not"
        if process.returncode:
            code, out, err = run(state, "--resume", 1)
            assert code == 0 and json.loads(out)["state"] == "finished", err
        assert named(to) == files and not [p for p in to.rglob(".stead-*")]
        disk.end()
    assert failed
