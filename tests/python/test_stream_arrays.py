"""Arrays that are made before there is a writer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import stead
from test_streams import PATIENCE, ended, left, programs, space, tell

__all__ = ["programs", "space"]

SHAPE = (64, 1000)
BYTES = 64 * 1000 * 8


def made(space, value: float, shape=SHAPE, dtype=float) -> np.ndarray:
    array = stead.empty(shape, dtype, dataspaces=space)
    array[...] = value
    return array


def copied(w: stead.StreamWriter) -> tuple[int, int]:
    told = w.report()
    return told["put"], told["copied"]


def files(space, name: str) -> list[str]:
    return sorted(p.name for p in Path(space["memory"]).glob(f".streams-*/{name}/*"))


def test_what_was_made_before_its_writer_is_not_copied(space):
    first, second = made(space, 1), made(space, 2)
    assert (first.shape, first.dtype, first.flags.c_contiguous, first.ctypes.data % 64) == (SHAPE, float, True, 0)
    assert left(Path(space["memory"])) == []
    with stead.writer("sim", timeout=PATIENCE, dataspaces=space) as w, stead.reader("sim", timeout=PATIENCE, dataspaces=space) as r:
        address = first.ctypes.data
        with w.step():
            w.put("T", first, dims=("y", "x"), units="K")
        assert copied(w) == (BYTES, 0) and w.report()["memory"]["used"] == BYTES
        assert not first.flags.writeable and first.ctypes.data == address and (first == 1).all()
        with pytest.raises(ValueError, match="read-only"):
            first[0, 0] = 5
        with pytest.raises(ValueError):
            np.frombuffer(first.base, "f8").flags.writeable = True
        step = r.next()
        t = step["T"]
        assert (t == 1).all() and step.report()["copied"] == 0
        assert step.variables["T"].dims == ("y", "x") and step.variables["T"].units == "K"
        # As a part of a larger one, by another shape of the same memory, which is for reading only as well.
        with w.step():
            flat = second.reshape(-1)
            w.put("U", flat, shape=(2 * flat.size,), start=(flat.size,))
            w.put("U", first.reshape(-1), start=(0,))
        assert not flat.flags.writeable and not second.flags.writeable
        assert copied(w) == (3 * BYTES, 0)
        u = r.next()["U"]
        assert (u[: flat.size] == 1).all() and (u[flat.size :] == 2).all()
        del step, t, u
    # It is one's own as long as one has it.
    assert (second == 2).all()


def test_other_arrays_over_it_are_copied(space):
    with stead.writer("sim", timeout=PATIENCE, dataspaces=space) as w:
        a = made(space, 0)
        a[...] = np.arange(a.size).reshape(SHAPE)
        flags = stead.empty(100_000, bool, dataspaces=space)
        flags[:] = True
        with w.step():
            w.put("rows", a[3:7])
            w.put("columns", a[:, 5])
            w.put("turned", a.T)
            w.put("other", a.astype(">f8"))
            w.put("of another type", a.view("i8"))
            w.put("flags", flags)
            assert copied(w) == (0, 0)
        # All of it is as it was made, whatever the elements are taken for; and what lies otherwise is laid out in its place.
        rows = 4 * 1000 * 8
        assert copied(w) == (rows + 64 * 8 + 3 * BYTES + 100_000, rows + 64 * 8 + 2 * BYTES)
        assert not a.flags.writeable and not flags.flags.writeable
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        assert (step["rows"] == a[3:7]).all() and (step["turned"] == a.T).all() and (step["other"] == a).all()
        assert (step["of another type"] == a.view("i8")).all() and step["flags"].dtype == np.uint8 and step["flags"].all()
        del step


def test_a_program_that_makes_one_for_each_step_has_the_same_memory_again(space):
    with stead.writer("sim", timeout=PATIENCE, dataspaces=space) as w, stead.reader("sim", timeout=PATIENCE, dataspaces=space) as r:
        known, after = set(), None
        for n in range(25):
            t = made(space, n)
            known.add(t.ctypes.data)
            with w.step():
                w.put("T", t)
            del t
            assert (r.next()["T"] == n).all()
            if n == 8:
                after = len(known), files(space, "sim")
        assert (len(known), files(space, "sim")) == after
        assert copied(w) == (25 * BYTES, 0)


def test_several_steps_and_streams_have_the_same_array(space):
    mesh = made(space, 7)
    with stead.writer("one", dataspaces=space) as one, stead.writer("two", dataspaces=space) as two:
        for _ in range(3):
            for w in (one, two):
                with w.step():
                    w.put("mesh", mesh)
        assert copied(one) == copied(two) == (3 * BYTES, 0)
    for name in ("one", "two"):
        with stead.reader(name, dataspaces=space) as r:
            assert (r.next()["mesh"] == 7).all()


def test_it_counts_for_the_memory_of_the_stream(space):
    arrays = [made(space, n) for n in range(3)]
    with stead.writer("sim", keep=0, memory=2 * BYTES, timeout=0.2, dataspaces=space) as w:
        r = stead.reader("sim", timeout=PATIENCE, dataspaces=space)
        for array in arrays[:2]:
            with w.step():
                w.put("T", array)
        assert w.report()["memory"]["used"] == 2 * BYTES
        assert (r.next()["T"] == 0).all() and (r.next()["T"] == 1).all()
        with w.step():
            w.put("T", arrays[2])
            with pytest.raises(stead.LimitError, match="does not fit"):
                w.put("U", made(space, 9, (3 * SHAPE[0], SHAPE[1])))
        r.close()


def test_small_ones_and_those_of_another_dataspace_are_copied(space, tmp_path):
    small = made(space, 3, 100)
    (tmp_path / "away").mkdir(0o700)
    away = made({"memory": str(tmp_path / "away")}, 4)
    none = stead.empty((0, 5), "i4", dataspaces=space)
    number = stead.empty((), dataspaces=space)
    number[...] = 6
    with stead.writer("sim", dataspaces=space) as w:
        with w.step():
            for name, array in {"small": small, "away": away, "none": none, "number": number}.items():
                w.put(name, array)
        assert copied(w)[1] >= 808
        # Also then: a program does not depend on what it was.
        assert not small.flags.writeable and not away.flags.writeable
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        assert (step["small"] == 3).all() and (step["away"] == 4).all() and step["none"].shape == (0, 5) and step["number"] == 6
        del step


def test_what_cannot_be_made_is_told(space):
    for dtype in ("c16", "O", "U5", "M8[s]", [("a", "f8")]):
        with pytest.raises(TypeError, match="an array for streams cannot have elements of"):
            stead.empty(5, dtype, dataspaces=space)
    for shape in (-1, (3, -1), (1.5,)):
        with pytest.raises(stead.UsageError, match="a shape is whole numbers"):
            stead.empty(shape, dataspaces=space)
    with pytest.raises(stead.LimitError, match="more memory than a file may have"):
        stead.empty((2**40, 2**40), dataspaces=space)
    with pytest.raises(stead.NoSpaceError, match="cannot take"):
        stead.empty(2**45, dataspaces=space)
    a = made(space, 1)
    with stead.writer("sim", dataspaces=space) as w:
        with pytest.raises(stead.UsageError, match="was not begun"):
            w.put("T", a)
        assert a.flags.writeable
    stead.remove_stream("sim", dataspaces=space)


def test_a_process_that_was_forked_copies_what_its_parent_has_made(space):
    a = made(space, 5)
    child = os.fork()
    if child == 0:
        try:
            with stead.writer("child", dataspaces=space) as w:
                own = made(space, 6)
                with w.step():
                    w.put("a", a)
                    w.put("own", own)
                code = int(copied(w) != (2 * BYTES, BYTES))
            del a, own
        except BaseException:
            code = 2
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    a[...] = 8
    with stead.reader("child", dataspaces=space) as r:
        step = r.next()
        assert (step["a"] == 5).all() and (step["own"] == 6).all()
        del step
    with stead.writer("sim", dataspaces=space) as w:
        with w.step():
            w.put("a", a)
        assert copied(w) == (BYTES, 0)
    stead.remove_stream("sim", dataspaces=space)


def test_a_program_that_is_killed_leaves_its_steps_and_nothing_else(space, programs):
    text = """
        some = [stead.empty(100_000, dataspaces=S) for _ in range(5)]
        say('made')
        hear()
        w = stead.writer('sim', dataspaces=S)
        some[0][:] = 1
        with w.step(): w.put('T', some[0])
        say('put')
        hear()
    """
    one = programs.begin(text)
    assert one.stdout.readline() == "made\n"
    assert left(Path(space["memory"])) == []
    tell(one)
    with stead.reader("sim", timeout=PATIENCE, dataspaces=space) as r:
        step = r.next()
        one.send_signal(signal.SIGKILL)
        one.wait()
        assert (step["T"] == 1).all()
        with pytest.raises(stead.PeerError):
            r.next()
        del step


def test_a_program_that_ends_with_arrays_ends_well(space, programs):
    text = """
        w = stead.writer('sim', dataspaces=S)
        a, b = stead.empty(100_000, dataspaces=S), stead.empty(100_000, dataspaces=S)
        a[:] = 2
        with w.step(): w.put('T', a)
        w.close()
        say('done')
    """
    assert "done" in ended(programs.begin(text))
    with stead.reader("sim", dataspaces=space) as r:
        assert (r.next()["T"] == 2).all()
