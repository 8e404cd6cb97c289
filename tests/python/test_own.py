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


class Narrowing:
    """The middle value, to the unit, in as many passes as it takes: each halves the interval."""

    name, columns = "middle", ["x"]

    def __init__(self, least=None, greatest=None, values=0):
        self.least, self.greatest, self.values = least, greatest, values

    def init(self):
        return [0, np.inf, -np.inf]

    def update(self, state, x):
        if self.least is None:
            return [state[0] + len(x), min(state[1], x.min()), max(state[2], x.max())]
        return [state[0] + int((x <= (self.least + self.greatest) // 2).sum()), *state[1:]]

    def merge(self, a, b):
        return [a[0] + b[0], min(a[1], b[1]), max(a[2], b[2])]

    def finish(self, state):
        if self.least is None:
            return Narrowing(state[1], state[2], state[0])
        middle = (self.least + self.greatest) // 2
        if self.least >= self.greatest:
            return self.least
        if state[0] >= self.values / 2:
            return Narrowing(self.least, middle, self.values)
        return Narrowing(middle + 1, self.greatest, self.values)


def test_several_passes(tmp_path):
    rng = np.random.default_rng(3)
    x, k = rng.integers(-500, 500, 20_001).astype(float), rng.integers(0, 3, 20_001)
    ds = stead.open({"x": x, "k": k})
    r = ds.run(Narrowing(), "sum:x", threads=3, chunk=4096)
    assert r["middle"] == np.sort(x)[10_000] and r.metrics["passes"] > 8
    assert [p["passes"] for p in r.plan["kernels"]] == [1, r.metrics["passes"]]
    # Each group goes on for itself, under the name of the first kernel.
    by = ds.run(Narrowing(), by="k", threads=2, chunk=4096)["middle"]
    assert by == {str(g): np.sort(x[k == g])[((k == g).sum() + 1) // 2 - 1] for g in range(3)}


def test_a_pass_may_look_at_other_columns(ds, points):
    class Second(Above):
        pass

    @stead.kernel(["x"])
    class First(Above):
        def __init__(self):
            self.limit = 0.0

        def finish(self, state):
            return Second("z", state / 1000)

    got = ds.run(First)["First"]
    assert got == {"count": int((points[:, 2] > got["limit"]).sum()), "limit": (points[:, 0] > 0).sum() / 1000}

    @stead.kernel(["x"])
    class Lost(First):
        def finish(self, state):
            return Above("nope", 0)

    with pytest.raises(stead.UsageError, match="no column 'nope'"):
        ds.run(Lost)
    # A class that needs no arguments is a kernel too.
    passes = []

    @stead.kernel(["x"])
    class Counting(First):
        def finish(self, state):
            passes.append(state)
            return Counting if len(passes) < 20 else len(passes)

    assert ds.run(Counting)[Counting] == 20 and len(set(passes)) == 1


def test_text_as_it_stands(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'x,name\n1,"a""b"\n2,\xff\x00\n3,\n')

    def names(text, **options):
        @stead.kernel(["name"], text=text, merge=operator.add, finish=lambda v: repr([x for a in v for x in a]))
        def seen(name):
            return [name.tolist()]

        return stead.run(tmp_path / "t.csv", seen, **options)["seen"]

    assert names("bytes") == repr([b'a"b', b"\xff\x00", None])
    assert names("str") == repr(['a"b', "\ufffd\x00", None])
    with pytest.raises(stead.UsageError, match="text='arrow'"):
        stead.kernel(["name"], text="arrow")


def test_records(tmp_path):
    lines = [b"%d %s\n" % (i, b"x" * (i % 7)) for i in range(5000)]
    (tmp_path / "t.log").write_bytes(b"".join(lines))

    @stead.kernel(records=True, text="bytes", merge=operator.add, finish=lambda v: np.array(v).reshape(-1))
    def lengths(records):
        assert all(r.endswith(b"\n") for r in records)
        return [len(r) for r in records]

    r = stead.open(tmp_path / "t.log", type="lines").run(lengths, threads=1, chunk=4096)
    np.testing.assert_array_equal(np.sort(r[lengths]), np.sort([len(line) for line in lines]))
    (tmp_path / "t.bin").write_bytes(b"abcdef")

    @stead.kernel(records=True)
    def joined(records):
        return "".join(records)

    assert stead.run(tmp_path / "t.bin", joined, type="records", record_length=2)["joined"] == "abcdef"

    @stead.kernel(["x"], records=True, merge=operator.add)
    def both(records, x):
        return [[r, v] for r, v in zip(records, x.tolist())]

    (tmp_path / "t.csv").write_text("x\n1\n2\n")
    assert stead.run(tmp_path / "t.csv", both, where="x > 1")["both"] == [["2\n", 2.0]]
    assert "records" in repr(both) and "x" in repr(both)


def test_records_in_several_passes(tmp_path):
    class Lengths:
        name, columns, records = "lengths", ["x"], True

        def __init__(self, passes=4):
            self.passes = passes

        def init(self):
            return 0

        def update(self, state, records, x):
            assert all(float(r) == v for r, v in zip(records, x))
            return state + sum(map(len, records))

        def merge(self, a, b):
            return a + b

        def finish(self, state):
            return Lengths(self.passes - 1) if self.passes > 1 else state

    rows = "".join(f"{i}\n" for i in range(3000))
    (tmp_path / "t.csv").write_text("x\n" + rows)
    assert stead.run(tmp_path / "t.csv", Lengths())["lengths"] == len(rows)
    with pytest.raises(stead.UsageError, match="no bytes of records"):
        stead.open({"x": np.ones(3)}).run(Lengths())


STATES = [
    None,
    True,
    -3,
    2**80,
    0.1,
    float("inf"),
    "text ü",
    b"\0\xff",
    [1, [2.5, None]],
    (1, ()),
    {1, 2},
    {"a": [1], 2: {"b": (b"", "")}, (1, 2): None},
    np.arange(6.0).reshape(2, 3).T,
    np.zeros((0, 4), "i2"),
    np.array([1 + 2j]),
    np.array(["a", "bcd"]),
    np.array([b"a", b"bcd"]),
    np.array(["2013-01-01", "NaT"], "M8[D]"),
    np.float32(1.5),
    np.int64(-7),
    np.array(3, ">u2"),
]


def on_ranks(ds, kernel, ranks=3):
    """A run on ranks that are threads, which no face offers: states travel as bytes."""
    from stead import _own

    arguments = {"kernels": [], "own": [_own.instance(kernel)], "filter": None, "by": [], "threads": 2, "memory": None}
    arguments |= {"chunk": 4096, "lenient": False, "direct": False, "engine": "auto", "queue_depth": None}
    arguments |= {"progress": None, "cancel": None, "ranks": ranks, "comm": None, "place": "auto"}
    return ds._native.run(arguments).results()


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_states_travel_between_ranks(ds, state):
    seen = []

    class Carrier:
        name, columns = "carrier", ["x"]

        def init(self):
            return state

        def update(self, s, x):
            return s

        def merge(self, a, b):
            for s in (a, b):
                seen.append((type(s), getattr(s, "dtype", None), getattr(s, "shape", None)))
                np.testing.assert_equal(s, state)
            return a

        def finish(self, s):
            np.testing.assert_equal(s, state)
            return len(seen)

    # Each rank merges the states of its workers, and then come those of the others.
    assert on_ranks(ds, Carrier())["carrier"] >= 2
    assert set(seen) == {(type(state), getattr(state, "dtype", None), getattr(state, "shape", None))}


def test_kernels_run_on_ranks(ds, points):
    assert on_ranks(ds, Above("z", 1.0))["above 1.0"]["count"] == (points[:, 2] > 1).sum()
    rounded = stead.open({"x": np.floor(points[:, 0] * 100)})
    assert on_ranks(rounded, Narrowing(), 4)["middle"] == rounded.run(Narrowing())["middle"]


@stead.kernel(["x"], order=True, merge=operator.add, finish=np.array)
def in_order(x):
    return x.tolist()


def test_the_order_of_the_data(ds, points):
    alone = ds.run(in_order, threads=4)
    assert alone["in_order"].tolist() == points[:, 0].tolist() and alone.plan["threads"] == 1
    assert on_ranks(ds, in_order)["in_order"].tolist() == points[:, 0].tolist()

    class Chain(Above):
        order = True
        init = bytes

        def update(self, state, x):
            return state + (x > self.limit).astype("u1").tobytes()

        def finish(self, state):
            return state.hex()

    sides = (points[:, 1] > 0.5).astype("u1").tobytes()
    assert ds.run(Chain("y", 0.5), threads=3)["above 0.5"] == sides.hex()
    assert on_ranks(ds, Chain("y", 0.5), 4)["above 0.5"] == sides.hex()


def test_states_with_bytes_of_their_own(ds, points):
    from collections import Counter

    class Signs(Above):
        init = Counter

        def update(self, state, x):
            state.update(np.sign(x).astype(int).tolist())

        def merge(self, a, b):
            assert type(a) is type(b) is Counter
            return a + b

        def finish(self, state):
            return dict(state)

    with pytest.raises(TypeError, match="a Counter, which cannot travel"):
        on_ranks(ds, Signs("x", 0))

    class Travelling(Signs):
        def to_bytes(self, state):
            return repr(sorted(state.items())).encode()

        def from_bytes(self, state):
            import ast

            return Counter(dict(ast.literal_eval(state.decode())))

    got = on_ranks(ds, Travelling("x", 0))["above 0"]
    assert got == {"-1": (points[:, 0] < 0).sum(), "1": (points[:, 0] > 0).sum()}
    # Exceptions of these methods, too, come out as they are.
    broken = type("Broken", (Travelling,), {"from_bytes": lambda self, b: {}["lost"]})
    with pytest.raises(KeyError, match="lost"):
        on_ranks(ds, broken("x", 0))
    wrong = type("Wrong", (Travelling,), {"to_bytes": lambda self, s: "text"})
    with pytest.raises(TypeError, match="did not return an object of type bytes"):
        on_ranks(ds, wrong("x", 0))
    with pytest.raises(TypeError, match="has no method from_bytes"):
        stead.kernel("x")(type("Half", (Above,), {"to_bytes": lambda self, s: b""}))


def test_states_that_cannot_travel(ds):
    endless = []
    endless.append(endless)
    for state, error in [(object(), TypeError), (np.array([None]), TypeError), (endless, ValueError), (1 + 2j, TypeError)]:
        odd = type("Odd", (Above,), {"init": lambda self, s=state: s, "update": lambda self, s, x: s})
        with pytest.raises(error):
            on_ranks(ds, odd("x", 0))
