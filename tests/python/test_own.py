"""Kernels written in Python."""

from __future__ import annotations

import operator
import threading

import numpy as np
import pytest
import stead


@stead.kernel(["x", "y"])
class Covariance:
    """The covariance of two columns."""

    def init(self):
        return np.zeros(4)

    def update(self, state, x, y):
        state += [len(x), x.sum(), y.sum(), (x * y).sum()]

    def merge(self, state, other):
        state += other

    def finish(self, state):
        n, x, y, xy = state
        return (xy - x * y / n) / (n - 1) if n > 1 else None


@stead.kernel(["x"], merge=max)
def biggest(x):
    return x.max()


@stead.kernel(["x"], merge=operator.or_, finish=sorted)
def signs(x):
    return set(np.sign(x).astype(int).tolist())


class Above:
    """With parameters; no decorator is needed where the attributes are there."""

    def __init__(self, column, limit):
        self.columns, self.name, self.limit = [column], f"above {limit}", limit

    init = int

    def update(self, state, x):
        return state + int((x > self.limit).sum())

    merge = staticmethod(operator.add)

    def finish(self, state):
        return {"count": state, "limit": self.limit}


@pytest.fixture
def ds(points) -> stead.Dataset:
    return stead.open(points, names=["x", "y", "z"])


@pytest.mark.parametrize("threads", [1, 3])
def test_they_run_beside_others(ds, points, threads):
    r = ds.run(Covariance, biggest, signs, Above("z", 1.0), "max:x", threads=threads, chunk=8192)
    x, y, z = points.T
    assert r[Covariance] == pytest.approx(np.cov(x, y)[0, 1], rel=1e-9)
    assert r[biggest] == r["max:x"] == x.max()
    np.testing.assert_array_equal(r["signs"], [-1.0, 1.0])
    assert r["above 1.0"] == {"count": int((z > 1).sum()), "limit": 1.0}
    assert biggest(np.array([1.0, 5.0])) == 5.0 and "x" in repr(biggest)


def test_they_take_part_in_filters_and_groups(flights, frame):
    @stead.kernel("arr_delay")
    def late(delay):
        return int((delay > 60).sum())

    ours = stead.open(flights).run(late, where="dep_delay > 0", by="carrier")["late"]
    kept = frame[frame.dep_delay > 0]
    assert ours == (kept.arr_delay > 60).groupby(kept.carrier).sum().to_dict()


def test_missing_values_and_text(tmp_path):
    (tmp_path / "t.csv").write_text('x,name\n1,"Doe, Jane"\nNA,Zoë\n3,\n')

    @stead.kernel(["x", "name"], name="seen")
    def seen(x, name):
        return [
            {"x": v, "missing": bool(m), "name": n, "type": type(n).__name__}
            for v, m, n in zip(np.nan_to_num(x), stead.is_missing(x), name)
        ]

    r = stead.run(tmp_path / "t.csv", seen)["seen"]
    assert [row["name"] for row in r] == ["Doe, Jane", "Zoë", None]
    assert [row["missing"] for row in r] == [False, True, False]
    assert [row["type"] for row in r] == ["str", "str", "NoneType"]
    assert stead.is_missing(stead.MISSING) and not stead.is_missing(float("nan")) and not stead.is_missing(1)
    np.testing.assert_array_equal(stead.is_missing(np.array([[1.0, stead.MISSING], [np.nan, -stead.MISSING]])), [[0, 1], [0, 1]])


def test_arrays_are_the_kernels_own(ds, points):
    kept = []

    @stead.kernel(["x"])
    def keep(x):
        assert x.flags.writeable and x.dtype == np.float64 and x.ndim == 1 and len(x) > 0
        kept.append(x)
        copy = x.copy()
        x *= 2
        return float(copy.sum())

    ds.run(keep, "sum:x", threads=2, chunk=4096)
    # Had the memory been used again, the blocks would not be what they were.
    np.testing.assert_array_equal(np.sort(np.concatenate(kept)), np.sort(points[:, 0] * 2))
    assert ds.run("sum:x")["sum:x"] == pytest.approx(points[:, 0].sum())


def test_no_rows(ds):
    r = ds.run(Covariance, biggest, Above("x", 0), where="x > 1000")
    assert r[Covariance] is None and r[biggest] is None and r["above 0"] == {"count": 0, "limit": 0}


def test_all_columns(ds, points):
    @stead.kernel("*")
    def total(*columns):
        return np.array([c.sum() for c in columns])

    np.testing.assert_allclose(ds.run(total)[total], points.sum(axis=0))


@pytest.mark.parametrize("where", ["init", "update", "merge", "finish"])
def test_exceptions_come_out_as_they_are(ds, where):
    class Mine(Exception):
        pass

    def fail(*_):
        raise Mine(f"in {where}")

    # Each of two workers waits for the other in its first block, so that there are two states to merge.
    both, seen = threading.Barrier(2), set()

    def update(self, state, x):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both.wait(60)
        return state + len(x)

    broken = type("Broken", (Above,), {"update": update, where: fail})("x", 0)
    with pytest.raises(Mine, match=f"in {where}") as e:
        ds.run(broken, "mean:x", threads=2, chunk=4096)
    assert "fail" in [frame.name for frame in e.traceback]


def test_results_of_every_kind(ds):
    answers = [None, True, 3, -3, 2**70, 0.1, "text", [1, 2], (1.5, None), {"a": [1], 2: {}}, np.arange(4), np.float32(0.5), np.bool_(True)]
    for i, answer in enumerate(answers):

        @stead.kernel("x", merge=lambda a, b: a, finish=lambda _, a=answer: a, name=f"k{i}")
        def constant(x):
            return 0

        got = ds.run(constant)[f"k{i}"]
        if isinstance(answer, (list, tuple, np.ndarray)):
            np.testing.assert_array_equal(got, [np.nan if v is None else v for v in answer])
        elif isinstance(answer, dict):
            assert list(got) == ["a", "2"] and got["2"] == {}
        else:
            assert got == answer


def test_results_that_no_report_can_hold(ds):
    endless = []
    endless.append(endless)
    for answer, error in [({1, 2}, TypeError), (object(), TypeError), (endless, ValueError), (1 + 2j, TypeError)]:

        @stead.kernel("x", merge=lambda a, b: a, finish=lambda _, a=answer: a)
        def odd(x):
            return 0

        with pytest.raises(error):
            ds.run(odd)


def test_mistakes_are_told(ds):
    with pytest.raises(stead.UsageError, match="at least one column"):
        stead.kernel([])
    with pytest.raises(TypeError, match="has no method merge"):
        stead.kernel(["x"])(type("Half", (), {m: lambda *_: None for m in ("init", "update", "finish")}))
    with pytest.raises(stead.UsageError, match="no column 'nope'"):
        ds.run(Above("nope", 0))
    with pytest.raises(stead.UsageError, match="two kernels are called"):
        ds.run(Above("x", 0), Above("y", 0))
    with pytest.raises(TypeError, match="is no kernel"):
        ds.run(print)
    with pytest.raises(stead.UsageError, match="no kernel"):
        ds.run()


def test_states_count_towards_the_memory(ds):
    class Hoard(Above):
        init = bytes

        def update(self, state, x):
            return bytes(64 << 20)

    with pytest.raises(stead.LimitError, match="states take"):
        ds.run(Hoard("x", 0), memory="128MiB", chunk=4096)


def test_one_at_a_time(ds):
    inside, most = [], []

    @stead.kernel(["x"])
    def look(x):
        inside.append(threading.get_ident())
        most.append(len(inside))
        inside.pop()
        return 1

    assert ds.run(look, threads=4, chunk=4096)[look] == len(most)
    assert max(most) == 1
