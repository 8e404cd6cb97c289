"""Any number of writers and readers, however they divide arrays and whoever is killed or stopped: the tester of the examples, by seeds."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from support import ROOT, command
from test_streams import PATIENCE, space

__all__ = ["space"]

TESTER = ROOT / "examples" / "streams" / "tester"
# Each layout of writers with each one of readers.
PAIRS = 48
LONG = int(os.environ.get("STEAD_CRASHES", "0"))


def run(*words: str, timeout: float = 300) -> tuple[int, str]:
    env = os.environ | {"STEAD": command()}
    done = subprocess.run([sys.executable, TESTER, *words], capture_output=True, text=True, timeout=timeout, env=env)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("seed", range(0, max(PAIRS, LONG), 12))
def test_all_elements_are_right_and_all_are_told_whoever_is_killed_or_stopped(seed):
    code, said = run("--cases", "12", "--seed", str(seed))
    assert code == 0 and said.endswith("12 cases, 0 wrong\n"), said


@pytest.mark.parametrize("made", [[], ["--empty"]], ids=["copied", "made in shared memory"])
def test_large_arrays_of_several_blocks(made):
    words = ["--writers", "3", "--layout", "several", "--readers", "2:columns", "--readers", "1:all", "--shape", "700x500"]
    code, said = run(*words, *made, "--dtypes", "f8,i2", "--steps", "4", "--memory", "30MiB", "--keep", "0")
    assert code == 0 and f"12 steps were read, {2 * 4 * 700 * 500 * 10} bytes, 0 dropped" in said, said


@pytest.mark.parametrize("words", [["--readers", "2:columns:spill"], ["--persist", "--readers", "2:columns:spill:first", "--readers", "1:all"]], ids=["spill", "persist"])
def test_readers_that_are_behind_have_all_steps(words):
    code, said = run("--writers", "2", *words, "--shape", "120x90", "--dtypes", "f8,i2", "--steps", "60", "--memory", "2MiB", "--keep", "0", "--slow", "4")
    assert code == 0 and ", 0 dropped" in said, said


def test_ranks_that_may_miss_steps_miss_the_same():
    words = ["--writers", "2", "--readers", "3:columns:drop", "--readers", "2:all:drop", "--shape", "60x50"]
    code, said = run(*words, "--steps", "300", "--queue", "1", "--slow", "4")
    assert code == 0 and ", 0 wrong" in said, said
    # One of them is killed, and the others go on.
    code, said = run(*words, "--steps", "300", "--slow", "4", "--pace", "1", "--kill", "group0:1:5")
    assert code == 0 and "kill group0 1 at step 5" in said, said


def test_a_writer_that_is_killed_is_named():
    # Of so many steps that it does not end before it is seen to have come to the fifth.
    code, said = run("--writers", "3", "--readers", "2", "--steps", "2000", "--kill", "writer:1:5", "--pace", "5")
    assert code == 0 and "kill writer 1 at step 5" in said, said


def test_nobody_notices_that_the_daemon_is_killed():
    code, said = run("--writers", "2", "--readers", "2", "--readers", "1:all:drop", "--keep", "4", "--steps", "300", "--kill", "daemon:5", "--pace", "20")
    assert code == 0 and "kill daemon at step 5" in said, said


@pytest.mark.parametrize(
    "words",
    [["--kill", "daemon:0:5"], ["--readers", "0"], ["--readers", "1:rings"], ["--dtypes", "c16"], ["--layout", "all"], ["--shape", "4,5"]],
)
def test_what_makes_no_sense_is_told(words):
    code, said = run(*words)
    assert code == 2 and "usage: tester" in said, said


# --- Does it find what is wrong? -----------------------------------------------------------------------------------------------------


def judged(code: str) -> str:
    """What a program with the parts of the tester prints."""
    head = f"import sys; sys.path.insert(0, {str(TESTER)!r})\n"
    done = subprocess.run([sys.executable, "-c", head + textwrap.dedent(code)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_wrong_element_is_found():
    said = judged("""
        from layouts import DTYPES, values, wrong
        for dtype in DTYPES:
            box = ((3, 1), (5, 6))
            a = values("T", 7, (9, 8), box, dtype)
            assert a.dtype == dtype and wrong("T", 7, (9, 8), box, a) is None
            # Those of another step, place or variable are others.
            for other in ("T", 8, box), ("T", 7, ((4, 1), (5, 6))), ("U", 7, box):
                assert wrong("T", 7, (9, 8), box, values(*other[:2], (9, 8), other[2], dtype))
            a[2, 3] += 1
            told = wrong("T", 7, (9, 8), box, a)
            assert "at (5, 4), as are 1 elements" in told, told
        print("all")
    """)
    assert said == "all\n"


def test_layouts_have_each_element_once():
    said = judged("""
        import numpy as np
        from layouts import LAYOUTS, parts
        for layout in LAYOUTS:
            for shape in (), (1,), (7,), (5, 9), (1, 30), (4, 1, 6), (3, 3, 2, 5):
                for ranks in 1, 2, 3, 4, 6:
                    had = np.zeros(shape, int)
                    boxes = parts(layout, shape, ranks, 5)
                    assert len(boxes) == ranks
                    for start, count in sum(boxes, []):
                        had[tuple(slice(s, s + n) for s, n in zip(start, count))] += 1
                    assert (had == 1).all(), (layout, shape, ranks)
        print("all")
    """)
    assert said == "all\n"


def test_what_is_not_told_is_found():
    said = judged("""
        from cases import Case, Fault, Group
        from job import Job, Rank

        def gone(pid):
            return {"at": "error", "kind": "PeerError", "text": f"writer 1 of stream 's' has ended (process {pid}), after step 1"}

        def writes():
            return [{"at": at, "step": n} for n in range(3) for at in ("step", "ended")] + [{"at": "end"}]

        def reads():
            return [{"at": "here"}] + [{"at": "step", "step": n, "dropped": 0} for n in range(3)] + [{"at": "end"}]

        def job(is_killed=False):
            job = Job("s", Case(writers=2, steps=3, groups=[Group(2)], fault=Fault("kill", "writer", 1)), None)
            other, writer = Rank("writer", 0, 10, writes()), Rank("writer", 1, 11, writes())
            reader, more = Rank("group0", 0, 12, reads()), Rank("group0", 1, 13, reads())
            job.ranks = [other, writer, reader, more]
            if is_killed:
                # It has ended two of three steps.
                job.was_hit = True
                writer.told = writer.told[:4]
                for one in other, reader, more:
                    one.told = [line for line in one.told if line.get("step", 0) < 2 and line["at"] != "end"] + [gone(11)]
            return job, reader.told

        def told(expected, job):
            assert any(expected in line for line in job.judge()), (expected, job.judge())

        for is_killed in False, True:
            assert job(is_killed)[0].judge() == []
        right, reader = job()
        del reader[2]
        told("is given step 2 after 0, and told of 0 dropped ones", right)
        reader[2]["dropped"] = 1
        told("which is waited for, has missed 1 steps before 2", right)
        right, reader = job()
        right.case.groups[0].behind = "drop"
        assert right.judge() == []
        # The others have missed none.
        del reader[2]
        reader[2]["dropped"] = 1
        told("group0 1 (drop) is given steps [1, 2] after 1 of them, and group0 0 steps [2]", right)
        right, reader = job()
        del reader[3]
        told("has had steps up to 1, and 3 are complete", right)
        right, reader = job()
        reader.pop()
        told("group0 0 has ended without a word", right)
        reader.append({"at": "error", "kind": "KeyError", "text": "x"})
        told("group0 0: KeyError: x", right)
        right, reader = job(True)
        reader[-1] = gone(77)
        told("group0 0: PeerError", right)
        reader[-1] = {"at": "end"}
        told("group0 0 is not told that a writer has died, and others are", right)
        right, reader = job(True)
        del reader[2]
        told("group0 0 has had steps up to 0, and 2 are complete", right)
        print("all")
    """)
    assert said == "all\n"


# --- What stays of those who come and go ---------------------------------------------------------------------------------------------


def test_those_who_come_and_go_leave_nothing(space):
    """Readers of a stream that goes on, and writers and readers of others, in one process; and processes that end without a word."""
    cycles, killed = (10_000, 200) if LONG else (200, 10)
    code = f"""
        import os, sys, time
        import numpy as np, stead

        S = {space!r}

        def there():
            maps = sum(1 for _ in open("/proc/self/maps"))
            files = sorted(os.path.join(folder, f) for folder, _, names in os.walk(S["memory"]) for f in names)
            size = sum(os.stat(f).st_blocks for f in files)
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps, len(files), size

        def cycle(n):
            with stead.reader("long", group=f"g{{n % 3}}", start="next", behind="drop", dataspaces=S) as r:
                with w.step():
                    w.put("T", np.full(1000, n))
                assert (r.next()["T"] == n).all()
            with stead.writer("short", dataspaces=S) as other:
                r = stead.reader("short", dataspaces=S)
                with other.step():
                    other.put("T", np.full(500, n))
                assert r.next()["T"][499] == n
            assert r.next() is None
            r.close()

        w = stead.writer("long", keep=2, dataspaces=S)
        for n in range(50):
            cycle(n)
        before = there()
        for n in range({cycles}):
            cycle(n)
        def same(before, after):
            # The allocator may have a map or two more, a thread may not have ended yet, and pages go a little later.
            (fds, tasks, maps, files, blocks), now = before, after
            return now[0] == fds and now[1] <= tasks + 1 and now[2] <= maps + 8 and now[3] == files and now[4] <= blocks + 2048

        def settled(before):
            # What threads hold goes with them, a moment after they are done.
            until = time.monotonic() + 60
            while not same(before, after := there()) and time.monotonic() < until:
                time.sleep(0.01)
            assert same(before, after), (before, after)
            return after

        after = settled(before)

        for n in range({killed}):
            pid = os.fork()
            if pid == 0:
                r = stead.reader("long", group="g0", dataspaces=S)
                other = stead.writer("short", dataspaces=S)
                with other.step():
                    other.put("T", np.full(500, n))
                step = r.next()
                os._exit(0 if step["T"].size else 1)
            assert os.waitpid(pid, 0)[1] == 0
            # Its place, and its name, are free at once for who comes next.
            with w.step():
                w.put("T", np.full(1000, n))
        cycle(0)
        settled(after)
        print(stead.streams(dataspaces=S))
        w.close()
        stead.remove_stream("long", dataspaces=S)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300 + 10 * LONG)
    assert (done.returncode, done.stdout) == (0, "['long']\n"), done.stderr
