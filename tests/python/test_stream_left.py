"""Streams that were not brought to their end: by writers that never came, by programs that fail, by steps without some of the variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import stead
from test_streams import ended, left, programs, space, tell

__all__ = ["programs", "space"]

PART = """
with stead.writer("mix", rank={rank}, writers=2, dataspaces=S) as w, w.step():
    w.put("x", np.full(2, {value}), shape=4, start={start})
"""


def test_writers_of_another_run_are_not_taken_for_those_of_this_one(space, programs):
    ended(programs.begin(PART.format(rank=1, value=1.0, start=2)))
    assert stead.streams(dataspaces=space) == ["mix"]
    # Whoever was begun after the one that was there alone founds a stream anew, of whichever rank.
    for rank in (0, 1, 1):
        ended(programs.begin(PART.format(rank=rank, value=2.0, start=2 * rank)))
        assert stead.stream_info("mix", dataspaces=space)["writers"][rank]["step"] == 1
        assert stead.stream_info("mix", dataspaces=space)["complete"] == 0
    # Nobody writes it any more.
    assert stead.remove_stream("mix", dataspaces=space)
    assert left(Path(space["memory"])) == []


def test_a_writer_that_was_begun_beside_one_that_has_ended_joins_it(space, programs):
    late = programs.begin("say('here'); hear()\n" + PART.format(rank=0, value=2.0, start=0))
    assert late.stdout.readline() == "here\n"
    ended(programs.begin(PART.format(rank=1, value=1.0, start=2)))
    tell(late)
    ended(late)
    (step,) = stead.reader("mix", dataspaces=space)
    assert step["x"].tolist() == [2.0, 2.0, 1.0, 1.0]


def test_a_reader_of_what_was_left_is_told(space, programs):
    ended(programs.begin(PART.format(rank=1, value=1.0, start=2)))
    reader = stead.reader("mix", dataspaces=space)
    again = programs.begin(PART.format(rank=1, value=1.0, start=2))
    with pytest.raises(stead.PeerError, match="writer 0 of stream 'mix' has never come, and the others have ended"):
        next(reader)
    ended(again)
    del reader
    assert stead.remove_stream("mix", dataspaces=space)


@pytest.mark.parametrize("how", ["raise RuntimeError('crashed')", "raise KeyboardInterrupt", "sys.exit(0)", "pass"])
def test_a_program_that_ends_by_an_exception_has_not_closed_its_stream(space, programs, how):
    code = f"""
        w = stead.writer("sim", keep=2, dataspaces=S)
        def run():
            for n in range(3):
                if n == 2:
                    {how}
                    return
                with w.step():
                    w.put("x", float(n))
        run()
    """
    one = programs.begin(code)
    one.communicate(timeout=60)
    failed = "raise" in how
    assert (one.returncode != 0) == failed
    reader = stead.reader("sim", dataspaces=space)
    assert [float(next(reader)["x"]) for _ in range(2)] == [0.0, 1.0]
    if failed:
        with pytest.raises(stead.PeerError, match="writer 0 of stream 'sim'"):
            next(reader)
    else:
        assert list(reader) == []


def test_a_step_has_the_variables_that_were_put_into_it(space):
    with stead.writer("some", keep=4, dataspaces=space) as w:
        for n in range(4):
            with w.step():
                w.put("T", np.arange(3.0))
                if n % 2 == 0:
                    w.put("U", np.arange(2.0))
                w.put("none", np.zeros((0, 3)))
    for step in stead.reader("some", dataspaces=space):
        names = {"T", "none"} | ({"U"} if step.number % 2 == 0 else set())
        assert set(step) == set(step.variables) == names and len(step) == len(names)
        assert ("U" in step) == ("U" in names) and "V" not in step
        if "U" not in names:
            with pytest.raises(stead.NotFoundError, match="no variable .U. is in step"):
                step["U"]


def test_what_some_steps_have_is_computed_on_from_those(space, tmp_path):
    with stead.writer("part", persist=tmp_path / "part", dataspaces=space) as w:
        for n in range(4):
            with w.step():
                w.put("T", np.full(3, float(n)))
                if n % 2:
                    w.put("U", np.full(2, float(n)))
    assert stead.run(f"{tmp_path}/part::U", stead.mean("U"), stead.rows())["rows"] == 4
    assert stead.run(f"{tmp_path}/part::U", stead.mean("U"))["mean:U"] == 2.0
    stead.remove_stream("part", dataspaces=space)


def test_all_copies_are_counted(space):
    array = np.ones((30, 40))
    for shown in (array, array.T, array[::-1], array.astype(">f8"), array[:, ::2]):
        with stead.writer("counted", dataspaces=space) as w:
            with w.step():
                w.put("v", shown)
            told = w.report()
        (step,) = stead.reader("counted", dataspaces=space)
        assert (step["v"] == shown).all()
        del step
        assert told["put"] == told["copied"] == shown.size * 8


def test_one_number_is_that_of_an_array_of_one_dimension(space):
    with stead.writer("one", writers=1, dataspaces=space) as w, w.step():
        u = w.empty("U", np.int64(8), start=4, count=np.int64(4))
        u[:] = 5
        w.put("U", u, start=4)
        w.put("U", np.zeros(4), start=np.int64(0))
    (step,) = stead.reader("one", dataspaces=space)
    assert step["U"].tolist() == [0.0] * 4 + [5.0] * 4


def test_a_reader_has_one_subscription(space):
    with stead.writer("twice", keep=3, dataspaces=space) as w:
        for n in range(3):
            with w.step():
                w.put("x", float(n))
    had = []
    reader = stead.reader("twice", dataspaces=space)
    with reader.subscribe(lambda step: had.append(step.number)):
        with pytest.raises(stead.UsageError, match="subscription already"):
            reader.subscribe(print)
    assert had == [0, 1, 2]


def test_too_many_writers_are_counted_as_they_were_said(space):
    with pytest.raises(stead.UsageError, match="1000000 writers are too many"):
        stead.writer("many", writers=1_000_000, dataspaces=space)
