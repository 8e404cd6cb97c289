"""The daemon: rights of users, ends of processes at any time, order, and programs that mean no good."""

from __future__ import annotations

import json
import os
import pwd
import random
import re
import resource
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

STEAD = os.path.abspath(os.environ.get("STEAD", "target/debug/stead"))
ROOT = os.geteuid() == 0
SOMEBODY, ANOTHER = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("daemon").pw_uid
needs_root = pytest.mark.skipif(not ROOT, reason="several users are there for root only")
LARGE, SLOW = 48 << 20, ("--limit", "10MiB")


class Program:
    """A connection, by hand."""

    def __init__(self, path: Path, is_once: bool = False):
        until = time.monotonic() + 60
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            # Longer than it is asked to wait.
            self.socket.settimeout(180)
            self.socket.connect(str(path))
            try:
                self.hello = self.read()
                return
            except (EOFError, ConnectionError):
                # Handed to a worker that was about to end.
                if is_once or time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def exactly(self, n: int) -> bytes:
        got = b""
        while len(got) < n:
            more = self.socket.recv(n - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def read(self):
        return json.loads(self.exactly(struct.unpack("<I", self.exactly(4))[0]))

    def ask(self, what):
        text = json.dumps(what).encode()
        self.socket.sendall(struct.pack("<I", len(text)) + text)
        return self.read()


class Daemon:
    def __init__(self, at: Path):
        self.at, self.path = at, at / "run" / "s"
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("STEAD_", "XDG_"))}
        self.env |= {"STEAD_SOCKET": str(self.path), "HOME": str(at)}
        self.process = None

    def begin(self, *options, by: tuple = (), **more) -> None:
        """`by` is a command that begins it with other rights."""
        words = [*by, STEAD, "daemon", "--socket", self.path, "--state", self.at / "state", *options]
        with open(self.at / "log", "a") as log:
            self.process = subprocess.Popen(list(map(str, words)), env=self.env, stderr=log, **more)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                return Program(self.path).socket.close()
            except (FileNotFoundError, ConnectionRefusedError, EOFError):
                assert self.process.poll() is None, (self.at / "log").read_text()
                time.sleep(0.01)
        raise AssertionError("the daemon does not begin")

    def end(self, how=signal.SIGTERM) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)

    def workers(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                found.append(int(path.parent.name))
        return found

    def stage(self, *args, user=None, **kwargs) -> subprocess.CompletedProcess:
        return subprocess.run(self.words(args, user), env=self.env, text=True, capture_output=True, timeout=120, **kwargs)

    def words(self, args, user=None) -> list[str]:
        words = [STEAD, "stage", *map(str, args), "--format", "json"]
        return [*(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []), *words]

    def taken(self, *args, user=None) -> int:
        done = self.stage("--background", *args, user=user)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["id"]

    def status(self, transfer: int, seconds=60) -> dict:
        until = time.monotonic() + 60
        while True:
            program = Program(self.path)
            try:
                return program.ask({"wait": {"transfer": transfer, "seconds": seconds}})["standing"]["status"]
            except (EOFError, ConnectionError):
                # Of a worker that was killed, and had not heard of it.
                if time.monotonic() > until:
                    raise
            finally:
                program.socket.close()


@pytest.fixture
def daemon():
    # Other users cannot look into the folders of tests.
    at = Path(tempfile.mkdtemp(dir="/tmp"))
    at.chmod(0o755)
    one = Daemon(at)
    yield one
    one.end()
    shutil.rmtree(at, ignore_errors=True)


def opened(pid: int) -> set[str]:
    """What a process has open."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(fd))
        except FileNotFoundError:
            # It is closed by now.
            pass
    return found


def folder(daemon: Daemon, name: str, user: int | None = None) -> Path:
    path = daemon.at / name
    path.mkdir()
    if user:
        os.chown(path, user, user)
    return path


def large(path: Path) -> bytes:
    data = random.Random(str(path)).randbytes(1 << 20) * (LARGE >> 20)
    path.write_bytes(data)
    return data


def under_way(daemon: Daemon, transfer: int) -> None:
    """Waits until some of it is there."""
    program, until = Program(daemon.path), time.monotonic() + 60
    while time.monotonic() < until:
        answer = program.ask({"wait": {"transfer": transfer, "seconds": 0}})
        time.sleep(0.01)
        if "failed" in answer:
            # Nobody has asked for it yet.
            continue
        standing = answer["standing"]
        if (standing["progress"] or {}).get("bytes_done", 0) > 0:
            return
        assert standing["status"]["state"] in ("pending", "running"), standing
    raise AssertionError("it does not begin")


@needs_root
def test_users_have_their_own_rights(daemon):
    daemon.begin()
    mine, theirs, secret = folder(daemon, "mine", SOMEBODY), folder(daemon, "theirs", ANOTHER), folder(daemon, "secret")
    theirs.chmod(0o700)
    secret.chmod(0o700)
    (secret / "f").write_bytes(b"secret")
    (daemon.at / "open").write_bytes(b"open")
    copy = daemon.stage(daemon.at / "open", mine / "copy", user=SOMEBODY)
    assert copy.returncode == 0, copy.stderr
    meta = (mine / "copy").stat()
    assert (meta.st_uid, meta.st_gid, (mine / "copy").read_bytes()) == (SOMEBODY, SOMEBODY, b"open")
    # What they cannot read or write themselves they cannot by the daemon: by its name, by a link, by a pattern.
    (mine / "link").symlink_to(secret)
    for source, target in [
        (secret / "f", mine / "x"),
        (mine / "link/f", mine / "x"),
        (f"{secret}/*", mine / "x/"),
        (mine / "copy", secret / "x"),
        (mine / "copy", theirs / "x"),
        (mine / "copy", daemon.at / "x"),
    ]:
        done = daemon.stage(source, target, user=SOMEBODY)
        assert done.returncode == 1 and "permission denied" in done.stdout + done.stderr, (source, target, done)
    moved = daemon.stage("--move", daemon.at / "open", mine / "moved", user=SOMEBODY)
    assert moved.returncode == 1 and (daemon.at / "open").exists()
    removed = daemon.stage("--remove", daemon.at / "open", user=SOMEBODY)
    assert removed.returncode == 1 and (daemon.at / "open").exists()
    assert not (mine / "x").exists() and sorted(p.name for p in secret.iterdir()) == ["f"]
    # Nobody sees or stops what others have.
    assert daemon.stage("--list", "--all", user=ANOTHER).stdout.strip() == "[]"
    stopped = daemon.stage("--cancel", "1", user=ANOTHER)
    assert stopped.returncode == 2 and "there is no transfer 1" in stopped.stderr
    for worker in daemon.workers():
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{worker}/status").read_text().splitlines() if ":\t" in line)
        user = status["Uid"].split()[0]
        assert status["Uid"].split() == [user] * 4 and status["NoNewPrivs"] == "1"
        if user != "0":
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapAmb"], 16) == 0
            assert status["Gid"].split() == [user] * 4 and set(status["Groups"].split()) <= {user}
    # Ids of nobody are those that users give to processes of their own.
    unknown = daemon.stage("--list", user=64_999)
    assert unknown.returncode == 1 and "knows no user 64999" in unknown.stderr, unknown
    # Journals tell others nothing.
    for path in (daemon.at / "state/users").iterdir():
        assert path.stat().st_mode & 0o077 == 0 and path.stat().st_uid == int(path.name)


def capability(number: int) -> bytes:
    """As a file has it that may do this without being root's."""
    return struct.pack("<5I", 0x02000001, 1 << number, 0, 0, 0)


@needs_root
def test_what_root_copies_has_all_that_its_source_has_under_the_unit_of_the_system(daemon):
    """A daemon with those capabilities alone that the unit leaves it."""
    unit = (Path(__file__).parents[2] / "scripts" / "package" / "steadd.service.in").read_text()
    names = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)[1].split()
    left = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names)])
    daemon.begin(by=("setpriv", "--bounding-set", left))
    source, group = folder(daemon, "source"), 64_321
    (source / "tool").write_bytes(b"bytes")
    (source / "own").write_bytes(b"bytes")
    for path, mode in ((source, 0o2775), (source / "tool", 0o2755), (source / "own", 0o4755)):
        os.chown(path, SOMEBODY, group)
        path.chmod(mode)
    ours = source / "ours"
    ours.write_bytes(b"bytes")
    attribute, may = "security.capability", True
    try:
        for path in (source / "tool", ours):
            os.setxattr(path, attribute, capability(10))
    except OSError:
        may = False
    done = daemon.stage(source, daemon.at / "copy")
    assert done.returncode == 0, done.stderr
    copy = daemon.at / "copy"
    for name in ("", "tool", "own", "ours"):
        of, got = (source / name).stat(), (copy / name).stat()
        assert (got.st_mode, got.st_uid, got.st_gid) == (of.st_mode, of.st_uid, of.st_gid), name
        if may and name in ("tool", "ours"):
            assert os.getxattr(copy / name, attribute) == os.getxattr(source / name, attribute)


@needs_root
def test_a_daemon_for_all_is_open_to_all_whatever_the_mask(daemon):
    daemon.begin(umask=0o077)
    program = Program(daemon.path)
    modes = [path.stat().st_mode & 0o777 for path in (daemon.path.parent, daemon.at / "state", daemon.at / "state/users")]
    assert modes == [0o755, 0o755, 0o711]
    program.socket.close()


@needs_root
def test_who_names_a_socket_means_no_other_daemon(daemon):
    """The one of the system is there, in a namespace of its own."""
    script = """
        mount -t tmpfs none /run || exit 3
        "$0" daemon --state "$1/system" & until [ -S /run/stead/steadd.sock ]; do sleep 0.05; done
        "$0" admin stats || code=4
        STEAD_SOCKET="$1/nobody" "$0" stage --background "$1/f" "$1/g"; code=${code:-$?}
        kill $!; wait; exit $code
    """
    env = {key: value for key, value in daemon.env.items() if key != "STEAD_SOCKET"}
    (daemon.at / "f").write_bytes(b"f")
    words = ["unshare", "-m", "bash", "-c", script, STEAD, daemon.at]
    done = subprocess.run(list(map(str, words)), env=env, text=True, capture_output=True, timeout=100)
    assert done.returncode == 1 and f"none listens at '{daemon.at}/nobody', which STEAD_SOCKET names" in done.stderr, done.stderr
    assert not (daemon.at / "g").exists()


@needs_root
def test_a_daemon_of_its_own_user_with_capabilities_serves_all(daemon):
    host = pwd.getpwnam("bin").pw_uid
    rights = "+setuid,+setgid,+chown,+fowner,+kill"
    for path in (daemon.path.parent, daemon.at / "state"):
        path.mkdir()
        os.chown(path, host, host)
    by = ("setpriv", f"--reuid={host}", f"--regid={host}", "--clear-groups", "--inh-caps", rights, "--ambient-caps", rights)
    daemon.begin(by=by)
    for user in (SOMEBODY, ANOTHER):
        theirs = folder(daemon, f"of-{user}", user)
        theirs.chmod(0o700)
        (theirs / "f").write_bytes(b"bytes of %d" % user)
        os.chown(theirs / "f", user, user)
    for user, other in ((SOMEBODY, ANOTHER), (ANOTHER, SOMEBODY)):
        theirs = daemon.at / f"of-{user}"
        # By hand: commands believe such a daemon in /run/stead only.
        os.setegid(user), os.seteuid(user)
        try:
            program = Program(daemon.path)
        finally:
            os.seteuid(0), os.setegid(0)
        assert program.hello["user"] == user

        def ends(source, target, program=program) -> dict:
            taken = program.ask({"submit": {"request": {"action": "copy", "sources": [str(source)], "target": str(target)}}})
            answer = program.ask({"wait": {"transfer": taken["taken"], "seconds": 60}})
            return answer["standing"]["status"]

        assert ends(theirs / "f", theirs / "g")["state"] == "finished"
        assert (theirs / "g").read_bytes() == b"bytes of %d" % user and (theirs / "g").stat().st_uid == user
        refused = ends(daemon.at / f"of-{other}" / "f", theirs / "stolen")
        assert refused["state"] == "failed" and "ermission" in refused["error"], refused
        program.socket.close()
    # Workers have none of what the daemon was given.
    for worker in daemon.workers():
        status = Path(f"/proc/{worker}/status").read_text()
        of = {line.split()[0]: line.split()[1] for line in status.splitlines() if line.startswith(("Cap", "Uid"))}
        # Root's own has what the daemon has, and no more.
        sets = {int(of[name], 16) for name in ("CapEff:", "CapPrm:", "CapAmb:")}
        assert of["Uid:"] != str(host) and sets == {0 if of["Uid:"] != "0" else 0b1110_1001}, of


@needs_root
def test_a_daemon_of_a_user_serves_nobody_else(daemon):
    for name in ("run", "state"):
        folder(daemon, name, SOMEBODY)
    words = [STEAD, "daemon", "--socket", daemon.path, "--state", daemon.at / "state"]
    own = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", *map(str, words)]
    with open(daemon.at / "log", "w") as log:
        daemon.process = subprocess.Popen(own, env=daemon.env, stderr=log)
    until = time.monotonic() + 60
    while not daemon.path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    answer = Program(daemon.path).hello
    assert answer["failed"]["kind"] == "permission", answer
    # The commands of others do not trust it, either.
    done = daemon.stage("--list", user=ANOTHER)
    assert done.returncode == 1, done
    mine = folder(daemon, "mine", SOMEBODY)
    (daemon.at / "f").write_bytes(b"x")
    done = daemon.stage(daemon.at / "f", mine, user=SOMEBODY)
    assert done.returncode == 0 and (mine / "f").read_bytes() == b"x", done.stderr


@pytest.mark.parametrize("who", ["daemon", "worker", "both"])
def test_what_is_under_way_goes_on_after_a_kill(daemon, who):
    daemon.begin()
    source, target = folder(daemon, "from"), daemon.at / "to"
    data = large(source / "f")
    (source / "g").write_bytes(b"g")
    transfer = daemon.taken(source, target, *SLOW)
    under_way(daemon, transfer)
    (worker,) = daemon.workers()
    if who != "daemon":
        os.kill(worker, signal.SIGKILL)
    if who != "worker":
        daemon.end(signal.SIGKILL)
        daemon.begin()
    until = time.monotonic() + 60
    while (status := daemon.status(transfer))["state"] != "finished":
        # It says so as long as nobody has begun it again.
        assert status["state"] in ("pending", "running", "interrupted") and time.monotonic() < until, status
        time.sleep(0.1)
    assert (target / "f").read_bytes() == data and sorted(p.name for p in target.iterdir()) == ["f", "g"]


def test_a_command_outlives_a_daemon_that_is_replaced(daemon):
    daemon.begin()
    data = large(daemon.at / "f")
    target = daemon.at / "to"
    command = subprocess.Popen(
        daemon.words([daemon.at / "f", target, "--limit", "8MiB"]), env=daemon.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    under_way(daemon, 1)
    daemon.end()
    assert not daemon.path.exists() and not target.exists()
    daemon.begin()
    out, err = command.communicate(timeout=100)
    assert command.returncode == 0 and json.loads(out)["state"] == "finished", err
    assert target.read_bytes() == data


def test_cancelled_is_cancelled(daemon):
    daemon.begin("--transfers", "1")
    large(daemon.at / "f")
    target = folder(daemon, "to")
    first = daemon.taken(daemon.at / "f", target / "f", "--limit", "1MiB")
    waits = daemon.taken(daemon.at / "f", target / "g")
    later = daemon.taken(daemon.at / "f", target / "h", "--after", str(first))
    latest = daemon.taken(daemon.at / "f", target / "i", "--after", f"{later},{waits}")
    under_way(daemon, first)
    done = daemon.stage("--cancel", first)
    assert done.returncode == 0 and json.loads(done.stdout)["state"] == "cancelled", done.stderr
    for transfer in (later, latest):
        status = daemon.status(transfer)
        assert status["state"] == "cancelled" and "was not finished" in status["error"], status
    assert daemon.status(waits)["state"] == "finished"
    assert sorted(p.name for p in target.iterdir()) == ["g"]
    again = daemon.stage("--cancel", first)
    assert again.returncode == 2 and "is cancelled already" in again.stderr
    refused = daemon.stage("--background", daemon.at / "f", target / "k", "--after", str(first))
    assert refused.returncode == 2 and "never be finished" in refused.stderr, refused.stderr
    waited = daemon.stage("--wait", str(first))
    assert waited.returncode == 1 and "was cancelled" in waited.stderr


def fill(path: Path) -> None:
    """Takes all the room that there still is."""
    with open(path, "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(1 << 16))


@needs_root
def test_a_full_device_interrupts_and_does_not_keep_it_busy(daemon):
    small = folder(daemon, "small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", small], check=True)
    try:
        daemon.begin()
        data = large(daemon.at / "f")
        (daemon.at / "g").write_bytes(data[: 20 << 20])
        room = small / "room"
        room.write_bytes(bytes(1 << 20))
        transfer = daemon.taken(daemon.at / "g", small / "g", "--limit", "5MiB")
        under_way(daemon, transfer)
        fill(room)
        status = daemon.status(transfer)
        assert status["state"] == "interrupted" and "space" in status["error"], status
        # It stays so until somebody asks.
        assert daemon.status(transfer, 0) == status
        room.unlink()
        done = daemon.stage("--resume", transfer)
        assert done.returncode == 0 and (small / "g").read_bytes() == data[: 20 << 20], done.stderr
    finally:
        subprocess.run(["umount", "-l", small], check=False)


@needs_root
@pytest.mark.parametrize("how", [(), ("--sync", "--delete")], ids=["copy", "sync"])
def test_the_same_command_again_goes_on_with_what_a_full_device_has_stopped(daemon, how):
    small, source = folder(daemon, "small"), folder(daemon, "source")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", small], check=True)
    try:
        daemon.begin()
        data = large(source / "g")[: 20 << 20]
        os.truncate(source / "g", 20 << 20)
        room = small / "room"
        room.write_bytes(bytes(1 << 20))
        words = (*how, source, small / "new", "--limit", "5MiB")
        transfer = daemon.taken(*words)
        later = daemon.taken("--after", transfer, source / "g", daemon.at / "later")
        under_way(daemon, transfer)
        fill(room)
        assert daemon.status(transfer)["state"] == "interrupted"
        room.unlink()
        # Something else is another transfer, also if its names are the same.
        other = daemon.taken(*words, "--after", later)
        assert other not in (transfer, later)
        assert daemon.stage("--cancel", other).returncode == 0
        done = daemon.stage(*words)
        assert done.returncode == 0 and json.loads(done.stdout)["id"] == transfer, done
        assert sorted(p.name for p in small.rglob("*")) == ["g", "new"] and (small / "new" / "g").read_bytes() == data
        assert daemon.status(later)["state"] == "finished" and (daemon.at / "later").read_bytes() == data
        # It is over: the same command is another one.
        shutil.rmtree(small / "new")
        again = daemon.stage(*words)
        assert again.returncode == 0 and json.loads(again.stdout)["id"] > other, again
    finally:
        subprocess.run(["umount", "-l", small], check=False)


def test_all_that_were_interrupted_are_resumed_however_many(daemon):
    """More than a list of transfers has."""
    daemon.begin()
    (daemon.at / "f").write_bytes(b"bytes")
    assert daemon.stage(daemon.at / "f", daemon.at / "g").returncode == 0
    daemon.end()
    journal = next((daemon.at / "state").rglob("transfers.db"))
    with sqlite3.connect(journal) as db:
        fields = "tag, user, request, priority, submitted, touches"
        for _ in range(1500):
            db.execute(f"INSERT INTO transfer ({fields}, state) SELECT {fields}, 'pending' FROM transfer WHERE id = 1")
        db.execute("UPDATE transfer SET state = 'interrupted' WHERE id > 1")
    db.close()
    daemon.begin()
    resumed = Program(daemon.path).ask({"resume": {"transfer": None}})["resumed"]
    assert sorted(resumed) == list(range(2, 1502))


def test_a_wrong_request_has_one_exit_status_whoever_finds_that(daemon):
    daemon.begin()
    (daemon.at / "f").write_bytes(b"bytes")
    (daemon.at / "g").write_bytes(b"others")
    for words, hint in (([], "ask anew"), (["--here"], "--exists")):
        done = daemon.stage(daemon.at / "f", daemon.at / "g", *words)
        assert done.returncode == 2 and "of this name already" in done.stderr and hint in done.stderr, done.stderr
    assert (daemon.at / "g").read_bytes() == b"others"
    # What is no fault of the request has another one.
    done = daemon.stage(daemon.at / "none", daemon.at / "h")
    assert done.returncode == 1 and "mend what is wrong" in done.stderr, done.stderr


def test_what_is_resumed_without_a_number_is_one_list(daemon):
    daemon.begin()
    (daemon.at / "f").write_bytes(b"bytes")
    done = daemon.stage("--resume")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "stead: nothing waits to be resumed\n"), done
    assert daemon.stage(daemon.at / "f", daemon.at / "g").returncode == 0
    daemon.end()
    journal = next((daemon.at / "state").rglob("transfers.db"))
    with sqlite3.connect(journal) as db:
        fields = "tag, user, request, priority, submitted, touches"
        for _ in range(3):
            db.execute(f"INSERT INTO transfer ({fields}, state) SELECT {fields}, 'pending' FROM transfer WHERE id = 1")
        db.execute("UPDATE transfer SET state = 'interrupted' WHERE id > 1")
    db.close()
    daemon.begin("--transfers", "1")
    # The first one has the name, which is free again, and those after it fail.
    (daemon.at / "g").unlink()
    done = daemon.stage("--resume")
    assert [(s["id"], s["state"]) for s in json.loads(done.stdout)] == [(2, "finished"), (3, "failed"), (4, "failed")], done
    assert done.returncode == 1 and "stead stage --resume 3" in done.stderr, done.stderr
    done = daemon.stage("--resume", "--background")
    assert done.returncode == 0 and done.stdout == "[]\n", done
    assert "transfer(s) 4, 3 failed: stead stage --resume ID" in done.stderr, done.stderr


def test_top_has_what_is_under_way_however_much_waits(daemon):
    daemon.begin("--transfers", "1")
    large(daemon.at / "f")
    (daemon.at / "s").write_bytes(b"s")
    first = daemon.taken(daemon.at / "f", daemon.at / "first", "--limit", "1MiB")
    under_way(daemon, first)
    program = Program(daemon.path)
    requests = [{"action": "copy", "sources": [f"{daemon.at}/s"], "target": f"{daemon.at}/s{i}"} for i in range(40)]
    waits = [program.ask({"submit": {"request": request}})["taken"] for request in requests]
    done = subprocess.run([STEAD, "top", "--format", "json"], env=daemon.env, text=True, capture_output=True, timeout=60)
    listed = json.loads(done.stdout)
    assert [s["status"]["id"] for s in listed] == [first, *waits], done.stderr
    assert [s["status"]["state"] for s in listed] == ["running", *["pending"] * 40]
    assert listed[0]["progress"]["bytes"] == LARGE and listed[1]["progress"] is None
    assert daemon.stage("--cancel", first).returncode == 0


def test_turns_are_by_priority_and_what_comes_before(daemon):
    daemon.begin("--transfers", "1")
    large(daemon.at / "f")
    target = folder(daemon, "to")
    # It has the seat until all others have come.
    first = daemon.taken(daemon.at / "f", target / "first", "--limit", "1MiB")
    under_way(daemon, first)
    (daemon.at / "s").write_bytes(b"s")
    low = daemon.taken(daemon.at / "s", target / "low", "--priority", "-5")
    held = daemon.taken(daemon.at / "s", target / "held", "--priority", "9", "--after", str(low))
    plain = daemon.taken(daemon.at / "s", target / "plain")
    high = daemon.taken(daemon.at / "s", target / "high", "--priority", "5")
    program = Program(daemon.path)
    for transfer in (first, low, held):
        left = program.ask({"eta": {"transfer": transfer}})["eta"]
        assert 0 <= left["low"] <= left["seconds"] <= left["high"] < 1e6, left
    assert daemon.stage("--cancel", first).returncode == 0
    began = {transfer: daemon.status(transfer)["started"] for transfer in (first, high, plain, low, held)}
    assert sorted(began, key=began.get) == [first, high, plain, low, held]


def test_programs_that_mean_no_good(daemon):
    daemon.begin()
    (daemon.at / "f").write_bytes(b"f")
    rng = random.Random(5)
    good = Program(daemon.path)
    texts = [b"{}", b"[]", b'{"submit": 1}', b'{"wait": {"transfer": 1, "seconds": -1}}', b"[" * 100_000, b'"' + b"x" * 100_000, b"\xff" * 9]
    texts += [rng.randbytes(rng.randrange(1, 500)) for _ in range(50)]
    texts.append(b'{"wait": {"transfer": 1, "seconds": 1e999}}')
    for text in texts:
        bad = Program(daemon.path)
        bad.socket.sendall(struct.pack("<I", len(text)) + text)
        assert "failed" in bad.read()
        bad.socket.close()
    for raw in (b"\xff\xff\xff\xff", b"\x01", b"\x10\x00\x00\x00{"):
        bad = Program(daemon.path)
        bad.socket.sendall(raw)
        bad.socket.shutdown(socket.SHUT_WR)
        assert bad.read()["failed"]["kind"] == "format"
    relative = good.ask({"submit": {"request": {"action": "copy", "sources": ["f"], "target": "/tmp/x"}}})
    assert "root on" in relative["failed"]["message"], relative
    # Many connections of one user are refused, and those that there are go on.
    refused, held = 0, []
    for _ in range(700):
        try:
            held.append(Program(daemon.path, is_once=True))
            refused += "failed" in held[-1].hello
        except (EOFError, ConnectionError, BlockingIOError):
            refused += 1
    assert refused >= 400
    assert good.ask({"list": {}}) == {"list": []}
    for one in held:
        one.socket.close()
    done = good.ask({"submit": {"request": {"action": "copy", "sources": [str(daemon.at / "f")], "target": str(daemon.at / "g")}}})
    assert good.ask({"wait": {"transfer": done["taken"], "seconds": 60}})["standing"]["status"]["state"] == "finished"
    assert daemon.process.poll() is None


@needs_root
def test_who_floods_it_is_in_nobody_elses_way(daemon):
    daemon.begin()
    mine = folder(daemon, "mine", SOMEBODY)
    (daemon.at / "f").write_bytes(b"f")
    held = []
    for _ in range(700):
        try:
            held.append(Program(daemon.path, is_once=True))
        except (EOFError, ConnectionError, BlockingIOError):
            pass
    done = daemon.stage(daemon.at / "f", mine, user=SOMEBODY)
    assert done.returncode == 0 and (mine / "f").exists(), done.stderr
    for one in held:
        one.socket.close()


def test_a_worker_without_room_for_a_connection_goes_on(daemon):
    daemon.begin()
    large(daemon.at / "f")
    first = daemon.taken(daemon.at / "f", daemon.at / "to", *SLOW)
    under_way(daemon, first)
    (worker,) = daemon.workers()
    limits = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (1, limits[1]))
    lost = socket.socket(socket.AF_UNIX)
    lost.settimeout(60)
    lost.connect(str(daemon.path))
    try:
        assert lost.recv(1) == b""
    except ConnectionResetError:
        pass
    resource.prlimit(worker, resource.RLIMIT_NOFILE, limits)
    assert daemon.status(first)["state"] == "finished" and daemon.workers() == [worker]


@needs_root
def test_workers_have_nothing_of_what_the_daemon_was_started_with(daemon):
    with open(daemon.at / "socket-of-mpi", "w") as given:
        daemon.begin(pass_fds=[given.fileno()])
    program = Program(daemon.path)
    assert given.name in opened(daemon.process.pid)
    assert all(given.name not in opened(worker) for worker in daemon.workers())
    program.socket.close()


def test_a_pool_needs_mpi_and_a_node_of_one_is_none_of_a_daemon_alone(daemon):
    done = subprocess.run([STEAD, "daemon", "--pool"], env=daemon.env, text=True, capture_output=True, timeout=60)
    assert done.returncode == 2 and "built without MPI" in done.stderr and "MPI=1" in done.stderr
    daemon.begin()
    folder(daemon, "from")
    for words in ([f"n2:{daemon.at}/from", daemon.at / "to"], [daemon.at / "from", f"n2:{daemon.at}/to"], ["--list", "--on", "n2"]):
        done = daemon.stage(*words)
        assert done.returncode == 2 and "--pool" in done.stderr, done.stderr
    # A file of such a name, and the node itself.
    (daemon.at / "n2:").mkdir()
    (daemon.at / "n2:" / "x").write_bytes(b"x")
    assert daemon.stage("./n2:/x", "to", cwd=daemon.at).returncode == 0 and (daemon.at / "to").read_bytes() == b"x"
    node = os.uname().nodename
    assert daemon.stage(f"{node}:{daemon.at}/to", f"{node}:{daemon.at}/again").returncode == 0


def test_one_daemon_has_a_state_and_a_socket(daemon):
    daemon.begin()
    again = subprocess.run(
        [STEAD, "daemon", "--socket", daemon.path, "--state", daemon.at / "other"], env=daemon.env, capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 2 and "another daemon listens there" in again.stderr
    again = subprocess.run(
        [STEAD, "daemon", "--socket", daemon.at / "s2", "--state", daemon.at / "state"], env=daemon.env, capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 2 and "another daemon has this state" in again.stderr


def test_the_protocol_is_as_it_is_described(daemon):
    page = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
    daemon.begin()
    (daemon.at / "f").write_bytes(b"f")
    program = Program(daemon.path)
    blocks = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.S)]
    hello, failed, request = blocks
    assert {name: type(value) for name, value in program.hello.items()} == {name: type(value) for name, value in hello.items()}
    here = {"action": "copy", "sources": [str(daemon.at / "f")], "target": str(daemon.at / "to/")}
    taken = [program.ask({"submit": {"request": here | {"target": f"{daemon.at}/{i}"}}})["taken"] for i in range(5)]
    for one in taken:
        status = program.ask({"wait": {"transfer": one, "seconds": 60}})["standing"]["status"]
    assert set(status["request"]) == set(request) and set(status["request"]["options"]) == set(request["options"])
    asked, _, sources = page.partition("## Sources on other nodes")
    rows = re.findall(r"^\| (`\{.*`) \| `\{\"(\w+)\"", asked, re.M)
    (daemon.at / "nvme").mkdir()
    assert len(rows) == 25
    streams = []
    for questions, answer in rows:
        for question in re.findall(r"`([^`]*)`", questions):
            # What is checked is a sync.
            of = here | {"action": "sync"} if '"check"' in question else here
            question = json.loads(question.replace('"request": R', '"request": ' + json.dumps(of)))
            if "stream" in question:
                streams.append(Program(daemon.path))
            got = (streams[-1] if "stream" in question else program).ask(question)
            if answer in got:
                continue
            # What it is about has ended, or is there already.
            assert got["failed"]["kind"] == "usage" and "already" in got["failed"]["message"], (question, got)
            assert set(got["failed"]) == set(failed["failed"])
    # What is no message of a stream is answered as such, and one that nobody sends the rest of ends with its connection.
    assert "already" in Program(daemon.path).ask({"stream": {"number": 7, "way": "errands"}})["failed"]["message"]
    asks = streams[0]
    asks.socket.sendall(struct.pack("<Q", 3) + b"\xff\xff\xff")
    (length,) = struct.unpack("<Q", asks.exactly(8))
    assert b"malformed" in asks.exactly(length)
    asks.socket.sendall(struct.pack("<Q", 1 << 62) + b"x")
    for one in streams:
        one.socket.close()
    found = program.ask({"source": {"find": {"location": f"{daemon.at}/f", "follow": True}}})["source"]["found"]
    seen = program.ask({"source": {"meta": {"base": found["base"], "path": "f"}}})["source"]["meta"]
    (daemon.at / "l").symlink_to("f")
    rows = re.findall(r"^\| (`\{.*`) \| `\{\"(\w+)\"", sources, re.M)
    assert len(rows) == 7
    for questions, answer in rows:
        for question in re.findall(r"`([^`]*)`", questions):
            path = "" if '"list"' in question else "l" if '"link"' in question else "f"
            for name, value in [("B", found["base"]), ("P", path), ("M", seen)]:
                question = question.replace(f'": {name}', f'": {json.dumps(value)}')
            got = program.ask({"source": json.loads(question.replace("nvme0://run1/a.h5", f"{daemon.at}/f"))})
            # A list that was short has no more names.
            assert answer in got.get("source", {}) or '"more"' in question and got["failed"]["kind"] == "format", (question, got)
    kinds = re.search(r"with a kind of (.*?)\.$", page, re.M)[1]
    assert program.ask({"wait": {"transfer": 99, "seconds": 0}})["failed"]["kind"] in re.findall(r"`([\w-]+)`", kinds)
    assert program.ask({"wait": {"transfer": 1, "seconds": 0}})["standing"]["progress"] is None


def test_metrics_are_those_of_the_page(daemon):
    page = (Path(__file__).parents[2] / "docs/steadd.md").read_text()
    daemon.begin()
    text = Program(daemon.path).ask({"metrics": {}})["metrics"]
    assert re.findall(r"^# TYPE (stead_\w+) gauge$", text, re.M) == re.findall(r"^\| `(stead_\w+)` \|", page, re.M)
    states = re.search(r"^\| `stead_transfers` \| `state`: (.*?) \|", page, re.M)[1]
    assert set(re.findall(r'^stead_transfers\{state="(\w+)"\}', text, re.M)) == set(re.findall(r"`(\w+)`", states))


def test_who_has_started_it_is_told_when_it_listens_and_when_it_ends(daemon):
    """As systemd does it for services of `Type=notify`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = daemon.at / "notify"
        manager.bind(str(name))
        manager.settimeout(60)
        daemon.env["NOTIFY_SOCKET"] = str(name)
        daemon.begin()
        assert manager.recv(64) == b"READY=1"
        # Workers are none of its services.
        workers = daemon.workers()
        assert workers
        for worker in workers:
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{worker}/environ").read_bytes()
        daemon.end()
        assert manager.recv(64) == b"STOPPING=1"


def test_a_manager_that_is_gone_keeps_no_daemon_from_its_work(daemon):
    daemon.env["NOTIFY_SOCKET"] = str(daemon.at / "gone")
    daemon.begin()
    assert "cannot say READY=1" in (daemon.at / "log").read_text()


def test_a_daemon_has_as_many_files_as_it_may(daemon):
    daemon.begin(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 8192)))
    limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
    assert re.search(r"Max open files +8192 +8192", limits), limits
