"""The daemon of a node, from Python."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest
import stead
from node import node
from support import unanswered

SLOW = {"limit": "5MiB"}


@pytest.fixture(name="node")
def _node():
    with node() as one:
        yield one


def under_way(t: stead.Handed) -> stead.Staged:
    until = time.monotonic() + 60
    while (status := t.status()).bytes_done == 0:
        assert time.monotonic() < until, status
        time.sleep(0.01)
    return status


def test_without_a_daemon_there_is_none(tmp_path, monkeypatch):
    assert stead.daemon(tmp_path / "s") is None
    monkeypatch.setenv("STEAD_SOCKET", "none")
    assert stead.daemon() is None
    monkeypatch.setenv("STEAD_SOCKET", str(tmp_path / "s"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if not Path("/run/stead/steadd.sock").exists():
        assert stead.daemon() is None


def test_without_a_pool_a_node_is_its_own_one(node):
    with stead.daemon(node.path) as d:
        (own,) = d.nodes
    with stead.daemon(node.path, node=own) as d:
        assert d.transfers(all=True) == [] and d.nodes == [own]
    with pytest.raises(stead.UsageError, match="in no pool"):
        stead.daemon(node.path, node="elsewhere")


def test_transfers_are_handed_over(node, monkeypatch):
    monkeypatch.setenv("STEAD_SOCKET", str(node.path))
    monkeypatch.chdir(node.at)
    with stead.daemon() as d:
        assert d.path == str(node.path) and repr(d) == f"Daemon({str(node.path)!r})"
        # Paths are those of this process.
        said = d.preview("from", "to")
        assert said["files"] == 3 and said["bytes"] == 4101 and not (node.at / "to").exists() and d.transfers(all=True) == []
        assert d.preview("from/", "to", files=["deep/f1"])["files"] == 1
        assert d.check("from/", "to")["same"] == 0
        t = d.submit("from", Path("to"))
        done = t.wait()
        assert (done.state, done.action, done.bytes_done, done.error) == ("finished", "copy", 4101, None)
        assert (node.at / "to/deep/f2").read_bytes() == b"\2" * 4096
        assert t.done and t.eta == 0.0 and t.eta_range == (0, 0, 0) and t.status().id == t.id and d.transfer(t.id).wait(0).id == t.id
        again = d.submit(["from/"], "to", action="sync", priority=3)
        assert again.wait().skipped == 3 and again.id != t.id
        assert d.transfers() == [] and [s.id for s in d.transfers(True)] == [again.id, t.id] and len(d.transfers(True, most=1)) == 1
        assert 'stead_transfers{state="finished"} 2' in d.metrics() and isinstance(d.spaces(), list)
        taken = d.submit("to/deep/f0", "to/deep/f1")
        with pytest.raises(stead.UsageError, match="already"):
            taken.wait()
        with pytest.raises(stead.UsageError, match="no transfer 99"):
            d.transfer(99)
        with pytest.raises(stead.UsageError, match="unknown variant"):
            d.submit("from", "x", exists="burn")
        with pytest.raises(stead.UsageError, match="finished already"):
            d.resume(t.id)
        assert d.resume(taken.id).id == taken.id and d.resume_all() == []
    with pytest.raises(stead.UsageError, match="closed"):
        t.status()
    assert repr(d) == "Daemon(closed)"


def test_a_store_that_does_not_answer_ends_it(node):
    with stead.daemon(node.path) as d, unanswered() as url:
        t = d.submit(f"{url}/f", node.at / "to", retries=0)
        with pytest.raises(stead.IoError, match="127.0.0.1"):
            t.wait()
        # It is no time that is over: nobody is to wait again.
        with pytest.raises(stead.IoError, match="127.0.0.1"):
            t.wait(0)
        assert t.done and t.status().state == "failed"


def test_turns_progress_and_the_end_of_them(node):
    d = stead.daemon(node.path)
    first = d.submit(node.at / "big", node.at / "one", **SLOW)
    after = d.submit(node.at / "from", node.at / "two", after=[first])
    last = d.submit(node.at / "two", action="remove", after=[first.id, after])
    status = under_way(first)
    assert status.state == "running" and 0 < status.bytes_done < status.bytes == 24 << 20
    # It is told anew all the time, and is less every time.
    (eta, low, high), later, latest = first.eta_range, first.eta, first.eta_range
    assert low <= eta <= high < 1000 and latest[1] <= later <= high and after.status().state == "pending" and not after.done and after.eta > 0
    with pytest.raises(stead.TimedOutError):
        after.wait(0.05)
    # One that waits keeps nobody waiting: they have connections of their own.
    waits = [threading.Thread(target=last.wait) for _ in range(4)]
    for thread in waits:
        thread.start()
    assert last.wait().state == "finished" and not (node.at / "two").exists()
    for thread in waits:
        thread.join()
    assert (node.at / "one").read_bytes() == (node.at / "big").read_bytes()


def test_cancelled_is_raised(node):
    d = stead.daemon(node.path)
    t = d.submit(node.at / "big", node.at / "one", limit="1MiB")
    after = d.submit(node.at / "from", node.at / "two", after=[t])
    under_way(t)
    assert t.cancel().state == "cancelled" and not (node.at / "one").exists()
    with pytest.raises(stead.CancelledError, match="was cancelled"):
        t.wait()
    with pytest.raises(stead.CancelledError, match="was not finished"):
        after.wait()
    with pytest.raises(stead.UsageError, match="cancelled already"):
        t.cancel()


def test_they_are_awaited_and_a_daemon_may_be_replaced(node):
    d = stead.daemon(node.path)

    async def all_of_them():
        slow = d.submit(node.at / "big", node.at / "slow", limit="12MiB")
        small = [d.submit(node.at / "from" / "deep" / f"f{i}", f"{node.at}/to{i}") for i in range(3)]
        done = await asyncio.gather(*small)
        assert [s.state for s in done] == ["finished"] * 3 and [s.bytes for s in done] == [0, 5, 4096]
        await asyncio.to_thread(under_way, slow)
        later = asyncio.ensure_future(asyncio.to_thread(slow.wait))
        await asyncio.to_thread(node.end)
        await asyncio.to_thread(node.begin)
        return await asyncio.gather(slow, later)

    assert [s.state for s in asyncio.run(all_of_them())] == ["finished"] * 2
    assert (node.at / "slow").read_bytes() == (node.at / "big").read_bytes()
    assert d.submit(node.at / "from", node.at / "more").wait().state == "finished"


def test_ctrl_c_ends_a_wait_and_not_the_transfer(node):
    script = f"""
        import stead
        t = stead.daemon({str(node.path)!r}).submit({str(node.at / "big")!r}, {str(node.at / "to")!r}, limit="4MiB")
        print(t.id, flush=True)
        t.wait()
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t = stead.daemon(node.path).transfer(int(child.stdout.readline()))
    under_way(t)
    child.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in child.communicate(timeout=60)[1] and not t.done
    assert t.wait(60).state == "finished" and (node.at / "to").read_bytes() == (node.at / "big").read_bytes()


def test_ctrl_c_ends_a_check(node):
    for folder in "one", "two":
        (node.at / folder).mkdir()
        for name in "a", "b", "c":
            (node.at / folder / name).write_bytes(b"x" * 1000)
    script = f"""
        import stead
        d = stead.daemon({str(node.path)!r})
        print(d.check({str(node.at / "one")!r}, {str(node.at / "two")!r})["same"], flush=True)
        d.check({str(node.at / "one")!r}, {str(node.at / "two")!r}, limit=1)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"3\n"
        time.sleep(1)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in child.communicate(timeout=60)[1]
    finally:
        child.kill()


def test_a_child_that_was_forked_connects_anew(node):
    d = stead.daemon(node.path)
    child = os.fork()
    if child == 0:
        try:
            d.transfers()
        except stead.UsageError:
            os._exit(7 if stead.daemon(node.path).transfers() == [] else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert d.transfers() == []


def test_dataspaces_of_administrators_are_known_to_programs(node, tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    pd = pytest.importorskip("pandas")
    monkeypatch.setenv("STEAD_SOCKET", str(node.path))
    monkeypatch.setenv("STEAD_STATE", str(tmp_path / "journal"))
    fs = stead.FileSystem(skip_instance_cache=True)
    with pytest.raises(stead.NotFoundError, match="'py'"):
        fs.ls("py")
    (tmp_path / "space").mkdir()
    stead.daemon().admin.add_dataspace("py", tmp_path / "space", user_quota="1MB")
    pd.DataFrame({"x": [1, 2, 3]}).to_csv("stead://py/run1/data.csv", index=False)
    assert pd.read_csv("stead://py/run1/data.csv").x.sum() == 6
    assert "py" in fs.ls("", detail=False) and fs.ls("py", detail=False) == ["py/run1"]
    # What is agreed about it holds here, too.
    with pytest.raises(stead.NoSpaceError):
        fs.pipe_file("py/large", bytes(2 << 20))
    assert stead.preview_stage(node.at / "from", "py://from")["files"] == 3
    assert stead.stage(node.at / "from", "py://from").wait().state == "finished"
    with stead.buffer(node.at / "from", "py://work") as folder:
        assert folder == tmp_path / "space/work" and (folder / "deep/f1").read_bytes() == b"\x01" * 5
    with pytest.raises(stead.NotFoundError, match="'none'"):
        fs.ls("none")


def test_a_daemon_that_does_not_answer_is_none_for_names_of_files(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    (tmp_path / "fast").mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{short}/s")
        silent.listen()
        monkeypatch.setenv("STEAD_SOCKET", f"{short}/s")
        fs = stead.FileSystem(dataspaces={"fast": tmp_path / "fast"}, skip_instance_cache=True)
        fs.pipe_file("fast/f", b"f")
        assert fs.ls("fast", detail=False) == ["fast/f"]
        with pytest.raises(stead.TimedOutError, match="dataspace 'py'"):
            fs.ls("py")


def test_administrators(node, tmp_path):
    d = stead.daemon(node.path)
    admin, path = d.admin, tmp_path / "space"
    path.mkdir()
    admin.add_dataspace("py", path, quota="1MB", jobs=True)
    assert admin.dataspaces()["py"] == {"path": str(path), "quota": "1MB", "jobs": "yes"}
    with pytest.raises(stead.UsageError, match="already"):
        admin.add_dataspace("py", path)
    (tmp_path / "f").write_bytes(b"f")
    with pytest.raises(stead.PermissionDeniedError, match="processes of jobs"):
        d.preview(tmp_path / "f", "py://f")
    admin.add_job(7, os.geteuid(), ["py"])
    admin.add_process(7, os.getpid())
    assert admin.jobs() == [{"job": "7", "user": os.geteuid(), "dataspaces": ["py"], "processes": [os.getpid()]}]
    # A connection is of the job that its process was of when it was made.
    with stead.daemon(node.path) as of_job:
        assert of_job.submit(tmp_path / "f", "py://f").wait(60).state == "finished"
    admin.update_dataspace("py", jobs=None, quota=1, gentle=True)
    assert admin.dataspaces()["py"]["gentle"] == "yes"
    assert [s["gentle"] for s in d.spaces() if s["name"] == "py"] == [True]
    with pytest.raises(stead.NoSpaceError, match="quota|dataspace 'py'"):
        d.preview(tmp_path / "f", "py://g")
    admin.remove_process(os.getpid())
    admin.remove_job(7)
    admin.drain()
    assert admin.stats()["drained"]
    with pytest.raises(stead.LimitError, match="drained"):
        d.submit(tmp_path / "f", tmp_path / "g")
    admin.open()
    admin.remove_dataspace("py")
    assert admin.dataspaces() == {}
    # Nothing was set of it any more: not that there is none, either.
    admin.reset_dataspace("py")
    with pytest.raises(stead.UsageError, match="nothing was set"):
        admin.reset_dataspace("py")
    with pytest.raises(stead.UsageError, match="a bucket has no 'quota'"):
        admin.add_dataspace("bucket", "s3://b", quota="1TB")


def test_transfers_of_others_are_looked_after(node, tmp_path):
    """Here those of this user, as an administrator has those of another one."""
    d = stead.daemon(node.path)
    t = d.submit(node.at / "big", node.at / "one", limit="1MiB")
    under_way(t)
    name = pwd.getpwuid(os.geteuid()).pw_name
    for user in (os.geteuid(), name):
        with d.admin.manage(user) as theirs:
            assert [s.id for s in theirs.transfers()] == [t.id] and theirs.transfer(t.id).eta > 0
            assert 'stead_transfers{state="running"} 1' in theirs.metrics()
            for refused in (lambda: theirs.submit(tmp_path, tmp_path / "to"), theirs.spaces, theirs.admin.stats, lambda: theirs.nodes):
                with pytest.raises(stead.PermissionDeniedError, match="and nothing else"):
                    refused()
    with d.admin.manage(name) as theirs:
        assert theirs.transfer(t.id).cancel().state == "cancelled"
        with pytest.raises(stead.CancelledError, match="was cancelled"):
            theirs.transfer(t.id).wait()
        missing = d.submit(tmp_path / "f", tmp_path / "g")
        with pytest.raises(stead.NotFoundError):
            missing.wait()
        (tmp_path / "f").write_bytes(b"f")
        assert theirs.resume(missing.id).wait().state == "finished" and theirs.resume_all() == []
    assert t.status().state == "cancelled" and (tmp_path / "g").read_bytes() == b"f"
    with pytest.raises(stead.UsageError, match="no user 'no such user'"):
        d.admin.manage("no such user")
    # One's own daemon has no other users; that of all users has none of this number.
    with pytest.raises((stead.UsageError, stead.NotFoundError), match="4000000001"):
        d.admin.manage(4_000_000_001)


def test_things_are_kept(node, tmp_path, monkeypatch):
    monkeypatch.setenv("STEAD_SOCKET", str(node.path))
    (tmp_path / "f").write_bytes(b"f")
    stead.persist.store(tmp_path / "f", expires=86400)
    (one,) = stead.persist.stored()
    assert one["kept"] and one["path"] == str(tmp_path / "f") and 86000 < one["left"] <= 86400
    stead.persist.delete(tmp_path / "f")
    with pytest.raises(stead.UsageError, match="not kept"):
        stead.persist.delete(tmp_path / "f")
    # Without a daemon it is another journal.
    monkeypatch.setenv("STEAD_SOCKET", "none")
    monkeypatch.setenv("STEAD_STATE", str(tmp_path / "state"))
    assert stead.persist.stored() == []
    with pytest.raises(stead.UsageError, match="no user"):
        stead.persist.share(tmp_path / "f", "no such user")
    with pytest.raises(stead.UsageError, match="not shared"):
        stead.persist.unshare(tmp_path / "f", 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="several users are there for root only")
def test_others_read_what_is_shared(node, monkeypatch):
    monkeypatch.setenv("STEAD_SOCKET", str(node.path))
    user, folder = pwd.getpwnam("daemon"), node.at / "from"

    def reads() -> bool:
        words = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "cat", folder / "deep" / "f1"]
        return subprocess.run(words, capture_output=True).returncode == 0

    assert not reads()
    stead.persist.share(folder, "daemon")
    (one,) = stead.persist.stored()
    assert reads() and (one["path"], one["shared"], one["kept"]) == (str(folder), [user.pw_uid], False)
    stead.persist.unshare(folder, user.pw_uid)
    assert not reads() and stead.persist.stored() == []
