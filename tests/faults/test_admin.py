"""The daemon's administrators: who may, dataspaces and quotas while it runs, jobs, drain, transfers of others."""

from __future__ import annotations

import fcntl
import grp
import json
import os
import pwd
import re
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_daemon import ANOTHER, LARGE, SOMEBODY, STEAD, Daemon, Program, daemon, fill, folder, large, needs_root, under_way  # noqa: F401


def admin(d: Daemon, *args, user=None, code=0, json_=False):
    words = [STEAD, "admin", *map(str, args), *(["--format", "json"] if json_ else [])]
    if user:
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
    done = subprocess.run(words, env=d.env, text=True, capture_output=True, timeout=60)
    assert done.returncode == code, done
    return json.loads(done.stdout) if json_ else done.stderr


def persist(d: Daemon, *args, user=None, code=0):
    words = [STEAD, "persist", *map(str, args)]
    if user:
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
    done = subprocess.run(words, env=d.env, text=True, capture_output=True, timeout=60)
    assert done.returncode == code, done
    return json.loads(done.stdout) if "json" in args else done.stderr


def reads(path, user) -> bool:
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "cat", path]
    return subprocess.run(words, capture_output=True).returncode == 0


def until(what):
    end = time.monotonic() + 120
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def df(d: Daemon):
    program = Program(d.path)
    try:
        return {space["name"]: space for space in program.ask({"spaces": {}})["spaces"]}
    finally:
        program.socket.close()


@contextmanager
def acting(user: int):
    """Connections that are made meanwhile are of this user."""
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def managed(d: Daemon, user: int) -> Program:
    """A connection about the transfers of a user, by hand."""
    program = Program(d.path)
    program.hello = program.ask({"manage": {"user": user}})
    return program


def moves(theirs: Program, transfer: int) -> bool:
    """Whether some of it is there."""
    progress = theirs.ask({"wait": {"transfer": transfer, "seconds": 0}})["standing"]["progress"]
    return bool(progress and progress["bytes_done"])


def ended(theirs: Program, transfer: int) -> str:
    return theirs.ask({"wait": {"transfer": transfer, "seconds": 60}})["standing"]["status"]["state"]


@pytest.fixture
def groups():
    """No other test changes the groups of the machine meanwhile, or sees that they are changed."""
    with open(Path(tempfile.gettempdir()) / "stead-groups.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@needs_root
def test_only_administrators_administrate(daemon, groups):
    daemon.begin()
    for words in (("drain",), ("stats",), ("dataspace", "add", "x", "path=/x"), ("job", "list"), ("process", "remove", "1")):
        assert "only root and the group 'stead'" in admin(daemon, *words, user=SOMEBODY, code=1)
    # Nor are transfers of others any of theirs, nor their own as those of others.
    for words in (("transfers",), ("transfers", "--user", 0), ("transfers", "--user", SOMEBODY), ("cancel", "--user", "root", 1), ("resume", "--user", 0)):
        assert "only root and the group 'stead'" in admin(daemon, *words, user=SOMEBODY, code=1)
    with acting(SOMEBODY):
        program = managed(daemon, 0)
    assert program.hello["failed"]["kind"] == "permission" and program.socket.recv(1) == b""
    assert "looks after" not in (daemon.at / "log").read_text()
    assert admin(daemon, "stats", json_=True)["drained"] is False
    assert admin(daemon, "dataspace", "list", json_=True) == []


@needs_root
def test_members_of_the_group_administrate(daemon, groups):
    """The group and its member are made for this test, and go with it."""
    try:
        grp.getgrnam("stead")
        pytest.skip("there is a group 'stead' on this machine")
    except KeyError:
        pass
    name, third = pwd.getpwuid(SOMEBODY).pw_name, pwd.getpwnam("bin").pw_uid
    group = "/etc/group"
    before = open(group).read()
    try:
        with open(group, "a") as f:
            f.write(f"stead:x:64321:{name},bin\n")
        daemon.begin()
        assert admin(daemon, "transfers", "--user", 0, "--all", user=third, json_=True) == []
        admin(daemon, "drain", user=SOMEBODY)
        assert "only root" in admin(daemon, "open", user=ANOTHER, code=1)
        admin(daemon, "open", user=SOMEBODY)
        # Whoever is taken out is none any more, though the worker that knew of the group goes on.
        with open(group, "w") as f:
            f.write(before)
        assert "only root" in admin(daemon, "drain", user=SOMEBODY, code=1)
        assert "only root" in admin(daemon, "transfers", "--user", 0, user=third, code=1)
        assert admin(daemon, "stats", json_=True)["drained"] is False
    finally:
        with open(group, "w") as f:
            f.write(before)


def test_dataspaces_and_quotas_are_set_while_it_runs(daemon):
    daemon.begin()
    (daemon.at / "f").write_bytes(b"x" * 300_000)
    assert set(df(daemon)) == {"memory"}
    path = daemon.at / "space"
    admin(daemon, "dataspace", "add", "fast", f"path={path}", "mode=2770", "user_quota=500000")
    made = until(lambda: path.exists() and path.stat())
    assert made.st_mode & 0o7777 == 0o2770
    space = until(lambda: df(daemon).get("fast"))
    assert (space["kind"], space["user_quota"], space["mode"], space["error"]) == ("node", 500_000, "2770", None)
    assert daemon.stage(daemon.at / "f", "fast://a").returncode == 0
    refused = daemon.stage(daemon.at / "f", "fast://b")
    assert refused.returncode == 1 and "dataspace 'fast'" in refused.stderr and "in use" in refused.stderr, refused.stderr
    # By its path it is the same folder.
    assert daemon.stage(daemon.at / "f", path / "b").returncode == 1
    assert sorted(p.name for p in path.iterdir()) == ["a"]
    # Commands know what the daemon knows, and --here what they find by themselves.
    for verb in ("df", "ls"):
        asked = [
            subprocess.run([STEAD, verb, "--format", "json", *more], env=daemon.env, check=True, capture_output=True, timeout=60)
            for more in ((), ("--here",))
        ]
        assert ["fast" in {space["name"] for space in json.loads(done.stdout)} for done in asked] == [True, False]
    shown = subprocess.run([STEAD, "df"], env=daemon.env, check=True, capture_output=True, text=True, timeout=60).stdout
    assert re.search(r"^ fast .*/s", shown, re.MULTILINE), shown
    assert "already" in admin(daemon, "dataspace", "add", "fast", "path=/x", code=2)
    assert "no 'quotas'" in admin(daemon, "dataspace", "update", "fast", "quotas=1", code=2)
    admin(daemon, "dataspace", "update", "fast", "user_quota=1MB")
    assert daemon.stage(daemon.at / "f", "fast://b").returncode == 0
    # What was set stays.
    daemon.end()
    daemon.begin()
    assert admin(daemon, "dataspace", "list", json_=True)[0]["set"]["user_quota"] == "1MB"
    assert df(daemon)["fast"]["user_quota_used"] >= 600_000
    admin(daemon, "dataspace", "remove", "fast")
    assert until(lambda: set(df(daemon)) == {"memory"})
    assert (path / "b").exists()
    admin(daemon, "dataspace", "reset", "fast")
    assert "nothing was set of a dataspace 'fast'" in admin(daemon, "dataspace", "reset", "fast", code=2)


def test_what_runs_and_how_fast_it_was_is_told(daemon):
    daemon.begin()
    large(daemon.at / "f")
    admin(daemon, "dataspace", "add", "space", f"path={folder(daemon, 'space')}")
    until(lambda: "space" in df(daemon))
    assert daemon.stage(daemon.at / "f", "space://first").returncode == 0
    slow = daemon.taken(daemon.at / "f", "space://slow", "--limit", "1MiB")
    under_way(daemon, slow)
    told = df(daemon)["space"]
    assert told["running"] == 1 and told["write_rate"] > 0 and told["coming"] > 0, told
    assert daemon.stage("--cancel", slow).returncode == 0
    until(lambda: df(daemon)["space"]["running"] == 0)


@needs_root
def test_what_others_run_is_counted_where_it_is_shared(daemon):
    daemon.begin()
    large(daemon.at / "f")
    spaces = {"shared": "transfers=3", "limited": "limit=1GB/s", "own": "gentle=no"}
    for name, agreed in spaces.items():
        folder(daemon, name).chmod(0o777)
        admin(daemon, "dataspace", "add", name, f"path={daemon.at / name}", agreed)
    slow = [daemon.taken(daemon.at / "f", f"{name}://slow", "--limit", "1MiB", user=SOMEBODY) for name in spaces]
    for name in spaces:
        until(lambda name=name: any(p.name.startswith(".stead-") for p in (daemon.at / name).iterdir()))
    until(lambda: [df(daemon)[name]["running"] for name in spaces] == [1, 1, 0])
    for one in slow:
        assert daemon.stage("--cancel", one, user=SOMEBODY).returncode == 0
    until(lambda: [df(daemon)[name]["running"] for name in spaces] == [0, 0, 0])


def test_a_node_is_drained(daemon):
    daemon.begin("--transfers", "1")
    large(daemon.at / "f")
    admin(daemon, "dataspace", "add", "slow", f"path={folder(daemon, 'slow')}", "limit=1MiB/s")
    first = daemon.taken(daemon.at / "f", "slow://first")
    waits = daemon.taken(daemon.at / "f", daemon.at / "waits")
    under_way(daemon, first)
    drains = subprocess.Popen([STEAD, "admin", "drain", "--wait"], env=daemon.env)
    until(lambda: admin(daemon, "stats", json_=True)["drained"])
    assert drains.poll() is None
    # It waits for no longer than it has to.
    admin(daemon, "dataspace", "update", "slow", "limit=")
    assert drains.wait(60) == 0
    assert daemon.status(first, 0)["state"] == "finished"
    assert daemon.status(waits, 0)["state"] == "pending"
    refused = daemon.stage("--background", daemon.at / "f", daemon.at / "late")
    assert refused.returncode == 1 and "drained" in refused.stderr
    top = subprocess.run([STEAD, "top", "--once"], env=daemon.env, text=True, capture_output=True, timeout=60).stdout
    assert "drained" in top, top
    # It stays so.
    daemon.end()
    daemon.begin()
    assert daemon.status(waits, 0)["state"] == "pending"
    admin(daemon, "open")
    assert daemon.status(waits)["state"] == "finished"
    user = os.geteuid()
    stats = until(lambda: [u for u in admin(daemon, "stats", json_=True)["users"] if u["user"] == user and u["finished"] == 2])
    assert stats[0]["bytes"] == 2 * LARGE and stats[0]["failed"] == 0, stats


@needs_root
def test_transfers_of_others_are_listed_cancelled_and_resumed(daemon):
    daemon.begin()
    mine, name = folder(daemon, "mine", SOMEBODY), pwd.getpwuid(SOMEBODY).pw_name
    large(daemon.at / "f")
    # What its user calls it changes no terminal.
    slow = daemon.taken(daemon.at / "f", mine / "a\x1b7b", "--limit", "1MiB", user=SOMEBODY)
    theirs = managed(daemon, SOMEBODY)
    assert theirs.hello["user"] == SOMEBODY and theirs.hello["job"] is None, theirs.hello
    until(lambda: moves(theirs, slow))
    assert theirs.ask({"eta": {"transfer": slow}})["eta"]["seconds"] > 0
    assert 'stead_transfers{state="running"} 1' in theirs.ask({"metrics": {}})["metrics"]
    until(lambda: [u for u in admin(daemon, "stats", json_=True)["users"] if u["user"] == SOMEBODY and u["running"] == 1])
    for words in (("--user", name), ("--user", SOMEBODY), ()):
        listed = admin(daemon, "transfers", *words, json_=True)
        assert [(one["user"], one["id"], one["state"]) for one in listed] == [(SOMEBODY, slow, "running")], words
    shown = subprocess.run([STEAD, "admin", "transfers"], env=daemon.env, check=True, capture_output=True, text=True, timeout=60).stdout
    assert re.search(rf"^ {SOMEBODY} +{slow} +running +copy ", shown, re.MULTILINE), shown
    assert "a\\u{1b}7b" in shown and "\x1b" not in shown, shown
    (done,) = admin(daemon, "cancel", "--user", name, slow, json_=True)
    assert (done["id"], done["state"]) == (slow, "cancelled") and list(mine.iterdir()) == []
    assert admin(daemon, "transfers", "--user", name, json_=True) == []
    assert [one["state"] for one in admin(daemon, "transfers", "--all", json_=True)] == ["cancelled"]
    refused = admin(daemon, "cancel", "--user", name, slow, 99, code=2)
    assert "cancelled already" in refused and "no transfer 99" in refused, refused
    # What has failed goes on by its number, with the rights of its user.
    closed = daemon.at / "closed"
    closed.write_bytes(b"closed")
    closed.chmod(0o600)
    failed = daemon.taken(closed, mine / "copy", user=SOMEBODY)
    assert ended(theirs, failed) == "failed"
    said = admin(daemon, "resume", "--user", name)
    assert "nothing waits" in said and f"{failed} failed: stead admin resume --user {name} ID" in said, said
    assert [one["id"] for one in admin(daemon, "resume", "--user", name, failed, json_=True)] == [failed]
    assert ended(theirs, failed) == "failed"
    closed.chmod(0o644)
    admin(daemon, "resume", "--user", name, failed)
    assert ended(theirs, failed) == "finished"
    assert (mine / "copy").read_bytes() == b"closed" and (mine / "copy").stat().st_uid == SOMEBODY
    assert f"administrator 0 looks after the transfers of user {SOMEBODY}\n" in (daemon.at / "log").read_text()


@needs_root
def test_what_was_interrupted_of_others_is_resumed(daemon):
    small = folder(daemon, "small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=1777", "tmpfs", small], check=True)
    try:
        daemon.begin()
        data = large(daemon.at / "f")[: 20 << 20]
        (daemon.at / "g").write_bytes(data)
        room = small / "room"
        room.write_bytes(bytes(1 << 20))
        transfer = daemon.taken(daemon.at / "g", small / "g", "--limit", "5MiB", user=SOMEBODY)
        theirs = managed(daemon, SOMEBODY)
        until(lambda: moves(theirs, transfer))
        fill(room)
        assert ended(theirs, transfer) == "interrupted"
        room.unlink()
        assert [one["id"] for one in admin(daemon, "resume", "--user", SOMEBODY, json_=True)] == [transfer]
        assert ended(theirs, transfer) == "finished"
        assert (small / "g").read_bytes() == data and (small / "g").stat().st_uid == SOMEBODY
    finally:
        subprocess.run(["umount", "-l", small], check=False)


@needs_root
def test_with_the_rights_of_others_administrators_do_nothing_else(daemon):
    daemon.begin()
    secret = folder(daemon, "secret", SOMEBODY)
    secret.chmod(0o700)
    (secret / "f").write_bytes(b"secret")
    assert daemon.stage("--list", user=SOMEBODY).returncode == 0
    theirs = managed(daemon, SOMEBODY)
    request = {"action": "copy", "sources": [f"{secret}/f"], "target": f"{secret}/g"}
    for ask in (
        {"submit": {"request": request}},
        {"preview": {"request": request}},
        {"source": {"find": {"location": f"{secret}/f", "follow": True}}},
        {"persist": {"list": {}}},
        {"persist": {"share": {"location": f"{secret}/f", "user": "root"}}},
        {"stream": {"number": 7, "way": "errands"}},
        {"stream": {"number": 7, "way": "asks"}},
        {"stream": {"number": 0, "way": "asks"}},
        {"reach": {"node": "elsewhere"}},
        {"manage": {"user": 0}},
        {"manage": {"user": SOMEBODY}},
        {"admin": {"stats": {}}},
        {"spaces": {}},
        {"dataspaces": {}},
        {"nodes": {}},
    ):
        failed = theirs.ask(ask)["failed"]
        assert failed["kind"] == "permission" and "nothing else" in failed["message"], (ask, failed)
    # It is answered as before, and nothing has come of it.
    assert theirs.ask({"list": {"all": True}}) == {"list": []}
    assert [path.name for path in secret.iterdir()] == ["f"]
    # For a large frame nobody waits: its length is refused.
    theirs.socket.sendall(struct.pack("<I", (64 << 10) + 1))
    assert theirs.read()["failed"]["kind"] == "permission" and theirs.socket.recv(1) == b""
    # The user has what a user has.
    assert daemon.stage(secret / "f", secret / "g", user=SOMEBODY).returncode == 0


@needs_root
def test_neither_users_nor_administrators_keep_each_other_out(daemon):
    daemon.begin()
    with acting(SOMEBODY):
        held = [Program(daemon.path) for _ in range(256)]
        assert all("failed" not in one.hello for one in held)
        assert "256 connections" in Program(daemon.path).hello["failed"]["message"]
    theirs = [managed(daemon, SOMEBODY) for _ in range(16)]
    assert all(one.ask({"list": {}}) == {"list": []} for one in theirs)
    assert "16 connections" in managed(daemon, SOMEBODY).hello["failed"]["message"]
    # A place that one of them has left is for its like.
    held.pop().socket.close()

    def is_let_in() -> bool:
        with acting(SOMEBODY):
            return "failed" not in Program(daemon.path).hello

    until(is_let_in)
    assert "16 connections" in managed(daemon, SOMEBODY).hello["failed"]["message"]
    theirs.pop().socket.close()
    until(lambda: "failed" not in managed(daemon, SOMEBODY).hello)
    for one in held + theirs:
        one.socket.close()


@needs_root
def test_of_who_has_no_transfers_nothing_is_begun(daemon):
    daemon.begin()
    users = daemon.at / "state" / "users"
    for user in (ANOTHER, 64_999):
        assert f"user {user} has no transfers here" in admin(daemon, "transfers", "--user", user, code=1)
        assert not (users / str(user)).exists()
    assert "no user 'no such user'" in admin(daemon, "cancel", "--user", "no such user", 1, code=2)
    # Of a user who has been taken away.
    (users / "64999").mkdir(mode=0o700)
    failed = managed(daemon, 64_999).hello["failed"]
    assert failed["kind"] == "not-found" and "knows no user 64999" in failed["message"], failed
    assert "looks after" not in (daemon.at / "log").read_text()


def test_a_daemon_of_ones_own_has_no_transfers_of_others(daemon):
    user = SOMEBODY if os.geteuid() == 0 else None
    me = user or os.geteuid()
    if user:
        for name in ("run", "state"):
            folder(daemon, name, user)
    daemon.begin(by=("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ())
    mine = folder(daemon, "mine", user)
    (daemon.at / "f").write_bytes(b"f")
    assert daemon.stage(daemon.at / "f", mine, user=user).returncode == 0
    listed = admin(daemon, "transfers", "--user", me, "--all", user=user, json_=True)
    assert [(one["user"], one["state"]) for one in listed] == [(me, "finished")]
    assert f"serves user {me} only, not {ANOTHER}" in admin(daemon, "transfers", "--user", ANOTHER, user=user, code=2)


@needs_root
def test_a_folder_that_is_made_is_its_owners(daemon):
    daemon.begin()
    (daemon.at / "f").write_bytes(b"f")
    user, group = pwd.getpwuid(SOMEBODY).pw_name, grp.getgrgid(pwd.getpwuid(ANOTHER).pw_gid)
    paths = {name: daemon.at / name for name in ("named", "numbered", "there")}
    folder(daemon, "there")
    admin(daemon, "dataspace", "add", "named", f"path={paths['named']}", f"owner={user}", f"group={group.gr_name}", "mode=2750")
    admin(daemon, "dataspace", "add", "numbered", f"path={paths['numbered']}", f"owner={ANOTHER}")
    admin(daemon, "dataspace", "add", "there", f"path={paths['there']}", f"owner={user}", "mode=0777")
    until(lambda: paths["named"].exists() and paths["numbered"].exists())

    def whose(name: str) -> tuple[int, int, int]:
        found = paths[name].stat()
        return found.st_uid, found.st_gid, found.st_mode & 0o7777

    assert whose("named") == (SOMEBODY, group.gr_gid, 0o2750) and whose("numbered") == (ANOTHER, 0, 0o700)
    # What is there stays as it is.
    assert whose("there")[:2] == (0, 0) and whose("there")[2] != 0o777
    space = until(lambda: df(daemon).get("named"))
    assert (space["owner"], space["group"], space["mode"], space["error"]) == (SOMEBODY, group.gr_gid, "2750", None)
    # What comes there is of who stages it, and of the folder's group.
    done = daemon.stage(daemon.at / "f", "named://f", user=SOMEBODY)
    assert done.returncode == 0, done.stderr
    found = (paths["named"] / "f").stat()
    assert (found.st_uid, found.st_gid) == (SOMEBODY, group.gr_gid)
    assert daemon.stage(daemon.at / "f", "named://g", user=ANOTHER).returncode == 1
    assert "names nobody" in admin(daemon, "dataspace", "add", "odd", "path=/x", "owner=a b", code=2)


def test_a_size_is_a_quota_of_transfers(daemon):
    daemon.begin()
    (daemon.at / "small").write_bytes(b"x" * 400_000)
    (daemon.at / "big").write_bytes(b"x" * 900_000)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        path = Path(memory) / "mem"
        admin(daemon, "dataspace", "add", "mem", f"path={path}", "memory=true", "size=1MB")
        until(path.exists)
        space = until(lambda: df(daemon).get("mem"))
        assert (space["kind"], space["quota"], space["error"]) == ("memory", 1_000_000, None)
        assert daemon.stage(daemon.at / "small", "mem://small").returncode == 0
        # The smaller one of both counts.
        for settings in ([], ["quota=2MB"], ["size=4MB", "quota=1MB"]):
            if settings:
                admin(daemon, "dataspace", "update", "mem", *settings)
            refused = daemon.stage(daemon.at / "big", "mem://big")
            assert refused.returncode == 1 and "dataspace 'mem'" in refused.stderr and "in use" in refused.stderr, refused.stderr
        assert [p.name for p in path.iterdir()] == ["small"]
        admin(daemon, "dataspace", "update", "mem", "quota=")
        assert daemon.stage(daemon.at / "big", "mem://big").returncode == 0
        assert "only a dataspace in memory has a size" in admin(daemon, "dataspace", "update", "mem", "memory=", code=2)
        admin(daemon, "dataspace", "remove", "mem")


def test_what_all_nodes_see_is_told(daemon):
    daemon.begin()
    for name, more in (("tank", ["shared=yes"]), ("own", ["shared=no"]), ("fast", [])):
        admin(daemon, "dataspace", "add", name, f"path={folder(daemon, name)}", *more)
    spaces = until(lambda: (found := df(daemon)).keys() >= {"tank", "own", "fast"} and found)
    assert [spaces[name]["kind"] for name in ("tank", "own", "fast")] == ["shared", "node", "node"]
    # In tables, and of a file that the command reads by itself.
    (daemon.at / "stead.toml").write_text(f'[dataspace.mine]\npath = "{daemon.at / "tank"}"\nshared = true\n')
    for name, more in (("tank", {}), ("mine", {"STEAD_SOCKET": "none", "STEAD_CONFIG": str(daemon.at / "stead.toml")})):
        shown = subprocess.run([STEAD, "df"], env=daemon.env | more, check=True, capture_output=True, text=True, timeout=60).stdout
        assert re.search(rf"^ {name} .* shared ", shown, re.MULTILINE), shown


def test_jobs_have_their_dataspaces(daemon):
    daemon.begin()
    user = SOMEBODY if os.geteuid() == 0 else None
    me = user or os.geteuid()
    path, mine = folder(daemon, "burst", user), folder(daemon, "mine", user)
    (path / "others").write_bytes(b"of another")
    large(daemon.at / "f")
    (daemon.at / "s").write_bytes(b"s")
    admin(daemon, "dataspace", "add", "burst", f"path={path}", "jobs=yes")
    refused = until(lambda: (r := daemon.stage(daemon.at / "s", "burst://a", user=user)).returncode == 1 and r)
    assert "for processes of jobs" in refused.stderr and "stead admin job add" in refused.stderr, refused.stderr
    admin(daemon, "job", "add", "12", "--user", me, "--dataspaces", "burst")
    assert "job 12" in until(lambda: (r := daemon.stage(daemon.at / "s", path / "a", user=user)).returncode == 1 and r).stderr
    # A shell of the job, which begins the command once it is told to.
    words = [*daemon.words(["--background", daemon.at / "s", "burst://a"], user)]
    slow = [*daemon.words(["--background", daemon.at / "f", "burst://slow", "--limit", "1MiB"], user)]
    lines = "read _; " + "; ".join(" ".join(map(str, w)) for w in (words, slow))
    shell = subprocess.Popen(["sh", "-c", lines], env=daemon.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    admin(daemon, "process", "add", "12", shell.pid)
    assert admin(daemon, "job", "list", json_=True) == [{"job": "12", "user": me, "dataspaces": ["burst"], "processes": [shell.pid]}]
    out, err = shell.communicate("\n", timeout=60)
    assert shell.returncode == 0, err
    until(lambda: (path / "a").exists())
    until(lambda: any(p.name.startswith(".stead-") for p in path.iterdir()))
    admin(daemon, "job", "remove", "12")
    # Its transfers are given up; what its user has left goes, and nothing of others.
    left = {"others"} if user else set()
    until(lambda: {p.name for p in path.iterdir()} == left)
    states = {s["state"] for s in json.loads(daemon.stage("--list", "--all", user=user).stdout)}
    assert "cancelled" in states and "running" not in states, states
    assert mine.exists() and "no job 12" in admin(daemon, "process", "add", "12", os.getpid(), code=2)


def test_the_next_job_keeps_what_it_writes(daemon):
    """It begins while there is still much to be removed of the one before it."""
    daemon.begin()
    me = os.geteuid()
    path = folder(daemon, "burst")
    admin(daemon, "dataspace", "add", "burst", f"path={path}", "jobs=yes")
    until(lambda: "burst" in df(daemon))
    for i in range(64):
        (path / f"old{i}").mkdir()
        for j in range(500):
            (path / f"old{i}" / str(j)).touch()
    (path / "both").mkdir()
    admin(daemon, "job", "add", "1", "--user", me, "--dataspaces", "burst")
    admin(daemon, "job", "remove", "1")
    admin(daemon, "job", "add", "2", "--user", me, "--dataspaces", "burst")
    (path / "new").mkdir()
    mine = [path / "new" / str(j) for j in range(500)] + [path / f"a{j}" for j in range(500)]
    for one in mine:
        one.write_bytes(b"of job 2")
    # Another connection is answered, and the worker looks again.
    admin(daemon, "job", "add", "2", "--user", me, "--dataspaces", "burst")
    time.sleep(1)
    assert all(one.exists() for one in mine)
    admin(daemon, "job", "remove", "2")
    until(lambda: list(path.iterdir()) == [])


def test_a_dataspace_that_is_kept_as_a_whole_stays(daemon):
    daemon.begin()
    me = os.geteuid()
    path = folder(daemon, "burst")
    (path / "f").write_bytes(b"f")
    admin(daemon, "dataspace", "add", "burst", f"path={path}", "jobs=yes")
    until(lambda: "burst" in df(daemon))
    admin(daemon, "job", "add", "1", "--user", me, "--dataspaces", "burst")
    persist(daemon, "store", "burst://")
    admin(daemon, "job", "remove", "1")
    until(lambda: '"left":{}' in (daemon.at / "state" / "admin.json").read_text())
    assert (path / "f").exists()


def test_what_has_expired_goes(daemon):
    user = os.geteuid()
    path = folder(daemon, "scratch")
    (path / "deep").mkdir()
    (path / "deep" / "old").write_bytes(b"old")
    (daemon.at / "f").write_bytes(b"f")
    daemon.begin()
    time.sleep(1.1)
    admin(daemon, "dataspace", "add", "scratch", f"path={path}", "expires=1s")
    until(lambda: list(path.iterdir()) == [])
    admin(daemon, "dataspace", "update", "scratch", "expires=1d")
    # A copy has the time of its source, and counts from when it came.
    os.utime(daemon.at / "f", (1, 1))
    assert daemon.stage(daemon.at / "f", "scratch://f").returncode == 0
    admin(daemon, "dataspace", "update", "scratch", "limit=1GB/s")
    assert (path / "f").stat().st_mtime == 1 and path.stat().st_uid == user


def test_what_is_kept_outlives_jobs_and_time(daemon):
    user = SOMEBODY if os.geteuid() == 0 else None
    me = user or os.geteuid()
    daemon.begin()
    path = folder(daemon, "burst", user)
    for name in ("kept/deep", "gone"):
        (path / name).mkdir(parents=True)
        (path / name / "f").write_bytes(b"f")
    if user:
        for found in path.rglob("*"):
            os.chown(found, user, user)
    admin(daemon, "dataspace", "add", "burst", f"path={path}", "jobs=yes")
    until(lambda: "burst" in df(daemon))
    admin(daemon, "job", "add", "5", "--user", me, "--dataspaces", "burst")
    persist(daemon, "store", path / "kept", "--expires", "30d", user=user)
    (one,) = persist(daemon, "list", "--format", "json", user=user)
    assert one["kept"] and 29 * 86400 < one["left"] <= 30 * 86400 and one["path"] == str(path / "kept")
    admin(daemon, "job", "remove", "5")
    until(lambda: not (path / "gone").exists())
    assert (path / "kept/deep/f").read_bytes() == b"f"
    persist(daemon, "delete", path / "kept", user=user)
    assert "is not kept" in persist(daemon, "delete", path / "kept", user=user, code=2)
    time.sleep(1.1)
    admin(daemon, "dataspace", "update", "burst", "expires=1s")
    # What looks again is the worker of whose it is.
    persist(daemon, "list", user=user)
    until(lambda: list(path.iterdir()) == [])


KEEPS = """
import json, os, shutil, subprocess, sys, time
from pathlib import Path
stead, at, user = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
run = lambda *words, **more: subprocess.run(list(map(str, words)), text=True, capture_output=True, timeout=60, **more)
run("mount", "-t", "tmpfs", "none", "/run", check=True)
(at / "upper").mkdir(), (at / "work").mkdir()
run("mount", "-t", "overlay", "none", "-o", f"lowerdir=/etc,upperdir={at}/upper,workdir={at}/work", "/etc", check=True)
for name in ("home/.config/stead", "scratch/kept", "scratch/old", "mine"):
    (at / name).mkdir(parents=True, exist_ok=True)
Path("/etc/stead").mkdir(exist_ok=True), Path("/run/own").mkdir()
for name in (at / "home", at / "home/.config", at / "home/.config/stead", at / "mine", Path("/run/own"), *at.glob("scratch"), *at.glob("scratch/*")):
    os.chown(name, user, user)
system, mine = Path("/etc/stead/stead.toml"), at / "home/.config/stead/stead.toml"
mine.write_text(f'[dataspace.mine]\\npath = "{at}/mine"\\nexpires = "1s"\\n')
env = {"PATH": os.environ["PATH"], "HOME": str(at / "home"), "XDG_RUNTIME_DIR": "/run/own", "LC_ALL": "C.UTF-8"}
theirs = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
persist = lambda *words: run(*theirs, stead, "persist", *words, env=env)
listed = lambda: [one["path"] for one in json.loads(persist("list", "--format", "json").stdout)]

def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)

def begin(*by, socket, **more):
    log = open(at / "log", "a")
    process = subprocess.Popen([*by, stead, "daemon", *more.pop("words", ())], stderr=log, **more)
    until(lambda: run("python3", "-c", f"import socket; socket.socket(1).connect({socket!r})").returncode == 0)
    return process

def end(process):
    process.terminate(), process.wait(60)

def refused():
    done = persist("store", "scratch://kept")
    assert done.returncode == 1 and "the daemon of the system removes what is over in dataspace 'scratch'" in done.stderr, done

begins = {"own": lambda: begin(*theirs, socket="/run/own/stead/steadd.sock", env=env), "system": lambda: begin(socket="/run/stead/steadd.sock", env={"PATH": env["PATH"]}, words=["--state", at / "state"])}
says = lambda time: system.write_text(f'[dataspace.scratch]\\npath = "{at}/scratch"\\nexpires = "{time}"\\n')
says("1d")
refused()
own = begins["own"]()
try:
    refused()
    assert listed() == []
    other = begins["system"]()
    try:
        done = persist("store", "scratch://kept")
        assert done.returncode == 0, done
        assert listed() == [f"{at}/scratch/kept"]
    finally:
        end(other)
    end(own)
    says("1s")
    (at / "mine/f").write_bytes(b"f"), os.chown(at / "mine/f", user, user)
    time.sleep(1.1)
    own = begins["own"]()
    listed()
    until(lambda: not (at / "mine/f").exists())
    assert (at / "scratch/old").exists(), "it is none of the user's own daemon"
    other = begins["system"]()
    try:
        listed()
        until(lambda: not (at / "scratch/old").exists())
        assert (at / "scratch/kept").exists()
        (at / "scratch/kept").rmdir()
        assert persist("delete", "scratch://kept").returncode == 0 and listed() == []
        # What is the user's own is known to an own daemon that begins later, and cleared by none before.
        end(own)
        for name in ("f", "keep"):
            (at / "mine" / name).write_bytes(b"f"), os.chown(at / "mine" / name, user, user)
        done = persist("store", "mine://keep")
        assert done.returncode == 0, done
        time.sleep(1.1)
        assert listed() == [f"{at}/mine/keep"] and (at / "mine/f").exists()
        own = begins["own"]()
        listed()
        until(lambda: not (at / "mine/f").exists())
        assert (at / "mine/keep").exists()
        # One that the daemon of the system alone knows, and a name in it that is a link.
        (at / "quick").mkdir(), os.chown(at / "quick", user, user)
        run(stead, "admin", "dataspace", "add", "quick", f"path={at}/quick", "expires=1d", env={"PATH": env["PATH"]}, check=True)
        for name in ("link", "old"):
            (at / "quick" / name).symlink_to("elsewhere")
            os.chown(at / "quick" / name, user, user, follow_symlinks=False)
        done = persist("store", "quick://link")
        assert done.returncode == 0 and f"{at}/quick/link" in listed(), (done, listed())
        time.sleep(1.1)
        run(stead, "admin", "dataspace", "update", "quick", "expires=1s", env={"PATH": env["PATH"]}, check=True)
        until(lambda: listed() and not (at / "quick/old").is_symlink())
        assert (at / "quick/link").is_symlink()
        assert persist("delete", "quick://link").returncode == 0 and listed() == [f"{at}/mine/keep"]
    finally:
        end(other)
finally:
    end(own)
"""


@needs_root
def test_what_is_kept_is_known_to_whoever_removes_it(daemon):
    """A user's own daemon beside that of the system, in a namespace of their own."""
    done = subprocess.run(["unshare", "-m", sys.executable, "-c", KEEPS, STEAD, daemon.at, str(SOMEBODY)], text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr + (daemon.at / "log").read_text()


@needs_root
def test_what_cannot_be_unshared_is_still_known(daemon):
    mine = folder(daemon, "mine", SOMEBODY)
    (mine / "run" / "deep").mkdir(parents=True)
    for name in ("run/f", "run/deep/g"):
        (mine / name).write_bytes(b"x")
        (mine / name).chmod(0o600)
    for found in (mine, *mine.rglob("*")):
        os.chown(found, SOMEBODY, SOMEBODY)
        if found.is_dir():
            found.chmod(0o700)
    daemon.begin()
    name, deep = pwd.getpwuid(ANOTHER).pw_name, mine / "run/deep"

    def shared():
        return {one["path"] for one in persist(daemon, "list", "--format", "json", user=SOMEBODY) if one["shared"]}

    persist(daemon, "share", mine / "run", name, user=SOMEBODY)
    persist(daemon, "share", deep, name, user=SOMEBODY)
    # With what it lies in it still is; and by itself once that is not.
    persist(daemon, "unshare", deep, name, user=SOMEBODY)
    assert reads(deep / "g", ANOTHER)
    persist(daemon, "share", deep, name, user=SOMEBODY)
    persist(daemon, "unshare", mine / "run", name, user=SOMEBODY)
    assert reads(deep / "g", ANOTHER) and not reads(mine / "run/f", ANOTHER) and shared() == {str(deep)}
    # A folder into which nobody can look keeps what lies in it shared: that is not forgotten.
    (deep / "closed").mkdir()
    os.chown(deep / "closed", SOMEBODY, SOMEBODY)
    (deep / "closed").chmod(0)
    assert "permission denied" in persist(daemon, "unshare", deep, name, user=SOMEBODY, code=1)
    assert shared() == {str(deep)}
    # Nor does a second try to share it take it away.
    assert "permission denied" in persist(daemon, "share", deep, name, user=SOMEBODY, code=1)
    assert shared() == {str(deep)}
    (deep / "closed").chmod(0o700)
    persist(daemon, "unshare", deep, name, user=SOMEBODY)
    assert not reads(deep / "g", ANOTHER) and shared() == set()
    assert not any("posix_acl" in key for found in (mine, *mine.rglob("*")) for key in os.listxattr(found, follow_symlinks=False))


@needs_root
@pytest.mark.parametrize("how", ["daemon", "alone"])
def test_what_is_shared_others_read(daemon, how):
    mine = folder(daemon, "mine", SOMEBODY)
    (mine / "run" / "deep").mkdir(parents=True)
    for name in ("run/f", "run/deep/g", "other"):
        (mine / name).write_bytes(b"x")
        (mine / name).chmod(0o600)
    for found in (mine, *mine.rglob("*")):
        os.chown(found, SOMEBODY, SOMEBODY)
        if found.is_dir():
            found.chmod(0o700)
    (mine / "run" / "roots").write_bytes(b"x")
    (mine / "run" / "roots").chmod(0o600)
    os.symlink("/etc/shadow", mine / "run" / "link")
    if how == "daemon":
        daemon.begin()
    else:
        daemon.env |= {"STEAD_SOCKET": "none", "STEAD_STATE": str(folder(daemon, "alone", SOMEBODY))}
    modes = {found: found.lstat().st_mode for found in (mine, *mine.rglob("*"))}
    all_ = [mine / "run/f", mine / "run/deep/g"]
    name = pwd.getpwuid(ANOTHER).pw_name
    assert not any(reads(path, ANOTHER) for path in all_)
    refused = persist(daemon, "share", daemon.at, name, user=SOMEBODY, code=1)
    assert "access list" in refused, refused
    persist(daemon, "share", mine / "run", name, user=SOMEBODY)
    assert all(reads(path, ANOTHER) for path in all_)
    # Nothing beside it, nothing of others, and what comes later.
    assert not reads(mine / "other", ANOTHER) and not reads(mine / "run/roots", ANOTHER)
    made = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", "cp", mine / "run/f", mine / "run/new"]
    subprocess.run(made, check=True)
    (one,) = persist(daemon, "list", "--format", "json", user=SOMEBODY)
    assert one["shared"] == [ANOTHER] and not one["kept"]
    persist(daemon, "unshare", mine / "run", name, user=SOMEBODY)
    assert not any(reads(path, ANOTHER) for path in [*all_, mine / "run/new"])
    assert {found: found.lstat().st_mode for found in modes} == modes
    assert not any("posix_acl" in key for found in modes for key in os.listxattr(found, follow_symlinks=False))
    assert "is not shared" in persist(daemon, "unshare", mine / "run", name, user=SOMEBODY, code=2)
