"""Streams between processes, some of which fail, are killed, forked or interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import stead
from node import node
from support import ROOT, command
from test_streams import PATIENCE, ended, grid, left, programs, space, tell, write

__all__ = ["programs", "space"]


@pytest.mark.parametrize("where", ["within a step", "between steps", "closed within a step"])
def test_a_block_that_fails_is_told_to_readers(space, where):
    with pytest.raises((ZeroDivisionError, stead.UsageError), match="division|within step 1"):
        with stead.writer("sim", keep=9, dataspaces=space) as w:
            with w.step():
                w.put("T", grid(0))
            if where == "within a step":
                with w.step():
                    w.put("T", grid(1))
                    1 / 0
            w.begin_step() if where == "closed within a step" else 1 / 0
    assert stead.stream_info("sim", dataspaces=space)["state"] == {"failed": {"writer": 0}}
    with stead.reader("sim", dataspaces=space) as r:
        assert (r.next()["T"] == grid(0)).all()
        with pytest.raises(stead.PeerError, match="writer 0 of stream 'sim' has closed it before the others, or within a step, after step 0"):
            r.next()
        assert r.is_over


def test_a_writer_that_is_killed_is_told_to_readers_and_the_other_writers(space, programs):
    code = """
        w = stead.writer("sim", rank=1, writers=2, keep=9, dataspaces=S)
        for n in range(2):
            with w.step():
                w.put("T", np.full(5, n), shape=(10,), start=(5,))
        w.begin_step()
        w.put("T", np.full(5, 2), shape=(10,), start=(5,))
        say("open")
        hear()
    """
    other = programs.begin(code)
    with pytest.raises(stead.PeerError, match="has ended without closing it"):
        with stead.writer("sim", writers=2, keep=9, dataspaces=space) as w:
            for n in range(100):
                if n == 2:
                    assert other.stdout.readline() == "open\n"
                    other.kill()
                    other.wait()
                with w.step():
                    w.put("T", np.full(5, n), shape=(10,), start=(0,))
    with stead.reader("sim", dataspaces=space) as r:
        assert [(r.next()["T"] == n).all() for n in range(2)] == [True, True]
        with pytest.raises(stead.PeerError, match=f"writer 1 .* .process {other.pid}., after step 1"):
            r.next()


@pytest.mark.parametrize("wait", ["for a stream", "for a step", "for readers", "for memory", "for the other writer", "for another rank that is to be told"])
def test_ctrl_c_ends_every_wait(space, programs, wait):
    code = {
        "for a stream": "say('go'); stead.reader('sim', dataspaces=S)",
        "for a step": "r = stead.reader('sim', dataspaces=S); say('go'); next(r)",
        "for readers": "w = stead.writer('own', readers=1, dataspaces=S); say('go'); w.begin_step()",
        "for memory": """
            w = stead.writer('own', memory='64KiB', dataspaces=S)
            r = stead.reader('own', dataspaces=S)
            for _ in range(2):
                with w.step():
                    w.put('T', np.zeros(2048))
            held = r.next(), r.next()
            w.begin_step()
            for n in range(2):
                w.put('T', np.zeros(2048), shape=(4096,), start=(2048 * n,))
            say('go'); w.put('U', np.zeros(2048))
        """,
        "for the other writer": """
            w = stead.writer('own', writers=2, dataspaces=S)
            say('go')
            while True:
                with w.step():
                    w.put('T', np.zeros(9))
        """,
        "for another rank that is to be told": """
            def fails(x):
                say('go')
                raise ValueError('not this')
            w = stead.writer('own', dataspaces=S)
            with w.step():
                w.put('T', np.zeros(9))
            flow = stead.flow()
            flow.write('out', T=flow.read('own')['T'].map(fails, elementwise=True))
            flow.run(rank=1, ranks=2, dataspaces=S)
        """,
    }[wait]
    other = stead.writer("sim", dataspaces=space) if wait == "for a step" else None
    waits = programs.begin(code)
    assert waits.stdout.readline() == "go\n"
    time.sleep(0.3)
    assert waits.poll() is None
    waits.send_signal(signal.SIGINT)
    _, err = waits.communicate(timeout=PATIENCE)
    assert waits.returncode == -signal.SIGINT and err.rstrip().endswith("KeyboardInterrupt"), err
    if other is not None:
        other.close()
    for name in stead.streams(dataspaces=space):
        stead.remove_stream(name, force=True, dataspaces=space)


def test_a_handler_of_a_signal_that_uses_the_waiting_writer_is_told_so(space, programs):
    code = """
        import signal
        w = stead.writer('own', readers=1, dataspaces=S)
        def end(*_):
            w.abandon()
        signal.signal(signal.SIGTERM, end)
        try:
            say('go')
            w.begin_step()
        except stead.UsageError as e:
            say(e)
        w.abandon()
    """
    waits = programs.begin(code)
    assert waits.stdout.readline() == "go\n"
    time.sleep(0.3)
    waits.send_signal(signal.SIGTERM)
    said = ended(waits)
    assert "this thread waits in a call of the writer of 'own'" in said and "raise an exception" in said
    # What was given up stays to be looked at.
    stead.remove_stream("own", force=True, dataspaces=space)


def test_a_wait_that_was_interrupted_can_be_made_again(space, programs):
    code = """
        r = stead.reader("sim", dataspaces=S)
        try:
            say("go")
            r.next()
        except KeyboardInterrupt:
            say("again")
        say(r.next()["T"][3])
    """
    with stead.writer("sim", dataspaces=space) as w:
        waits = programs.begin(code)
        assert waits.stdout.readline() == "go\n"
        time.sleep(0.2)
        waits.send_signal(signal.SIGINT)
        assert waits.stdout.readline() == "again\n"
        with w.step():
            w.put("T", np.arange(9))
    assert ended(waits) == "3\n"


def test_a_reader_that_is_killed_is_not_waited_for(space, programs):
    reads = programs.begin("""
        r = stead.reader("sim", dataspaces=S)
        step = r.next()
        say(step.number)
        hear()
    """)
    with stead.writer("sim", readers=1, dataspaces=space) as w:
        with w.step():
            w.put("T", grid(0))
        assert reads.stdout.readline() == "0\n"
        with w.step():
            w.put("T", grid(1))
        reads.kill()
        reads.wait()
        for n in range(5):
            with w.step():
                w.put("T", grid(1))


def test_a_stream_whose_reader_was_killed_goes_with_its_writers(space, programs):
    reads = programs.begin("r = stead.reader('sim', dataspaces=S); next(r); say('here'); hear()")
    with stead.writer("sim", keep=4, dataspaces=space) as w:
        for n in range(2):
            with w.step():
                w.put("T", grid(n))
        assert reads.stdout.readline() == "here\n"
        # Nobody asks what has become of it.
        reads.kill()
        reads.wait()
    assert left(Path(space["memory"])) == []


def test_processes_that_are_forked_are_not_those_of_a_stream(space):
    w = stead.writer("sim", dataspaces=space)
    w.begin_step()
    w.put("T", grid(0))
    w.end_step()
    r = stead.reader("sim", dataspaces=space)
    step = r.next()
    t = step["T"]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for call in (w.begin_step, r.next, lambda: step["T"], lambda: r.at(0), lambda: w.put("T", 1.0)):
                try:
                    call()
                except stead.UsageError as e:
                    refused += "in another process, before a fork" in str(e)
            # What was had before is there.
            same = bool((t == grid(0)).all())
            del step, t
            r.close()
            code = 0 if (refused, same) == (5, True) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    # The parent's goes on.
    assert (t == grid(0)).all()
    with w.step():
        w.put("T", grid(1))
    assert (r.next()["T"] == grid(1)).all()
    w.close()
    del step, t
    r.close()


# --- Several processes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["copied", "made in shared memory"])
def test_any_number_of_writers_and_readers_cut_as_they_like(space, programs, made):
    """Three write rows, two read columns; all elements are checked."""
    grid_of = """
        def grid(step, start, count):
            y, x = np.ogrid[start[0]:start[0] + count[0], start[1]:start[1] + count[1]]
            return (step * 1_000_000 + y * 1000 + x).astype("f8")
    """
    writes = """
        rank = {rank}
        with stead.writer("sim", rank=rank, writers=3, readers=1, dataspaces=S) as w:
            for n in range(20):
                with w.step():
                    mine = grid(n, (3 * rank, 0), (3, 8))
                    if {shared}:
                        a = w.empty("T", (9, 8), start=(3 * rank, 0), count=(3, 8))
                        a[:] = mine
                        w.put("T", a)
                    else:
                        w.put("T", mine, shape=(9, 8), start=(3 * rank, 0))
    """
    reads = """
        rank = {rank}
        kept = []
        for step in stead.reader("sim", rank=rank, ranks=2, dataspaces=S):
            t = step.get("T", np.s_[:, 4 * rank:4 * rank + 4])
            assert (t == grid(step.number, (0, 4 * rank), (9, 4))).all()
            row = step.get("T", np.s_[4:5])
            assert (row == grid(step.number, (4, 0), (1, 8))).all() and not row.flags.owndata
            assert sorted(step.parts("T")) == [(w, np.s_[3 * w:3 * w + 3, 0:8]) for w in range(3)]
            kept = (kept + [(step.number, row)])[-2:]
        assert all((row == grid(n, (4, 0), (1, 8))).all() for n, row in kept)
        say(step.number)
    """
    grid_of, writes, reads = map(textwrap.dedent, (grid_of, writes, reads))
    readers = [programs.begin(grid_of + reads.format(rank=rank)) for rank in range(2)]
    writers = [programs.begin(grid_of + writes.format(rank=rank, shared=made != "copied")) for rank in range(3)]
    assert [ended(one) for one in writers] == [""] * 3
    assert [ended(one) for one in readers] == ["19\n"] * 2


def test_a_stream_is_there_longer_than_its_writer(space, programs):
    code = """
        with stead.writer("sim", dataspaces=S) as w, w.step():
            w.put("T", np.arange(1000.0))
    """
    ended(programs.begin(code))
    with stead.reader("sim", dataspaces=space) as r:
        t = r.next()["T"]
        assert r.next() is None
    assert (t == np.arange(1000.0)).all()
    del t


def test_programs_of_multiprocessing_have_streams(space):
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        total = pool.apply_async(_sum, (space,))
        write("sim", space, [grid(n) for n in range(4)], readers=1)
        assert total.get(PATIENCE) == sum(grid(n).sum() for n in range(4))


def _sum(space) -> float:
    return sum(float(step["T"].sum()) for step in stead.reader("sim", dataspaces=space))


# --- asyncio -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["simulation", "analysis"])
def test_the_programs_of_the_page_begin_in_any_order(tmp_path, first):
    config = tmp_path / "stead.toml"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        config.write_text(f'[dataspace.memory]\npath = "{memory}"\n')
        env = os.environ | {"STEAD_CONFIG": str(config)}
        both = {}
        for name in sorted(["simulation", "analysis"], key=lambda name: name != first):
            words = [sys.executable, str(ROOT / "examples" / "streams" / f"{name}.py")]
            both[name] = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
        said = {name: one.communicate(timeout=PATIENCE)[0] for name, one in both.items()}
        assert all(one.returncode == 0 for one in both.values())
        assert said["analysis"].split("\n")[:5] == [f"{n} {n / 2}" for n in range(5)]


def test_the_command_shows_watches_and_removes(tmp_path):
    config = tmp_path / "stead.toml"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        config.write_text(f'[dataspace.memory]\npath = "{memory}"\n')
        env = os.environ | {"STEAD_CONFIG": str(config), "STEAD_SOCKET": "none"}

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([command(), "stream", *words], env=env, capture_output=True, text=True, timeout=PATIENCE)

        assert run("ls").stdout == "there are no streams\n"
        assert "there is no stream 'sim'" in run("show", "sim").stderr
        late = run("watch", "sim", "--timeout", "1s")
        assert late.returncode == 1 and "nobody writes a stream 'sim'" in late.stderr
        with stead.writer("sim", keep=2, dataspaces={"memory": memory}) as w:
            for n in range(3):
                with w.step():
                    w.put("T", np.full((3, 4), n), dims=("y", "x"))
            seen = run("watch", "sim", "--steps", "2", "--format", "json")
            rows = [json.loads(line) for line in seen.stdout.splitlines()]
            assert [(row["step"], row["bytes"]) for row in rows] == [(1, 96), (2, 96)], seen.stderr
            assert "T i64[3, 4]" in run("watch", "sim", "--steps", "1", "--queue", "1").stdout
            told = json.loads(run("show", "sim", "--format", "json").stdout)
            assert (told["state"], told["complete"], told["steps"], told["writers"][0]["step"]) == ("live", 3, [1, 2], 3)
            assert "has closed it" in run("show", "sim").stdout
            assert (told["others"], told["missed"], told["all_writers"]) == ([], [], 1)
            # All of it is told of this node, and a node is none where there is no pool.
            assert json.loads(run("ls", "--here", "--format", "json").stdout) == json.loads(run("ls", "--format", "json").stdout)
            assert run("ls").stdout.split()[:2] == ["stream", "state"]
            for words in (("ls",), ("show", "sim"), ("explain", "sim")):
                lost = run(*words, "--node", "n7")
                assert lost.returncode != 0 and "node 'n7' is not reached: no daemon runs here" in lost.stderr, lost
            assert run("ls", "--node", "n7", "--here").returncode == 2 and run("ls", "/tmp", "--here").returncode == 2
            assert told["peak"] == rows[0]["report"]["peak"] >= 3 * 96
            none = run("explain", "sim")
            assert "nobody reads it" in none.stdout, none
            page = run("explain", "sim", "--readers", "2").stdout
            for line in "from writer", "assumed", "look", "96 B looked at in a step", "times the bytes of a step":
                assert line in page, page
            assert json.loads(run("explain", "sim", "--readers", "2", "--format", "json").stdout)["looked"] == 96
            assert "there is no stream 'none'" in run("explain", "none").stderr
            refused = run("rm", "sim")
            assert refused.returncode == 2 and "is being written" in refused.stderr
            lost = run("rm", "sim", "--force", "--node", "n7")
            assert lost.returncode != 0 and "node 'n7' is not reached: no daemon runs here" in lost.stderr, lost
            assert run("rm", "sim", "--node", "n7", "--all-nodes").returncode == 2
            gone = run("rm", "sim", "--force")
            assert (gone.returncode, gone.stdout) == (0, ""), gone
            missing = run("rm", "sim", "--all-nodes")
            assert missing.returncode != 0 and "there is no stream 'sim'" in missing.stderr, missing
            with pytest.raises(stead.PeerError, match="was removed"):
                w.begin_step()
        assert run("ls").stdout == "there are no streams\n"


def test_who_has_seen_enough_of_a_stream_ends_the_watch(tmp_path):
    """As `stead stream watch sim | head -1`, with steps that still come."""
    config = tmp_path / "stead.toml"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        config.write_text(f'[dataspace.memory]\npath = "{memory}"\n')
        env = os.environ | {"STEAD_CONFIG": str(config)}
        words = [command(), "stream", "watch", "sim", "--format", "json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with stead.writer("sim", dataspaces={"memory": memory}) as w, subprocess.Popen(words, env=env, text=True, **pipes) as watch:
            until = time.monotonic() + PATIENCE
            try:
                for n in range(1 << 30):
                    with w.step():
                        w.put("T", np.full(5, n))
                    if n == 0:
                        # It is told at once, and nobody reads on.
                        while not stead.stream_info("sim", dataspaces={"memory": memory})["readers"]:
                            assert watch.poll() is None and time.monotonic() < until
                            time.sleep(0.01)
                    elif n == 1:
                        assert json.loads(watch.stdout.readline())["step"] in (0, 1)
                        watch.stdout.close()
                    elif watch.poll() is not None:
                        break
                    assert time.monotonic() < until, "it watches on"
                    time.sleep(0.01)
                assert watch.returncode == 0 and watch.stderr.read() == ""
            finally:
                watch.kill()


def test_streams_that_cannot_be_looked_at_are_listed_with_the_others(tmp_path):
    config = tmp_path / "stead.toml"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        config.write_text(f'[dataspace.memory]\npath = "{memory}"\n')
        env = os.environ | {"STEAD_CONFIG": str(config)}

        def run(*words: str) -> str:
            done = subprocess.run([command(), "stream", "ls", *words], env=env, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stderr
            return done.stdout

        with stead.writer("sim", dataspaces={"memory": memory}) as w:
            with w.step():
                w.put("T", np.zeros(5))
            (home,) = Path(memory).glob(".streams-*")
            # One of another version, and one that was just removed.
            (home / "odd").mkdir(0o700)
            (home / "odd" / "board").write_bytes(bytes(4096))
            (home / "gone").mkdir(0o700)
            odd, sim = json.loads(run("--format", "json"))
            assert sorted(odd) == ["error", "name"] and odd["name"] == "odd" and "another version of stead" in odd["error"]
            assert (sim["name"], sim["state"]) == ("sim", "live") and "error" not in sim
            page = run()
            (line,) = [line for line in page.splitlines() if "odd" in line and "hint" not in line]
            assert line.startswith("stream 'odd' cannot be shown: ") and "another version of stead" in line
            assert [line.split()[:2] for line in page.splitlines() if " sim " in line] == [["sim", "live"]]
            assert "gone" not in page
            assert stead.streams(dataspaces={"memory": memory}) == ["odd", "sim"]
            shutil.rmtree(home / "odd")
        stead.remove_stream("sim", force=True, dataspaces={"memory": memory})
        assert run() == "there are no streams\n"


def test_streams_go_on_when_the_daemon_is_killed_and_begins_anew(space, programs):
    """They do not need it, and it takes nothing of them along: its folder in memory is that of the streams."""
    code = """
        w = stead.writer("sim", keep=5, dataspaces=S)
        for n in range(9):
            with w.step():
                w.put("T", np.full((40, 30), n))
            say(n)
            hear()
        w.close()
    """
    with node() as one:
        one.end()
        config = one.at / ".config" / "stead" / "stead.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'[dataspace.memory]\npath = "{space["memory"]}"\n')
        one.begin()
        writer = programs.begin(code)

        def steps(*numbers: int) -> None:
            for n in numbers:
                assert writer.stdout.readline() == f"{n}\n"
                if n < numbers[-1]:
                    tell(writer)

        steps(0, 1, 2)
        early = stead.reader("sim", group="early", dataspaces=space)
        assert [early.next()["T"][39, 29] for _ in range(3)] == [0, 1, 2]
        for kept in ([0, 1, 2, 3, 4], [2, 3, 4, 5, 6]):
            # It begins anew, is killed and begins anew again, while steps that are kept lie there and others come.
            one.end()
            tell(writer)
            steps(kept[-1] - 1)
            one.begin()
            one.process.kill()
            one.process.wait(PATIENCE)
            tell(writer)
            steps(kept[-1])
            assert [early.next()["T"][0, 0] for _ in range(2)] == kept[-2:]
            with stead.reader("sim", group=f"late{kept[0]}", dataspaces=space) as late:
                had = [late.next() for _ in kept]
                assert [(step.number, step["T"].tolist()) for step in had] == [(n, [[n] * 30] * 40) for n in kept]
            del had
            one.begin()
        tell(writer)
        steps(7)
        tell(writer)
        steps(8)
        tell(writer)
        assert [step["T"].sum() / 1200 for step in early] == [7, 8]
        ended(writer)
        early.close()


def test_streams_of_several_programs_keep_to_one_budget(tmp_path):
    """What `stead.toml` says of the dataspace `memory` bounds all streams together, and whoever waits in vain is told who has it."""
    config = tmp_path / "stead.toml"
    hold = """
        import numpy as np, sys, stead
        with stead.writer("held", keep=3) as w:
            for n in range(3):
                with w.step():
                    w.put("T", np.zeros(1 << 20, "u1"))
            print("held", flush=True)
            sys.stdin.readline()
    """
    wants = """
        import numpy as np, stead
        with stead.writer("wants", timeout=1) as w:
            print(stead.stream_info("held")["budget"], flush=True)
            with w.step():
                w.put("T", np.zeros(2 << 20, "u1"))
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        config.write_text(f'[dataspace.memory]\npath = "{memory}"\nmemory = true\nsize = "4MiB"\n')
        env = os.environ | {"STEAD_CONFIG": str(config)}

        def begin(code: str) -> subprocess.Popen[str]:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=env, text=True, **pipes)

        first = begin(hold)
        assert first.stdout.readline() == "held\n"
        out, err = begin(wants).communicate(timeout=PATIENCE)
        assert out == f"{ {'most': 4 << 20, 'used': 3 << 20} }\n"
        assert "the streams of this user have 3.0 MiB of the 4.0 MiB of dataspace 'memory' on this node: 'held' 3.0 MiB" in err
        assert "TimedOutError" in err and "stead stream rm" in err
        listed = subprocess.run([command(), "stream", "ls"], env=env, capture_output=True, text=True, timeout=PATIENCE).stdout
        assert "all streams of this user: 3.0 MiB of 4.0 MiB of memory" in listed
        shown = subprocess.run([command(), "stream", "show", "held"], env=env, capture_output=True, text=True, timeout=PATIENCE).stdout
        assert "all streams of this user" in shown
        first.communicate("\n", timeout=PATIENCE)
        subprocess.run([command(), "stream", "rm", "held"], env=env, check=True, timeout=PATIENCE)
        out, err = begin(wants.replace('"held"', '"wants"')).communicate(timeout=PATIENCE)
        assert out == f"{ {'most': 4 << 20, 'used': 0} }\n" and err == ""
