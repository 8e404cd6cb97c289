"""Transfers that are killed at any time, and targets that become full: nothing is lost, half written or left over."""

from __future__ import annotations

import filecmp
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from rigs import stopped
from test_daemon import needs_root

STEAD = os.environ.get("STEAD", "target/debug/stead")
KILLS = int(os.environ.get("STEAD_CRASHES", "40"))
OVER = {"finished", "failed", "cancelled"}


@pytest.fixture
def stead(tmp_path):
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state")}

    def begin(*args) -> subprocess.Popen:
        command = [os.path.abspath(STEAD), "stage", *map(str, args), "--format", "json"]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return begin


def tree(at: Path, rng: random.Random) -> dict[str, bytes]:
    """Files of many sizes, by their names."""
    files = {}
    for i in range(rng.randrange(5, 120)):
        name = "/".join([*(f"d{rng.randrange(3)}" for _ in range(rng.randrange(3))), f"f{i}"])
        size = rng.choice([0, 1, 100, 4096, 70_000, 1 << 20, 3_000_001]) if i else 12_000_000
        files[name] = rng.randbytes(1000) * (size // 1000) + rng.randbytes(size % 1000)
    write(at, files)
    return files


def write(at: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def named(at: Path) -> dict[str, bytes]:
    """Files with names of their own."""
    paths = [path for path in at.rglob("*") if path.is_file() and not path.name.startswith(".stead-")]
    return {str(path.relative_to(at)): path.read_bytes() for path in paths}


def count(at: Path) -> int:
    """How many files have names of their own."""
    return sum(not name.startswith(".stead-") for _, _, names in os.walk(at) for name in names)


@pytest.mark.parametrize("place", ["same disk", "other disk"])
@pytest.mark.parametrize("action", ["copy", "--move", "--sync"])
def test_killed_at_any_time(stead, tmp_path, action, place, record_property):
    other = Path("/dev/shm") / f"stead-test-{os.getpid()}"
    target = tmp_path / "to" if place == "same disk" else other / "to"
    kills = 0
    try:
        typical = 0.1
        for seed in range(KILLS + 100):
            if seed >= KILLS // 6 and kills > 0:
                break
            rng = random.Random(f"{seed} {action} {place}")
            for folder in (tmp_path / "from", tmp_path / "state", target):
                shutil.rmtree(folder, ignore_errors=True)
            files, old = tree(tmp_path / "from", rng), {}
            words = [*([] if action == "copy" else [action]), tmp_path / "from", target]
            if action == "--sync":
                # Some are there and other, some are to go.
                target.mkdir(parents=True)
                old = {name: b"old" for name in rng.sample(sorted(files), 3)} | {"stale": b"stale", "d9/stale": b"stale"}
                write(target, old)
                words.append("--delete")
            if action == "--move" and place == "same disk":
                # Else it is one rename.
                (target / "from").mkdir(parents=True)
                target.joinpath("from/own").write_bytes(b"own")
            at = target / "from" if action == "--move" and place == "same disk" else target
            tries = 0
            while True:
                under_way = stead(*words)
                begun = time.monotonic()
                if seed == 0:
                    # The first one says how long they take.
                    under_way.wait(timeout=60)
                    typical = time.monotonic() - begun
                # Longer each time: a batch that is not done is begun anew.
                tries += 1
                time.sleep(0 if seed == 0 else rng.random() ** 2 * typical * (1 + tries / 4))
                done = under_way.poll() is not None
                under_way.send_signal(signal.SIGKILL)
                out, err = under_way.communicate(timeout=60)
                kills += not done
                there, left = named(at), named(tmp_path / "from")
                own = there.pop("own", None)
                for name, data in there.items():
                    assert data in (files.get(name), old.get(name)), name
                for name, data in files.items():
                    assert data in (there.get(name), left.get(name)), f"{name} is lost"
                if done:
                    assert under_way.returncode == 0, err
                    assert json.loads(out)["state"] == "finished"
                    break
                # It may have ended before it could say so.
                latest = json.loads(stead("--list", "--all").communicate(timeout=60)[0])
                if latest and latest[0]["state"] == "finished":
                    break
            assert there == files
            assert left == ({} if action == "--move" else files)
            assert own == (b"own" if action == "--move" and place == "same disk" else None)
            assert not [p for p in target.rglob(".stead-*")]
        assert kills > 0
    finally:
        shutil.rmtree(other, ignore_errors=True)
        record_property("seeds", seed)
        record_property("kills", kills)


@pytest.mark.parametrize("place", ["same disk", "other disk"])
@pytest.mark.parametrize("action", ["copy", "--move"])
def test_killed_at_any_time_while_sources_change(stead, tmp_path, action, place, record_property):
    """What a program has appended, or written anew, before the transfer goes on is in the target or still in the source."""
    other = Path("/dev/shm") / f"stead-test-{os.getpid()}"
    target = tmp_path / "to" if place == "same disk" else other / "to"
    kills = changed = 0
    try:
        typical = 0.1
        for seed in range(KILLS + 100):
            if seed >= KILLS // 6 and kills > 0 and changed > 0:
                break
            rng = random.Random(f"changing {seed} {action} {place}")
            for folder in (tmp_path / "from", tmp_path / "state", target):
                shutil.rmtree(folder, ignore_errors=True)
            files = tree(tmp_path / "from", rng)
            if seed >= KILLS // 6:
                # Where names alone are given, that is over before a busy machine comes in between: of many of them some are left.
                many = {f"m{i}": b"%d" % i for i in range(1000)}
                write(tmp_path / "from", many)
                files |= many
            # What each file has had, the latest last.
            had = {name: [data] for name, data in files.items()}
            if action == "--move" and place == "same disk":
                # Else it is one rename. Here each is renamed by itself.
                (target / "from").mkdir(parents=True)
            at = target / "from" if action == "--move" and place == "same disk" else target
            words = [*([] if action == "copy" else [action]), tmp_path / "from", target]
            tries = 0
            while True:
                under_way = stead(*words)
                begun = time.monotonic()
                if seed == 0:
                    under_way.wait(timeout=60)
                    typical = time.monotonic() - begun
                tries += 1
                if seed > 0 and tries % 2 == 1:
                    # Just as it gives names: what has one may not be written down yet.
                    before, until = count(at), begun + typical * (1 + tries / 4)
                    while count(at) == before and time.monotonic() < until and under_way.poll() is None:
                        pass
                    time.sleep(rng.random() * 0.003)
                elif seed > 0:
                    time.sleep(rng.random() ** 2 * typical * (1 + tries / 4))
                done = under_way.poll() is not None
                under_way.send_signal(signal.SIGKILL)
                _, err = under_way.communicate(timeout=60)
                kills += not done
                there, left = named(at), named(tmp_path / "from")
                for name, versions in had.items():
                    assert there.get(name) is None or there[name] in versions, name
                    # The source as it is now, or the target as it was last.
                    assert left.get(name, there.get(name)) == versions[-1], f"{name} is lost"
                if done:
                    assert under_way.returncode == 0, err
                    break
                latest = json.loads(stead("--list", "--all").communicate(timeout=60)[0])
                if latest and latest[0]["state"] == "finished":
                    break
                if not latest or latest[0]["files"] == 0:
                    # Before it is planned, what changes is no change.
                    continue
                # Those that have both names most of all.
                both = sorted(set(left) & set(there))
                for name in {*both[:20], *rng.sample(sorted(left), min(len(left), 5))}:
                    path = tmp_path / "from" / name
                    new = left[name] + b"appended" if rng.random() < 0.7 else b"anew" + left[name]
                    if len(new) == 0 or rng.random() < 0.2:
                        # As many bytes as before.
                        new = bytes(255 - byte for byte in left[name])
                    path.write_bytes(new)
                    had[name].append(new)
                    changed += 1
            if action == "--move":
                assert left == {} and there == {name: versions[-1] for name, versions in had.items()}
            else:
                assert left == {name: versions[-1] for name, versions in had.items()}
                assert set(there) == set(had)
            assert not [p for p in target.rglob(".stead-*")]
        assert kills > 0 and changed > 0
    finally:
        shutil.rmtree(other, ignore_errors=True)
        record_property("seeds", seed)
        record_property("kills", kills)


def test_killed_and_given_up(stead, tmp_path, record_property):
    rng = random.Random(5)
    files = tree(tmp_path / "from", rng)
    for _ in range(10):
        under_way = stead(tmp_path / "from", tmp_path / "to")
        time.sleep(rng.random() * 0.1)
        under_way.kill()
        under_way.communicate()
        found, _ = stead("--list", "--all").communicate(timeout=60)
        for status in json.loads(found):
            if status["state"] not in OVER:
                out, err = stead("--cancel", status["id"]).communicate(timeout=60)
                assert json.loads(out)["state"] == "cancelled", err
        assert not [p for p in tmp_path.joinpath("to").rglob(".stead-*")]
        assert all(files[name] == data for name, data in named(tmp_path / "to").items())
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
    record_property("seeds", 1)
    record_property("kills", 10)


def test_a_gentle_one_comes_to_its_end_beside_others_and_goes_on(stead, tmp_path):
    rng = random.Random(9)
    files = tree(tmp_path / "from", rng)
    # No processor has to be idle for it to go on.
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        under_way = stead("--gentle", "--verify", "--limit", "4MiB", tmp_path / "from", tmp_path / "to")
        deadline = time.monotonic() + 60
        while not (tmp_path / "to").exists() or not list((tmp_path / "to").rglob("*")):
            assert time.monotonic() < deadline and under_way.poll() is None
            time.sleep(0.01)
        under_way.kill()
        under_way.communicate()
        (id,) = [s["id"] for s in json.loads(stead("--list").communicate(timeout=60)[0])]
        out, err = stead("--resume", id).communicate(timeout=300)
        status = json.loads(out)
        assert status["state"] == "finished" and status["request"]["options"]["gentle"], err
        assert named(tmp_path / "to") == files
    finally:
        for one in busy:
            one.kill()
            one.wait()


def test_a_bad_sector_of_a_source(stead, disk, tmp_path):
    bad = 5 << 20
    disk.rule(bad=[(bad, bad + 4096)])
    under_way = stead(disk.file, tmp_path / "to")
    out, err = under_way.communicate(timeout=100)
    assert under_way.returncode == 1 and "--resume" in err, err
    assert "input/output error" in out and str(disk.file) in out, out
    # What could be read has no name.
    assert not (tmp_path / "to").exists()
    disk.rule(bad=[])
    disk.forget()
    again = stead("--resume", 1)
    out, err = again.communicate(timeout=100)
    assert again.returncode == 0 and json.loads(out)["state"] == "finished", err
    assert (tmp_path / "to").read_bytes() == disk.data
    assert not [p for p in tmp_path.rglob(".stead-*")]


def test_a_device_that_does_not_keep_what_was_written(tmp_path, shim):
    files, told = {"a": b"a" * 70_000, "d/b": b"b", "d/c": b"c" * (3 << 20)}, tmp_path / "told"
    write(tmp_path / "from", files)
    command = [os.path.abspath(STEAD), "stage"]
    failed = 0
    for n in range(1, 100):
        to, env = tmp_path / f"to{n}", os.environ | {"STEAD_STATE": str(tmp_path / f"state{n}")}
        told.unlink(missing_ok=True)
        faulty = env | {"LD_PRELOAD": str(shim), "SHIM_SYNC": f"{n}:{told}"}
        done = subprocess.run([*command, tmp_path / "from", to], env=faulty, capture_output=True, text=True, timeout=100)
        if not told.exists():
            assert done.returncode == 0 and named(to) == files, done.stderr
            break
        failed += 1
        # Tried again it may be kept; whatever has its name is whole.
        there = named(to)
        assert all(files[name] == data for name, data in there.items())
        if done.returncode == 0:
            assert there == files
        elif "cannot open the journal" in done.stderr:
            # Nothing was begun.
            assert there == {} and "disk I/O error" in done.stderr
            continue
        else:
            assert "/output error" in done.stdout + done.stderr or "disk I/O error" in done.stderr, done
            again = subprocess.run([*command, "--resume", "1"], env=env, capture_output=True, text=True, timeout=100)
            assert again.returncode == 0 and named(to) == files, again.stderr
        assert not [p for p in to.rglob(".stead-*")]
        shutil.rmtree(to)
    assert failed > 1


def test_a_device_that_fails_while_a_large_file_is_on_its_way(tmp_path, shim):
    told, size = tmp_path / "told", 300 << 20
    with (tmp_path / "from").open("wb") as file:
        block = bytes(range(256)) * 4096
        for i in range(300):
            file.write(block[i:] + block[:i])
    # The first time is after two seconds, when it is written down how far it is.
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state"), "LD_PRELOAD": str(shim), "SHIM_SYNC": f"1:{told}", "SHIM_LEAST": str(size // 2)}
    command = [os.path.abspath(STEAD), "stage", "--limit", "100MB", tmp_path / "from", tmp_path / "to"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    # What the system has not written it tells once; the file is brought anew.
    assert told.exists() and done.returncode == 0, done.stderr
    assert filecmp.cmp(tmp_path / "from", tmp_path / "to", shallow=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")
def test_a_target_that_becomes_full(stead, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", small], check=True)
    try:
        source = tmp_path / "from"
        write(source, {f"f{i}": bytes([i]) * (1 << 20) for i in range(12)})
        # Of a file that is too large nothing is begun.
        write(tmp_path, {"large": b"x" * (20 << 20)})
        under_way = stead(tmp_path / "large", small)
        _, err = under_way.communicate(timeout=60)
        assert under_way.returncode == 1 and "are needed, and" in err and "nothing was begun" in err
        assert list(small.iterdir()) == []
        # It fills up while the transfer waits its turn.
        slow = stead(source, small / "to", "--limit", "2MiB", "--threads", 1)
        while not (small / "to").exists():
            assert slow.poll() is None
            time.sleep(0.01)
        # All but the room of two files, however many are there by now.
        stopped(slow)
        room = os.statvfs(small)
        write(small, {"other": b"y" * (room.f_bavail * room.f_frsize - (2 << 20))})
        slow.send_signal(signal.SIGCONT)
        _, err = slow.communicate(timeout=60)
        assert slow.returncode == 1 and "no space" in err.lower() and "resume" in err, err
        assert all(len(data) == 1 << 20 for data in named(small / "to").values())
        small.joinpath("other").unlink()
        latest = json.loads(stead("--list").communicate(timeout=60)[0])
        assert [s["state"] for s in latest] == ["interrupted"] and "no space" in latest[0]["error"].lower()
        again = stead("--resume")
        assert [s["state"] for s in json.loads(again.communicate(timeout=60)[0])] == ["finished"]
        assert named(small / "to") == named(source)
        assert not [p for p in small.rglob(".stead-*")]
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")
def test_what_is_removed_gives_the_room_that_it_has(stead, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", small], check=True)
    try:
        to, sync = small / "to", ("--sync", "--delete")
        write(tmp_path / "much", {f"f{i}": bytes([i]) * (1 << 20) for i in range(20)})
        write(tmp_path / "fits", {f"f{i}": bytes([i]) * (1 << 20) for i in range(10)})
        write(to, {"stale": b"x" * 100, "linked": b"y" * (8 << 20)})
        # A name of a file that has others gives nothing.
        os.link(to / "linked", small / "other")
        before = named(small)
        for source, words in (("much", "are needed, and"), ("fits", "with what is removed")):
            _, err = (refused := stead(*sync, tmp_path / source, to)).communicate(timeout=60)
            assert refused.returncode == 1 and words in err and "nothing was begun" in err, err
            assert named(small) == before
        # All names of it go.
        os.rename(small / "other", to / "other")
        out, err = stead(*sync, tmp_path / "fits", to).communicate(timeout=60)
        assert json.loads(out)["state"] == "finished", err
        assert named(small / "to") == named(tmp_path / "fits")
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_few_files_may_be_open(stead, tmp_path):
    folders = {f"d{i}/f": b"x" for i in range(700)}
    write(tmp_path / "from", folders)
    command = 'ulimit -n 512; exec "$0" stage "$@"'

    def limited(*words) -> dict:
        env = os.environ | {"STEAD_STATE": str(tmp_path / "state")}
        done = subprocess.run(["bash", "-c", command, os.path.abspath(STEAD), *map(str, words), "--format", "json"], env=env,
                              capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    other = Path("/dev/shm") / f"stead-test-{os.getpid()}"
    try:
        assert limited("--move", tmp_path / "from", other)["failed"] == 0
        assert named(other) == folders and not (tmp_path / "from").exists()
        assert limited("--sync", other, tmp_path / "back")["failed"] == 0
        assert named(tmp_path / "back") == folders
        assert limited("--remove", other)["state"] == "finished" and not other.exists()
        # Each named, as a shell does.
        write(tmp_path / "flat", {f"f{i}": b"y" for i in range(700)})
        assert limited(*sorted((tmp_path / "flat").iterdir()), tmp_path / "named")["failed"] == 0
        assert named(tmp_path / "named") == named(tmp_path / "flat")
    finally:
        shutil.rmtree(other, ignore_errors=True)


def test_lines_tell_how_far_it_is_where_there_is_no_terminal(stead, tmp_path):
    write(tmp_path, {"from": b"x" * (6 << 20)})
    slow = (tmp_path / "from", "--limit", "2MiB")
    out, err = stead(*slow, tmp_path / "to", "--progress", "always").communicate(timeout=60)
    assert json.loads(out)["state"] == "finished", err
    line = re.compile(r"\d+ %, \S+ \S+ of 6\.0 MiB, [01]/1 names, \S+ \S+/s, .* left")
    assert err and all(line.fullmatch(told) for told in err.splitlines()), err
    # Nobody has asked for it.
    _, err = stead(*slow, tmp_path / "other").communicate(timeout=60)
    assert err == ""


def killed(under_way: subprocess.Popen, target: Path) -> None:
    """Kills it once it has begun there."""
    deadline = time.monotonic() + 60
    while not target.exists():
        assert under_way.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    under_way.kill()
    under_way.communicate()


def test_what_was_killed_is_shown_without_a_rate(stead, tmp_path):
    write(tmp_path, {"from/f": b"x" * (8 << 20)})
    killed(stead(tmp_path / "from", tmp_path / "to", "--limit", "2MiB"), tmp_path / "to")
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state")}
    done = subprocess.run([os.path.abspath(STEAD), "stage", "--wait", "1"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "interrupted, transfer 1" in done.stdout, done
    assert "took" not in done.stdout, done.stdout


def test_all_that_wait_are_resumed_and_told_in_one_list(stead, tmp_path):
    """Also those that end with an error, and where there is one, or none."""
    out, err = stead("--resume").communicate(timeout=60)
    assert (out, err) == ("[]\n", "stead: nothing waits to be resumed\n")
    for id in (1, 2, 3):
        write(tmp_path, {f"from{id}/f{i}": b"x" * (1 << 20) for i in range(10)})
        killed(stead(tmp_path / f"from{id}", tmp_path / f"to{id}", "--limit", "4MiB"), tmp_path / f"to{id}")
        if id != 2:
            shutil.rmtree(tmp_path / f"from{id}")
        if id == 1:
            one = stead("--resume")
            out, err = one.communicate(timeout=60)
            assert one.returncode == 1 and [(s["id"], s["state"]) for s in json.loads(out)] == [(1, "failed")], err
    both = stead("--resume")
    out, err = both.communicate(timeout=60)
    assert both.returncode == 1 and [(s["id"], s["state"]) for s in json.loads(out)] == [(2, "finished"), (3, "failed")], err
    assert named(tmp_path / "to2") == named(tmp_path / "from2")
    none = stead("--resume")
    out, err = none.communicate(timeout=60)
    assert none.returncode == 0 and out == "[]\n" and "transfer(s) 3, 1 failed: stead stage --resume ID" in err, err


def test_what_would_do_nothing_is_refused_and_does_nothing(stead, tmp_path):
    write(tmp_path, {"from/f": b"x" * (8 << 20)})
    killed(stead(tmp_path / "from", tmp_path / "to", "--limit", "2MiB"), tmp_path / "to")
    for taken in (["--cancel", 1], ["--resume", 1], ["--resume"], ["--wait", 1], ["--list"]):
        for option in (["--dry-run"], ["--checksum"], ["--limit", "1MiB"], ["--gentle"], ["--verify"], ["--exists", "skip"], ["--after", 1], ["--delete"]):
            refused = stead(*taken, *option)
            out, err = refused.communicate(timeout=60)
            assert refused.returncode == 2 and out == "" and "cannot be used with" in err, (taken, option, out, err)
    [status] = json.loads(stead("--list", "--all").communicate(timeout=60)[0])
    assert (status["id"], status["state"]) == (1, "interrupted")


def test_a_file_that_changes_all_the_time_is_told(stead, tmp_path):
    path = tmp_path / "busy"
    path.write_bytes(b"x" * (8 << 20))
    # It is tried several times, each for so long that it is changed meanwhile, whoever else has the processor.
    under_way = stead(path, tmp_path / "to", "--limit", "4MiB")
    with path.open("r+b") as busy:
        while under_way.poll() is None:
            busy.seek(0)
            busy.write(os.urandom(8))
            busy.flush()
            time.sleep(0.005)
    out, err = under_way.communicate()
    status = json.loads(out)
    assert under_way.returncode == 1 and status["state"] == "failed", err
    assert "changed while it was copied" in status["failures"][0]["error"]
    # That it was tried again is told where there is no terminal, too.
    tried = [line for line in err.splitlines() if line.startswith("stead: tried again: ")]
    assert tried and all("changed" in line for line in tried), err
    assert f"stead stage --resume {status['id']}" in err, err
    assert not (tmp_path / "to").exists() and not list(tmp_path.glob(".stead-*"))
    again = stead("--resume", status["id"])
    again.communicate(timeout=60)
    assert again.returncode == 0 and (tmp_path / "to").read_bytes() == path.read_bytes()


def test_patterns_leave_names_out_and_what_would_go_is_named(tmp_path):
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state")}

    def run(*words) -> subprocess.CompletedProcess[str]:
        return subprocess.run([os.path.abspath(STEAD), "stage", *map(str, words)], env=env, capture_output=True, text=True, timeout=60)

    source, target = tmp_path / "from", tmp_path / "to"
    write(source, {"a.h5": b"a", "b.tmp": b"b", "logs/l": b"l", "deep/c.h5": b"c", "core": b"d"})
    (tmp_path / "out.txt").write_text("# what nobody wants\n*.tmp\n\nlogs/\n")
    assert run(f"{source}/", target, "--exclude-from", tmp_path / "out.txt", "--exclude", "core").returncode == 0
    assert named(target) == {"a.h5": b"a", "deep/c.h5": b"c"}
    write(target, {"old.h5": b"o", "own.tmp": b"t"})
    (source / "a.h5").write_bytes(b"longer")
    sync = ["--sync", "--delete", source, target, "--exclude", "*.tmp", "--exclude", "core"]
    told = run(*sync, "--dry-run")
    assert told.returncode == 0, told.stderr
    page = told.stdout.split("\n\n")
    assert page[1].splitlines() == ["removed:", f"  {target}/old.h5"] and page[2].splitlines() == ["replaced:", f"  {target}/a.h5"], told.stdout
    changes = json.loads(run(*sync, "--dry-run", "--format", "json").stdout)["changes"]
    assert {"does": "remove", "path": f"{target}/old.h5"} in changes and {"does": "copy", "path": f"{target}/logs/l"} in changes
    assert named(target)["old.h5"] == b"o"
    assert run(*sync).returncode == 0
    assert named(target) == {"a.h5": b"longer", "deep/c.h5": b"c", "logs/l": b"l", "own.tmp": b"t"}
    assert run(source, tmp_path / "some", "--include", "*.h5").returncode == 0
    assert named(tmp_path / "some") == {"a.h5": b"longer", "deep/c.h5": b"c"} and not (tmp_path / "some" / "logs").exists()
    refused = run("--remove", source, "--exclude", "core")
    assert refused.returncode == 2 and "only copies, moves and syncs leave names out" in refused.stderr
    assert run("--move", f"{source}/", tmp_path / "moved", "--exclude", "core", "--exclude", "*.tmp").returncode == 0
    assert named(source) == {"b.tmp": b"b", "core": b"d"} and named(tmp_path / "moved") == {"a.h5": b"longer", "deep/c.h5": b"c", "logs/l": b"l"}
    assert run(source, tmp_path / "x", "--exclude-from", tmp_path / "none").returncode == 1


def test_files_are_compared_by_what_is_in_them(tmp_path):
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state"), "STEAD_SOCKET": "none"}

    def run(*words) -> subprocess.CompletedProcess[str]:
        return subprocess.run([os.path.abspath(STEAD), "stage", *map(str, words)], env=env, capture_output=True, text=True, timeout=60)

    source, target = tmp_path / "from", tmp_path / "to"
    for at, data in (source, b"here"), (target, b"them"):
        write(at, {"same": b"same", "other": data, "large": os.urandom(10) if at is source else (source / "large").read_bytes()})
        for name in "same", "other", "large":
            os.utime(at / name, (1_500_000_000, 1_500_000_000))
    assert run("--sync", source, target).returncode == 0 and (target / "other").read_bytes() == b"them"
    done = run("--sync", "--checksum", source, target, "--progress", "always", "--limit", "4")
    assert done.returncode == 0 and named(target) == named(source), done
    # It says how far it is while it reads.
    assert "compared " in done.stderr and " names" in done.stderr, done.stderr
    refused = run("--checksum", source, target)
    assert refused.returncode == 2 and "--sync" in refused.stderr, refused


def test_no_more_is_removed_than_may_be(tmp_path):
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state"), "STEAD_SOCKET": "none"}

    def run(*words) -> subprocess.CompletedProcess[str]:
        return subprocess.run([os.path.abspath(STEAD), "stage", *map(str, words)], env=env, capture_output=True, text=True, timeout=60)

    # A folder that was not mounted, say.
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    write(target, {f"f{i}": b"x" for i in range(20)})
    refused = run("--sync", "--delete", "--max-delete", 19, source, target)
    assert refused.returncode == 1 and "20 name(s) of the target would be removed, and no more than 19" in refused.stderr, refused
    assert count(target) == 20
    alone = run("--sync", "--max-delete", 19, source, target)
    assert alone.returncode == 2 and "--delete" in alone.stderr, alone
    assert run("--sync", "--delete", "--max-delete", 20, source, target).returncode == 0 and count(target) == 0


def test_what_differs_is_told(tmp_path):
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state"), "STEAD_SOCKET": "none"}

    def run(*words) -> subprocess.CompletedProcess[str]:
        return subprocess.run([os.path.abspath(STEAD), "stage", *map(str, words)], env=env, capture_output=True, text=True, timeout=60)

    source, target = tmp_path / "from", tmp_path / "to"
    write(source, {"same": b"same", "other": b"here", "deep/missing": b"m"})
    write(target, {"same": b"same", "other": b"them", "own.tmp": b"o"})
    for at in source, target:
        os.utime(at / "other", (1_500_000_000, 1_500_000_000))
    before = named(target)
    found = run("--check", source, target)
    assert found.returncode == 1 and "the target is not the same" in found.stderr, found
    pages = found.stdout.split("\n\n")
    assert pages[0].split() == ["same", "1", "differ", "1", "missing", "2", "only", "1"], found.stdout
    assert pages[1].splitlines() == ["differ:", f"  {target}/other"], found.stdout
    assert pages[2].splitlines() == ["missing on the target:", f"  {target}/deep", f"  {target}/deep/missing"], found.stdout
    assert pages[3].splitlines() == ["only on the target:", f"  {target}/own.tmp"], found.stdout
    told = json.loads(run("--check", source, target, "--format", "json").stdout)
    assert (told["same"], told["differ"], told["missing"], told["only"]) == (1, 1, 2, 1)
    assert {"is": "only", "path": f"{target}/own.tmp"} in told["names"] and len(told["names"]) == 4
    assert named(target) == before and json.loads(run("--list", "--all", "--format", "json").stdout) == []
    same = run("--check", source, target, "--exclude", "own.tmp", "--exclude", "deep", "--exclude", "other")
    assert same.returncode == 0 and same.stderr == "" and same.stdout.split()[:2] == ["same", "1"], same
    for words, code, what in [
        (["--check", tmp_path / "none", target], 1, "no such file"),
        (["--check", source], 2, "a source and a target are needed"),
        (["--check", "--sync", source, target], 2, "cannot be used with"),
        (["--check", "--delete", source, target], 2, "cannot be used with"),
        (["--check", "--background", source, target], 2, "cannot be used with"),
    ]:
        refused = run(*words)
        assert refused.returncode == code and what in refused.stderr, refused


def test_old_files_are_moved(tmp_path):
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state"), "STEAD_SOCKET": "none"}

    def run(*words) -> subprocess.CompletedProcess[str]:
        return subprocess.run([os.path.abspath(STEAD), "stage", *map(str, words)], env=env, capture_output=True, text=True, timeout=60)

    source, target = tmp_path / "from", tmp_path / "to"
    files = {"new": b"n" * 2000, "old": b"o" * 2000, "deep/old": b"d" * 2000, "deep/small": b"s"}
    write(source, files)
    for name in "old", "deep/old", "deep/small":
        os.utime(source / name, (time.time() - 3 * 86_400,) * 2)
    old = ["--move", "--min-age", "2d", "--min-size", "1KiB", f"{source}/", target]
    assert run(*old).returncode == 0
    assert named(target) == {name: files[name] for name in ("old", "deep/old")}
    assert named(source) == {name: files[name] for name in ("new", "deep/small")}
    # Nothing more is old: that is no error.
    assert run(*old).returncode == 0 and len(named(source)) == 2
    for words, what in [(["--min-age", "soon"], "no time"), (["--max-size", "some"], "not a size"), (["--min-size", "2", "--max-size", "1"], "--min-size")]:
        refused = run(source, target, *words)
        assert refused.returncode == 2 and what in refused.stderr, refused


def test_names_are_listed(tmp_path):
    env = os.environ | {"STEAD_STATE": str(tmp_path / "state"), "STEAD_SOCKET": "none"}

    def run(*words, **more) -> subprocess.CompletedProcess[bytes]:
        words = [os.path.abspath(STEAD), "stage", *map(str, words)]
        return subprocess.run(words, env=env, capture_output=True, timeout=60, **more)

    source, names = tmp_path / "from", tmp_path / "names"
    files = {"a.h5": b"a", "deep/b.h5": b"b", "deep/c": b"c", "odd\nname": b"o", "#d": b"d"}
    write(source, files)
    names.write_text("deep/b.h5\n\n#d\n")
    assert run(f"{source}/", tmp_path / "to", "--files-from", names).returncode == 0
    assert named(tmp_path / "to") == {"deep/b.h5": b"b", "#d": b"d"}
    by_find = b"odd\nname\0deep\0"
    assert run("--sync", source, tmp_path / "to", "--files-from", "-", "-0", input=by_find).returncode == 0
    assert named(tmp_path / "to") == {name: data for name, data in files.items() if name != "a.h5"}
    for words, more, code, what in [
        (["--files-from", "-"], {"input": b"\n"}, 2, b"the standard input lists no name"),
        (["--files-from", "-"], {"input": b"\xff\n"}, 2, b"UTF-8"),
        (["--files-from", "-"], {"input": b"none\n"}, 1, b"no such file"),
        (["--files-from", tmp_path / "no-list"], {}, 1, b"no-list"),
        (["--null"], {}, 2, b"--files-from"),
        (["--files-from", names, "--move"], {}, 2, b"--move"),
    ]:
        refused = run(f"{source}/", tmp_path / "x", *words, **more)
        assert refused.returncode == code and what in refused.stderr, refused
    assert not (tmp_path / "x").exists()


@needs_root
def test_a_sync_leaves_the_rights_of_somebody_elses_files():
    user = 54321
    with tempfile.TemporaryDirectory() as at:
        os.chmod(at, 0o755)
        source, target = Path(at) / "from", Path(at) / "to"
        write(source, {"f": b"same"})
        shutil.copytree(source, target)
        (source / "f").chmod(0o600)
        for path in (source, source / "f", target):
            os.chown(path, user, user)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("STEAD_", "XDG_"))}
        env |= {"HOME": at, "STEAD_SOCKET": "none", "STEAD_STATE": str(target / "state")}
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", os.path.abspath(STEAD), "stage", "--sync", source, target]
        done = subprocess.run([*map(str, words), "--format", "json"], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["skipped"] == 1 and (target / "f").stat().st_mode & 0o777 == 0o644
