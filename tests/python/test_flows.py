"""Flows: every operator against NumPy, graphs that make no sense, and programs that end in the middle."""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ElementTree
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import stead
from support import ROOT, command, read_png

PATIENCE = 60
FLOWS = ROOT / "examples" / "flows"


@pytest.fixture
def space():
    """A dataspace `memory` of the test's own, in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        own = Path(folder) / "own"
        own.mkdir(0o700)
        yield {"memory": str(own)}
        gc.collect()


def ran(flow: stead.Flow, space, steps: list[dict], outputs: list[str], writers: int = 1, ranks: int = 1) -> list[list[dict]]:
    """What each output has at each step, when these are the steps of the stream `sim`. Writers have stretches of the first dimension."""
    failed: list[BaseException] = []

    def begin(work, *args) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*args)
            except BaseException as e:
                failed.append(e)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def write(rank: int) -> None:
        with stead.writer("sim", rank=rank, writers=writers, readers=1, timeout=PATIENCE, dataspaces=space) as w:
            for step in steps:
                with w.step():
                    for name, (array, dims) in step.items():
                        if array.ndim == 0:
                            if rank == 0:
                                w.put(name, array)
                            continue
                        n = len(array)
                        part = array[n * rank // writers : n * (rank + 1) // writers]
                        start = (n * rank // writers,) + (0,) * (array.ndim - 1)
                        w.put(name, np.ascontiguousarray(part), shape=array.shape, start=start, dims=dims)

    had: dict[str, list[dict]] = {}

    def read(name: str) -> None:
        with stead.reader(name, timeout=PATIENCE, dataspaces=space) as r:
            had[name] = [{v: np.array(step[v]) for v in step} for step in r]

    threads = [begin(read, name) for name in outputs]
    threads += [begin(lambda rank=rank: flow.run(rank=rank, ranks=ranks, timeout=PATIENCE, dataspaces=space)) for rank in range(ranks)]
    threads += [begin(write, rank) for rank in range(writers)]
    for thread in threads:
        thread.join()
    if failed:
        # The first cause: others were told.
        raise next((e for e in failed if not isinstance(e, stead.PeerError)), failed[0])
    return [had[name] for name in outputs]


DTYPES = ["f8", "f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
DIMS = ("z", "y", "x")


def some(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return (random.normal(size=shape) * 10.0 ** random.integers(-3, 4)).astype(kind)
    low = max(np.iinfo(kind).min, -1000)
    return random.integers(low, min(np.iinfo(kind).max, 1000), size=shape, endpoint=True).astype(kind)


def spread(array: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as another type has them: the nearest."""
    to = np.dtype(dtype)
    if to.kind == "f":
        return array.astype(to)
    low, high = np.iinfo(to).min, np.iinfo(to).max
    if array.dtype.kind == "f":
        array = np.trunc(array)
    return np.array([min(max(int(x), low), high) for x in array.ravel()], dtype=to).reshape(array.shape)


@pytest.mark.parametrize("seed", range(6))
def test_operators_are_what_numpy_makes(space, seed):
    random = np.random.default_rng(seed)
    ndim = int(random.integers(1, 4))
    shape = tuple(int(n) for n in random.integers(2, 7, size=ndim))
    dims = DIMS[-ndim:]
    types = [str(t) for t in random.choice(DTYPES, size=2)]
    steps = [{"a": (some(random, shape, types[0]), dims), "b": (some(random, shape, types[1]), dims), "s": (np.float64(random.normal()), None)} for _ in range(5)]
    step = int(random.integers(1, 4))
    to = str(random.choice(DTYPES))
    axes = tuple(sorted(int(d) for d in random.choice(ndim, size=int(random.integers(1, ndim + 1)), replace=False)))
    over = [dims[d] if random.random() < 0.5 else d - ndim for d in axes]
    readers = {"readers": 1}

    flow = stead.flow(name=f"numpy{seed}")
    sim = flow.read("sim")
    a, b = sim["a"], sim["b"]
    left, right = a.split(dims[-1], 2)
    wide = flow.merge([a.cast("f8"), b.cast("f8")], new="which")
    each = {
        "all": a,
        "slice": a[::step],
        "row": a[-1],
        "ends": a[1:, ..., :-1] if ndim > 1 else a[1:-1],
        "named": a.isel(**{dims[0]: slice(None, None, step)}),
        "cast": a.cast(to),
        "scale": b.scale(0.3, -7, units="m"),
        "magnitude": flow.magnitude([a, b]),
        "left": left,
        "back": flow.merge([right, left], along=dims[-1]),
        "sum": a.sum(),
        "some": a.sum(over),
        "mean": b.mean(over),
        "least": a.min(over),
        "most": b.reduce("max"),
        "moments": wide.moments([0, dims[0]]),
        "elements": a.sample(elements=4, seed=seed),
        "mapped": a.map(lambda x: x * 2, elementwise=True),
        "whole": b.map(lambda x, y: [x.sum(), y], sim["s"], dtype="f8", shape=(2,)) if types[1][0] == "f" else b.map(lambda x: x[::-1]),
        "quantile": b.kernel("quantile:b,q=0.5"),
        "scalar": sim["s"],
    }
    flow.write("each", each, **readers)
    flow.write("window", last=a.window(3), **readers)
    flow.write("pairs", mean=wide.window(2, "mean", every=2), high=a.window(2, "max", every=2), **readers)
    flow.write("seldom", a=a.sample(every=2)[0], **readers)
    outputs = ["each", "window", "pairs", "seldom"]
    again = stead.flow(flow.to_toml(), functions=flow._functions)
    one = ran(flow, space, steps, outputs)
    assert [len(out) for out in one] == [5, 3, 2, 3]

    for had, given in zip(one[0], steps, strict=True):
        x, y = given["a"][0], given["b"][0]
        cut = np.array_split(x, 2, axis=-1)
        narrow = "f4" if y.dtype == "f4" else "f8"
        doubles = np.stack([x.astype("f8"), y.astype("f8")])
        both = np.sqrt(x.astype("f8") ** 2 + y.astype("f8") ** 2).astype("f4" if x.dtype == y.dtype == "f4" else "f8")
        exactly = {
            "all": x,
            "slice": x[::step],
            "row": x[-1],
            "ends": x[1:, ..., :-1] if ndim > 1 else x[1:-1],
            "named": x[::step],
            "cast": spread(x, to),
            "scale": (y.astype("f8") * 0.3 - 7).astype(narrow),
            "magnitude": both,
            "left": cut[0],
            "back": np.concatenate(cut[::-1], axis=-1),
            "least": x.min(axis=axes),
            "most": y.max(),
            "mapped": x * 2,
            "scalar": given["s"][0],
        }
        if types[1][0] != "f":
            exactly["whole"] = y[::-1]
        if x.dtype.kind != "f":
            exactly |= {"sum": x.sum(), "some": x.sum(axis=axes)}
        for name, wanted in exactly.items():
            assert had[name].dtype == wanted.dtype, name
            np.testing.assert_array_equal(had[name], wanted, err_msg=name)
        np.testing.assert_allclose(had["sum"], x.astype("f8").sum(), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(had["some"], x.astype("f8").sum(axis=axes), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(had["mean"], y.astype("f8").mean(axis=axes), rtol=1e-9, atol=1e-9)
        mean = doubles.mean(axis=(0, 1), keepdims=True)
        central = [mean[0, 0]] + [((doubles - mean) ** k).mean(axis=(0, 1)) for k in (2, 3, 4)]
        scale = np.abs(doubles).max()
        for k in range(4):
            np.testing.assert_allclose(had["moments"][k], central[k], rtol=1e-9, atol=1e-9 * scale ** (k + 1))
        assert had["elements"].shape == (min(4, x.size),)
        assert np.isin(had["elements"], x).all()
        assert y.min() <= had["quantile"] <= y.max()
    stacked = np.stack([given["a"][0] for given in steps])
    doubles = np.stack([np.stack([given["a"][0], given["b"][0]]).astype("f8") for given in steps])
    for n, had in enumerate(one[1]):
        np.testing.assert_array_equal(had["last"], stacked[n : n + 3])
    for n, had in enumerate(one[2]):
        np.testing.assert_array_equal(had["mean"], doubles[2 * n : 2 * n + 2].mean(axis=0))
        np.testing.assert_array_equal(had["high"], stacked[2 * n : 2 * n + 2].max(axis=0))
    for n, had in enumerate(one[3]):
        np.testing.assert_array_equal(had["a"], stacked[2 * n][0])

    # The same flow as TOML, by other numbers of writers and ranks: the same bits.
    several = ran(again, space, steps, outputs, writers=int(random.integers(2, 4)), ranks=int(random.integers(2, 4)))
    for mine, theirs in zip(one, several, strict=True):
        for x, y in zip(mine, theirs, strict=True):
            assert x.keys() == y.keys()
            assert all(x[name].tobytes() == y[name].tobytes() for name in x)


def test_ranks_add_up_their_parts_of_an_array(space):
    """Sums of numbers of all sizes, as correctly as Python has them, whoever adds up what."""
    random = np.random.default_rng(7)
    n = 70_003
    seen: list[tuple[int, ...]] = []

    def look(x):
        seen.append(x.shape)
        return x

    flow = stead.flow()
    sim = flow.read("sim")
    T, i = sim["T"], sim["i"]
    looked = T.map(look, elementwise=True)
    mean = i.mean()
    flow.write("out", sum=looked.sum(), mean=T.mean(), moments=looked.moments(), total=i.sum(), high=T.max(), rows=i.sum(over="x"), mapped=i.map(lambda i, m: (i > m).sum(), mean, dtype="i8", shape=()), readers=1)
    steps = []
    for _ in range(2):
        x = random.normal(size=n) * 10.0 ** random.integers(-12, 12, size=n)
        steps.append({"T": (np.concatenate([x, -x[: n // 2]]), ("x",)), "i": (random.integers(-(2**40), 2**40, size=(2, n)), ("y", "x"))})
    length, one = len(steps[0]["T"][0]), None
    wanted = []
    for step in steps:
        # As whole numbers of units that all of them have.
        numbers = [int(m * 2**53) << int(e) + 147 for m, e in zip(*np.frexp(step["T"][0]), strict=True)]
        total, squares = sum(numbers), sum(x * x for x in numbers)
        wanted.append([float(Fraction(total, length << 200)), float(Fraction(length * squares - total * total, length * length << 400))])
    for writers, ranks in ((1, 1), (2, 2), (1, 3)):
        seen.clear()
        had = ran(flow, space, steps, ["out"], writers=writers, ranks=ranks)[0]
        assert sorted(seen) == sorted((length * (r + 1) // ranks - length * r // ranks,) for r in range(ranks) for _ in steps)
        for out, given, exactly in zip(had, steps, wanted, strict=True):
            x, y = given["T"][0], given["i"][0]
            assert out["sum"] == math.fsum(x)
            # One rounding of what is exact.
            assert [out["mean"], out["moments"][1]] == exactly
            assert out["moments"][0] == out["mean"]
            assert out["total"] == y.sum()
            assert out["high"] == x.max()
            np.testing.assert_array_equal(out["rows"], y.sum(axis=1))
            assert out["mapped"] == (y > y.mean()).sum()
        bits = [{name: value.tobytes() for name, value in out.items()} for out in had]
        assert one is None or bits == one, ranks
        one = bits
    # What ranks have told each other is gone.
    assert stead.streams(dataspaces=space) == []


def test_windows_and_samples_say_which_steps_they_are_made_of(space):
    flow = stead.flow()
    T = flow.read("sim")["T"]
    flow.write("smooth", T=T.window(3, "mean", every=2), readers=1)
    flow.write("seldom", T=T.sample(every=2), readers=1)
    told: dict[str, list] = {}

    def look(name: str) -> None:
        with stead.reader(name, timeout=PATIENCE, dataspaces=space) as r:
            told[name] = [(step.number, step.variable("T").attributes["sim.steps"]) for step in r]

    with flow.start(timeout=PATIENCE, dataspaces=space) as running:
        looking = [threading.Thread(target=look, args=[name]) for name in ("smooth", "seldom")]
        for thread in looking:
            thread.start()
        with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
            for n in range(6):
                with w.step():
                    w.put("T", np.float64(n))
        running.join(PATIENCE)
        for thread in looking:
            thread.join()
    assert told == {"smooth": [(0, [0, 2, 1]), (1, [2, 4, 1])], "seldom": [(0, [0, 0, 1]), (1, [2, 2, 1]), (2, [4, 4, 1])]}


def simple(**said) -> stead.Flow:
    flow = stead.flow(**said)
    flow.write("out", T=flow.read("sim")["T"].sum(), readers=1)
    return flow


def test_a_flow_runs_beside_who_writes_and_may_be_stopped(space):
    flow = simple()
    with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
        running = flow.start(timeout=PATIENCE, dataspaces=space)
        r = stead.reader("out", timeout=PATIENCE, dataspaces=space)
        for n in range(3):
            with w.step():
                w.put("T", np.full((2, 3), float(n)))
            assert r.next()["T"] == 6.0 * n
        with pytest.raises(stead.TimedOutError):
            running.join(timeout=0.05)
        running.stop()
        with pytest.raises(stead.CancelledError):
            running.join(PATIENCE)
        assert running.is_over
        with pytest.raises(stead.PeerError):
            r.next()
        r.close()
    with flow.start(timeout=PATIENCE, dataspaces=space) as running, stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
        reading = threading.Thread(target=lambda: list(stead.reader("out", timeout=PATIENCE, dataspaces=space)))
        reading.start()
        with w.step():
            w.put("T", np.ones(3))
    assert running.join() == {"steps": 1, "dropped": 0, "unpaired": 0, "fetched": 0, "streams": [{"stream": "out", "steps": 1, "bytes": 8}]}
    reading.join()


def test_a_function_that_fails_is_what_the_caller_gets(space):
    def wrong(x):
        raise KeyError("mine")

    def begin(function, **said):
        flow = stead.flow()
        flow.write("out", T=flow.read("sim")["T"].map(function, **said))
        with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
            running = flow.start(timeout=PATIENCE, dataspaces=space)
            with w.step():
                w.put("T", np.ones((2, 3)))
            running.join(PATIENCE)

    with pytest.raises(KeyError, match="mine"):
        begin(wrong)
    with pytest.raises(stead.UsageError, match=r"function '<?function.*' gave an array of shape \(3,\), and \(2, 3\) was said"):
        begin(lambda x: x[0])
    with pytest.raises(stead.UsageError, match="gave elements of float64, and int32 was said"):
        begin(lambda x: x, dtype="i4")
    # As a sum of int32 is one of int64.
    for number, made, dtype in ((5_000_000_000, "i8", "i4"), (256, "u8", "u1"), (1 << 63, "u8", "i8")):
        with pytest.raises(stead.UsageError, match=f"gave {number}, which u?int.* has not"):
            begin(lambda x, number=number, made=made: np.full(x.shape, number, made), dtype=dtype)
    assert stead._flow.wrapped("f", lambda: np.full(3, 255, "u8"))([], "u8", [3]).tolist() == [255] * 3


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_pictures_are_those_of_files(space, tmp_path, dtype):
    """As `stead run` draws the same array, whoever writes it and however many work on it."""
    # So many voxels that ranks draw a part each.
    z, y, x = np.mgrid[:48, :30, :50]
    volume = (100 * np.sin(z / 6) * np.cos(y / 5) * np.sin(x / 7 + 1)).astype(dtype)
    kernels = {"picture": "render:width=70,height=50,azimuth=20", "plain": "render:width=9,height=6,min=0,max=90,shading=none"}
    flow = stead.flow(name="drawn")
    values = flow.read("sim")["T"]
    flow.write("pictures", {name: values.kernel(kernel) for name, kernel in kernels.items()}, readers=1)
    flow.write("sums", sum=values.kernel(kernels["plain"]).sum(), readers=1)
    steps = [{"T": (volume, ("z", "y", "x"))}, {"T": (np.ascontiguousarray(volume[::-1]), ("z", "y", "x"))}]
    for writers, ranks in ((1, 1), (3, 2), (2, 5)):
        pictures, sums = ran(flow, space, steps, ["pictures", "sums"], writers, ranks)
        for drawn, summed, step in zip(pictures, sums, steps, strict=True):
            np.save(tmp_path / "volume.npy", step["T"][0])
            for name, kernel in kernels.items():
                out = tmp_path / f"{name}.png"
                subprocess.run([command(), "run", tmp_path / "volume.npy", "--kernel", f"{kernel},out={out}"], check=True, capture_output=True)
                assert drawn[name].dtype == np.uint8 and drawn[name].shape == read_png(out).shape
                assert np.array_equal(drawn[name], read_png(out)) and drawn[name].max() > 0, name
            assert summed["sum"] == drawn["plain"].sum()


#: A kernel over all elements: what `stead run` is asked for, the member of its answer, and its shape. Of one pass and of several.
KERNELS = {
    "count": ("count:{}", None, None),
    "sum": ("sum:{}", None, None),
    "mean": ("mean:{}", None, None),
    "var": ("var:{}", None, None),
    "std": ("std:{},ddof=0", None, None),
    "min": ("min:{}", None, None),
    "max": ("max:{}", None, None),
    "rows": ("rows", None, None),
    "quantile": ("quantile:{},q=0.3", None, None),
    "exactly": ("quantile:{},q=0.3,exact", None, None),
    "counts": ("hist:{},bins=9", "counts", (9,)),
    "edges": ("hist:{},bins=9", "edges", (10,)),
    "middles": ("kmeans:{},k=3,init=first,rounds=5", "centroids", (3, 1)),
    "inertia": ("kmeans:{},k=3,init=first,rounds=5", "inertia", None),
    "matrix": ("gram:{}", "matrix", (1, 1)),
}


def asked(tmp_path, file: Path, *kernels: str) -> list:
    """What `stead run` answers over a file."""
    words = [word for kernel in dict.fromkeys(kernels) for word in ("-k", kernel)]
    done = subprocess.run([command(), "run", file, *words, "--format", "json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    return [results[kernel] for kernel in kernels]


def same_bits(had: np.ndarray, wanted: object) -> bool:
    return np.asarray(had, dtype="f8").tobytes() == np.asarray(wanted, dtype="f8").reshape(had.shape).tobytes()


def test_kernels_over_ranks_are_what_files_give(space, tmp_path):
    """To the bit, whoever writes the array and however many look at it."""
    random = np.random.default_rng(11)
    line = random.normal(size=70_003) * 10.0 ** random.integers(-6, 6, size=70_003)
    rows = random.normal(size=(9001, 12)) + np.arange(12)
    text = np.frombuffer(b"".join(b"line %d\n" % n for n in range(9000)) + b"an end", dtype="u1")
    np.save(tmp_path / "line.npy", line)
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "text.log").write_bytes(text.tobytes())

    flow = stead.flow()
    sim = flow.read("sim")
    T, X, log = sim["T"], sim["X"], sim["log"]
    out = {name: T.kernel(kernel.format("T"), member=member, shape=shape) for name, (kernel, member, shape) in KERNELS.items()}
    matrix = {"of_rows": "gram:*", "of_some": "gram:3,7", "exact": "gram:*,exact"}
    for name, kernel in matrix.items():
        n = 2 if name == "of_some" else 12
        out[name] = X.kernel(kernel, member="matrix", shape=(n, n), rows=True)
    out["means"] = flow.merge([X.kernel(f"mean:{c}", rows=True) for c in (0, 11)], new="which")
    out["lines"] = log.kernel("lines")
    out["entropy"] = log.kernel("entropy")
    out["sevens"] = log.kernel("digits", member="7")
    scaled = {"minmax": "normalize:{}", "zscore": "normalize:{},zscore", "l2": "normalize:{},l2"}
    out |= {name: T.kernel(kernel.format("T")) for name, kernel in scaled.items()}
    out["columns"] = X.kernel("normalize:4,9,zscore", rows=True)
    flow.write("out", out, readers=1)

    wanted = {}
    kernels = [kernel.format("value") for kernel, *_ in KERNELS.values()]
    for (name, (_, member, _)), answer in zip(KERNELS.items(), asked(tmp_path, tmp_path / "line.npy", *kernels), strict=True):
        wanted[name] = answer if member is None else answer[member]
    for (name, _), answer in zip(matrix.items(), asked(tmp_path, tmp_path / "rows.npy", *matrix.values()), strict=True):
        wanted[name] = answer["matrix"]
    wanted["means"] = asked(tmp_path, tmp_path / "rows.npy", "mean:0", "mean:11")
    wanted["lines"], wanted["entropy"], digits = asked(tmp_path, tmp_path / "text.log", "lines", "entropy", "digits")
    wanted["sevens"] = digits["7"]
    for name, kernel in scaled.items():
        asked(tmp_path, tmp_path / "line.npy", f"{kernel.format('value')},out={name}.npy")
        wanted[name] = np.load(tmp_path / f"{name}.npy")
    asked(tmp_path, tmp_path / "rows.npy", "normalize:4,9,zscore,out=columns.npy")
    wanted["columns"] = np.load(tmp_path / "columns.npy")

    steps = [{"T": (line, None), "X": (rows, None), "log": (text, None)}]
    for writers, ranks in ((1, 1), (2, 2), (3, 3), (1, 5)):
        (had,) = ran(flow, space, steps, ["out"], writers=writers, ranks=ranks)[0]
        assert had.keys() == wanted.keys()
        for name, answer in wanted.items():
            assert same_bits(had[name], answer), (ranks, name, had[name], answer)


def test_kernels_of_files_that_arrays_have_no_use_for(space):
    for kernel, says in {
        "grep:a": "looks for text in records, and arrays of a flow have none",
        "normalize:T,out=a.npy": "has no 'out'",
    }.items():
        flow = stead.flow()
        flow.write("out", a=flow.read("sim")["T"].kernel(kernel))
        with pytest.raises(stead.UsageError, match=f"node 'a'.*{says}"):
            flow.check()


def test_pictures_that_cannot_be(space):
    wrong = {
        "render:out=a.png": ({}, "is an array, and has no 'out'"),
        "render:width=0": ({}, "width and height"),
        "render": ({"member": "max"}, "no 'member', no 'shape' and no 'rows'"),
        "render:colors=x": ({}, "colors is"),
    }
    for kernel, (more, says) in wrong.items():
        flow = stead.flow()
        flow.write("out", a=flow.read("sim")["T"].kernel(kernel, **more))
        with pytest.raises(stead.UsageError, match=f"node 'a'.*{says}"):
            flow.check()
    flow = stead.flow()
    flow.write("out", a=flow.read("sim", variables={"T": ("f8", (3, 4), ("y", "x"))})["T"].kernel("render"))
    with pytest.raises(stead.UsageError, match="no 3-d array"):
        flow.check()


def test_what_makes_no_sense_is_refused_before(space):
    flow = stead.flow()
    sim = flow.read("sim", variables={"T": ("f8", (3, 4), ("y", "x"))})
    mean = sim["T"].mean(over="z")
    flow.write("out", mean=mean)
    with pytest.raises(stead.UsageError, match=r"node 'mean' \(mean over z\): there is no dimension 'z' in f64 \[3, 4\] \(y, x\)"):
        flow.check()
    with pytest.raises(stead.UsageError, match="no dimension 'z'"):
        flow.run(timeout=PATIENCE, dataspaces=space)
    flow = stead.flow()
    sim = flow.read("sim")
    flow.write("out", a=sim["T"], b=sim["T"].window(2))
    with pytest.raises(stead.UsageError, match="its values come at different steps: 'sim.T' each step, 'b' each step from 1"):
        flow.check()
    with pytest.raises(TypeError, match="no array of this flow"):
        flow.write("out", a=stead.flow().read("sim")["T"])
    with pytest.raises(stead.UsageError, match="this is no flow: line 2"):
        stead.flow("name = 'a'\nname = 'b'\n")
    with pytest.raises(stead.NotFoundError):
        stead.flow("/there/is/none.toml")
    with pytest.raises(stead.UsageError, match="the program gives no function 'f'"):
        text = "[read.sim]\n[node.a]\nop = 'map'\nof = 'sim.T'\nfunction = 'f'\n[write.out]\nvariables = { a = 'a' }\n"
        stead.flow(text).run(timeout=PATIENCE, dataspaces=space)
    with pytest.raises(TypeError, match="slices with numbers"):
        sim["T"]["x"]


def test_streams_that_are_there_are_looked_at_before(space, tmp_path):
    flow = simple()
    with pytest.raises(stead.NotFoundError, match="there is no stream 'sim'"):
        flow.check(live=True, dataspaces=space)
    assert flow.check()["nodes"][0]["makes"] == [None]
    wrong = stead.flow()
    wrong.write("out", U=wrong.read("sim")["U"].sum())
    other = stead.flow()
    other.write("out", T=other.read("sim")["T"].mean(over="z"))
    (tmp_path / "wrong.toml").write_text(wrong.to_toml())
    (tmp_path / "good.toml").write_text(flow.to_toml())

    def checks(name: str, *words: str):
        words = [command(), "flow", "check", tmp_path / name, *words]
        return subprocess.run(words, env=configured(space, tmp_path), capture_output=True, text=True, timeout=PATIENCE)

    with stead.writer("sim", timeout=PATIENCE, dataspaces=space) as w:
        with w.step():
            w.put("T", np.ones((2, 3)), dims=("y", "x"))
        assert flow.check(live=True, dataspaces=space)["nodes"][0]["makes"] == ["f64 []"]
        missing = r"stream 'sim' has no variable 'U', which node 'U' \(sum\) needs: there are T"
        with pytest.raises(stead.NotFoundError, match=missing):
            wrong.check(live=True, dataspaces=space)
        # So does `run`, before it begins: nobody has read a step.
        with pytest.raises(stead.NotFoundError, match=missing):
            wrong.run(timeout=PATIENCE, dataspaces=space)
        with pytest.raises(stead.UsageError, match=r"there is no dimension 'z' in f64 \[2, 3\] \(y, x\); it comes of variable 'T' of stream 'sim'"):
            other.run(timeout=PATIENCE, dataspaces=space)
        assert stead.stream_info("sim", dataspaces=space)["readers"] == []
        done = checks("good.toml", "--live")
        assert (done.returncode, done.stdout) == (0, "flow 'flow' makes sense of what its streams have: it reads 1 stream, has 1 node, and writes 1 stream\n"), done.stderr
        done = checks("good.toml", "--live", "--format", "json")
        assert json.loads(done.stdout)["nodes"][0]["makes"] == ["f64 []"]
        assert checks("wrong.toml").returncode == 0
        done = checks("wrong.toml", "--live")
        assert done.returncode == 1 and "has no variable 'U'" in done.stderr and f"{tmp_path}/wrong.toml" in done.stderr


def test_a_number_of_steps_is_taken_whatever_comes_after_them(space, tmp_path):
    with stead.writer("sim", persist=tmp_path / "sim", timeout=PATIENCE, dataspaces=space) as w:
        for shape in ((8, 2), (3,)):
            with w.step():
                w.put("T", np.ones(shape))
    flow = stead.flow()
    flow.write("out", U=flow.read(str(tmp_path / "sim"))["T"][:, 1].sum())
    with pytest.raises(stead.UsageError, match="T"):
        flow.run(timeout=PATIENCE, dataspaces=space)
    assert flow.run(steps=1, timeout=PATIENCE, dataspaces=space)["steps"] == 1
    for name in ("sim", "out"):
        stead.remove_stream(name, dataspaces=space)


MAPPED = """
[read.sim]
[node.mapped]
op = "map"
of = "sim.T"
function = "{function}"
[write.out]
variables = {{ T = "mapped" }}
readers = 1
"""


@pytest.mark.parametrize("where", ["beside.py:warmer", "folder/beside.py:Sorts.warmer", "package_of_flows.inner:warmer"])
def test_functions_of_python_are_loaded_where_the_file_says(space, tmp_path, monkeypatch, where):
    code = "def warmer(x):\n    return x + 1\n\n\nclass Sorts:\n    warmer = staticmethod(warmer)\n"
    for name in ("beside.py", "folder/beside.py", "package_of_flows/inner.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "mapped.toml"
    file.write_text(MAPPED.format(function=where))
    steps = [{"T": (np.arange(4.0), None)}]
    flow = stead.flow(file, load=True)
    assert [list(step["T"]) for step in ran(flow, space, steps, ["out"])[0]] == [[1.0, 2.0, 3.0, 4.0]]
    # What is given goes before it, and without a word nothing is loaded.
    flow = stead.flow(file, functions={where: lambda x: x * 2}, load=True)
    assert [list(step["T"]) for step in ran(flow, space, steps, ["out"])[0]] == [[0.0, 2.0, 4.0, 6.0]]
    with pytest.raises(stead.UsageError, match="is one of Python, and was not loaded") as raised:
        stead.flow(file).run(timeout=PATIENCE, dataspaces=space)
    assert "load=True" in raised.value.hint
    done = subprocess.run([command(), "flow", "run", file], env=configured(space, tmp_path), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2 and done.stderr.count("stead: ") == 1 and "run the flow from Python" in done.stderr, done.stderr


def test_functions_that_are_not_there(tmp_path):
    (tmp_path / "empty.py").write_text("x = 3\n")
    file = tmp_path / "mapped.toml"
    for function, kind in {"none.py:f": stead.NotFoundError, "empty.py:x": stead.NotFoundError, "no_module_at_all:f": ImportError}.items():
        file.write_text(MAPPED.format(function=function))
        with pytest.raises(kind):
            stead.flow(file, load=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler of C")
def test_functions_of_libraries_are_loaded_when_it_is_said(space, tmp_path):
    """examples/flows/warmer.c and examples/flows/warmer.toml, by the command and from Python."""
    shutil.copy(FLOWS / "warmer.toml", tmp_path)
    words = ["cc", "-shared", "-fPIC", f"-I{ROOT / 'include'}", FLOWS / "warmer.c", "-o", tmp_path / "warmer.so"]
    subprocess.run(words, check=True)
    env = configured(space, tmp_path) | {"LD_LIBRARY_PATH": "/there/is/none"}
    words = [command(), "flow", "run", tmp_path / "warmer.toml", "--format", "json"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2 and "which was not loaded" in done.stderr and "--load" in done.stderr, done.stderr

    def simulated(begin) -> tuple:
        with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
            running = begin()
            reading: list[list[float]] = []

            def read() -> None:
                reading.extend(list(step["T"]) for step in stead.reader("warm", timeout=PATIENCE, dataspaces=space))

            thread = threading.Thread(target=read)
            thread.start()
            for n in range(2):
                with w.step():
                    w.put("T", np.arange(3.0) + n)
        thread.join()
        return reading, running

    wanted = [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    had, running = simulated(lambda: subprocess.Popen([*words, "--load"], cwd="/", env=env, stdout=subprocess.PIPE, text=True))
    assert json.loads(running.communicate(timeout=PATIENCE)[0])["steps"] == 2
    assert had == wanted[-len(had) :] and had
    had, running = simulated(lambda: stead.flow(tmp_path / "warmer.toml", load=True).start(timeout=PATIENCE, dataspaces=space))
    assert running.join(PATIENCE)["steps"] == 2
    assert had == wanted[-len(had) :] and had


def test_a_picture_is_svg_and_png(tmp_path):
    flow = stead.flow(FLOWS / "small.toml")
    picture = flow.show(tmp_path / "small.svg")
    assert picture == picture._repr_svg_() == flow._repr_svg_() == (tmp_path / "small.svg").read_text()
    root = ElementTree.fromstring(picture)
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"sim", "mean", "few", "hot", "small", "ranges", "mean over y"} <= set(texts)
    flow.show(tmp_path / "small.png")
    assert (tmp_path / "small.png").read_bytes().startswith(b"\x89PNG\r\n")
    with pytest.raises(stead.UsageError, match=r"is no picture"):
        flow.show(tmp_path / "small.pdf")
    assert repr(flow) == "<stead.Flow 'small': reads 1, nodes 4, writes 2>"


def configured(space, tmp_path) -> dict[str, str]:
    """An environment whose streams are the test's own."""
    path = tmp_path / "stead.toml"
    path.write_text(f'[dataspace.memory]\npath = "{space["memory"]}"\n')
    return os.environ | {"STEAD_CONFIG": str(path)}


def test_the_command_names_the_file_and_the_stream(space, tmp_path):
    env = configured(space, tmp_path)

    def run(*words) -> subprocess.CompletedProcess:
        return subprocess.run([command(), "flow", *words], env=env, capture_output=True, text=True, timeout=PATIENCE)

    file = tmp_path / "cyc.toml"
    around = '[read.sim]\n[node.a]\nop = "scale"\nof = "b"\n[node.b]\nop = "scale"\nof = "a"\n[write.o]\nvariables = { o = "a" }\n'
    file.write_text(around, encoding="utf-8")
    for verb in "check", "run":
        done = run(verb, file)
        assert done.returncode == 2 and f"{file}: nodes need each other" in done.stderr, done.stderr
    file.write_text('[read.sim]\n[write."a b"]\nvariables = { o = "sim.T" }\n', encoding="utf-8")
    for verb in "check", "run":
        done = run(verb, file)
        assert done.returncode == 2 and f"{file}: [write]: 'a b' is no name for a stream" in done.stderr, done.stderr
    done = run("run", file, "--steps", "0")
    assert done.returncode == 2 and "--steps" in done.stderr, done.stderr
    file.write_text('[read.sim]\n[write.o]\nvariables = { o = "sim.T" }\n', encoding="utf-8")
    done = run("run", file, "--timeout", "1s")
    assert done.returncode == 1 and "stead: nobody writes a stream 'sim'" in done.stderr, done.stderr
    assert "hint: begin its writers" in done.stderr and space["memory"] in done.stderr


def test_the_example_and_the_command_say_the_same(space, tmp_path):
    """examples/flows/small.py and examples/flows/small.toml."""
    env = configured(space, tmp_path)
    script = subprocess.Popen([sys.executable, FLOWS / "small.py"], env=env, stdout=subprocess.PIPE, text=True)
    r = stead.reader("ranges", timeout=PATIENCE, dataspaces=space)
    told = [(np.array(step["highest"]), step.variable("highest").attributes["sim.steps"]) for step in r]
    assert script.communicate(timeout=PATIENCE)[0] == "20 steps\n"
    # The sum of the numbers up to n, but for the edges.
    inner = np.array([45.0 * 62 / 64, 190.0 * 62 / 64])
    np.testing.assert_allclose([highest[1] for highest, _ in told], inner[-len(told) :])
    assert [of for _, of in told] == [[0, 9, 1], [10, 19, 1]][-len(told) :]

    def stead_flow(*words):
        return subprocess.run([command(), "flow", *words], env=env, capture_output=True, text=True, timeout=PATIENCE)

    done = stead_flow("check", FLOWS / "small.toml")
    assert (done.returncode, done.stdout) == (0, "flow 'small' makes sense: it reads 1 stream, has 4 nodes, and writes 2 streams\n")
    told = json.loads(stead_flow("show", FLOWS / "small.toml", "--format", "json").stdout)
    assert told == stead.flow(FLOWS / "small.toml").check()
    shown = stead_flow("show", FLOWS / "small.toml").stdout
    assert "max of 10 steps, every 10" in shown and "every 10 steps from 9" in shown
    assert stead_flow("show", FLOWS / "small.toml", "-o", tmp_path / "a.svg").returncode == 0
    assert (tmp_path / "a.svg").read_text() == stead.flow(FLOWS / "small.toml").show()
    done = stead_flow("show", FLOWS / "small.toml", "-o", tmp_path / "a.txt")
    assert done.returncode == 2 and "is no picture" in done.stderr
    (tmp_path / "bad.toml").write_text("[read.sim]\n[node.a]\nop = 'cast'\nof = 'a'\nto = 'f32'\n[write.out]\nvariables = { a = 'a' }\n")
    done = stead_flow("check", tmp_path / "bad.toml")
    assert done.returncode == 2 and f"{tmp_path}/bad.toml: nodes need each other: a -> a" in done.stderr
    done = stead_flow("run", FLOWS / "small.toml", "--timeout", "1s")
    assert done.returncode == 1 and "nobody writes a stream 'sim'" in done.stderr

    running = subprocess.Popen([command(), "flow", "run", FLOWS / "small.toml", "--steps", "3", "--format", "json"], env=env, stdout=subprocess.PIPE, text=True)
    with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
        for n in range(5):
            with w.step():
                w.put("T", np.full((8, 8), float(n)), dims=("y", "x"))
    report = json.loads(running.communicate(timeout=PATIENCE)[0])
    assert report["steps"] == 3
    assert report["streams"][1] == {"stream": "small", "steps": 3, "bytes": 3 * (8 * 8 + 4 * 4)}
    list(stead.reader("small", timeout=PATIENCE, dataspaces=space))


def test_who_reads_is_told_when_a_flow_is_killed_and_when_it_is_interrupted(space, tmp_path):
    env = configured(space, tmp_path)
    (tmp_path / "sum.toml").write_text(simple().to_toml())
    for sent in (signal.SIGKILL, signal.SIGINT):
        with stead.writer("sim", readers=1, timeout=PATIENCE, dataspaces=space) as w:
            running = subprocess.Popen([command(), "flow", "run", tmp_path / "sum.toml"], env=env, stderr=subprocess.PIPE, text=True)
            r = stead.reader("out", timeout=PATIENCE, dataspaces=space)
            with w.step():
                w.put("T", np.ones(3))
            assert r.next()["T"] == 3.0
            running.send_signal(sent)
            said = running.communicate(timeout=PATIENCE)[1]
            assert running.returncode == (-9 if sent == signal.SIGKILL else 130), said
            with pytest.raises(stead.PeerError):
                r.next()
            r.close()
            # Nobody waits for it any more.
            for _ in range(6):
                with w.step():
                    w.put("T", np.ones(3))
        stead.remove_stream("sim", force=True, dataspaces=space)


def test_what_was_recorded_is_read_and_what_comes_out_is_recorded(space, tmp_path):
    with stead.writer("sim", persist=tmp_path / "sim", timeout=PATIENCE, dataspaces=space) as w:
        for n in range(4):
            with w.step():
                w.put("T", np.full(5, float(n)))
    flow = stead.flow()
    sim = flow.read(str(tmp_path / "sim"), start="first", behind="spill", nodes=[])
    flow.write("out", sum=sim["T"].sum(), persist=tmp_path / "out")
    assert flow.run(timeout=PATIENCE, dataspaces=space)["steps"] == 4
    assert [float(step["sum"]) for step in stead.reader(tmp_path / "out", timeout=PATIENCE)] == [0.0, 5.0, 10.0, 15.0]
    (said,) = stead.flow(flow.to_toml())._graph["read"].values()
    assert (said["start"], said["behind"], said["nodes"]) == ("first", "spill", [])
    live = stead.flow()
    live.read("sim", behind="drop", queue=1, keep=2)
    (said,) = stead.flow(live.to_toml())._graph["read"].values()
    assert (said["behind"], said["queue"], said["keep"]) == ("drop", 1, 2)
    flow.write("more", sum=sim["T"].sum(), spill=tmp_path / "spill", spill_limit="1GiB")
    said = stead.flow(flow.to_toml())._graph["write"]["more"]
    assert (said["spill"], said["spill_limit"]) == (str(tmp_path / "spill"), "1GiB")
