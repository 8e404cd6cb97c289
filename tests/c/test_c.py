"""The C and C++ faces: their own tests, under sanitizers and Valgrind; the same answers as the command."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest
from building import HERE, SANITIZERS, WARNINGS, run
from node import node
from support import ROOT, in_all, unanswered

VALGRIND = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]

PROGRAMS = ["data", "run", "kernels", "read", "answers", "tipsy", "calibrate", "offload", "stage", "exit"]

# For every kernel something that runs on the flights; `render` is for volumes.
ON_FLIGHTS = {
    "lines": ["lines"],
    "rows": ["rows"],
    "count": ["count:arr_delay"],
    "sum": ["sum:distance", "sum:arr_delay"],
    "mean": ["mean:arr_delay"],
    "var": ["var:dep_delay"],
    "std": ["std:dep_delay"],
    "min": ["min:air_time"],
    "max": ["max:air_time"],
    "hist": ["hist:distance,bins=7"],
    "quantile": ["quantile:arr_delay,q=0.1;0.5;0.99"],
    "gram": ["gram:dep_delay,arr_delay,distance"],
    "kmeans": ["kmeans:distance,sched_dep_time,k=3,seed=7"],
    "digits": ["digits"],
    "entropy": ["entropy"],
    "grep": ["grep:UA.*EWR", "grep:N14228,lines,max=2"],
    "normalize": ["normalize:distance,out=distance.npy"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_c_under_sanitizers(installed, tmp_path, name):
    program = installed.compile(HERE / f"test_{name}.c", tmp_path, *SANITIZERS)
    assert " 0 failed" in installed.run(program, cwd=tmp_path)


# What machines do is measured there for two minutes.
CALIBRATES = pytest.param("test_calibrate.c", marks=in_all)


@pytest.mark.parametrize("source", [*(f"test_{name}.c" for name in PROGRAMS if name != "calibrate"), CALIBRATES, "reading.cpp"])
def test_under_valgrind(installed, tmp_path, source):
    """Looks into the library, too, which the compiler's sanitizers do not."""
    few = ["-DTEST_ROWS=10000"] if source == "test_kernels.c" else []
    program = installed.compile(HERE / source, tmp_path, *few, standard="c++20" if source.endswith(".cpp") else None)
    assert " 0 failed" in installed.run(*VALGRIND, program, cwd=tmp_path)


@pytest.mark.parametrize("source", ["test_daemon.c", "test_admin.c", "daemon.cpp", "admin.cpp"])
def test_a_daemon(installed, tmp_path, source):
    program = installed.compile(HERE / source, tmp_path, *SANITIZERS)
    with node() as one:
        assert " 0 failed" in installed.run(program, one.path, one.at / "big", cwd=tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="several users are there for root only")
@pytest.mark.parametrize("source", ["test_admin.c", "admin.cpp"])
def test_others_read_what_is_shared(installed, tmp_path, source):
    program = installed.compile(HERE / source, tmp_path)
    with node() as one:
        assert " 0 failed" in installed.run(program, one.path, one.at / "big", "daemon", cwd=tmp_path)


@pytest.mark.parametrize("source", ["daemon.cpp", "admin.cpp"])
def test_a_daemon_under_valgrind(installed, tmp_path, source):
    program = installed.compile(HERE / source, tmp_path, standard="c++20")
    with node() as one:
        assert " 0 failed" in installed.run(*VALGRIND, program, one.path, one.at / "big", cwd=tmp_path)


def test_a_store_that_does_not_answer(installed, tmp_path):
    program = installed.compile(HERE / "unanswered.cpp", tmp_path, *SANITIZERS)
    with node() as one, unanswered() as url:
        assert " 0 failed" in installed.run(program, one.path, f"{url}/f", cwd=tmp_path)


CPP = ["face", "reader", "reading", "stage", "tipsy"]


# With std::span one has what the others have not.
@pytest.mark.parametrize("name, standard", [
    *((name, "c++17") for name in CPP), *(pytest.param(name, "c++20", marks=[in_all] if name != "face" else []) for name in CPP),
])
def test_cpp(installed, tmp_path, name, standard):
    program = installed.compile(HERE / f"{name}.cpp", tmp_path, *SANITIZERS, standard=standard)
    assert " 0 failed" in installed.run(program, cwd=tmp_path)


def test_a_reader_with_another_standard_library(installed, tmp_path):
    """Where FileReader cannot set what gcount() gives, each read is one of the library's."""
    program = installed.compile(HERE / "reader.cpp", tmp_path, *SANITIZERS, "-DSTEAD_READER_FAST=0")
    assert " 0 failed" in installed.run(program, cwd=tmp_path)


@pytest.mark.parametrize(
    "compiler, standard", [("gcc", "c99"), ("gcc", "c11"), ("gcc", "c17"), ("g++", "c++11"), ("g++", "c++20")]
)
def test_the_header_stands_alone(tmp_path, compiler, standard):
    source = tmp_path / ("a.c" if compiler == "gcc" else "a.cpp")
    source.write_text('#include "stead_admin.h"\n#include "stead.h"\n#include "stead_admin.h"\n')
    flags = [*WARNINGS, "-Wconversion", "-Wundef", f"-I{ROOT / 'include'}", f"-std={standard}"]
    run(compiler, *flags, "-c", source, "-o", tmp_path / "a.o")


def test_every_function_is_documented_and_tested():
    header = "".join((ROOT / "include" / name).read_text() for name in ("stead.h", "stead_admin.h"))
    tests = "".join(p.read_text() for p in [*HERE.glob("*.c"), *HERE.glob("*.cpp")])
    # What is only spoken of is not called.
    tests = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", "", tests, flags=re.DOTALL)
    functions = re.findall(r"^[a-z].*?\b(stead_[a-z_0-9]+)\(", header, re.MULTILINE)
    assert len(functions) > 80
    undocumented = re.findall(r"(?<!\*/)\n(?:[a-z]\w* )+\**(stead_[a-z_0-9]+)\(", header)
    assert undocumented == []
    assert [f for f in functions if not re.search(rf"\b{f}\b", tests)] == []


@pytest.fixture(scope="session", params=["c", "cpp"])
def reporter(request, installed, tmp_path_factory):
    return installed.compile(HERE / f"report.{request.param}", tmp_path_factory.mktemp("report"))


def text_of(report: str, member: str) -> str:
    """The text of a member of a report: floats are compared as they are written."""
    return json.dumps(json.loads(report, parse_float=str, parse_int=str)[member], indent=1)


def same_results(stead, installed, reporter, dataset, specs, *more) -> None:
    """The JSON of the command and of C, or of C++, say the same, digit by digit."""
    flags = {"-b": "--by", "-w": "--where"}
    options = [flags.get(m, m) for m in more]
    kernels = [a for s in specs for a in ("-k", s)]
    cli = stead("run", dataset, *kernels, *options, "--format", "json").stdout.decode()
    c = installed.run(reporter, dataset, *more, *specs, cwd=stead.cwd)
    assert text_of(c, "results") == text_of(cli, "results")
    assert list(json.loads(c)) == list(json.loads(cli))


def test_the_command_and_programs_say_the_same(stead, installed, reporter, flights):
    names = {k["name"] for k in json.loads(stead("kernels", "--format", "json").stdout)}
    assert names == {*ON_FLIGHTS, "render"}, "a kernel is new or gone: say what runs on the flights"
    specs = [s for name in ON_FLIGHTS for s in ON_FLIGHTS[name]]
    same_results(stead, installed, reporter, flights, specs)


def test_the_command_and_programs_say_the_same_of_groups_and_filters(stead, installed, reporter, flights):
    specs = [s for name in ("rows", "mean", "quantile", "gram", "hist") for s in ON_FLIGHTS[name]]
    specs = [s for s in specs if not s.startswith("hist")] + ["hist:distance,bins=7,min=0,max=5000"]
    same_results(stead, installed, reporter, flights, specs, "-b", "carrier", "-w", "dep_delay > 0")


def test_the_command_and_programs_say_the_same_of_a_volume(stead, installed, reporter, tmp_path):
    z, y, x = np.mgrid[-1:1:24j, -1:1:24j, -1:1:24j]
    np.save(tmp_path / "volume.npy", np.exp(-(x * x + y * y + z * z) * 3))
    same_results(stead, installed, reporter, "volume.npy", ["render:out=a.png,width=32,height=32"])
    picture = (tmp_path / "a.png").read_bytes()
    stead("run", "volume.npy", "-k", "render:out=b.png,width=32,height=32")
    assert (tmp_path / "b.png").read_bytes() == picture
