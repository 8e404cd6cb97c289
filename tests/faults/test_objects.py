"""Transfers with an object store: byte for byte, over answers that fail, and killed at each of their requests."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("moto")
from stores import MIB, Store, named, tree, write  # noqa: E402

KILLS = int(os.environ.get("STEAD_CRASHES", "40"))
FAULTS = ["unavailable", "short", "slow", "lost", "refused"]


@pytest.fixture(scope="module")
def a_store():
    store = Store()
    yield store
    store.end()


@pytest.fixture
def store(a_store):
    a_store.anew("bkt")
    return a_store


def test_both_ways_byte_for_byte(store, stage, tmp_path):
    files = tree(tmp_path / "from")
    done = stage(f"{tmp_path}/from/", "s3://bkt/run 7/", "--verify")
    assert done["files_done"] == done["files"] == len(files)
    assert store.objects("bkt", "run 7/") == files and store.uploads("bkt") == []
    assert store.seen.count("part") == 3
    stage("archive://run 7", tmp_path / "back", "--dataspace", "archive=s3://bkt", "--verify")
    assert named(tmp_path / "back") == files
    for name in files:
        assert (tmp_path / "back" / name).stat().st_mtime_ns == (tmp_path / "from" / name).stat().st_mtime_ns
    # Within the store nothing comes by here.
    store.seen.clear()
    stage("s3://bkt/run 7/", "s3://bkt/other/")
    assert store.objects("bkt", "other/") == files and not {"get", "part"} & set(store.seen)
    stage("--move", "s3://bkt/other", tmp_path / "moved")
    assert named(tmp_path / "moved") == files and store.objects("bkt", "other/") == {}
    # A pattern, and what it leaves.
    stage("--remove", "s3://bkt/run 7/d*/*[01]+*")
    left = {name: data for name, data in files.items() if "0+" not in name and "1+" not in name}
    assert store.objects("bkt", "run 7/") == left
    stage("s3://bkt/**/*2+*", tmp_path / "one")
    assert [Path(name).name for name in named(tmp_path / "one")] == ["f 2+%é"]
    assert stage("--remove", "s3://bkt/run 7")["files_done"] == len(left)
    assert store.objects("bkt") == {}


def test_syncs_and_many_small_ones(store, stage, tmp_path):
    files = {f"d{i % 4}/f{i}": b"%d" % i for i in range(300)}
    write(tmp_path / "from", files)
    sync = ["--sync", "--delete", tmp_path / "from", "s3://bkt/all"]
    assert stage(*sync)["files_done"] == len(files)
    assert store.objects("bkt", "all/") == files
    assert stage(*sync)["files_done"] == 0
    write(tmp_path / "from", {"d1/f1": b"changed", "new/f": b"new"})
    (tmp_path / "from/d2/f2").unlink()
    assert stage(*sync)["files_done"] == 3
    assert store.objects("bkt", "all/") == named(tmp_path / "from")
    # What others have put there is of the time when it came.
    store.s3.put_object(Bucket="bkt", Key="all/theirs", Body=b"theirs")
    back = ["--sync", "s3://bkt/all", tmp_path / "back"]
    stage(*back)
    assert named(tmp_path / "back") == store.objects("bkt", "all/")
    assert stage(*back)["files_done"] == 0
    assert stage("--sync", tmp_path / "back", "s3://bkt/all")["files_done"] == 0
    # All of them go together.
    store.seen.clear()
    stage("--remove", "s3://bkt/all")
    assert store.objects("bkt") == {} and store.seen.count("delete") < 5


def test_refusals_say_what_is_wrong(store, stage, tmp_path):
    write(tmp_path, {"f": b"f"})
    stage(tmp_path / "f", "s3://bkt/f")
    assert "something of this name already" in stage(tmp_path / "f", "s3://bkt/f", code=2)
    assert "no such bucket" in stage(tmp_path / "f", "s3://none/f", code=1)
    assert "no such" in stage("s3://bkt/none", tmp_path / "g", code=1)
    assert "with a user or a password" in stage(tmp_path / "f", "s3://me:kept@bkt/f", code=2)
    assert "a bucket as a whole" in stage("--remove", "s3://bkt/", code=2)
    state = b"".join(path.read_bytes() for path in (tmp_path / "state").glob("transfers.db*"))
    assert b"kept-to-itself" not in state and b"me:kept" not in state


def test_files_of_a_plain_server(stage, tmp_path):
    files = {"data/f 1": os.urandom(3 * MIB), "data/empty": b""}
    write(tmp_path / "served", files)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        stage(f"{url}/data/f 1", f"{url}/data/empty", f"{tmp_path}/got/")
        assert named(tmp_path / "got") == {"f 1": files["data/f 1"], "empty": b""}
        assert "no such" in stage(f"{url}/data/none", f"{tmp_path}/got/", code=1)
        stage(tmp_path / "served/data/f 1", f"{url}/data/new", code=1)
        server.shutdown()


@pytest.mark.parametrize("seed", range(2))
def test_answers_that_fail_now_and_then(store, stage, tmp_path, seed):
    files = tree(tmp_path / "from", 40 * MIB)
    rng = random.Random(seed)
    lost = []

    def fail(number: int, kind: str) -> str | None:
        fault = rng.choice(FAULTS) if rng.random() < 0.25 else None
        lost.extend([kind] if fault == "lost" else [])
        return fault

    store.rule = fail
    stage(f"{tmp_path}/from/", "s3://bkt/run/", "--verify")
    stage("s3://bkt/run/", f"{tmp_path}/back/")
    store.rule = lambda number, kind: None
    assert store.objects("bkt", "run/") == files == named(tmp_path / "back")
    # Of an upload whose number nobody has heard, the store is told much later.
    assert len(store.uploads("bkt")) <= lost.count("create")


def marked(tmp_path: Path) -> int:
    """Parts that the journal says are there."""
    with sqlite3.connect(tmp_path / "state/transfers.db", timeout=30) as journal:
        marks = [mark for (mark,) in journal.execute("SELECT mark FROM item WHERE mark IS NOT NULL")]
    return sum(part is not None for mark in marks for part in json.loads(mark)["parts"])


@pytest.mark.parametrize("then", ["resumed", "given up"])
def test_a_large_upload_that_is_killed(store, begin, stage, tmp_path, then):
    files = {"large": random.Random(3).randbytes(48 * MIB)}
    write(tmp_path, files)
    go_on = threading.Event()

    def hold(number: int, kind: str) -> str | None:
        if kind == "part" and store.seen.count("part") > 3:
            go_on.wait(60)
            return "refused"
        return None

    store.rule = hold
    under_way = begin(tmp_path / "large", "s3://bkt/large", "--threads", 1)
    deadline = time.monotonic() + 60
    while store.seen.count("part") <= 3 or marked(tmp_path) < 3:
        assert under_way.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    under_way.send_signal(signal.SIGKILL)
    under_way.communicate(timeout=60)
    go_on.set()
    store.settle()
    assert store.uploads("bkt") == ["large"] and store.objects("bkt") == {}
    store.rule, store.seen = (lambda number, kind: None), []
    if then == "resumed":
        assert [s["state"] for s in stage("--resume")] == ["finished"]
        # Three of six are there.
        assert store.seen.count("part") == 3 and store.seen.count("create") == 0
        assert store.objects("bkt") == files
    else:
        [latest] = json.loads(begin("--list").communicate(timeout=60)[0])
        assert stage("--cancel", latest["id"])["state"] == "cancelled"
        assert store.objects("bkt") == {}
    assert store.uploads("bkt") == []


@pytest.mark.parametrize("action", ["copy", "--move"])
def test_killed_at_each_request(store, begin, stage, tmp_path, action, record_property):
    words = [] if action == "copy" else [action]
    number, done = 0, False
    while not done:
        store.anew("bkt")
        files = tree(tmp_path / "from", 17 * MIB)
        under_way = begin(*words, f"{tmp_path}/from/", "s3://bkt/run/")
        killed = []

        def kill(at: int, kind: str, number=number, under_way=under_way, killed=killed) -> str | None:
            if at < number:
                return None
            # First: who waits for its end looks at this.
            killed.append(kind)
            under_way.send_signal(signal.SIGKILL)
            # Half of the time it is done, and nobody hears of it.
            return "refused" if number % 2 else "lost"

        store.rule = kill
        under_way.communicate(timeout=120)
        store.settle()
        done = not killed
        # Of an upload whose number nobody has heard, nobody can tell the store. No part of it has come.
        unheard = 0 if done or "part" in store.seen else store.seen.count("create")
        store.rule = lambda number, kind: None
        there, left = store.objects("bkt", "run/"), named(tmp_path / "from")
        for name, data in there.items():
            assert data == files[name]
        assert all(data in (there.get(name), left.get(name)) for name, data in files.items())
        if not done:
            stage(*words, f"{tmp_path}/from/", "s3://bkt/run/")
        assert store.objects("bkt", "run/") == files
        assert named(tmp_path / "from") == ({} if words else files)
        assert len(store.uploads("bkt")) <= unheard
        number += 1
    record_property("kills", number - 1)
    assert number > 8


def test_killed_at_any_time(store, begin, stage, tmp_path, record_property):
    typical, kills = 1.0, 0
    for seed in range(max(KILLS // 10, 4)):
        rng = random.Random(seed)
        store.anew("bkt")
        # What is listed is of this one alone.
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        words = rng.choice([[], ["--move"], ["--sync"]]) if seed else []
        files = tree(tmp_path / "from", 17 * MIB)
        tries = 0
        while True:
            under_way = begin(*words, f"{tmp_path}/from/", "s3://bkt/run/")
            begun = time.monotonic()
            if seed == 0:
                under_way.wait(60)
                typical = time.monotonic() - begun
            # Longer each time: a part that is not there is sent anew.
            tries += 1
            time.sleep(0 if seed == 0 else rng.random() * typical * (0.5 + tries / 4))
            done = under_way.poll() is not None
            under_way.send_signal(signal.SIGKILL)
            _, err = under_way.communicate(timeout=60)
            store.settle()
            kills += not done
            there, left = store.objects("bkt", "run/"), named(tmp_path / "from")
            for name, data in there.items():
                assert data == files[name]
            assert all(data in (there.get(name), left.get(name)) for name, data in files.items())
            if done:
                assert under_way.returncode == 0, err
                break
            latest = json.loads(begin("--list", "--all").communicate(timeout=60)[0])
            if latest and latest[0]["state"] == "finished":
                break
        assert there == files and left == ({} if "--move" in words else files)
        # Those that were begun and told to nobody: no more than one for each kill.
        assert len(store.uploads("bkt")) <= tries - 1
    record_property("seeds", seed + 1)
    record_property("kills", kills)
    assert kills > 0
