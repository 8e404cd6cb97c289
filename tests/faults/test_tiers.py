"""What users share on a node: transfers at a time and bytes a second in a dataspace, room for journals, and a slow name service."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from rigs import HERE
from test_admin import admin, df, until
from test_daemon import ANOTHER, ROOT, SOMEBODY, Daemon, daemon, folder, needs_root, under_way  # noqa: F401

MIB = 1 << 20
USERS = [SOMEBODY, ANOTHER] if ROOT else [None]


def under_way_in(path: Path) -> int:
    """Files that are not whole: each transfer of one file has one."""
    return sum(name.startswith(".stead-") for name in os.listdir(path))


def listed(d: Daemon, user, *more) -> dict[int, dict]:
    return {s["id"]: s for s in json.loads(d.stage("--list", "--all", *more, user=user).stdout)}


def space(d: Daemon, name: str, *keys) -> Path:
    path = folder(d, name)
    path.chmod(0o777)
    admin(d, "dataspace", "add", name, f"path={path}", *keys)
    until(lambda: name in df(d))
    return path


def test_a_dataspace_has_so_many_transfers_at_a_time(daemon):
    daemon.begin("--transfers", "8")
    tier, other = space(daemon, "tier", "transfers=2"), space(daemon, "other")
    assert df(daemon)["tier"]["transfers"] == 2
    (daemon.at / "f").write_bytes(os.urandom(4 * MIB))
    # Two have the seats until all others have come, and those that do not want one are done.
    seated = [daemon.taken(daemon.at / "f", f"tier://first-{i}", "--limit", "16KiB", user=USERS[0]) for i in range(2)]
    until(lambda: under_way_in(tier) == 2)
    taken = [(user, daemon.taken(daemon.at / "f", f"tier://{user}-{i}", "--limit", "4MiB", user=user)) for i in range(3) for user in USERS]
    # By another name of the same folder, which nobody can tell before it is begun.
    os.symlink(tier, other / "link")
    taken += [(user, daemon.taken(daemon.at / "f", other / "link" / f"by-link-{user}", "--limit", "4MiB", user=user)) for user in USERS]
    beside = [(user, daemon.taken(daemon.at / "f", other / f"beside-{user}", user=user)) for user in USERS]
    # Those behind that touch others go before.
    for user, id in beside:
        until(lambda user=user, id=id: listed(daemon, user)[id]["state"] == "finished")
    assert not any(listed(daemon, user)[id]["state"] == "finished" for user, id in taken)
    until(lambda: "dataspace 'tier' has 2 transfers at a time" in {listed(daemon, user)[id]["waits"] for user, id in taken})
    seen = {under_way_in(tier)}
    for id in seated:
        assert daemon.stage("--cancel", id, user=USERS[0]).returncode == 0
    end = time.monotonic() + 120
    while any(listed(daemon, user)[id]["state"] != "finished" for user, id in taken):
        assert time.monotonic() < end, [listed(daemon, user)[id] for user, id in taken]
        for _ in range(20):
            seen.add(under_way_in(tier))
            time.sleep(0.005)
    assert max(seen) == 2, seen
    assert {p.name for p in tier.iterdir()} >= {f"by-link-{user}" for user in USERS}


@needs_root
def test_a_seat_goes_round_among_users(daemon):
    daemon.begin("--transfers", "4")
    tier = space(daemon, "tier", "transfers=1")
    (daemon.at / "f").write_bytes(os.urandom(8 * MIB))
    # The first one has the seat until all others have come, and the last ones of the same user would have it for long.
    first = [daemon.taken(daemon.at / "f", f"tier://a{i}", "--limit", "16MiB" if 0 < i < 4 else "16KiB", user=SOMEBODY) for i in range(6)]
    second = [daemon.taken(daemon.at / "f", f"tier://b{i}", "--limit", "16MiB", user=ANOTHER) for i in range(2)]
    until(lambda: listed(daemon, SOMEBODY)[first[0]]["state"] == "running")
    assert daemon.stage("--cancel", first[0], user=SOMEBODY).returncode == 0

    def over(user, ids):
        states = listed(daemon, user)
        assert under_way_in(tier) <= 1
        return all(states[id]["state"] == "finished" for id in ids)

    # Who came later has its turn in between, and not when all others have had theirs.
    until(lambda: over(ANOTHER, second))
    until(lambda: over(SOMEBODY, first[1:4]))
    assert listed(daemon, SOMEBODY)[first[5]]["state"] == "pending"
    for id in first[4:]:
        assert daemon.stage("--cancel", id, user=SOMEBODY).returncode == 0


def test_two_dataspaces_and_no_deadlock(daemon):
    daemon.begin("--transfers", "8")
    one, two = space(daemon, "one", "transfers=1"), space(daemon, "two", "transfers=1")
    for path in (one, two):
        (path / "f").write_bytes(os.urandom(MIB))
        (path / "f").chmod(0o666)
    both = [("one://f", "two://{}"), ("two://f", "one://{}"), ("one://f", "one://{}"), (two / "f", two / "{}")]
    taken = []
    for i in range(5):
        for user in USERS:
            for j, (source, target) in enumerate(both):
                name = f"{user}-{i}-{j}"
                taken.append((user, daemon.taken(source, str(target).format(name), user=user)))
    for user, id in taken:
        until(lambda user=user, id=id: listed(daemon, user)[id]["state"] == "finished")


def test_a_limit_is_of_all_transfers_together(daemon):
    daemon.begin("--transfers", "8")
    space(daemon, "tier", "limit=16MiB/s")
    (daemon.at / "f").write_bytes(os.urandom(8 * MIB))
    began = time.monotonic()
    taken = [(user, daemon.taken(daemon.at / "f", f"tier://{user}-{i}", user=user)) for i in range(6 // len(USERS)) for user in USERS]
    for user, id in taken:
        until(lambda user=user, id=id: listed(daemon, user)[id]["state"] == "finished")
    # 48 MiB in no less time than the tier needs; each by itself would have half a second.
    assert time.monotonic() - began > 2.4
    # A limit that goes holds up nobody, one that changes holds at once.
    admin(daemon, "dataspace", "update", "tier", "limit=1000")
    user, slow = USERS[0], daemon.taken(daemon.at / "f", "tier://slow", user=USERS[0])
    until(lambda: listed(daemon, user)[slow]["state"] == "running")
    admin(daemon, "dataspace", "update", "tier", "limit=")
    until(lambda: listed(daemon, user)[slow]["state"] == "finished")


@needs_root
def test_a_worker_that_is_stopped_holds_up_no_rate(daemon):
    daemon.begin()
    space(daemon, "tier", "limit=32MiB/s")
    (daemon.at / "f").write_bytes(os.urandom(48 * MIB))
    first = daemon.taken(daemon.at / "f", "tier://a", user=SOMEBODY)
    until(lambda: listed(daemon, SOMEBODY)[first]["bytes_done"] or under_way_in(daemon.at / "tier"))
    (worker,) = [pid for pid in daemon.workers() if os.stat(f"/proc/{pid}").st_uid == SOMEBODY]
    os.kill(worker, signal.SIGSTOP)
    try:
        second = daemon.taken(daemon.at / "f", "tier://b", user=ANOTHER)
        until(lambda: listed(daemon, ANOTHER)[second]["state"] == "finished")
    finally:
        os.kill(worker, signal.SIGCONT)
    until(lambda: listed(daemon, SOMEBODY)[first]["state"] == "finished")


def test_a_journal_has_so_many_bytes(daemon):
    daemon.begin("--transfers", "1", "--journal", "1MiB")
    (daemon.at / "f").write_bytes(os.urandom(8 * MIB))
    slow = daemon.taken(daemon.at / "f", daemon.at / "slow", "--limit", "64KiB")
    under_way(daemon, slow)
    names = [f"/none/{i}/{'x' * 200}" for i in range(200)]
    waiting = []
    while (done := daemon.stage("--background", *names, daemon.at / "to/")).returncode == 0:
        waiting.append(json.loads(done.stdout)["id"])
        assert len(waiting) < 100
    assert done.returncode == 1 and "the journal of this user has 1.0 MiB" in done.stderr and "--journal" in done.stderr, done.stderr
    assert len(waiting) > 5
    state = daemon.at / "state"
    journal = next(state.rglob("transfers.db"))
    assert journal.stat().st_size < 3 * MIB
    # What is over gives way to what comes.
    for id in waiting[:10]:
        daemon.stage("--cancel", id)
    again = daemon.taken(*names, daemon.at / "to/")
    known = listed(daemon, None)
    assert {slow, again} <= set(known) and waiting[0] not in known and waiting[-1] in known
    # A list of names that does not fit stops its transfer alone.
    tree = folder(daemon, "tree")
    for i in range(8000):
        (tree / f"{i}-{'y' * 150}").touch()
    for id in [*waiting[10:], again]:
        daemon.stage("--cancel", id)
    daemon.stage("--cancel", slow)
    large = daemon.stage(tree, daemon.at / "copy")
    assert large.returncode == 1 and "do not fit into the journal" in large.stdout + large.stderr, large
    assert daemon.stage(daemon.at / "f", daemon.at / "fits").returncode == 0


def served_at_last(d: Daemon, waits: subprocess.Popen) -> None:
    """Waits until a command has done its work for whose user the name service is slow no more."""
    _, err = waits.communicate(timeout=120)
    if waits.returncode and b"does not say who user" in err:
        # It has waited for as long as anybody does.
        until(lambda: subprocess.run(waits.args, env=d.env, capture_output=True, timeout=120).returncode == 0)
    else:
        assert waits.returncode == 0, err


@needs_root
def test_a_slow_name_service_keeps_nobody_from_others(daemon, tmp_path):
    shim = tmp_path / "names.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", HERE / "names.c", "-o", shim, "-ldl"], check=True)
    slow = daemon.at / "slow"
    slow.touch()
    mine = folder(daemon, "mine", SOMEBODY)
    theirs = folder(daemon, "theirs", ANOTHER)
    (daemon.at / "f").write_bytes(b"f")
    daemon.env |= {"LD_PRELOAD": str(shim), "NAMES_SLOW": f"{ANOTHER}:{slow}"}
    daemon.begin()
    daemon.env = {key: value for key, value in daemon.env.items() if key not in ("LD_PRELOAD", "NAMES_SLOW")}
    waits = subprocess.Popen(daemon.words([daemon.at / "f", theirs / "f"], ANOTHER), env=daemon.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        time.sleep(0.2)
        assert daemon.stage(daemon.at / "f", mine / "f", user=SOMEBODY).returncode == 0
        assert not (theirs / "f").exists()
        slow.unlink()
        served_at_last(daemon, waits)
        assert (theirs / "f").read_bytes() == b"f"
    finally:
        slow.unlink(missing_ok=True)
        waits.kill()
        waits.wait()


@needs_root
def test_what_is_said_counts_for_all_while_a_name_service_is_slow(daemon, tmp_path):
    shim = tmp_path / "names.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", HERE / "names.c", "-o", shim, "-ldl"], check=True)
    slow = daemon.at / "slow"
    slow.touch()
    (daemon.at / "f").write_bytes(b"x" * 300_000)
    daemon.env |= {"LD_PRELOAD": str(shim), "NAMES_SLOW": f"{ANOTHER}:{slow}"}
    daemon.begin()
    daemon.env = {key: value for key, value in daemon.env.items() if key not in ("LD_PRELOAD", "NAMES_SLOW")}
    # It is to be known by the time that this user is.
    waits = subprocess.Popen(daemon.words([daemon.at / "f", "fast://theirs"], ANOTHER), env=daemon.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        path = space(daemon, "fast", "quota=500000")
        assert daemon.stage(daemon.at / "f", "fast://mine", user=SOMEBODY).returncode == 0
        refused = daemon.stage(daemon.at / "f", "fast://more", user=SOMEBODY)
        assert refused.returncode == 1 and "dataspace 'fast'" in refused.stderr, refused.stderr
        admin(daemon, "dataspace", "update", "fast", "quota=1MB")
        assert until(lambda: df(daemon)["fast"]["quota"] == 1_000_000)
        assert daemon.stage(daemon.at / "f", "fast://more", user=SOMEBODY).returncode == 0
        assert sorted(os.listdir(path)) == ["mine", "more"]
        slow.unlink()
        served_at_last(daemon, waits)
        assert (path / "theirs").stat().st_size == 300_000
    finally:
        slow.unlink(missing_ok=True)
        waits.kill()
        waits.wait()


@needs_root
def test_a_quota_of_a_whole_file_system_counts_what_others_hide(daemon):
    path = daemon.at / "own"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=1777", "none", path], check=True)
    try:
        for user, name in ((SOMEBODY, "hidden"), (ANOTHER, "theirs")):
            (path / name).mkdir(mode=0o700)
            os.chown(path / name, user, user)
        (daemon.at / "f").write_bytes(b"x" * (5 << 20))
        daemon.begin()
        admin(daemon, "dataspace", "add", "own", f"path={path}", "quota=8MiB")
        until(lambda: "own" in df(daemon))
        assert daemon.stage(daemon.at / "f", "own://hidden/f", user=SOMEBODY).returncode == 0
        # The other one cannot look into that folder, and the file system tells.
        refused = daemon.stage(daemon.at / "f", "own://theirs/f", user=ANOTHER)
        assert refused.returncode == 1 and "dataspace 'own'" in refused.stderr and "in use" in refused.stderr, refused.stderr
        assert not list((path / "theirs").iterdir())
        (path / "hidden" / "f").unlink()
        # What is under way has a part of it already, and the rest is still to come.
        words, free = daemon.words([daemon.at / "f", "own://hidden/f", "--limit", "2MiB"], SOMEBODY), os.statvfs(path).f_bfree
        slow = subprocess.Popen(words, env=daemon.env, stdout=subprocess.PIPE)
        until(lambda: os.statvfs(path).f_bfree < free)
        again = daemon.stage(daemon.at / "f", "own://hidden/g", user=SOMEBODY)
        assert again.returncode == 1 and "dataspace 'own'" in again.stderr, again.stderr
        assert json.loads(slow.communicate(timeout=60)[0])["state"] == "finished"
        assert sorted(os.listdir(path / "hidden")) == ["f"]
    finally:
        daemon.end()
        subprocess.run(["umount", "-l", path], check=True)


@needs_root
def test_a_quota_of_all_users_counts_what_is_to_come_of_others(daemon):
    daemon.begin()
    path = space(daemon, "tier", "quota=10MiB", "user_quota=9MiB")
    (daemon.at / "f").write_bytes(os.urandom(8 * MIB))
    slow = daemon.taken(daemon.at / "f", "tier://slow", "--limit", "64KiB", user=SOMEBODY)
    until(lambda: under_way_in(path))
    refused = daemon.stage(daemon.at / "f", "tier://theirs", user=ANOTHER)
    assert refused.returncode == 1 and "dataspace 'tier'" in refused.stderr and "on their way" in refused.stderr, refused.stderr
    looked = daemon.stage("--dry-run", daemon.at / "f", "tier://theirs", user=ANOTHER)
    assert looked.returncode == 1 and "on their way" in looked.stderr, looked.stderr
    # What is given up is no more to come.
    assert daemon.stage("--cancel", slow, user=SOMEBODY).returncode == 0
    until(lambda: daemon.stage("--dry-run", daemon.at / "f", "tier://theirs", user=ANOTHER).returncode == 0)
    # Of some that begin at once no more than one has room for itself.
    for _ in range(5):
        words = [daemon.words([daemon.at / "f", f"tier://of-{user}"], user) for user in (SOMEBODY, ANOTHER)]
        both = [subprocess.Popen(w, env=daemon.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for w in words]
        ended = [(one.communicate(timeout=120)[1], one.returncode) for one in both]
        assert sorted(code for _, code in ended) == [0, 1], ended
        for each in path.iterdir():
            each.unlink()


@needs_root
def test_a_mount_that_never_answers_keeps_nobody_from_a_dataspace(daemon):
    daemon.begin()
    path = space(daemon, "tier", "quota=1MB", "user_quota=500000")
    (daemon.at / "f").write_bytes(b"x" * 100_000)
    (path / "dead").mkdir()
    os.chown(path / "dead", ANOTHER, ANOTHER)
    served = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={served},rootmode=40000,user_id={ANOTHER},group_id={ANOTHER},allow_other"
    assert libc.mount(b"dead", os.fsencode(path / "dead"), b"fuse.dead", 0, options.encode()) == 0, os.strerror(ctypes.get_errno())
    try:
        assert daemon.stage(daemon.at / "f", "tier://f", user=SOMEBODY).returncode == 0
        assert 100_000 <= df(daemon)["tier"]["quota_used"] < 500_000
    finally:
        # Whoever still waits for something of it gets errors from now on.
        os.close(served)
        subprocess.run(["umount", "-l", path / "dead"], check=True)
