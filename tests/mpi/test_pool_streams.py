"""What is recorded of streams and computed on them by flows, on nodes whose daemons are a pool: programs that were begun by themselves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import stead
from jobs import BUILT, PATIENT, launch
from support import ROOT, spent
from test_pool import STEAD, WITHIN, ends, go_on, memories, pool, pooled, says  # noqa: F401

pytestmark = pytest.mark.skipif(not STEAD.exists(), reason="there is no command with MPI")
STEPS = 12
LONG = "STEAD_CRASHES" in os.environ
ALL = f"{list(range(STEPS))}\n"


@contextlib.contextmanager
def ended(*programs: subprocess.Popen):
    """None is left, whatever becomes of a test."""
    try:
        yield
    finally:
        for one in programs:
            one.kill()
            one.communicate()


@pytest.mark.parametrize("comes", ["within", "after"])
def test_a_recorded_stream_is_read_on_other_nodes_from_its_first_step(pool, memories, tmp_path, comes):  # noqa: F811
    """All but the last steps have gone from memory, and no reader knows where files are: the writers' node reads them."""
    writer = pooled(pool, 0, "persist", memories[0], STEPS, tmp_path)
    with ended(writer):
        says(writer, "half")
        if comes == "after":
            go_on(writer)
            says(writer, "done")
        # Ranks of one group, on two nodes.
        readers = [pooled(pool, rank + 1, "first", memories[rank + 1], STEPS, rank, 2) for rank in range(2)]
        with ended(*readers):
            for one in readers:
                says(one, "begun")
            if comes == "within":
                go_on(writer)
                says(writer, "done")
            go_on(writer)
            assert [ends(one) for one in readers] == [ALL, ALL]
            ends(writer)
    # The folder is whole, and read by its name.
    assert [step.number for step in stead.reader(tmp_path / "run", timeout=WITHIN)] == list(range(STEPS))


def test_what_a_reader_on_another_node_is_behind_by_is_spilled(pool, memories, tmp_path):  # noqa: F811
    writer, reader = pooled(pool, 0, "spill", memories[0], STEPS, tmp_path), pooled(pool, 2, "behind", memories[2], STEPS)
    with ended(writer, reader):
        says(reader, "begun")
        # Longer than a daemon waits for the rest of a frame.
        time.sleep(11)
        # It looks at the first step, and memory has room for four more.
        for word in ("half", "done"):
            says(writer, word)
            go_on(writer)
        assert any((tmp_path / "run").rglob("*")), "nothing was spilled"
        go_on(reader)
        assert ends(reader) == ALL
        ends(writer)
    assert not (tmp_path / "run").exists() or not [path for path in (tmp_path / "run").rglob("*") if path.is_file()]


FLOW = """
[read.pooled]
nodes = ["n0"]
[node.sum]
op = "reduce"
of = "pooled.T"
how = "sum"
[node.rows]
op = "reduce"
of = "pooled.T"
how = "max"
over = ["x"]
[node.twice]
op = "scale"
of = "pooled.T"
factor = 2.0
[write.out]
variables = { sum = "sum", rows = "rows", twice = "twice" }
readers = 1
"""

IN_PYTHON = """
import json, sys, stead
flow = stead.flow()
T = flow.read("pooled", nodes=["n0"])["T"]
flow.write("out", sum=T.sum(), rows=T.max(over="x"), twice=T.scale(2.0), readers=1)
print(json.dumps(flow.run(timeout=60, dataspaces={"memory": sys.argv[1]})))
"""


def compared(pool, memory: str) -> None:  # noqa: F811
    """Reads what a flow on another node has made, and computes it in another way."""
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np, stead
from pooled import values
n = 0
for step in stead.reader("out", nodes=["n1"], timeout=120, dataspaces={{"memory": {memory!r}}}):
    T = values(step.number)
    assert step["sum"] == T.sum(), step.number
    assert np.array_equal(step["rows"], T.max(axis=1)) and np.array_equal(step["twice"], 2 * T), step.number
    n += 1
print(n)
"""
    env = os.environ | {"STEAD_SOCKET": f"{pool.at}/n2/s"}
    done = subprocess.run([sys.executable, "-c", program], env=env, text=True, capture_output=True, timeout=WITHIN)
    assert done.returncode == 0 and done.stdout == f"{STEPS}\n", done


@pytest.mark.parametrize("by", ["command", "python", "ranks", "daemon"])
def test_a_flow_between_nodes(pool, memories, tmp_path, by):  # noqa: F811
    """A simulation on one node, the flow on another, by one process, by the ranks of a job or by the daemon there, and who reads what comes out on a third."""
    (tmp_path / "stead.toml").write_text(f'[dataspace.memory]\npath = "{memories[1]}"\n')
    (tmp_path / "flow.toml").write_text(FLOW)
    command = [str(STEAD), "flow", "run", str(tmp_path / "flow.toml"), "--format", "json", "--timeout", "60s"]
    # Begun by way of the daemon of another node.
    handed = "import stead, sys, json\nflow = stead.daemon(sys.argv[1], node='n1').run_flow(stead.flow(sys.argv[2]), timeout=60)\nprint(json.dumps(flow.wait(120)))"
    daemon = [sys.executable, "-c", handed, f"{pool.at}/n2/s", str(tmp_path / "flow.toml")]
    words = {"daemon": daemon, "command": command, "python": [sys.executable, "-c", IN_PYTHON, memories[1]], "ranks": [*launch("openmpi", 2), *command]}[by]
    env = os.environ | {"STEAD_SOCKET": f"{pool.at}/n1/s", "STEAD_CONFIG": str(tmp_path / "stead.toml")} | PATIENT
    flow = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    writer = pooled(pool, 0, "write", memories[0], STEPS)
    with ended(writer, flow):
        compared(pool, memories[2])
        ends(writer)
        report = json.loads(ends(flow))
    T = np.zeros((300, 500))
    assert (report["steps"], report["dropped"], report["unpaired"]) == (STEPS, 0, 0)
    assert report["streams"] == [{"stream": "out", "steps": STEPS, "bytes": STEPS * (T.nbytes + 300 * 8 + 8)}]


# --- What readers of other nodes cost that wait, or come and go --------------------------------------------------------------------------


def program(pool, rank: int, code: str, *words: str) -> subprocess.Popen:  # noqa: F811
    """One of a node."""
    env = os.environ | {"STEAD_SOCKET": f"{pool.at}/n{rank}/s"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *words], env=env, **pipes)


@contextlib.contextmanager
def written(memory: str):
    """A stream of this process, with one step that stays."""
    with stead.writer("pooled", keep=1, dataspaces={"memory": memory}) as w:
        with w.step():
            w.put("T", np.arange(9.0))
        yield


WAITS = """
import sys, stead
S = {"memory": sys.argv[1]}
if sys.argv[2] == "for a step":
    r = stead.reader("pooled", timeout=600, dataspaces=S)
    assert r.next().number == 0
    print("waits", flush=True)
    r.next()
else:
    print("waits", flush=True)
    stead.reader("none", timeout=600, dataspaces=S)
"""


def test_readers_of_other_nodes_that_wait_take_next_to_nothing_of_a_core(pool, memories):  # noqa: F811
    with written(memories[0]):
        readers = [program(pool, 2, WAITS, memories[2], what) for what in ("for a step", "for a stream")]
        with ended(*readers):
            for one in readers:
                says(one, "waits")
            # Until they look as seldom as they ever will.
            time.sleep(1.5)
            workers = [pid for rank in (0, 2) for pid in pool.processes(rank, worker=True)]
            assert len(workers) >= 2
            pids = [*(one.pid for one in readers), *workers]
            before, begun = [spent(pid)[0] for pid in pids], time.monotonic()
            time.sleep(2)
            seconds = time.monotonic() - begun
            took = [spent(pid)[0] - then for pid, then in zip(pids, before)]
            assert all(one.poll() is None for one in readers)
            assert all(one < 0.05 * seconds for one in took), took


COMES_AND_GOES = """
import gc, os, sys, time
import numpy as np, stead

def there():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

for n in range(10 + int(sys.argv[2])):
    if n == 10:
        gc.collect()
        before = there()
        print("warm", flush=True)
        assert sys.stdin.readline() == "go on\\n"
    with stead.reader("pooled", group=f"g{n % 3}", nodes=["n0"], timeout=120, dataspaces={"memory": sys.argv[1]}) as r:
        assert (r.next().get("T", np.s_[2:7]) == np.arange(2.0, 7)).all()
gc.collect()
until = time.monotonic() + 60
while any(now > then for now, then in zip(there(), before)):
    assert time.monotonic() < until, (there(), before)
    time.sleep(0.05)
print("done", flush=True)
"""


def census(pool) -> list[int]:  # noqa: F811
    """Descriptors and threads of the daemons of two nodes, and of their workers."""
    found = []
    for rank, worker, what in ((rank, worker, what) for rank in (0, 2) for worker in (False, True) for what in ("fd", "task")):
        found.append(sum(len(os.listdir(f"/proc/{pid}/{what}")) for pid in pool.processes(rank, worker)))
    return found


def test_readers_that_come_and_go_leave_nothing_with_daemons(pool, memories):  # noqa: F811
    cycles = 300 if LONG else 100
    with written(memories[0]):
        reader = program(pool, 2, COMES_AND_GOES, memories[2], str(cycles))
        with ended(reader):
            says(reader, "warm")
            # What a connection has goes with it, a moment later.
            until = time.monotonic() + WITHIN
            before, now = [], census(pool)
            while before != now:
                assert time.monotonic() < until, (before, now)
                time.sleep(0.5)
                before, now = now, census(pool)
            assert all(count > 0 for count in before), before
            go_on(reader)
            says(reader, "done")
            until, now = time.monotonic() + WITHIN, census(pool)
            while any(count > then for count, then in zip(now, before)):
                assert time.monotonic() < until, (before, now)
                time.sleep(0.1)
                now = census(pool)
            assert ends(reader) == ""


def on(pool, memories, tmp_path, rank: int) -> dict[str, str]:  # noqa: F811
    """The environment of programs of a node."""
    config = tmp_path / f"n{rank}.toml"
    config.write_text(f'[dataspace.memory]\npath = "{memories[rank]}"\n')
    return os.environ | PATIENT | {"STEAD_SOCKET": f"{pool.at}/n{rank}/s", "STEAD_CONFIG": str(config)}


@pytest.mark.parametrize("first", ["simulation", "analysis"])
def test_programs_of_one_job_are_jobs_on_two_nodes(pool, memories, tmp_path, first):  # noqa: F811
    """The two files that are ranks of one job elsewhere, begun by themselves, in any order."""
    env = {"MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": str(BUILT / "openmpi" / "libstead_mpi.so")}
    jobs, both = {"simulation": (0, 2), "analysis": (2, 3)}, {}
    for name in sorted(jobs, key=lambda name: name != first):
        node, ranks = jobs[name]
        words = [*launch("openmpi", ranks), sys.executable, str(ROOT / "examples" / "mpi" / f"coupled_{name}.py")]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        both[name] = subprocess.Popen(words, env=on(pool, memories, tmp_path, node) | env, text=True, **pipes)
    with ended(*both.values()):
        assert ends(both["analysis"]).splitlines()[:3] == ["0 0.5", "1 10.5", "2 20.5"]
        ends(both["simulation"])


@contextlib.contextmanager
def stopped(processes: list[int]):
    """They do nothing meanwhile, for less long than they would be taken for dead."""
    assert processes
    try:
        for one in processes:
            os.kill(one, signal.SIGSTOP)
        yield
    finally:
        for one in processes:
            os.kill(one, signal.SIGCONT)


KEEPS = """
import sys, stead
w = stead.writer("pooled", keep=1, dataspaces={"memory": sys.argv[1]})
with w.step():
    w.put("T", 1.0)
if sys.argv[2] == "over":
    w.close()
print("wrote", flush=True)
sys.stdin.readline()
"""


def test_streams_of_other_nodes_are_removed_where_it_is_asked_for(pool, memories, tmp_path):  # noqa: F811
    """By the command and in Python, on a node that has none: what is over, then what is written, and what is on a node that answers nothing."""
    env = on(pool, memories, tmp_path, 1)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(STEAD), "stream", *words], env=env, text=True, capture_output=True, timeout=WITHIN)

    def nodes() -> list[str]:
        return [one["node"] for one in json.loads(run("ls", "--format", "json").stdout)]

    over, live = (program(pool, rank, KEEPS, memories[rank], how) for rank, how in ((0, "over"), (2, "live")))
    with ended(over, live):
        for one in (over, live):
            says(one, "wrote")
        # Nothing of other nodes goes that was not asked for.
        lost = run("rm", "pooled", "--force")
        assert lost.returncode != 0 and "there is no stream 'pooled'" in lost.stderr, lost
        lost = run("rm", "pooled", "--node", "n9")
        assert lost.returncode != 0 and "there is no node 'n9' in the pool" in lost.stderr, lost
        refused = run("rm", "pooled", "--node", "n2")
        assert refused.returncode == 2 and "is being written or read on node n2" in refused.stderr, refused
        assert nodes() == ["n0", "n2"]
        # One is over, and the other one stays.
        part = run("rm", "pooled", "--all-nodes")
        assert part.stdout == "stream 'pooled' was removed on node n0\n" and part.returncode == 1, part
        assert "not removed everywhere: not on node n2: stream 'pooled' is being written or read" in part.stderr, part
        assert nodes() == ["n2"]
        with stopped(pool.processes(2, worker=False)):
            silent = run("rm", "pooled", "--all-nodes", "--force", "--timeout", "2s")
        assert silent.returncode != 0 and "not all were reached" in silent.stderr, silent
        told = f"import json, stead; print(json.dumps(stead.remove_stream('pooled', force=True, nodes=None, timeout={WITHIN})))"
        done = subprocess.run([sys.executable, "-c", told], env=env, text=True, capture_output=True, timeout=WITHIN)
        # That it had not answered does not say what it does later.
        assert done.returncode == 0 and json.loads(done.stdout) in ([], [{"name": "pooled", "node": "n2"}]), done
        assert nodes() == []


TOLD = """
import json, sys, warnings
import stead
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    names = stead.streams(timeout=float(sys.argv[1]))
info, told = (ask("pooled", timeout=float(sys.argv[1])) for ask in (stead.stream_info, stead.explain_stream))
print(json.dumps([names, [str(one.message) for one in said], info, told]))
"""


def test_streams_of_all_nodes_are_listed_shown_and_explained(pool, memories, tmp_path):  # noqa: F811
    """By the command and in Python, on a node that has neither writers nor readers."""
    env = on(pool, memories, tmp_path, 1)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(STEAD), "stream", *words], env=env, text=True, capture_output=True, timeout=WITHIN)

    writer = pooled(pool, 0, "persist", memories[0], STEPS, tmp_path)
    with ended(writer):
        says(writer, "half")
        reader = pooled(pool, 2, "first", memories[2], STEPS, 0, 1)
        with ended(reader):
            says(reader, "begun")
            (listed,) = json.loads(run("ls", "--format", "json").stdout)
            assert (listed["name"], listed["node"], listed["state"]) == ("pooled", "n0", "live")
            page = run("ls").stdout
            assert page.split()[:2] == ["stream", "node"] and "pooled" in page and "n0" in page, page
            assert run("ls", "--here").stdout == run("ls", "--node", "n2").stdout == "there are no streams\n"
            assert "pooled" in run("ls", "--node", "n0").stdout
            lost = run("ls", "--node", "n9")
            assert lost.returncode != 0 and "there is no node 'n9' in the pool" in lost.stderr, lost
            shown = json.loads(run("show", "pooled", "--format", "json").stdout)
            assert (shown["node"], shown["others"], shown["missed"]) == ("n0", [], [])
            assert shown["variables"][0]["name"] == "T" and shown["readers"][0]["is_elsewhere"]
            page = run("show", "pooled").stdout
            assert "n0" in page and "on another node" in page, page
            assert "there is no stream 'none' on any of 3 nodes" in run("show", "none").stderr
            # What is on another node is told where its readers are, too.
            told = json.loads(run("explain", "pooled", "--format", "json").stdout)
            assert [(w["rank"], w["node"]) for w in told["writers"]] == [(0, "n0")]
            assert [(r["group"], r["is_elsewhere"]) for r in told["readers"]] == [("readers", True)]
            assert "1 writers on node n0" in run("explain", "pooled").stdout
            # A node that answers nothing is named.
            for seconds in (2, 4, 6):
                with stopped(pool.processes(2, worker=False)):
                    done = subprocess.run([sys.executable, "-c", TOLD, str(seconds)], env=env, text=True, capture_output=True, timeout=WITHIN)
                assert done.returncode == 0 or "there is no stream" in done.stderr, done.stderr
                # The other one has had time enough.
                if done.returncode == 0 and json.loads(done.stdout)[0]:
                    break
            names, said, info, told = json.loads(done.stdout)
            assert names == ["pooled"] and len(said) == 1 and "nothing of node n2: " in said[0], said
            assert (info["node"], [one["node"] for one in info["missed"]]) == ("n0", ["n2"])
            assert [one["node"] for one in told["missed"]] == ["n2"] and told["elsewhere"] == 0
            with stopped(pool.processes(2, worker=False)):
                page = run("ls", "--timeout", "2s").stdout
            assert "nothing of node n2: " in page, page
            go_on(writer)
            says(writer, "done")
            go_on(writer)
            assert ends(reader) == ALL
            ends(writer)
