"""Streams: arrays that programs hand to each other, between processes as their users have them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import stead

PATIENCE = 60


@pytest.fixture
def space():
    """A dataspace `memory` of the test's own, in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        own = Path(folder) / "own"
        own.mkdir(0o700)
        yield {"memory": str(own)}
        gc.collect()
        # What threads of subscriptions hold goes with them, a moment after they are done.
        until = time.monotonic() + PATIENCE
        while left(own) and time.monotonic() < until:
            time.sleep(0.01)
            gc.collect()
        assert left(own) == [], "a stream was left"


def left(own: Path) -> list[str]:
    """Streams that are there, of names or hidden ones."""
    return sorted(p.name for p in own.glob(".streams-*/*"))


class Programs:
    """Programs in Python that have `stead`, `np`, the dataspaces `S` and a line for each word that they are told."""

    def __init__(self, space: dict[str, str]) -> None:
        self.space, self.all = space, []

    def begin(self, code: str) -> subprocess.Popen:
        head = f"import os, sys, numpy as np, stead\nS = {self.space!r}\nsay = lambda *a: print(*a, flush=True)\nhear = lambda: sys.stdin.readline()\n"
        one = subprocess.Popen(
            [sys.executable, "-c", head + textwrap.dedent(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.all.append(one)
        return one

    def end(self) -> None:
        for one in self.all:
            if one.poll() is None:
                one.kill()
            one.communicate()


@pytest.fixture
def programs(space):
    some = Programs(space)
    yield some
    some.end()


def tell(one: subprocess.Popen) -> None:
    one.stdin.write("\n")
    one.stdin.flush()


def ended(one: subprocess.Popen) -> str:
    out, err = one.communicate(timeout=PATIENCE)
    assert one.returncode == 0, err
    return out


def grid(step: int, start=(0, 0), count=(9, 8)) -> np.ndarray:
    """Part of an array whose elements all are different."""
    y, x = np.ogrid[start[0] : start[0] + count[0], start[1] : start[1] + count[1]]
    return (step * 1_000_000 + y * 1000 + x).astype("f8")


def write(name: str, space, arrays, **options) -> None:
    with stead.writer(name, dataspaces=space, **options) as w:
        for array in arrays:
            with w.step():
                w.put("T", array)


# --- One process ---------------------------------------------------------------------------------------------------------------------


def test_steps_come_as_they_were_written(space):
    with stead.writer("sim", keep=3, dataspaces=space) as w:
        assert (w.name, w.rank, w.number, w.closed) == ("sim", 0, 0, False)
        for n in range(3):
            with w.step() as step:
                assert step.number == n == w.number
                w.put("T", grid(n), dims=("y", "x"), units="K", attributes={"long_name": "temperature", "level": [1, 2]})
                w.put("t", 0.5 * n)
        assert stead.streams(dataspaces=space) == ["sim"]
    assert w.closed and "closed" in repr(w)
    with stead.reader("sim", dataspaces=space) as r:
        assert (r.steps, r.is_over) == ([0, 1, 2], False)
        had = []
        for step in r:
            assert step.number == len(had) and step.dropped == 0
            assert step.bytes == 9 * 8 * 8 + 8
            assert abs(step.completed.timestamp() - time.time()) < PATIENCE
            t = step["T"]
            assert (t == grid(step.number)).all() and t.dtype == np.float64
            assert step["t"].shape == () and step["t"] == 0.5 * step.number
            assert list(step) == ["T", "t"] and len(step) == 2 and "T" in step and "V" not in step
            had.append(t)
        assert r.is_over and r.next() is None
        v = step.variables["T"]
        assert (v.name, v.shape, v.dims, v.units, v.dtype, v.ndim, v.nbytes) == ("T", (9, 8), ("y", "x"), "K", np.dtype("f8"), 2, 576)
        assert v.attributes == {"long_name": "temperature", "level": [1, 2], "units": "K"}
        assert step.parts("T") == [(0, np.s_[0:9, 0:8])]
        assert r.at(1).number == 1 and (r.at(1)["T"] == grid(1)).all()
        with pytest.raises(stead.NotFoundError, match="no variable 'V' is in step 2"):
            step["V"]
    with pytest.raises(stead.UsageError, match="closed"):
        r.next()
    # Arrays are there longer than their reader.
    assert all((t == grid(n)).all() for n, t in enumerate(had))


def test_arrays_look_at_the_memory_of_the_writer(space):
    write("sim", space, [grid(0)])
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        t = step["T"]
        assert t.ctypes.data == step.get("T").ctypes.data
        part = step.get("T", np.s_[2:5, 1:])
        assert part.ctypes.data == t.ctypes.data + (2 * 8 + 1) * 8 and part.strides == (64, 8)
        for array in (t, part):
            assert not array.flags.writeable and not array.flags.owndata
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 1
            with pytest.raises(ValueError):
                array.flags.writeable = True
        del step, t
    assert (part == grid(0)[2:5, 1:]).all()
    # With the last array of it the stream goes.
    assert left(Path(space["memory"])) == ["sim"]


@pytest.mark.parametrize("blocks", [1, 3])
def test_boxes_are_indices_of_numpy_or_starts_and_counts(space, blocks):
    whole = grid(0)
    with stead.writer("sim", dataspaces=space) as w, w.step():
        for i in range(blocks):
            rows = 9 // blocks
            w.put("T", whole[i * rows : (i + 1) * rows], shape=(9, 8), start=(i * rows, 0))
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        s = np.s_
        for box in [s[:], s[2:7], s[..., 3:5], s[1:8, ...], s[1:9:3, ::-2], s[::-1], s[-3:, -1:], s[4], s[4, 5], s[:, 5], s[5:2], s[3:3, 1:], s[8:0:-7, 3]]:
            got = step.get("T", box)
            assert got.shape == np.asarray(whole[box]).shape and (got == whole[box]).all() and not got.flags.writeable, box
            out = np.zeros(got.shape)
            assert step.get_into("T", box, out) is out and (out == whole[box]).all(), box
        assert (step.get("T", ((1, 2), (5, 3))) == whole[1:6, 2:5]).all()
        assert (step.get("T", ([1, 2], np.array([5, 3]))) == whole[1:6, 2:5]).all()
        assert (step.get("T", None) == whole).all()
        # What lies apart is filled, too.
        strided = np.zeros((16, 9)).T[:, ::2]
        step.get_into("T", None, strided)
        assert (strided == whole).all()
        for wrong in [s[1, 2, 3], s[9], s[-10], s[..., ...], s["a":], "T", 1.5, (1.5, 2), True, ((0,), (9,)), ((0, 0), (9, -1)), ((0, 0), (10, 8)), ((2**64, 0), (1, 1))]:
            with pytest.raises((stead.UsageError, OverflowError)):
                step.get("T", wrong)
        with pytest.raises(TypeError, match="float64, not of float32"):
            step.get_into("T", None, np.zeros((9, 8), "f4"))
        with pytest.raises(ValueError, match=r"shape \(9, 8\), and the array \(8, 9\)"):
            step.get_into("T", None, np.zeros((8, 9)))
        with pytest.raises(TypeError, match="reading only"):
            step.get_into("T", None, step["T"])
        del step, got


def test_what_nobody_has_put_is_an_error_or_filled(space):
    with stead.writer("sim", dataspaces=space) as w, w.step():
        w.put("T", grid(0)[:4], shape=(9, 8), start=(0, 0))
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        with pytest.raises(stead.NotFoundError, match=r"nobody has put \[4:9, 0:8\]"):
            step["T"]
        filled = step.get("T", fill=-1)
        assert (filled[:4] == grid(0)[:4]).all() and (filled[4:] == -1).all()
        del step


TYPES = ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


@pytest.mark.parametrize("order", "<>")
def test_every_type_of_elements_keeps_its_bits(space, order):
    rng = np.random.default_rng(1)
    arrays = {t: np.frombuffer(rng.bytes(30 * int(t[1])), f"{order}{t}").reshape(5, 6) for t in TYPES}
    with stead.writer("sim", dataspaces=space) as w, w.step():
        for t, array in arrays.items():
            w.put(t, array)
        w.put("flags", rng.random((4, 3)) > 0.5)
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        for t, array in arrays.items():
            got = step[t]
            assert got.dtype == np.dtype(f"={t}") and got.tobytes() == array.astype(f"={t}").tobytes()
        assert step["flags"].dtype == np.uint8
        del step, got


def test_whatever_numpy_makes_an_array_of_can_be_put(space):
    import array

    whole = grid(0)
    many = {
        "columns": np.asfortranarray(whole),
        "transposed": whole.T,
        "strided": whole[::2, ::-3],
        "number": 7.5,
        "integer": 7,
        "list": [[1, 2], [3, 4]],
        "array.array": array.array("i", [1, 2, 3]),
        "bytearray": bytearray(b"abc"),
        "bytes": b"abc",
        "memoryview": memoryview(b"abcd")[::2],
        "none": np.zeros((0, 5)),
        "one": np.ones((1, 1, 1)),
        "flags": (whole > 3)[:, ::2],
        "big and strided": whole.astype(">f8")[::2],
        "subclass": np.ones(3).view(type("Mine", (np.ndarray,), {})),
    }
    with stead.writer("sim", dataspaces=space) as w, w.step():
        for name, data in many.items():
            w.put(name, data)
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        for name, data in many.items():
            wanted = np.frombuffer(data, "u1") if isinstance(data, bytes) else np.asarray(data)
            got = step[name]
            assert got.shape == wanted.shape and (got == wanted).all(), name
        del step, got


@pytest.mark.parametrize(
    "data",
    [
        np.array([object()]),
        np.array(["text"]),
        np.array([1j]),
        np.zeros(3, "f2"),
        np.zeros(3, "M8[s]"),
        np.zeros(3, [("a", "f8"), ("b", "i4")]),
        np.zeros(3, np.longdouble),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        "text",
        None,
        {"a": 1},
    ],
    ids=lambda d: str(getattr(d, "dtype", type(d).__name__)),
)
def test_what_no_stream_has_is_refused(space, data):
    with stead.writer("sim", dataspaces=space) as w:
        with w.step():
            with pytest.raises(TypeError, match="variable 'T' cannot have"):
                w.put("T", data)
            w.put("T", grid(0))
    stead.remove_stream("sim", dataspaces=space)


def test_a_first_step_loads_nothing_that_it_has_no_use_for(programs):
    # What NumPy has for masked arrays takes it longer to load than all else of a first step.
    program = """
        before = "numpy.ma" in sys.modules
        with stead.writer("sim", keep=1, dataspaces=S) as w, w.step():
            w.put("T", np.arange(9.0))
        with stead.reader("sim", dataspaces=S) as r:
            say(next(r)["T"][4], ("numpy.ma" in sys.modules) == before)
    """
    assert ended(programs.begin(program)) == "4.0 True\n"


def test_attributes_are_text_numbers_and_lists(space):
    said = {"a": "text", "b": 3, "c": 2.5, "d": ["x", "y"], "e": [1, 2], "f": [1.5, 2.5], "g": [], "h": float("inf")}
    given = said | {"b": np.int32(3), "c": np.float32(2.5), "e": np.array([1, 2], "u1"), "f": (1.5, np.float64(2.5))}
    with stead.writer("sim", dataspaces=space) as w, w.step():
        w.put("T", 1.0, attributes=given)
        for wrong in [{"a": None}, {"a": {}}, {"a": ["x", 1]}, {"a": 1j}, {"a": [[1], [2]]}, {"a": b"x"}]:
            with pytest.raises(TypeError, match="attribute 'a' is a"):
                w.put("V", 1.0, attributes=wrong)
        with pytest.raises(stead.UsageError, match="64 bits"):
            w.put("V", 1.0, attributes={"a": 2**63})
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        assert step.variables["T"].attributes == said
        del step


def test_what_was_said_of_a_variable_holds_until_something_else_is(space):
    with stead.writer("sim", keep=4, dataspaces=space) as w:
        with w.step():
            w.put("T", grid(0), dims=("y", "x"), units="K")
        with w.step():
            w.put("T", grid(1))
        with w.step():
            w.put("T", grid(2)[:4], start=(0, 0))
            w.put("T", grid(2)[4:], start=(4, 0))
        with w.step():
            w.put("T", np.arange(5.0), attributes={"note": "one dimension"})
            with pytest.raises(stead.UsageError, match="another one than in what was put into step 3"):
                w.put("T", np.arange(6.0))
            with pytest.raises(stead.UsageError, match="start="):
                w.put("T", np.arange(4.0), shape=(5,))
            with pytest.raises(stead.UsageError, match="its shape was never said"):
                w.put("U", np.arange(4.0), start=(1,))
            with pytest.raises(stead.UsageError, match="whole numbers"):
                w.put("U", np.arange(4.0), shape=(5.5,), start=(1,))
            with pytest.raises(stead.UsageError):
                w.put("U", np.arange(4.0), shape=(5,), start=(2,))
    with stead.reader("sim", dataspaces=space) as r:
        told = [(v.shape, v.dims, v.attributes) for v in (step.variables["T"] for step in r)]
        assert told == [((9, 8), ("y", "x"), {"units": "K"})] * 3 + [((5,), (), {"note": "one dimension"})]


def test_a_variable_that_is_known_is_put_as_it_lies_or_not(space):
    """What a variable was before decides nothing about what the bytes of the next array mean."""
    whole = np.arange(12.0).reshape(3, 4)
    again = [
        whole,
        whole.copy("F"),
        whole.T.copy().T,
        whole.astype(">f8"),
        np.arange(24.0).reshape(3, 8)[:, ::2],
        np.arange(48.0).reshape(6, 8)[::2, ::2],
        whole.view(type("Mine", (np.ndarray,), {})),
        whole.astype("f4"),
        whole.reshape(4, 3),
        whole.reshape(-1),
        whole > 5,
        whole.astype("u1"),
        whole,
        np.array(3.5),
        np.array(4.5),
        np.array(5.5, ">f8"),
        np.zeros((0, 4)),
        np.zeros((0, 4)),
    ]
    with stead.writer("sim", keep=30, queue=30, dataspaces=space) as w, stead.reader("sim", dataspaces=space) as r:
        with w.step():
            w.put("T", whole, dims=("y", "x"), units="K")
        for data in again:
            with w.step():
                w.put("T", data)
        with pytest.raises(stead.UsageError, match="not begun"):
            w.put("T", again[-1])
        with pytest.raises(stead.UsageError, match="another one"), w.step():
            w.put("T", whole)
            w.put("T", whole[:2])
        assert r.next()["T"].shape == (3, 4)
        for data in again:
            step = r.next()
            got, told = step["T"], step.variable("T")
            assert got.shape == data.shape and (got == data).all(), data
            assert told.dtype == (np.uint8 if data.dtype == bool else data.dtype.newbyteorder("="))
            assert told.units == "K"
            del step, got
        step = r.at(1)
        assert step.variable("T").dims == ("y", "x")
        del step


def test_what_was_made_in_shared_memory_is_not_copied(space):
    with stead.writer("sim", dataspaces=space) as w:
        with w.step():
            mine = w.empty("U", (9, 8), start=(0, 0), count=(4, 8), dims=("y", "x"))
            mine[:] = grid(0)[:4]
            address = mine.ctypes.data
            w.put("U", mine)
            assert not mine.flags.writeable
            rest = w.empty("U", (9, 8), "f8", start=(4, 0), count=(5, 8))
            rest[:] = grid(0)[4:]
            w.put("U", rest)
            assert w._writer.room(mine.base) is None
            n = w.empty("n", 3, "i4", units="m")
            n[:] = [1, 2, 3]
            # Another part of it, another name: copied, as what is in any array.
            w.put("m", n[1:])
            w.put("k", n)
            n[:] = [4, 5, 6]
            w.put("n", n)
    with stead.reader("sim", dataspaces=space) as r:
        step = r.next()
        assert (step["U"] == grid(0)).all()
        assert step.variables["U"].dims == ("y", "x") and step.variables["n"].units == "m"
        assert (step["n"] == [4, 5, 6]).all() and (step["m"] == [2, 3]).all() and (step["k"] == [1, 2, 3]).all()
        del step
    # It is one's own as long as one has it, whatever became of the stream.
    assert mine.ctypes.data == address and (mine == grid(0)[:4]).all()


def test_memory_that_somebody_has_is_not_used_again(space):
    with stead.writer("sim", keep=0, memory="64KiB", timeout=1, dataspaces=space) as w:
        arrays = []
        for n in range(3):
            with w.step():
                a = w.empty("U", 2048)
                a[:] = n
                w.put("U", a)
                arrays.append(a)
        assert [a[7] for a in arrays] == [0, 1, 2]
        with w.step():
            w.put("U", np.zeros(2048))
            with pytest.raises((stead.LimitError, stead.TimedOutError)):
                w.put("V", np.zeros(2048))
            del arrays, a
            w.put("V", np.zeros(2048))
    stead.remove_stream("sim", dataspaces=space)


def test_memory_of_one_stream_is_copied_into_another(space):
    with stead.writer("one", dataspaces=space) as one, stead.writer("two", dataspaces=space) as two, two.step():
        a = one.empty("U", 4)
        a[:] = [1, 2, 3, 4]
        two.put("U", a)
        assert a.flags.writeable
        a[:] = 0
    with stead.reader("two", dataspaces=space) as r:
        step = r.next()
        assert (step["U"] == [1, 2, 3, 4]).all()
        del step
    stead.remove_stream("one", dataspaces=space)


def test_steps_are_begun_and_ended_in_order(space):
    with stead.writer("sim", dataspaces=space) as w:
        with pytest.raises(stead.UsageError, match="was not begun"):
            w.put("T", 1.0)
        with pytest.raises(stead.UsageError, match="was not begun"):
            w.end_step()
        assert w.begin_step() == 0
        with pytest.raises(stead.UsageError, match="was begun and is not ended"):
            w.begin_step()
        w.put("T", 1.0)
        w.end_step()
    for call in (w.begin_step, w.end_step, lambda: w.put("T", 1.0), lambda: w.empty("T", 3)):
        with pytest.raises(stead.UsageError, match="'sim' is closed"):
            call()
    w.close()
    w.abandon()
    stead.remove_stream("sim", dataspaces=space)


def test_options_are_looked_at(space):
    for options in [{"rank": 1}, {"writers": 0}, {"queue": 0}, {"writers": 5000}]:
        with pytest.raises(stead.UsageError):
            stead.writer("sim", dataspaces=space, **options)
    for options in [{"rank": -1}, {"keep": -1}, {"memory": -1}]:
        with pytest.raises(OverflowError):
            stead.writer("sim", dataspaces=space, **options)
    with pytest.raises(stead.UsageError, match="no name for a stream"):
        stead.writer("../sim", dataspaces=space)
    with pytest.raises(ValueError, match="NaN"):
        stead.writer("sim", timeout=float("nan"), dataspaces=space)
    write("sim", space, [grid(0)])
    for options in [{"start": "first"}, {"behind": "wait"}, {"rank": 1}, {"group": "g" * 65}]:
        with pytest.raises(stead.UsageError):
            stead.reader("sim", dataspaces=space, **options)
    with pytest.raises(stead.TimedOutError, match="nobody writes a stream 'other'"):
        stead.reader("other", timeout=0.1, dataspaces=space)
    stead.remove_stream("sim", dataspaces=space)


class Comm:
    """What is used of a communicator of mpi4py."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def test_ranks_come_from_a_communicator(space):
    writers = [stead.writer("sim", comm=Comm(rank, 2), dataspaces=space) for rank in range(2)]
    assert [w.rank for w in writers] == [0, 1]
    for w in writers:
        w.begin_step()
        w.put("T", grid(0)[4 * w.rank : 4 * w.rank + 4], shape=(8, 8), start=(4 * w.rank, 0))
        w.end_step()
        w.close()
    readers = [stead.reader("sim", comm=Comm(rank, 2), dataspaces=space) for rank in range(2)]
    assert [(r.next()["T"] == grid(0)[:8]).all() for r in readers] == [True, True]
    for options in [{"rank": 0}, {"ranks": 2}]:
        with pytest.raises(stead.UsageError, match="rank= and ranks= are those of comm="):
            stead.reader("sim", comm=Comm(0, 2), dataspaces=space, **options)
    with pytest.raises(TypeError, match="mpi4py or a stead.Coupling, not int"):
        stead.writer("sim", comm=3, dataspaces=space)
    [r.close() for r in readers]


def test_a_communicator_of_several_nodes_is_refused(space, monkeypatch):
    near = []

    class Near:
        def __init__(self, size: int):
            self.size, self.freed = size, False
            near.append(self)

        def Free(self) -> None:
            self.freed = True

    class Split(Comm):
        """Ranks of which so many are on this node."""

        def __init__(self, rank: int, size: int, here: int):
            super().__init__(rank, size)
            self.here = here

        def Split_type(self, kind: int) -> Near:
            assert kind == 7
            return Near(self.here)

    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(COMM_TYPE_SHARED=7))
    for opens in (stead.writer, stead.reader):
        with pytest.raises(stead.UsageError, match="2 of 3 ranks of comm= are on this node") as told:
            opens("sim", comm=Split(0, 3, 2), dataspaces=space)
        assert "stead.couple" in str(told.value)
    assert stead.streams(dataspaces=space) == []
    # All of one node are let in, and one rank is asked nothing.
    stead.writer("sim", comm=Split(0, 1, 0), dataspaces=space).close()
    stead.writer("other", comm=Split(0, 2, 2), dataspaces=space).abandon()
    for name in ("sim", "other"):
        stead.remove_stream(name, dataspaces=space)
    assert [one.freed for one in near] == [True] * 3


def test_waits_say_for_whom(space):
    with stead.writer("sim", readers=1, timeout=0.2, dataspaces=space) as w:
        with pytest.raises(stead.TimedOutError, match="0 groups of readers have come, and it waits for 1"):
            w.begin_step()
        with stead.reader("sim", dataspaces=space) as r:
            with pytest.raises(stead.TimedOutError, match=f"writer 0 .process {os.getpid()}. has not"):
                r.next(timeout=0.1)
            with pytest.raises(stead.TimedOutError):
                r.next(timeout=0)
            for _ in range(2):
                with w.step():
                    w.put("T", 1.0)
            with pytest.raises(stead.TimedOutError, match=f"rank 0 of the readers 'readers' .process {os.getpid()}. is not done with step 0"):
                w.begin_step()
            assert r.next().number == 0 and r.next().number == 1
            with w.step():
                w.put("T", 1.0)
    stead.remove_stream("sim", dataspaces=space)


def test_a_very_step_can_be_waited_for(space):
    w = stead.writer("exact", keep=8, queue=8, dataspaces=space)
    with w, stead.reader("exact", timeout=PATIENCE, dataspaces=space) as r:
        for n in range(4):
            with w.step():
                w.put("T", np.array([n]))
        assert r.wait_for("T", 2)["T"][0] == 2
        assert r.wait_for("T", 0)["T"][0] == 0
        assert next(r).number == 3
        with pytest.raises(stead.NotFoundError, match="no variable 'U' is in step 1"):
            r.wait_for("U", 1)
        with pytest.raises(stead.TimedOutError, match="step 5 of stream 'exact' has not come: writer 0"):
            r.wait_for("T", 5, timeout=0.1)
        w.close()
        with pytest.raises(stead.NotFoundError, match="has ended before step 5"):
            r.wait_for("T", 5)


def test_steps_come_to_a_function(space):
    had = []
    with stead.writer("calls", keep=8, dataspaces=space) as w:
        subscription = stead.reader("calls", timeout=PATIENCE, dataspaces=space).subscribe(lambda step: had.append((step.number, int(step["T"][0]))))
        for n in range(4):
            with w.step():
                w.put("T", np.array([n * n]))
        with pytest.raises(stead.TimedOutError, match="has not ended"):
            subscription.join(0.05)
        assert not subscription.is_over
    with subscription:
        pass
    assert had == [(0, 0), (1, 1), (2, 4), (3, 9)]
    assert subscription.is_over


def test_what_a_function_raises_ends_its_subscription(space):
    def fail(step):
        raise ValueError(f"no {step.number}")

    with stead.writer("raises", queue=1, readers=1, timeout=PATIENCE, dataspaces=space) as w:
        subscription = stead.reader("raises", timeout=PATIENCE, dataspaces=space).subscribe(fail)
        # Nobody waits for it any more.
        for _ in range(4):
            with w.step():
                w.put("T", np.zeros(1))
        with pytest.raises(ValueError, match="no 0"):
            subscription.join(PATIENCE)
        # What was raised still has the step.
        closed = stead.reader("raises", group="more", start="next", timeout=PATIENCE, dataspaces=space).subscribe(lambda step: None)
        closed.close()
        closed.join()


def test_writers_are_told_what_becomes_of_readers(space, programs):
    with stead.writer("news", keep=4, dataspaces=space) as w:
        for n in range(3):
            with w.step():
                w.put("T", np.array([n]))
        assert w.events() == []
        with stead.reader("news", group="own", timeout=PATIENCE, dataspaces=space) as r:
            next(r)
        other = programs.begin("r = stead.reader('news', group='other', dataspaces=S); next(r); say('here'); hear()")
        assert other.stdout.readline().strip() == "here"
        own, left, came = w.events()
        assert (own["presence"], own["group"], own["process"]) == ("here", "own", os.getpid())
        assert (left["presence"], left["group"], left["had"], left["step"]) == ("left", "own", 1, 3)
        assert (came["presence"], came["group"], came["had"], came["process"]) == ("here", "other", 1, other.pid)
        other.kill()
        other.wait()
        (died,) = w.events()
        assert (died["presence"], died["group"], died["had"]) == ("died", "other", 1)
        assert left["had_ranges"] == died["had_ranges"] == [[0, 0]] and died["had_before"] == 0
        assert w.events() == []


def test_a_reader_that_may_be_left_behind_is(space):
    with stead.writer("sim", dataspaces=space) as w:
        r = stead.reader("sim", behind="drop", dataspaces=space)
        for n in range(10):
            with w.step():
                w.put("T", grid(n))
        step = r.next()
        assert step.number == step.dropped > 0 and (step["T"] == grid(step.number)).all()
        with pytest.raises(stead.NotFoundError, match="step 0 of stream 'sim' is not there"):
            r.at(0)
        del step
        r.close()


def test_streams_are_listed_described_and_removed(space):
    assert stead.streams(dataspaces=space) == []
    with pytest.raises(stead.NotFoundError):
        stead.stream_info("sim", dataspaces=space)
    assert not stead.remove_stream("sim", dataspaces=space)
    with stead.writer("sim", writers=2, keep=3, memory="1MiB", dataspaces=space) as w:
        info = stead.stream_info("sim", dataspaces=space)
        assert (info["name"], info["state"], info["keep"], info["queue"], info["memory"], info["complete"]) == ("sim", "live", 3, 2, 1 << 20, 0)
        assert [(p["rank"], p["presence"], p["process"]) for p in info["writers"]] == [(0, "here", os.getpid()), (1, "awaited", None)]
        with pytest.raises(stead.UsageError, match="is being written or read"):
            stead.remove_stream("sim", dataspaces=space)
        assert stead.remove_stream("sim", force=True, dataspaces=space, nodes=None) == [{"name": "sim"}]
        with pytest.raises(stead.PeerError, match="was removed"):
            w.begin_step()
    assert stead.streams(dataspaces=space) == []
    assert stead.remove_stream("sim", dataspaces=space, nodes=None) == []
    with pytest.raises(stead.PeerError, match="'n7' is not reached"):
        stead.remove_stream("sim", dataspaces=space, nodes=["n7"])
    with pytest.raises(stead.UsageError, match="no stream of other nodes"):
        stead.remove_stream("./sim", dataspaces=space, nodes=None)
