"""Streams and real ADIOS2: files and SST, in both directions."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import stead
import stead.adios2
from test_streams import PATIENCE, ended, programs, space

__all__ = ["programs", "space"]

DTYPES = ("f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1")
needed = pytest.mark.skipif(importlib.util.find_spec("adios2") is None, reason="the package adios2 is not installed")


def field(step: int, dtype: str) -> np.ndarray:
    """What each variable of a type is."""
    return (np.arange(6 * 7).reshape(6, 7) + 50 * step).astype(dtype)


# Writes with ADIOS2 alone, and reads so: nothing of stead is in these programs.
WRITES = """
    import adios2, numpy as np, sys
    engine, path, dtypes = sys.argv[1:4]
    library = adios2.Adios()
    io = library.declare_io("w")
    io.set_engine(engine)
    f = io.open(path, adios2.Mode.Write)
    made = {d: io.define_variable(f"v_{d}", np.empty(1, d), [6, 7], [0, 0], [6, 7]) for d in dtypes.split(",")}
    t = io.define_variable("t", np.empty(1))
    io.define_attribute("units", "K", "v_f8")
    io.define_attribute("dimensions", "y,x", "v_f8")
    io.define_attribute("levels", np.array([1, 2, 3]), "v_f8")
    io.define_attribute("title", "run 5")
    io.define_attribute("dt", 0.5)
    for n in range(5):
        f.begin_step()
        f.put(t, np.array([n / 2]), adios2.Mode.Sync)
        for d, v in made.items():
            whole = (np.arange(6 * 7).reshape(6, 7) + 50 * n).astype(d)
            for start, count in ([0, 0], [2, 7]), ([2, 0], [4, 3]), ([2, 3], [4, 4]):
                v.set_selection([start, count])
                part = whole[start[0]:start[0] + count[0], start[1]:start[1] + count[1]]
                f.put(v, np.ascontiguousarray(part), adios2.Mode.Sync)
        f.end_step()
    f.close()
"""
READS = """
    import adios2, json, numpy as np, sys
    library = adios2.Adios()
    io = library.declare_io("r")
    io.set_engine(sys.argv[1])
    f = io.open(sys.argv[2], adios2.Mode.Read)
    while f.begin_step(adios2.StepMode.Read, 60.0) == adios2.StepStatus.OK:
        told = {"attributes": {}, "variables": {}}
        for name in io.available_attributes():
            a = io.inquire_attribute(name)
            told["attributes"][name] = a.data_string() if a.type() == "string" else a.data().tolist()
        for name in io.available_variables():
            v = io.inquire_variable(name)
            blocks, a_byte = None, ("char", "int8_t", "uint8_t")
            if v.shape() and v.type() not in a_byte:
                blocks = [[b["Start"], b["Count"]] for b in f.blocks_info(name, f.current_step())]
            a = np.empty(v.shape(), {"double": "f8", "float": "f4", "char": "i1"}.get(v.type(), v.type().removesuffix("_t")))
            f.get(v, a)
            told["variables"][name] = [str(a.dtype), list(a.shape), a.tolist(), blocks]
        print(json.dumps(told), flush=True)
        f.end_step()
    f.close()
"""


def begin(code: str, *words: object) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *map(str, words)], **pipes)


BLOCKS = [((0, 0), (2, 7)), ((2, 0), (4, 3)), ((2, 3), (4, 4))]


def boxes(parts) -> list:
    return sorted((tuple(s.start for s in box), tuple(s.stop - s.start for s in box)) for _, box in parts)


@needed
@pytest.mark.parametrize("engine", ["BP5", "SST"])
def test_what_adios2_writes_is_a_stream(space, programs, tmp_path, monkeypatch, engine):
    # SST has its files beside the program.
    monkeypatch.chdir(tmp_path)
    writer = begin(WRITES, engine, "sim.bp", ",".join(DTYPES))
    if engine == "BP5":
        ended(writer)
    copies = programs.begin(f"import stead.adios2; say(stead.adios2.copy_in('sim.bp', 'sim', engine={engine!r}, readers=1, dataspaces=S))")
    steps = 0
    for step in stead.reader("sim", dataspaces=space, timeout=PATIENCE):
        assert step.number == steps and set(step) == {"t", "global_attributes", *(f"v_{d}" for d in DTYPES)}
        for d in DTYPES:
            v = step[f"v_{d}"]
            assert v.dtype == d and (v == field(steps, d)).all()
            # ADIOS2 cannot always tell those of one byte: it takes numbers for text.
            whole = [((0, 0), (6, 7))] if d in ("i1", "u1") else BLOCKS
            assert boxes(step.parts(f"v_{d}")) in (BLOCKS, whole)
        # A block is read where it lies.
        assert not step.get("v_f8", BLOCKS[1]).flags.owndata
        v = step.variable("v_f8")
        assert (v.dims, v.attributes) == (("y", "x"), {"units": "K", "levels": [1, 2, 3]})
        assert step.variable("v_f4").attributes == {} and step["t"].shape == () and step["t"] == steps / 2
        assert step.variable("global_attributes").attributes == {"title": "run 5", "dt": 0.5}
        steps += 1
    assert steps == 5 and ended(copies) == "5\n"
    ended(writer)


@needed
@pytest.mark.parametrize("engine", ["BP5", "SST"])
def test_a_stream_is_what_adios2_reads(space, programs, tmp_path, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)
    code = """
        import stead.adios2
        say(stead.adios2.copy_out("sim", "out.bp", engine={engine!r}, dataspaces=S))
    """
    copies = programs.begin(code.format(engine=engine))
    reader = begin(READS, "SST", "out.bp") if engine == "SST" else None
    writers = []
    for rank in range(2):
        writes = f"""
            with stead.writer("sim", rank={rank}, writers=2, readers=1, dataspaces=S) as w:
                for n in range(4):
                    with w.step():
                        a = (np.arange(6 * 7).reshape(6, 7) + 50 * n)
                        for d in {DTYPES!r}:
                            some = {{"dims": ("y", "x"), "units": "K", "attributes": {{"levels": [1.5, 2]}}}} if d == "f8" else {{}}
                            w.put(f"v_{{d}}", a[3 * {rank}:3 * {rank} + 3].astype(d), shape=(6, 7), start=(3 * {rank}, 0), **some)
                        w.put("grows", np.full({rank} + n, n), shape=(2 * n + 1,), start=({rank} * n,))
                        if {rank} == 0:
                            w.put("t", 0.5 * n, attributes={{"number": n}})
        """
        writers.append(programs.begin(writes))
    for one in writers:
        ended(one)
    assert ended(copies) == "4\n"
    out = ended(reader or begin(READS, engine, "out.bp"))
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 4
    for n, row in enumerate(rows):
        for d in DTYPES:
            dtype, shape, values, blocks = row["variables"][f"v_{d}"]
            assert (dtype, shape) == (str(np.dtype(d)), [6, 7]) and (d in ("i1", "u1") or sorted(blocks) == [["0,0", "3,7"], ["3,0", "3,7"]])
            assert values == field(n, d).tolist()
        assert row["variables"]["t"] == ["float64", [], 0.5 * n, None]
        assert row["variables"]["grows"][1:3] == [[2 * n + 1], [n] * (2 * n + 1)]
        told = {"v_f8/units": "K", "v_f8/levels": [1.5, 2.0], "v_f8/dimensions": "y,x"}
        assert told.items() <= row["attributes"].items(), row["attributes"]
        assert set(row["attributes"]) - set(told) == {"t/number"}


@needed
def test_there_and_back_is_the_same(space, tmp_path):
    said = {"title": "run 5", "names": ["a", "b"], "n": 3, "x": [0.5]}
    with stead.writer("one", keep=3, dataspaces=space) as w:
        for n in range(3):
            with w.step():
                w.put("T", field(n, "f4"), dims=("y", "x"), units="K", attributes=said)
                w.put("T/flux", field(n, "i2"), attributes={"units": "W"})
                w.put("global_attributes", np.uint8(0), attributes=said)
    assert stead.adios2.copy_out("one", tmp_path / "f.bp", dataspaces=space) == 3
    assert stead.adios2.copy_in(tmp_path / "f.bp", "two", keep=3, dataspaces=space) == 3
    with stead.reader("two", dataspaces=space) as r:
        for n in range(3):
            step = r.next()
            assert sorted(step) == ["T", "T/flux", "global_attributes"]
            assert (step["T"] == field(n, "f4")).all() and (step["T/flux"] == field(n, "i2")).all()
            assert step.variable("T").attributes == said | {"units": "K"} and step.variable("T").dims == ("y", "x")
            assert step.variable("T/flux").attributes == {"units": "W"}
            assert step.variable("global_attributes").attributes == said
        assert r.next() is None


@needed
@pytest.mark.parametrize("other", [field(1, "f4"), np.arange(6.0)])
def test_what_adios2_keeps_for_good_may_not_change(space, tmp_path, other):
    """Of a variable that has another type by now, bytes were taken for those of the first one, and of more than there were."""
    with stead.writer("one", keep=2, dataspaces=space) as w:
        for values in (field(0, "f8"), other):
            with w.step():
                w.put("right", np.arange(3))
                w.put("T", values)
    with pytest.raises(TypeError, match="variable 'T' is .* in step 1 and was float64 with 2 dimensions"):
        stead.adios2.copy_out("one", tmp_path / "f.bp", dataspaces=space)


@needed
def test_arrays_without_elements_and_attributes_of_others(space, tmp_path):
    with stead.writer("one", keep=3, dataspaces=space) as w:
        for n in range(3):
            with w.step():
                w.put("n", np.int64(n))
                w.put("empty", np.empty((0, 3)))
                if n != 1:
                    w.put("T", field(n, "f8"), units="K")
    assert stead.adios2.copy_out("one", tmp_path / "f.bp", dataspaces=space) == 3
    assert stead.adios2.copy_in(tmp_path / "f.bp", "two", keep=3, dataspaces=space) == 3
    with pytest.warns(UserWarning, match="no step has had 'misspelt'"):
        assert stead.adios2.copy_in(tmp_path / "f.bp", "three", keep=3, variables=["n", "misspelt"], dataspaces=space) == 3
    with stead.reader("two", dataspaces=space) as r:
        for n, step in enumerate(r):
            # What is said of a variable is not of all where that is not in the step.
            assert sorted(step) == (["T"] if n != 1 else []) + ["empty", "n"]
            assert step["empty"].shape == (0, 3) and step["n"] == n
    with stead.reader("three", dataspaces=space) as r:
        for step in r:
            assert sorted(step) == ["n"] and step.variable("n").attributes == {}


@needed
def test_several_processes_share_the_blocks_of_a_file(space, programs, tmp_path):
    ended(begin(WRITES, "BP5", tmp_path / "sim.bp", "f8"))
    code = "import stead.adios2; stead.adios2.copy_in({!r}, 'sim', rank={}, writers=2, readers=1, dataspaces=S)"
    both = [programs.begin(code.format(str(tmp_path / "sim.bp"), rank)) for rank in range(2)]
    for step in stead.reader("sim", dataspaces=space, timeout=PATIENCE):
        assert (step["v_f8"] == field(step.number, "f8")).all() and boxes(step.parts("v_f8")) == BLOCKS
        assert {rank for rank, _ in step.parts("v_f8")} == {0, 1}
    assert step.number == 4
    for one in both:
        ended(one)


class Comm:
    """As much of a communicator as is looked at."""

    rank, size = 0, 2


@pytest.mark.parametrize("several", [{"rank": 0, "ranks": 2}, {"rank": 1}, {"ranks": 2}, {"comm": Comm()}])
def test_one_process_writes_what_adios2_reads(space, tmp_path, several):
    with pytest.raises(TypeError, match="one process writes '.*out.bp': say neither rank nor ranks, and no comm of several"):
        stead.adios2.copy_out("sim", tmp_path / "out.bp", timeout=1, dataspaces=space, **several)
    assert not (tmp_path / "out.bp").exists()


@pytest.mark.parametrize("several", [{"rank": 0, "writers": 2}, {"rank": 1}, {"comm": Comm()}])
def test_one_process_copies_what_comes_over_sst(space, several):
    with pytest.raises(TypeError, match="one process copies what comes over SST: say neither rank nor writers, and no comm of several"):
        stead.adios2.copy_in("sim", "sim", engine="SST", timeout=1, dataspaces=space, **several)
    assert stead.streams(dataspaces=space) == []


@needed
def test_one_of_one_is_no_other_than_all(space, tmp_path):
    with stead.writer("one", dataspaces=space) as w, w.step():
        w.put("T", field(0, "f4"))
    assert stead.adios2.copy_out("one", tmp_path / "f.bp", rank=0, ranks=1, dataspaces=space) == 1


@needed
def test_what_a_stream_cannot_have_is_told(space, tmp_path):
    code = """
        import adios2, numpy as np, sys
        library = adios2.Adios()
        io = library.declare_io("w")
        f = io.open(sys.argv[1], adios2.Mode.Write)
        made = [io.define_variable("text", "abc"), io.define_variable("complex", np.zeros(2, "c16"), [2], [0], [2]),
                io.define_variable("local", np.zeros(2), [], [], [2]), io.define_variable("right", np.zeros(2), [2], [0], [2])]
        f.begin_step()
        for v, a in zip(made, ("hello", np.zeros(2, "c16"), np.zeros(2), np.ones(2))):
            f.put(v, a, adios2.Mode.Sync) if not isinstance(a, str) else f.put(v, a)
        f.end_step()
        f.close()
    """
    path = tmp_path / "odd.bp"
    ended(begin(code, path))
    for name, why in ("text", "elements of type string"), ("complex", "elements of type"), ("local", "no global shape"):
        with pytest.raises(TypeError, match=f"variable '{name}' has {why}"):
            stead.adios2.copy_in(path, "sim", variables=[name, "right"], dataspaces=space)
    # Readers are told that nothing came of it.
    with stead.reader("sim", dataspaces=space) as r, pytest.raises(stead.PeerError, match="before a step was complete"):
        r.next()
    assert stead.adios2.copy_in(path, "sim", variables=["right"], dataspaces=space) == 1
    with stead.reader("sim", dataspaces=space) as r:
        assert (r.next()["right"] == 1).all() and r.next() is None
    with pytest.raises(stead.IoError, match="cannot open '.*none.bp' with its engine BP5") as e:
        stead.adios2.copy_in(tmp_path / "none.bp", "sim", timeout=1, dataspaces=space)
    assert e.value.path == str(tmp_path / "none.bp")
    with pytest.raises(stead.IoError, match="engine Steam"):
        stead.adios2.copy_in(path, "sim", engine="Steam", dataspaces=space)


@needed
def test_a_writer_that_does_not_go_on_is_told(space, programs, tmp_path):
    code = """
        import adios2, numpy as np, sys
        library = adios2.Adios()
        io = library.declare_io("w")
        f = io.open(sys.argv[1], adios2.Mode.Write)
        v = io.define_variable("v", np.zeros(2), [2], [0], [2])
        f.begin_step(); f.put(v, np.ones(2), adios2.Mode.Sync); f.end_step()
        print("go", flush=True); sys.stdin.readline()
    """
    path = tmp_path / "slow.bp"
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline() == "go\n"
        with pytest.raises(stead.TimedOutError, match="the next step of '.*slow.bp' has not come in 1.5 s"):
            stead.adios2.copy_in(path, "sim", timeout=1.5, dataspaces=space)
        with stead.reader("sim", dataspaces=space) as r:
            assert (r.next()["v"] == 1).all()
            with pytest.raises(stead.PeerError, match="after step 0"):
                r.next()
    finally:
        writer.kill()
        writer.communicate()


@needed
def test_the_command_of_the_module(space, tmp_path):
    config = tmp_path / "stead.toml"
    config.write_text(f'[dataspace.memory]\npath = "{space["memory"]}"\n')
    ended(begin(WRITES, "BP5", tmp_path / "sim.bp", "f8,i4"))
    words = [sys.executable, "-m", "stead.adios2"]
    env = os.environ | {"STEAD_CONFIG": str(config)}
    out = subprocess.Popen([*words, "out", "sim", tmp_path / "copy.bp"], env=env, stdout=subprocess.PIPE, text=True)
    done = subprocess.run([*words, "in", tmp_path / "sim.bp", "sim", "--variables", "v_i4,t", "--readers", "1"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "5 steps\n"), done.stderr
    assert out.communicate(timeout=PATIENCE)[0] == "5 steps\n"
    row = json.loads(ended(begin(READS, "BP5", tmp_path / "copy.bp")).splitlines()[-1])
    assert set(row["variables"]) == {"v_i4", "t"} and row["variables"]["v_i4"][2] == field(4, "i4").tolist()
    bad = subprocess.run([*words, "in", tmp_path / "none.bp", "sim", "--timeout", "1"], env=env, capture_output=True, text=True)
    assert bad.returncode == 1 and "none.bp" in bad.stderr and "Traceback" not in bad.stderr


@needed
def test_the_command_of_the_module_goes_over_sst_both_ways(space, tmp_path, monkeypatch):
    """A program of ADIOS2, the command, a stream, the command, and another program of ADIOS2, all at the same time."""
    config = tmp_path / "stead.toml"
    config.write_text(f'[dataspace.memory]\npath = "{space["memory"]}"\n')
    # SST has its files beside the programs.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEAD_CONFIG", str(config))
    over = ("--engine", "SST", "--set", "RendezvousReaderCount=1", "--timeout", str(PATIENCE))

    def command(*words: str) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-m", "stead.adios2", *words, *over], **pipes)

    copies = [command("in", "sim.bp", "sim", "--readers", "1"), command("out", "sim", "copy.bp")]
    writer, reader = begin(WRITES, "SST", "sim.bp", "f8,i4"), begin(READS, "SST", "copy.bp")
    try:
        ended(writer)
        assert [ended(one) for one in copies] == ["5 steps\n"] * 2
        rows = [json.loads(line) for line in ended(reader).splitlines()]
    finally:
        for one in (*copies, writer, reader):
            one.kill()
            one.communicate()
    assert len(rows) == 5
    for n, row in enumerate(rows):
        for d in ("f8", "i4"):
            dtype, shape, values, blocks = row["variables"][f"v_{d}"]
            assert (dtype, shape, values) == (str(np.dtype(d)), [6, 7], field(n, d).tolist())
            assert sorted(blocks) == [["0,0", "2,7"], ["2,0", "4,3"], ["2,3", "4,4"]]
        assert row["variables"]["t"] == ["float64", [], 0.5 * n, None]
        assert {"v_f8/units": "K", "v_f8/dimensions": "y,x", "title": "run 5"}.items() <= row["attributes"].items(), row["attributes"]


def test_without_the_package_it_says_what_to_do(space):
    code = f"""
        import sys
        sys.modules["adios2"] = None
        import stead.adios2
        for copy in stead.adios2.copy_in, stead.adios2.copy_out:
            try:
                copy("a", "b", dataspaces={space!r})
            except ImportError as e:
                print(e)
    """
    assert ended(begin(code)) == "stead.adios2 needs the package adios2: pip install adios2\n" * 2
