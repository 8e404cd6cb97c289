"""Programs of each face that read what they are told to, a shim before the system's calls, and a disk that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rigs import HERE, WAYS, Disk, Reader
from support import ROOT

sys.path.append(str(ROOT / "tests" / "c"))
from building import Installed, install  # noqa: E402


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> dict[str, list]:
    """For each face a command."""
    into = tmp_path_factory.mktemp("faces")
    install(into)
    installed = Installed(into)
    os.environ["LD_LIBRARY_PATH"] = installed.env["LD_LIBRARY_PATH"]
    return {
        "c": [installed.compile(HERE / "reads.c", into)],
        "idle": [installed.compile(HERE / "idle.c", into)],
        "cpp": [installed.compile(HERE / "reads.cpp", into)],
        "python": [sys.executable, HERE / "reads.py"],
    }


@pytest.fixture(params=["c", "cpp", "python"])
def face(request, programs):
    """A function that begins a program of a face, and the ways that it has; it is ended after the test."""
    begun = []

    def begin(path: Path, flags: int, **env: str) -> Reader:
        begun.append(Reader(programs[request.param], path, flags, env))
        return begun[-1]

    begin.ways, begin.strides = WAYS[request.param], request.param == "c"
    yield begin
    for reader in begun:
        if reader.program.poll() is None:
            reader.program.kill()
            reader.program.wait(60)


@pytest.fixture(scope="session")
def shim(tmp_path_factory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    source = HERE / "shim.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", source, "-o", library, "-ldl"], check=True)
    return library


@pytest.fixture(scope="session")
def whole_disk(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("no disk that fails can be made here: that takes root")
    try:
        disk = Disk(tmp_path_factory.mktemp("disk"))
    except OSError as e:
        pytest.skip(f"no disk that fails can be made here: {e}")
    yield disk
    disk.end()


@pytest.fixture
def disk(whole_disk) -> Disk:
    """As new, and nothing of it is in memory."""
    whole_disk.rule(bad=[], held=[], short=1 << 20)
    whole_disk.forget()
    whole_disk.rule()
    yield whole_disk
    whole_disk.rule(bad=[], held=[], short=1 << 20)
