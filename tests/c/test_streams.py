"""Streams from C and C++: within one program, and between processes, some of which are killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from building import HERE, SANITIZERS, WARNINGS, run
from support import ROOT, in_all
from test_c import VALGRIND

EXAMPLES = ROOT / "examples" / "streams"
ROWS, COLUMNS = 60, 40


@pytest.fixture
def memory():
    """A folder in memory, private to the user."""
    folder = tempfile.mkdtemp(dir="/dev/shm")
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("checker", ["sanitizers", "valgrind"])
@pytest.mark.parametrize("name", ["stream", "stream_buffer", "stream_large"])
def test_c(installed, tmp_path, memory, name, checker):
    flags, before = (SANITIZERS, []) if checker == "sanitizers" else ([], VALGRIND)
    program = installed.compile(HERE / f"test_{name}.c", tmp_path, *flags)
    assert " 0 failed" in installed.run(*before, program, memory, cwd=tmp_path)


@pytest.fixture
def warmer(installed, tmp_path) -> Path:
    """examples/flows/warmer.toml with the library beside it that it names."""
    folder = tmp_path / "flow"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "flows" / "warmer.toml", folder)
    words = ["gcc", "-std=c99", *WARNINGS, "-shared", "-fPIC", *installed.pkg_config("--cflags")]
    run(*words, ROOT / "examples" / "flows" / "warmer.c", "-o", folder / "warmer.so")
    return folder / "warmer.toml"


@pytest.mark.parametrize("checker", ["sanitizers", "valgrind"])
def test_flows_in_c(installed, tmp_path, memory, warmer, checker):
    flags, before = (SANITIZERS, []) if checker == "sanitizers" else ([], VALGRIND)
    program = installed.compile(HERE / "test_flow.c", tmp_path, *flags)
    assert " 0 failed" in installed.run(*before, program, memory, warmer, cwd=tmp_path)


@pytest.mark.parametrize(("standard", "checker"), [("c++20", "sanitizers"), ("c++17", "valgrind")])
def test_flows_in_cpp(installed, tmp_path, memory, warmer, standard, checker):
    flags, before = (SANITIZERS, []) if checker == "sanitizers" else ([], VALGRIND)
    program = installed.compile(HERE / "flow.cpp", tmp_path, *flags, standard=standard)
    assert " 0 failed" in installed.run(*before, program, memory, warmer, cwd=tmp_path)


@pytest.mark.parametrize("standard", ["c++17", pytest.param("c++20", marks=in_all)])
def test_cpp(installed, tmp_path, memory, standard):
    program = installed.compile(HERE / "stream.cpp", tmp_path, *SANITIZERS, standard=standard)
    assert " 0 failed" in installed.run(program, memory, cwd=tmp_path)


def test_cpp_under_valgrind(installed, tmp_path, memory):
    program = installed.compile(HERE / "stream.cpp", tmp_path, standard="c++20")
    assert " 0 failed" in installed.run(*VALGRIND, program, memory, cwd=tmp_path)


def in_fortran(installed, tmp_path, memory, checker, source, *words) -> None:
    """A test program, with streams in this folder unless it says another one."""
    if not shutil.which("gfortran"):
        pytest.skip("there is no gfortran")
    flags, before = (SANITIZERS, []) if checker == "sanitizers" else ([], VALGRIND)
    program = installed.compile_fortran(HERE / source, tmp_path, *flags)
    config = tmp_path / "stead.toml"
    config.write_text(f'[dataspace.memory]\npath = "{memory}"\n')
    env = {**installed.env, "STEAD_CONFIG": str(config)}
    words = [*before, program, *words]
    done = subprocess.run([str(w) for w in words], env=env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "all is well\n"), done.stderr


@pytest.mark.parametrize("checker", ["sanitizers", "valgrind"])
def test_options_in_fortran(installed, tmp_path, memory, checker):
    in_fortran(installed, tmp_path, memory, checker, "stream.f90", memory / "files")


@pytest.mark.parametrize("checker", ["sanitizers", "valgrind"])
def test_what_is_told_in_fortran(installed, tmp_path, memory, checker):
    own, disk = memory / "own", tmp_path / "disk"
    own.mkdir(0o700)
    disk.mkdir()
    in_fortran(installed, tmp_path, memory, checker, "stream_told.f90", own, disk)
    # All of it was in the dataspaces that the program has named.
    assert list(memory.iterdir()) == [own]


class Programs:
    """The examples, with streams in a folder of their own."""

    def __init__(self, installed, tmp_path: Path, memory: Path, suffixes, flags: list[str], before: list[str]):
        self.memory, self.before = memory, before
        config = tmp_path / "stead.toml"
        config.write_text(f'[dataspace.memory]\npath = "{memory}"\n')
        self.env = {**installed.env, "STEAD_CONFIG": str(config)}
        self.built = {}
        for name, suffix in zip(("write", "read"), suffixes, strict=True):
            (tmp_path / name).mkdir()
            compile = installed.compile_fortran if suffix == ".f90" else installed.compile
            self.built[name] = compile(EXAMPLES / f"{name}{suffix}", tmp_path / name, *flags)

    def start(self, name: str, *args) -> subprocess.Popen:
        command = [*self.before, str(self.built[name]), *map(str, args)]
        return subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def left(self) -> list[str]:
        return [name for _, folders, files in os.walk(self.memory / f".streams-{os.getuid()}") for name in folders + files]


CHECKERS = {"plain": ([], []), "sanitizers": (SANITIZERS, []), "valgrind": ([], VALGRIND)}
# Of writers and of readers.
SUFFIXES = {
    "c": (".c", ".c"),
    "cpp": (".cpp", ".cpp"),
    "fortran": (".f90", ".f90"),
    "c-to-cpp": (".c", ".cpp"),
    "fortran-to-c": (".f90", ".c"),
    "c-to-fortran": (".c", ".f90"),
}
PLAIN = ("c-to-cpp", "fortran", "fortran-to-c", "c-to-fortran")
KINDS = [*((suffixes, checker) for suffixes in ("c", "cpp") for checker in CHECKERS), *((suffixes, "plain") for suffixes in PLAIN)]


@pytest.fixture(params=KINDS, ids="-".join)
def programs(request, installed, tmp_path, memory):
    suffixes, checker = request.param
    if "fortran" in suffixes and not shutil.which("gfortran"):
        pytest.skip("there is no gfortran")
    return Programs(installed, tmp_path, memory, SUFFIXES[suffixes], *CHECKERS[checker])


def expected(rank: int, ranks: int, steps: int) -> str:
    """What a reader prints of the columns that are its share."""
    field = np.arange(ROWS * COLUMNS, dtype=float).reshape(ROWS, COLUMNS)
    mine = field[:, rank * COLUMNS // ranks : (rank + 1) * COLUMNS // ranks]
    return "".join(f"step {step}: mean {(mine + step * 10000).mean():.1f}\n" for step in range(steps))


def finished(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, ""), (process.returncode, out, err)
    return out


def test_rows_are_written_and_columns_are_read(programs):
    writers = [programs.start("write", rank, 2, 10) for rank in range(2)]
    readers = [programs.start("read", rank, 3) for rank in range(3)]
    for writer in writers:
        assert finished(writer) == ""
    for rank, reader in enumerate(readers):
        assert finished(reader) == expected(rank, 3, 10)
    assert programs.left() == []


def test_a_writer_that_is_killed_is_an_error_of_readers(programs):
    reader = programs.start("read", 0, 1)
    writers = [programs.start("write", rank, 2, 1 << 40) for rank in range(2)]
    first = [reader.stdout.readline() for _ in range(3)]
    writers[1].kill()
    # What is buffered here is not lost: `communicate` would not look for it.
    lines, err = "".join(first) + reader.stdout.read(), reader.stderr.read()
    # All that is complete was given before.
    assert lines == expected(0, 1, lines.count("\n"))
    assert reader.wait(300) == 1
    assert "writer 1 of stream 'sim' has ended without closing it" in err
    # The other writer is told, too.
    _, err = writers[0].communicate(timeout=300)
    assert writers[0].returncode == 1 and "writer 1 of stream 'sim'" in err
    writers[1].communicate(timeout=300)
