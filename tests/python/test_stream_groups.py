"""Groups of several ranks that may miss steps, and waits for those who do nothing: each has an end, and says for whom it was waited."""

from __future__ import annotations

import os
import signal
from ast import literal_eval

import numpy as np
import pytest
import stead
from test_streams import PATIENCE, ended, grid, programs, space

__all__ = ["programs", "space"]


def test_ranks_that_may_miss_steps_are_given_the_same_ones(space, programs):
    code = """
        import time
        had = []
        with stead.reader("sim", rank={rank}, ranks=3, behind="drop", timeout=60, dataspaces=S) as r:
            for step in r:
                y, x = np.ogrid[:9, :8]
                assert (step["T"] == step.number * 1_000_000 + y * 1000 + x).all()
                # Each in its own time.
                time.sleep(0.001 * ((step.number + {rank}) % 4))
                had.append((step.number, step.dropped))
        say(had)
    """
    ranks = [programs.begin(code.format(rank=rank)) for rank in range(3)]
    with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
        for n in range(500):
            with w.step():
                w.put("T", grid(n))
    first, *others = [literal_eval(ended(one)) for one in ranks]
    assert others == [first, first]
    assert first[-1][0] == 499 and len(first) + sum(dropped for _, dropped in first) == 500


def test_a_rank_that_is_ahead_is_told_for_whom_it_waits(space):
    options = {"ranks": 2, "behind": "drop", "dataspaces": space}
    with stead.writer("sim", dataspaces=space) as w, stead.reader("sim", timeout=0.2, **options) as r:
        for n in range(4):
            with w.step():
                w.put("T", grid(n))
            if n < 2:
                assert r.next().number == n
        with pytest.raises(stead.TimedOutError, match=r"step 2 of stream 'sim' has not come: rank 1 of the readers 'readers' has not come"):
            r.next()
        with stead.reader("sim", rank=1, **options) as late:
            assert [late.next().number for _ in range(2)] == [0, 1]
            assert r.next().number == late.next().number == 3
    stead.remove_stream("sim", dataspaces=space)


def test_a_monitor_is_given_the_newest_step_and_goes_back_to_those_that_it_keeps(space):
    with stead.writer("sim", dataspaces=space) as w:
        monitor = stead.reader("sim", group="monitor", behind="drop", queue=1, keep=2, dataspaces=space)
        had = []
        for n in range(9):
            with w.step():
                w.put("T", grid(n))
            if n % 3 == 2:
                step = monitor.next()
                had.append((step.number, step.dropped))
                assert (step["T"] == grid(n)).all()
        assert had == [(2, 2), (5, 2), (8, 2)]
        del step
        assert (monitor.at(5)["T"] == grid(5)).all()
        with pytest.raises(stead.NotFoundError, match="step 2 of stream 'sim' is not there"):
            monitor.at(2)
        (shown,) = stead.stream_info("sim", dataspaces=space)["groups"]
        assert shown == {"group": "monitor", "ranks": 1, "behind": "drop", "queue": 1, "keep": 2}
        monitor.close()


def test_a_group_has_writers_wait_by_its_own_queue_and_for_what_it_keeps(space):
    options = {"group": "few", "queue": 1, "keep": 3, "dataspaces": space}
    with stead.writer("sim", keep=0, queue=4, timeout=0.2, dataspaces=space) as w:
        r = stead.reader("sim", **options)
        for n in range(4):
            with w.step():
                w.put("T", grid(n))
            if n < 3:
                with pytest.raises(stead.TimedOutError, match=r"rank 0 of the readers 'few' \(process \d+\) is not done with step"):
                    w.begin_step()
            assert r.next().number == n
        assert r.steps == [1, 2, 3]
        for wrong, what in [({"queue": 0}, "queue of 0 steps"), ({"keep": 64}, "places for 64 steps"), ({"keep": 2}, "keep 2, and they say .* keep 3")]:
            with pytest.raises(stead.UsageError, match=what):
                stead.reader("sim", **{**options, **wrong})
        with pytest.raises(OverflowError):
            stead.reader("sim", **{**options, "queue": -1})
        r.close()


@pytest.mark.parametrize("how", ["stopped", "within a step"])
def test_a_subscription_of_a_writer_that_does_nothing_ends_and_says_who_it_is(space, programs, how):
    code = """
        w = stead.writer("hangs", dataspaces=S)
        with w.step():
            w.put("T", np.zeros(3))
        w.begin_step()
        say("open")
        hear()
    """
    writer, had = programs.begin(code), []
    assert writer.stdout.readline() == "open\n"
    if how == "stopped":
        os.kill(writer.pid, signal.SIGSTOP)
    subscription = stead.reader("hangs", timeout=0.5, dataspaces=space).subscribe(lambda step: had.append(step.number))
    says = rf"step 1 of stream 'hangs' has not come: writer 0 \(process {writer.pid}\) has not ended it"
    with pytest.raises(stead.TimedOutError, match=says):
        with subscription:
            pass
    assert subscription.is_over and had == [0]
    writer.kill()
    writer.wait()
    stead.remove_stream("hangs", force=True, dataspaces=space)


def test_who_closes_a_subscription_is_told_of_no_end(space):
    with stead.writer("sim", dataspaces=space):
        subscription = stead.reader("sim", timeout=PATIENCE, dataspaces=space).subscribe(lambda step: None)
        subscription.close()
        assert subscription.is_over
        subscription.join()
    stead.remove_stream("sim", dataspaces=space)


def test_ranks_of_a_flow_that_may_miss_steps_miss_the_same(space, programs):
    """Two processes that share a flow: what they write together is of one step."""
    code = """
        import time
        flow = stead.flow(name="shares")
        def slow(T):
            time.sleep(0.002 * (1 + {rank}))
            return T
        flow.write("out", T=flow.read("sim", behind="drop")["T"].map(slow, elementwise=True), readers=1)
        say(flow.run(rank={rank}, ranks=2, timeout=60, dataspaces=S))
    """
    ranks = [programs.begin(code.format(rank=rank)) for rank in range(2)]
    collects = programs.begin("""
        had = []
        for step in stead.reader("out", timeout=60, dataspaces=S):
            T = step["T"]
            assert (T == T[0]).all(), T
            had.append(int(T[0]))
        say(had)
    """)
    with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
        for n in range(200):
            with w.step():
                w.put("T", np.full(1000, float(n)))
    had = literal_eval(ended(collects))
    reports = [literal_eval(ended(one)) for one in ranks]
    assert had == sorted(set(had)) and had[-1] == 199
    assert all(report["steps"] == len(had) and report["steps"] + report["dropped"] == 200 for report in reports)
