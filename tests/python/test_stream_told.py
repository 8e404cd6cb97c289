"""What is told of a stream: before, who will get what from whom, and after, what it has cost."""

from __future__ import annotations

import json
import os
import socket
import threading
import warnings

import numpy as np
import pytest
import stead
from test_streams import PATIENCE, ended, grid, programs, space, tell

__all__ = ["programs", "space"]


def counted(space) -> list[tuple[str, int, int, int]]:
    readers = stead.stream_info("sim", dataspaces=space)["readers"]
    return sorted((r["group"], r["rank"], r["bytes"], r["memory"]) for r in readers)


def test_what_readers_will_get_is_told_before(space):
    """For any layout of writers, and readers that get boxes by chance: what is told is what is counted then."""
    chance = np.random.default_rng(7)
    shape = (23, 31)

    def boxes(n: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        starts = [tuple(int(chance.integers(0, s - 1)) for s in shape) for _ in range(n)]
        return [(at, tuple(int(chance.integers(1, s - a + 1)) for s, a in zip(shape, at))) for at in starts]

    writers = [stead.writer("sim", rank=rank, writers=3, queue=9, timeout=PATIENCE, dataspaces=space) for rank in range(3)]
    readers = [stead.reader("sim", group="ana", rank=rank, ranks=2, timeout=PATIENCE, dataspaces=space) for rank in range(2)]
    wanted = [boxes(5), boxes(5)]
    before = said = None
    for n in range(6):
        # Rows, then columns, then rows of other lengths.
        axis, cuts = n % 2, [0, *sorted(int(c) for c in chance.choice(np.arange(1, shape[n % 2]), 2, replace=False)), shape[n % 2]]
        for w in writers:
            w.begin_step()
        for w, low, high in zip(writers, cuts, cuts[1:]):
            part = grid(n, count=shape)[(slice(low, high), slice(None))[:: 1 if axis == 0 else -1]]
            w.put("T", part, shape=shape, start=(low, 0)[:: 1 if axis == 0 else -1])
        for w in writers:
            w.end_step()
        said = stead.explain_stream("sim", dataspaces=space)
        assert (said["step"], said["bytes"], said["elsewhere"]) == (n, 23 * 31 * 8, 0)
        assert [r["basis"] for r in said["readers"]] == (["rows"] * 2 if n == 0 else [{"step": n - 1}] * 2)
        before = counted(space)
        for rank, r in enumerate(readers):
            step = r.next()
            for at, count in wanted[rank]:
                (y, x), (h, w) = at, count
                assert (step.get("T", (at, count)) == grid(n, count=shape)[y : y + h, x : x + w]).all()
            report = step.report()
            del step
            if n > 0:
                told = said["readers"][rank]
                assert (told["copied"], told["looked"]) == (report["copied"], report["looked"])
        if n > 0:
            after = [(group, rank, c - cb, k - kb) for (group, rank, c, k), (*_, cb, kb) in zip(counted(space), before)]
            assert [(r["group"], r["rank"], r["copied"], r["looked"]) for r in said["readers"]] == after
            # Each pair has its part of it.
            for r in said["readers"]:
                pulls = [p for p in said["pulls"] if p["rank"] == r["rank"]]
                assert (sum(p["copied"] for p in pulls), sum(p["looked"] for p in pulls)) == (r["copied"], r["looked"])
    assert sum(w["given"] for w in said["writers"]) == said["copied"] + said["looked"]
    assumed = stead.explain_stream("sim", readers=3, dataspaces=space)["readers"][-1]
    assert (assumed["group"], assumed["rank"], assumed["basis"], assumed["process"]) == ("assumed", 2, "rows", None)
    for end in readers + writers:
        end.close()


def test_what_was_done_is_reported(space):
    with stead.writer("sim", queue=1, readers=1, timeout=PATIENCE, dataspaces=space) as w:
        r = stead.reader("sim", timeout=PATIENCE, dataspaces=space)
        with w.step():
            w.put("T", np.zeros((512, 1024)), dims=("y", "x"), units="K", attributes={"levels": [1, 2], "dt": 0.5, "bad": [np.nan, 1.0]})
            made = w.empty("U", 1000)
            made[...] = 1
            w.put("U", made)
        del made
        done = w.report()
        assert (done["rank"], done["steps"], done["put"], done["copied"]) == (0, 1, 4 << 20 | 8000, 4 << 20)
        assert done["last"] | {"waited_s": 0, "copy_cpu_s": 0} == {"step": 0, "put": 4 << 20 | 8000, "copied": 4 << 20, "copy_cpu_s": 0, "waited_s": 0}
        step = r.next()
        assert step["T"].sum() == 0 and step.get_into("U", np.s_[0:10], np.empty(10)).sum() == 10
        told = step.report()
        assert (told["step"], told["copies"], told["copied"], told["looked"], told["fetched"]) == (0, 1, 80, 4 << 20, 0)
        assert told["peak_steps"] >= 1
        t, u = stead.stream_info("sim", dataspaces=space)["variables"]
        said = {"units": "K", "levels": [1, 2], "dt": 0.5, "bad": ["NaN", 1.0]}
        assert t == {"name": "T", "dtype": "f64", "shape": [512, 1024], "dims": ["y", "x"], "attributes": said}
        assert (u["name"], u["shape"], u["dims"], u["attributes"]) == ("U", [1000], [], {})
        del step
        r.close()
        mine = w.report()["memory"]
        assert mine["peak"] >= 4 << 20 and mine["peak_steps"] >= 1 and mine["most"] == 4 << 30


def test_which_steps_a_reader_has_had_is_told_when_it_goes_or_is_killed(space, programs):
    text = """
        r = stead.reader('news', behind='drop', dataspaces=S)
        for n in (1, 2, 5, 9): r.wait_for('T', n)
        say('had')
        hear()
        r.close()
    """
    with stead.writer("news", keep=10, dataspaces=space) as w:
        for n in range(10):
            with w.step():
                w.put("T", np.array([n]))
        for how in ("left", "died"):
            reader = programs.begin(text)
            assert reader.stdout.readline().strip() == "had"
            if how == "died":
                reader.kill()
                reader.wait()
            else:
                tell(reader)
                ended(reader)
            came, gone = w.events()
            assert (came["presence"], gone["presence"], gone["had"], gone["had_before"]) == ("here", how, 4, 0)
            assert gone["had_ranges"] == [[1, 2], [5, 5], [9, 9]]


def test_other_nodes_are_asked_where_there_are_some(space, monkeypatch):
    """Without a daemon none are, and one that is named is not reached; tests of pools do it with daemons."""
    monkeypatch.setenv("STEAD_SOCKET", "none")
    with stead.writer("sim", dataspaces=space) as w:
        with w.step():
            w.put("T", np.zeros((3, 4)))
        for nodes in (None, []):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert stead.streams(dataspaces=space, nodes=nodes) == ["sim"]
            info = stead.stream_info("sim", dataspaces=space, nodes=nodes)
            assert (info["others"], info["missed"], info["all_writers"], len(info["writers"])) == ([], [], 1, 1)
            assert "node" not in info
            said = stead.explain_stream("sim", dataspaces=space, nodes=nodes)
            assert (said["missed"], said["elsewhere"], [w["node"] for w in said["writers"]]) == ([], 0, [None])
            with pytest.raises(stead.NotFoundError, match="there is no stream 'none'"):
                stead.stream_info("none", dataspaces=space, nodes=nodes)
        # All of it is here.
        assert stead.stream_info("sim", dataspaces=space, nodes=["n7"])["state"] == "live"
        for ask in (stead.streams, lambda **how: stead.stream_info("none", **how), lambda **how: stead.explain_stream("none", **how)):
            with pytest.raises(stead.PeerError, match="node 'n7' is not reached"):
                ask(dataspaces=space, nodes=["n7"])
    stead.remove_stream("sim", dataspaces=space)


def test_nodes_that_cannot_be_asked_are_told_and_spoil_nothing(space, monkeypatch, tmp_path):
    """What is on this node is told also where its daemon makes no sense."""
    at = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(at))
        at.chmod(0o700)
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    one, _ = listener.accept()
                except OSError:
                    return
                with one:
                    said = json.dumps({"protocol": 999, "version": "0", "node": "n0", "user": os.geteuid(), "drained": False, "job": None}).encode()
                    one.sendall(len(said).to_bytes(4, "little") + said)

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setenv("STEAD_SOCKET", os.fspath(at))
        try:
            with stead.writer("sim", dataspaces=space):
                with pytest.warns(UserWarning, match="other nodes were not asked: .*protocol"):
                    assert stead.streams(dataspaces=space) == ["sim"]
                with pytest.raises(stead.NotFoundError, match="there is no stream 'none'.* not all were reached: .*protocol"):
                    stead.stream_info("none", dataspaces=space)
                assert stead.stream_info("sim", dataspaces=space)["missed"] == []
            stead.remove_stream("sim", dataspaces=space)
        finally:
            # Who waits in accept() is woken.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)
