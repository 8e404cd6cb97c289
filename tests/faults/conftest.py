"""Programs of each face that read what they are told to, a shim before the system's calls, and a disk that fails."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from rigs import HERE, WAYS, Disk, Reader
from support import ROOT

sys.path.append(str(ROOT / "tests" / "c"))
from building import Installed, install  # noqa: E402


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Of a test that has failed, what the system has said last: it knows more of its disks and file systems than any program is told."""
    report = yield
    if report.failed and os.geteuid() == 0:
        # Why the test has failed is told where there is no such program, too.
        with contextlib.suppress(OSError):
            said = subprocess.run(["dmesg", "--ctime"], capture_output=True, text=True).stdout.splitlines()
            report.sections.append(("the last that the system has said", "\n".join(said[-40:])))
    return report


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
    # All of it is in headers, over that of C: what engines do it says once more.
    begin.is_thin = request.param == "cpp"
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


class Stages:
    """Transfers with a store."""

    def __init__(self, state: Path):
        self.state, self.begun = state, []

    def begin(self, store, *args, **more: str) -> subprocess.Popen:
        stead = os.path.abspath(os.environ.get("STEAD", "target/debug/stead"))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE_", "GOOGLE_", "SSL_"))}
        env |= store.env | {"STEAD_STATE": str(self.state)} | more
        command = [stead, "stage", *map(str, args), "--format", "json"]
        # Few files may be open.
        command = ["bash", "-c", 'ulimit -n 128; exec "$0" "$@"', *command]
        self.begun.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.begun[-1]

    def stage(self, store, *args, code: int = 0, **more: str) -> dict | str:
        """What it says, or the error that it ends with by `code`."""
        done = self.begin(store, *args, **more)
        out, err = done.communicate(timeout=300)
        assert done.returncode == code and "panicked" not in err, f"{done.returncode} {err}"
        # Nobody is told who we are.
        assert "kept-to-itself" not in out + err
        return json.loads(out) if code == 0 else err + out

    def end(self) -> None:
        for one in self.begun:
            if one.poll() is None:
                one.kill()
                one.wait(60)


@pytest.fixture
def stages(tmp_path):
    stages = Stages(tmp_path / "state")
    yield stages
    stages.end()


@pytest.fixture
def stage_with(stages):
    return stages.stage


@pytest.fixture
def begin(store, stages):
    """A function that begins a transfer with the store that a module has; it is ended after the test."""
    return partial(stages.begin, store)


@pytest.fixture
def stage(store, stages):
    """The same, which waits for its end."""
    return partial(stages.stage, store)
