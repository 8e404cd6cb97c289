"""Transfers from Python."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import stead
from support import unanswered


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("STEAD_STATE", str(tmp_path / "state"))
    source = tmp_path / "from"
    (source / "deep").mkdir(parents=True)
    for i, size in enumerate([0, 5, 4096, 3_000_000]):
        (source / "deep" / f"f{i}").write_bytes(bytes([i]) * size)
    (tmp_path / "fast").mkdir()
    return tmp_path


def same(a, b) -> bool:
    files = [p.relative_to(a) for p in a.rglob("*") if p.is_file()]
    assert files
    return all((a / f).read_bytes() == (b / f).read_bytes() for f in files) and len(files) == len([p for p in b.rglob("*") if p.is_file()])


def test_a_tree_is_staged(place):
    spaces = {"fast": place / "fast"}
    t = stead.stage(place / "from", "fast://", dataspaces=spaces)
    done = t.wait()
    assert (done.state, done.action, done.failed, done.failures, done.error) == ("finished", "copy", 0, [], None)
    assert done.bytes == done.bytes_done == 3_004_101 and done.files == done.files_done == 6
    assert same(place / "from", place / "fast" / "from")
    with pytest.raises(ValueError, match="NaN"):
        t.wait(float("nan"))
    assert t.done and t.eta == 0.0 and t.wait().id == done.id == t.id and done.seconds >= 0
    assert "finished" in repr(done) and "ended" in repr(t)
    again = stead.stage(f"{place}/from/", "fast://from", action="sync", dataspaces=spaces).wait()
    assert again.bytes == 0 and again.skipped == 4
    used = stead.dataspaces(spaces)
    assert [s["name"] for s in used] == ["fast", "memory"] and 0 < used[0]["free"] <= used[0]["size"] and used[0]["error"] is None
    assert [s.state for s in stead.transfers(all=True)] == ["finished", "finished"] and stead.transfers() == []


def test_a_dataspace_has_so_many_transfers_at_a_time(place, monkeypatch):
    (place / "stead.toml").write_text(f'[dataspace.fast]\npath = "{place / "fast"}"\ntransfers = 2\n')
    monkeypatch.setenv("STEAD_CONFIG", str(place / "stead.toml"))
    source = place / "from" / "deep" / "f3"

    def under_way() -> int:
        return sum(p.name.startswith(".stead-") for p in (place / "fast").iterdir())

    # Two have the seats until all others have come.
    seated = [stead.stage(source, f"fast://first{i}", limit="10kB") for i in range(2)]
    until = time.monotonic() + 60
    while under_way() < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    # Some by its name, some by its folder, in threads of this process.
    all_ = [stead.stage(source, f"fast://{i}" if i % 2 else place / "fast" / str(i), limit="6MB") for i in range(6)]
    beside = stead.stage(source, place / "beside").wait()
    assert beside.state == "finished" and not any(t.done for t in all_)
    seen = {under_way()}
    for t in seated:
        assert t.cancel().state == "cancelled"
    while not all(t.done for t in all_):
        seen.add(under_way())
        time.sleep(0.001)
    assert max(seen) == 2, seen
    assert [t.wait().state for t in all_] == ["finished"] * 6
    assert stead.dataspaces()[0]["transfers"] == 2


def test_what_it_would_do(place):
    said = stead.preview_stage([place / "from" / "deep" / "f1", f"{place}/from/deep/f3"], place / "to")
    assert (said["files"], said["bytes"], said["renamed"]) == (2, 3_000_005, 0) and said["takes"]["high"] > 0
    assert not (place / "to").exists() and stead.transfers(all=True) == []


def test_errors_are_those_of_the_package(place):
    with pytest.raises(stead.NotFoundError):
        stead.stage(place / "none", place / "to").wait()
    with pytest.raises(stead.UsageError, match="unknown variant"):
        stead.stage(place / "from", place / "to", action="teleport")
    with pytest.raises(stead.UsageError, match="no target"):
        stead.stage(place / "from")
    with pytest.raises(stead.UsageError, match="unknown variant"):
        stead.stage(place / "from", place / "to", exists="burn")
    (place / "to").write_bytes(b"there")
    with pytest.raises(stead.UsageError, match="already"):
        stead.stage(place / "from" / "deep" / "f1", place / "to").wait()
    with pytest.raises(stead.UsageError, match="no transfer 99"):
        stead.resume_transfer(99)
    with pytest.raises(stead.UsageError, match="not configured"):
        stead.stage("nowhere://x", place / "to").wait()


def test_a_store_that_does_not_answer_ends_it(place):
    async def awaited(t):
        return await t

    with unanswered() as url:
        t = stead.stage(f"{url}/f", place / "to", retries=0)
        with pytest.raises(stead.IoError, match="127.0.0.1") as raised:
            t.wait()
    assert t.done and "can be reached" in raised.value.hint
    # It is no time that is over: nobody is to wait again.
    with pytest.raises(stead.IoError, match="127.0.0.1"):
        t.wait(0)
    with pytest.raises(stead.IoError, match="127.0.0.1"):
        asyncio.run(awaited(t))
    assert stead.wait_transfer(t.id, 0).state == "failed"


def test_stopped_resumed_and_given_up(place):
    big = place / "big"
    big.write_bytes(os.urandom(1 << 20) * 30)
    t = stead.stage(big, place / "to", limit="6MiB")
    # Until it is known what there is to do.
    while not t.progress or t.progress[3] == 0:
        with pytest.raises(stead.TimedOutError):
            t.wait(0.1)
    assert t.progress[3] == 30 << 20 and 0 < t.eta < 1000
    low, high = t.eta_range[1:]
    assert low <= t.eta * 2 and high > low
    t.stop()
    with pytest.raises(stead.CancelledError):
        t.wait()
    assert [(s.id, s.state) for s in stead.transfers()] == [(t.id, "interrupted")]
    assert stead.resume_transfer(t.id).wait().state == "finished"
    assert (place / "to").read_bytes() == big.read_bytes()
    t = stead.stage(big, place / "other", limit="1MiB")
    t.stop()
    with pytest.raises(stead.CancelledError):
        t.wait()
    assert stead.cancel_transfer(t.id).state == "cancelled"
    assert sorted(p.name for p in place.iterdir()) == ["big", "fast", "from", "state", "to"]
    # Given up while it is under way, by itself or by its number.
    for give_up in (lambda t: t.cancel(), lambda t: stead.cancel_transfer(t.id)):
        t = stead.stage(big, place / "other", limit="2MiB")
        while not t.progress:
            with pytest.raises(stead.TimedOutError):
                t.wait(0.05)
        with pytest.raises(stead.TimedOutError, match="goes on"):
            stead.wait_transfer(t.id, 0)
        assert give_up(t).state == "cancelled"
        with pytest.raises(stead.CancelledError, match="was cancelled"):
            t.wait()
        with pytest.raises(stead.UsageError, match="cancelled already"):
            t.cancel()
        assert stead.wait_transfer(t.id).state == "cancelled"
        assert sorted(p.name for p in place.iterdir()) == ["big", "fast", "from", "state", "to"]


def test_they_are_awaited(place):
    async def all_of_them():
        moves = [stead.stage(place / "from" / "deep" / f"f{i}", f"{place}/to{i}") for i in range(4)]
        return await asyncio.gather(*moves)

    done = asyncio.run(all_of_them())
    assert [d.state for d in done] == ["finished"] * 4 and [d.bytes for d in done] == [0, 5, 4096, 3_000_000]

    async def late():
        t = stead.stage(place / "from", place / "late")
        t.wait()
        return await t

    assert asyncio.run(late()).state == "finished"


def test_a_program_may_forget_them(place):
    stead.stage(place / "from", place / "to")
    gc.collect()
    script = f"""
        import stead
        stead.stage({str(place / "from")!r}, {str(place / "other")!r}, limit="3MiB")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)
    assert same(place / "from", place / "other")
    # The one of this process goes on by itself.
    until = time.monotonic() + 60
    while {s.state for s in stead.transfers(all=True)} != {"finished"}:
        assert time.monotonic() < until, stead.transfers(all=True)
        time.sleep(0.01)
    assert same(place / "from", place / "to")


def test_a_child_that_was_forked_has_none(place):
    t = stead.stage(place / "from", place / "to")
    child = os.fork()
    if child == 0:
        try:
            t.done  # noqa: B018
        except stead.UsageError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert t.wait().state == "finished"


def test_names_are_left_out(place):
    for name in "a.tmp", "deep/b.tmp", "logs/l":
        (place / "from" / name).parent.mkdir(exist_ok=True)
        (place / "from" / name).write_bytes(b"x")
    told = stead.preview_stage(f"{place}/from/", place / "to", exclude=["*.tmp", "logs/"])
    paths = {(c["does"], os.path.relpath(c["path"], place / "to")) for c in told["changes"]}
    assert paths == {("folder", "."), ("folder", "deep"), *(("copy", f"deep/f{n}") for n in range(4))}
    stead.stage(f"{place}/from/", place / "to", exclude=["*.tmp", "logs/"]).wait()
    assert sorted(p.name for p in (place / "to").rglob("*")) == ["deep", "f0", "f1", "f2", "f3"]
    stead.stage(f"{place}/from/", place / "some", include="*.tmp").wait()
    assert sorted(str(p.relative_to(place / "some")) for p in (place / "some").rglob("*")) == ["a.tmp", "deep", "deep/b.tmp"]
    (place / "to" / "own.tmp").write_bytes(b"theirs")
    sync = {"action": "sync", "delete": True, "exclude": "*.tmp"}
    (place / "to" / "old").write_bytes(b"old")
    assert [c["does"] for c in stead.preview_stage(f"{place}/from/", place / "to", **sync)["changes"] if c["path"].endswith("/old")] == ["remove"]
    stead.stage(f"{place}/from/", place / "to", **sync).wait()
    assert (place / "to" / "own.tmp").exists() and not (place / "to" / "old").exists()
    with pytest.raises(stead.UsageError, match="only copies, moves and syncs leave names out"):
        stead.stage(place / "from", action="remove", exclude="*.tmp")
    stead.stage(f"{place}/from/", place / "moved", action="move", exclude="*.tmp").wait()
    assert sorted(p.name for p in (place / "from").rglob("*")) == ["a.tmp", "b.tmp", "deep"]


def test_files_are_taken_by_their_size_and_age(place):
    now = time.time()
    for i, days in enumerate([0, 3, 0, 3]):
        os.utime(place / "from" / "deep" / f"f{i}", (now - days * 86_400,) * 2)

    def files(**options) -> int:
        return stead.preview_stage(f"{place}/from/", place / "to", **options)["files"]

    assert [files(min_size=5), files(max_size="4KiB"), files(min_size="4KiB", max_size="1MB")] == [3, 3, 1]
    assert [files(min_age="2d"), files(max_age=2 * 86_400), files(min_age="4d"), files(min_age="2d", min_size="1MiB")] == [2, 2, 0, 1]
    stead.stage(f"{place}/from/", place / "to", action="move", min_age="2d", min_size="1MiB").wait()
    assert [p.name for p in (place / "to" / "deep").iterdir()] == ["f3"]
    assert sorted(p.name for p in (place / "from" / "deep").iterdir()) == ["f0", "f1", "f2"]
    with pytest.raises(stead.UsageError, match="is no time"):
        files(min_age="soon")
    with pytest.raises(stead.UsageError, match="--min-size"):
        files(min_size=2, max_size=1)


def test_files_are_compared_by_what_is_in_them(place):
    stead.stage(place / "from", place / "to").wait()
    there = place / "to" / "deep" / "f3"
    seen = there.stat()
    there.write_bytes(b"x" * 3_000_000)
    os.utime(there, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    # One that has lost its time, and nothing else.
    os.utime(place / "to" / "deep" / "f2", (1, 1))
    sync = {"action": "sync", "checksum": True}
    told = stead.preview_stage(f"{place}/from/", place / "to", **sync)
    assert (told["files"], told["bytes"], told["skipped"]) == (1, 3_000_000, 3)
    by_time = stead.preview_stage(f"{place}/from/", place / "to", action="sync")
    assert (by_time["files"], by_time["bytes"]) == (1, 4096)
    t = stead.stage(f"{place}/from/", place / "to", **sync, limit="4MB")
    seen = []
    while not t.done:
        told = t._transfer.progress()
        if told is not None and told[5] is None:
            seen.append(told)
        assert repr(t).startswith(f"Transfer({t.id}")
        time.sleep(0.001)
    done = t.wait()
    assert (done.bytes_done, done.skipped) == (3_000_000, 3) and same(place / "from", place / "to")
    assert (place / "to" / "deep" / "f2").stat().st_mtime == 1
    assert all(compared <= of == 3_004_101 and files == 3 for _, files, compared, of, *_ in seen), seen
    with pytest.raises(stead.UsageError, match="only a sync compares"):
        stead.stage(place / "from", place / "other", checksum=True)


def test_no_more_is_removed_than_may_be(place):
    stead.stage(place / "from", place / "to").wait()
    for name in "a", "b":
        (place / "to" / name).write_bytes(b"own")
    sync = {"action": "sync", "delete": True}
    with pytest.raises(stead.LimitError, match=r"2 name\(s\) of the target would be removed, and no more than 1"):
        stead.stage(place / "from", place / "to", **sync, max_delete=1).wait()
    assert (place / "to" / "a").exists() and (place / "to" / "b").exists()
    assert stead.preview_stage(place / "from", place / "to", **sync, max_delete=2)["removed"] == 2
    stead.stage(place / "from", place / "to", **sync, max_delete=2).wait()
    assert same(place / "from", place / "to")
    with pytest.raises(stead.UsageError, match="how many names are removed"):
        stead.stage(place / "from", place / "to", action="sync", max_delete=2)


def test_what_differs(place):
    stead.stage(place / "from", place / "to").wait()
    assert stead.check_stage(place / "from", place / "to") == {"same": 4, "differ": 0, "missing": 0, "only": 0, "names": []}
    there = place / "to" / "deep"
    seen = (there / "f1").stat()
    (there / "f1").write_bytes(b"other")
    os.utime(there / "f1", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    (there / "f2").unlink()
    (there / "own").write_bytes(b"own")
    found = stead.check_stage(f"{place}/from/", place / "to", threads=2)
    assert [found[key] for key in ("same", "differ", "missing", "only")] == [2, 1, 1, 1]
    names = {(name["is"], os.path.basename(name["path"])) for name in found["names"]}
    assert names == {("differ", "f1"), ("missing", "f2"), ("only", "own")}
    assert stead.check_stage(place / "from", place / "to", exclude=["own", "f[12]"])["names"] == []
    assert stead.check_stage(place / "from", place / "to", files=["deep/f2"])["missing"] == 1
    # Nothing was done, nor written down.
    assert not (there / "f2").exists() and (there / "own").exists() and len(stead.transfers(all=True)) == 1
    with pytest.raises(stead.NotFoundError):
        stead.check_stage(place / "none", place / "to")


def test_a_check_ends_at_a_signal(place):
    code = f"""
        import stead
        stead.check_stage({str(place / "from")!r}, {str(place / "from2")!r}, limit=100)
    """
    (place / "from2" / "deep").mkdir(parents=True)
    for i, size in enumerate([0, 5, 4096, 3_000_000]):
        (place / "from2" / "deep" / f"f{i}").write_bytes(bytes([i]) * size)
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(2)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert "KeyboardInterrupt" in err and child.returncode != 0, err


def test_names_are_listed(place):
    files = ["deep/f1", (place / "from/deep/f3").relative_to(place / "from")]
    assert stead.preview_stage(f"{place}/from/", place / "to", files=files)["files"] == 2
    stead.stage(f"{place}/from/", place / "to", files=files).wait()
    assert sorted(p.name for p in (place / "to").rglob("*")) == ["deep", "f1", "f3"]
    stead.stage(f"{place}/from/", place / "one", files="deep/f2").wait()
    assert [p.name for p in (place / "one/deep").iterdir()] == ["f2"]
    with pytest.raises(stead.UsageError, match="no name is listed"):
        stead.stage(f"{place}/from/", place / "none", files=[])
    with pytest.raises(stead.NotFoundError, match="which is listed"):
        stead.stage(f"{place}/from/", place / "none", files=["deep/none"]).wait()


def test_what_is_said_of_a_copy_the_journal_has(place, cli):
    """Nothing else tells a copy that was read back from one that was not, nor what was said to wait for no device."""
    os.mkfifo(place / "from" / "pipe")
    with pytest.raises(stead.UsageError, match="pipe") as raised:
        stead.stage(place / "from", place / "to").wait()
    assert "skip_special" in raised.value.hint and not (place / "to").exists()
    done = stead.stage(place / "from", place / "to", verify=True, skip_special=True, durable=False, retries=7).wait()
    assert done.skipped == 1 and not (place / "to" / "pipe").exists() and (place / "to" / "deep" / "f3").exists()
    (told, *_) = json.loads(cli("stage", "--list", "--all", "--here", "--format", "json").stdout)
    assert told["id"] == done.id
    said = {key: told["request"]["options"][key] for key in ("verify", "skip_special", "durable", "retries")}
    assert said == {"verify": True, "skip_special": True, "durable": False, "retries": 7}


def test_hints_name_arguments_and_whole_commands(place):
    with pytest.raises(stead.UsageError) as raised:
        stead.stage(place / "from", place / "to", max_delete=1)
    assert raised.value.hint == "say delete, too"
    with pytest.raises(stead.Error) as raised:
        stead.stage("n9:/nowhere", place / "to", state=place / "own").wait()
    assert "mpirun stead daemon --pool" in raised.value.hint
