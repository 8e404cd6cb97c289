"""Flows that the daemon of a node runs: begun, waited for and given up by Python and by the command."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import stead
from node import node
from support import command

PATIENCE = 60
GRAPH = """
[read.sim]
[node.mean]
op = "reduce"
of = "sim.T"
how = "mean"
[write.small]
variables = { mean = "mean" }
readers = 1
"""


@pytest.fixture(name="node")
def _node():
    """With streams of its own: the daemon and programs of this test have them in the same memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, node() as one:
        one.memory = str(Path(folder) / "own")
        Path(one.memory).mkdir(0o700)
        with stead.daemon(one.path) as d:
            d.admin.add_dataspace("memory", one.memory)
        yield one


def until(look, within: float = PATIENCE):
    over = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < over
        time.sleep(0.01)
    return found


def knows(d: stead.Daemon, node) -> None:
    """What administrators have said comes to a worker a moment later."""
    until(lambda: any(space["name"] == "memory" and space["path"] == node.memory for space in d.spaces()))


def small(name: str = "flow", readers: int = 1) -> stead.Flow:
    flow = stead.flow(name=name)
    flow.write("small", mean=flow.read("sim")["T"].mean(), readers=readers)
    return flow


def write(node, steps: int, stop: threading.Event | None = None) -> threading.Thread:
    def work() -> None:
        with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces={"memory": node.memory}) as w:
            for n in range(steps):
                with w.step():
                    w.put("T", np.arange(8.0) + n)
            if stop is not None:
                stop.wait(PATIENCE)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def means(node) -> list[float]:
    with stead.reader("small", timeout=PATIENCE, dataspaces={"memory": node.memory}) as r:
        return [float(step["mean"]) for step in r]


def test_a_flow_is_handed_over(node):
    with stead.daemon(node.path) as d:
        knows(d, node)
        before = time.time()
        flow = d.run_flow(small(), steps=100, memory="64MiB", threads=1)
        assert not flow.done and repr(flow) == f"HandedFlow({flow.id})"
        with pytest.raises(stead.TimedOutError, match="goes on"):
            flow.wait(0.05)
        thread = write(node, 5)
        assert means(node) == [3.5 + n for n in range(5)]
        report = flow.wait(PATIENCE)
        thread.join()
        assert report == {"steps": 5, "dropped": 0, "unpaired": 0, "fetched": 0, "streams": [{"stream": "small", "steps": 5, "bytes": 40}]}
        told = flow.status()
        assert (told["flow"], told["name"], told["state"], told["steps"], told["job"], told["error"]) == (flow.id, "flow", "finished", 5, None, None)
        assert told["reads"] == ["sim"] and told["writes"] == ["small"] and told["report"] == report
        assert before - 1 <= told["begun"] <= time.time() and 0 < told["seconds"] < PATIENCE
        assert d.flows() == [] and d.flows(all=True) == [told] and d.flow(flow.id).wait() == report and asyncio.run(waited(flow)) == report
        with pytest.raises(stead.UsageError, match="is over: it is finished"):
            flow.cancel()
        assert "stead_flows 0" in d.metrics()


async def waited(flow: stead.HandedFlow):
    return await flow


def test_a_flow_goes_on_when_the_program_has_gone(node):
    with stead.daemon(node.path) as d:
        knows(d, node)
        program = "import sys, stead\nprint(stead.daemon(sys.argv[1]).run_flow(stead.flow(sys.argv[2])).id)"
        done = subprocess.run([sys.executable, "-c", program, node.path, GRAPH], check=True, capture_output=True, text=True, timeout=PATIENCE)
        flow = d.flow(int(done.stdout))
        assert "stead_flows 1" in d.metrics()
        thread = write(node, 3)
        assert len(means(node)) == 3 and flow.wait(PATIENCE)["steps"] == 3
        thread.join()


def test_a_flow_is_given_up(node):
    with stead.daemon(node.path) as d:
        knows(d, node)
        flow, stop = d.run_flow(small()), threading.Event()
        thread = write(node, 2, stop)
        try:
            with stead.reader("small", timeout=PATIENCE, dataspaces={"memory": node.memory}) as r:
                steps = iter(r)
                assert [float(next(steps)["mean"]) for _ in range(2)] == [3.5, 4.5]
                assert until(lambda: flow.status()["steps"] == 2) and [one["flow"] for one in d.flows()] == [flow.id]
                told = flow.cancel()
                assert (told["state"], told["steps"], told["report"], told["error"]) == ("cancelled", 2, None, None)
                # Who reads what it writes hears that there is no more.
                with pytest.raises(stead.PeerError):
                    next(steps)
        finally:
            stop.set()
            thread.join()
        with pytest.raises(stead.CancelledError, match="given up"):
            flow.wait()
        with pytest.raises(stead.CancelledError):
            asyncio.run(waited(flow))


def test_what_a_flow_fails_with_is_told(node):
    with stead.daemon(node.path) as d:
        knows(d, node)
        with pytest.raises(stead.TimedOutError, match="sim"):
            d.run_flow(small(), timeout=0.2).wait(PATIENCE)
        thread = write(node, 1)
        wrong = stead.flow("[read.sim]\n[node.a]\nop = 'reduce'\nof = 'sim.U'\nhow = 'sum'\n[write.small]\nvariables = { a = 'a' }\n")
        flow = d.run_flow(wrong)
        with pytest.raises(stead.NotFoundError, match="U"):
            flow.wait(PATIENCE)
        assert flow.status()["state"] == "failed" and flow.status()["error"]["kind"] == "not-found"
        thread.join()


def test_flows_that_make_no_sense_are_refused(node, tmp_path):
    with stead.daemon(node.path) as d:
        flow = stead.flow(functions={"f": lambda a: a})
        flow.write("small", a=flow.read("sim")["T"].map("f", elementwise=True))
        with pytest.raises(stead.UsageError, match="runs no code of others"):
            d.run_flow(flow)
        with pytest.raises(stead.UsageError, match="waits -1"):
            d.run_flow(small(), timeout=-1)
        with pytest.raises(stead.UsageError, match="memory"):
            d.run_flow(small(), memory=0)
        with pytest.raises(stead.UsageError, match="there is no flow 7"):
            d.flow(7)
        with pytest.raises(stead.UsageError, match="there is no flow 7"):
            stead.HandedFlow(d, 7).cancel()
        assert d.flows(all=True) == []


def test_a_user_runs_so_many(node):
    with stead.daemon(node.path) as d:
        knows(d, node)
        many = []
        for n in range(16):
            flow = stead.flow(name=f"f{n}")
            flow.write(f"small{n}", mean=flow.read("sim")["T"].mean())
            many.append(d.run_flow(flow))
        assert len({flow.id for flow in many}) == 16
        with pytest.raises(stead.LimitError, match="16 flows"):
            d.run_flow(small())
        many[3].cancel()
        with_room = d.run_flow(small())
        assert [one["flow"] for one in d.flows()][0] == with_room.id
        # And one that is drained begins none.
        d.admin.drain()
        many[4].cancel()
        with pytest.raises(stead.LimitError, match="drained"):
            until(lambda: d.run_flow(small()).cancel() and None)
        d.admin.open()
    # They end with their daemon, which does not wait for streams that nobody writes.
    begun = time.monotonic()
    node.end()
    assert time.monotonic() - begun < PATIENCE and node.process.returncode == 0
    node.begin()
    with stead.daemon(node.path) as d:
        assert d.flows(all=True) == []
        again = d.run_flow(small("again"), timeout=0.1)
        assert again.id > with_room.id


def test_dataspaces_of_jobs_are_for_flows_of_jobs(node):
    burst = node.at / "burst"
    burst.mkdir()
    (node.at / "link").symlink_to(burst)
    with stead.daemon(node.path) as d:
        knows(d, node)
        d.admin.add_dataspace("burst", burst, jobs=True)

        def to(where: str) -> stead.Flow:
            flow = stead.flow(name="kept")
            flow.write("small", mean=flow.read("sim")["T"].mean(), persist=where)
            return flow

        until(lambda: any(space["name"] == "burst" for space in d.spaces()))
        for where in ("burst://run", str(burst / "run"), str(node.at / "link" / "deep" / "run")):
            with pytest.raises(stead.PermissionDeniedError, match="for processes of jobs"):
                d.run_flow(to(where))
        for where in (f"{node.at}/new/../burst/run", "burst/../../run"):
            with pytest.raises(stead.UsageError, match=r"'\.\.'"):
                d.run_flow(to(where))
        assert list(burst.iterdir()) == [] and not (node.at / "new").exists()
        d.admin.add_job("12", os.geteuid(), ["burst"])
        program = "import sys, stead\nsys.stdin.readline()\nprint(stead.daemon(sys.argv[1]).run_flow(stead.flow(sys.argv[2])).id)"
        text = GRAPH.replace("readers = 1", 'persist = "burst://run"')
        words = [sys.executable, "-c", program, node.path, text]
        member = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        d.admin.add_process("12", member.pid)
        until(lambda: d.admin.jobs()[0]["processes"] == [member.pid])
        out, err = member.communicate("\n", timeout=PATIENCE)
        assert member.returncode == 0, err
        flow = d.flow(int(out))
        assert flow.status()["job"] == "12" and not flow.done
        # With the job it is over.
        d.admin.remove_job("12")
        with pytest.raises(stead.CancelledError):
            flow.wait(PATIENCE)


def test_administrators_give_up_flows_of_others(node):
    with stead.daemon(node.path) as d:
        knows(d, node)
        flow = d.run_flow(small())
        with d.admin.manage(os.geteuid()) as theirs:
            assert [one["flow"] for one in theirs.flows()] == [flow.id] and not theirs.flow(flow.id).done
            with pytest.raises(stead.PermissionDeniedError, match="nothing else"):
                theirs.run_flow(small("other"))
            assert theirs.flow(flow.id).cancel()["state"] == "cancelled"
        assert flow.done
    env, me = os.environ | {"STEAD_SOCKET": str(node.path)}, str(os.geteuid())
    words = [command(), "flow", "list", "--all", "--user", me]
    listed = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert "cancelled" in listed and "sim" in listed
    words = [command(), "flow", "cancel", str(flow.id), "--user", me]
    assert "is over" in subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE).stderr


def test_the_command_has_the_daemon_run_flows(node, tmp_path):
    (tmp_path / "small.toml").write_text(GRAPH)
    env = os.environ | {"STEAD_SOCKET": str(node.path)}

    def stead_flow(*words: object, code: int = 0) -> str:
        done = subprocess.run([command(), "flow", *map(str, words)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    with stead.daemon(node.path) as d:
        knows(d, node)
        number = stead_flow("run", "small.toml", "--background").strip()
        listed = stead_flow("list")
        assert number in listed and "running" in listed and "sim" in listed and "small" in listed
        assert "goes on" in stead_flow("wait", number, "--timeout", "1s", code=1)
        thread = write(node, 4)
        assert len(means(node)) == 4
        assert "4 steps" in stead_flow("wait", number)
        thread.join()
        told = json.loads(stead_flow("wait", number, "--format", "json"))
        assert told["report"]["steps"] == 4 and told["flow"] == int(number)
        assert "finished" in stead_flow("list", "--all") and number not in stead_flow("list")
        begun = json.loads(stead_flow("run", "small.toml", "--background", "--format", "json"))
        assert "is cancelled" in stead_flow("cancel", begun["flow"])
        assert "is over" in stead_flow("cancel", begun["flow"], code=2)
        assert "given up" in stead_flow("wait", begun["flow"], code=1)
        assert "in no pool" in stead_flow("list", "--on", "elsewhere", code=2)
        assert "cannot be used with" in stead_flow("run", "small.toml", "--background", "--ranks", "2", code=2)
        assert "--background" in stead_flow("run", "small.toml", "--on", "n1", code=2)
        env["STEAD_SOCKET"] = "none"
        assert "no daemon" in stead_flow("run", "small.toml", "--background", code=1)
