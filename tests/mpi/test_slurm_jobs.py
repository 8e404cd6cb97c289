"""Streams and flows between jobs that Slurm has begun by themselves: on one node, and over two whose daemons are a pool."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import BUILT
from pooled import SHAPE
from slurm import LIMITED, NODES, Job, Slurm
from support import ROOT
from test_mpi4py import env  # noqa: F401
from test_pool import plant, tree
from test_srun import slurm as slurm_for_module
from test_streams import left

STEAD = BUILT / "openmpi" / "stead"
PROGRAM = ROOT / "tests" / "mpi" / "scheduled.py"
EXAMPLES = ROOT / "examples" / "slurm"
STEPS = 6
HERE, THERE = NODES[:1], NODES[1:]
#: Each node has its own.
SOCKET = "/dev/shm/steadd.sock"
#: Nobody is taken for gone who is only kept from answering by what else this machine does.
PATIENT = {"STEAD_PEER_SILENCE_S": "30"}

__all__ = ["slurm_for_module"]


@pytest.fixture
def slurm(slurm_for_module: Slurm):
    """No job goes on after its test, and none leaves anything in the memory of a node."""
    yield slurm_for_module
    slurm_for_module.free()
    found = [path for memory in slurm_for_module.memories() for path in left(memory) if ".streams-" in str(path)]
    for memory in slurm_for_module.memories():
        shutil.rmtree(memory / f"stead-{os.getuid()}", ignore_errors=True)
    assert found == []


@pytest.fixture
def go(tmp_path) -> Path:
    return tmp_path / "go"


class Programs:
    """Jobs of the program, by their words."""

    def __init__(self, slurm: Slurm, mpi: str = "none", **env: str) -> None:
        self.slurm, self.mpi = slurm, mpi
        self.env = {"STEAD_SOCKET": "none"} | PATIENT | env

    def __call__(self, who: str, ranks: int, nodes: list[str], steps: int, by: str = "tasks", **words: object) -> Job:
        given = [f"{name}={value}" for name, value in words.items()]
        return self.slurm.start("none" if by == "tasks" else self.mpi, ranks, sys.executable, PROGRAM, who, steps, by, *given, nodes=nodes, **self.env)


@pytest.fixture
def alone(slurm) -> Programs:
    """There is no daemon."""
    return Programs(slurm)


class Pool:
    """Daemons of the nodes, which are a job as any other."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.begin()

    def begin(self) -> None:
        words = [STEAD, "daemon", "--pool", "--state", self.folder / "state%r", "--socket", SOCKET]
        self.job = self.slurm.start("openmpi", len(NODES), *words, how=["--kill-on-bad-exit"], **PATIENT)
        self.job.until(self.listens, "its daemons listen")

    def kill(self) -> None:
        """One of its daemons, with which all end."""
        there = os.readlink(f"/proc/{self.slurm.daemons[-1].pid}/ns/uts")
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_text().split("\0")
                if os.readlink(path / "ns" / "uts") == there and words[:3] == [str(STEAD), "daemon", "--pool"]:
                    os.kill(int(path.name), signal.SIGKILL)
        self.job.until(self.job.is_over, "it ends with its daemon")

    def listens(self) -> bool:
        assert self.job.command.poll() is None, self.job.all()
        for memory in self.slurm.memories():
            with socket.socket(socket.AF_UNIX) as one:
                if one.connect_ex(str(memory / Path(SOCKET).name)):
                    return False
        return True


@pytest.fixture
def pool(slurm, tmp_path) -> Pool:
    return Pool(slurm, tmp_path)


@pytest.fixture
def pooled(pool) -> Programs:
    return pooled_by(pool.slurm)


def pooled_by(slurm: Slurm) -> Programs:
    return Programs(slurm, "openmpi", STEAD_SOCKET=SOCKET, MPI4PY_MPIABI="openmpi", STEAD_MPI_LIBRARY=str(BUILT / "openmpi" / "libstead_mpi.so"))


def has_read(job: Job, ranks: int) -> None:
    """All steps, by each rank."""
    assert job.ends().splitlines().count(f"read {STEPS}") == ranks


@pytest.mark.parametrize("comes", ["before", "within", "after"])
def test_a_job_reads_what_another_one_writes_on_its_node(alone, go, comes):
    """A job that has ended leaves what it was told to keep."""
    reader = alone("read", 1, HERE, STEPS) if comes == "before" else None
    writer = alone("write", 2, HERE, STEPS, at=2, go=go, keep=STEPS)
    writer.says("half", 2)
    if comes == "within":
        reader = alone("read", 3, HERE, STEPS)
    go.touch()
    if comes == "after":
        writer.ends()
        reader = alone("read", 3, HERE, STEPS)
    has_read(reader, 1 if comes == "before" else 3)
    writer.ends()


def test_ranks_of_two_jobs_on_a_node(slurm, mpi, env):  # noqa: F811
    programs = Programs(slurm, mpi, **env)
    reader = programs("read", 3, HERE, STEPS, by="ranks")
    writer = programs("write", 2, HERE, STEPS, by="ranks", readers=1)
    has_read(reader, 3)
    writer.ends()


@pytest.mark.parametrize("case", ["one node to one", "two nodes to two"])
def test_a_job_reads_what_another_one_writes_on_other_nodes(pooled, case):
    """The second case is of nodes that have some of both."""
    two = case.startswith("two")
    reader = pooled("read", 2, NODES if two else THERE, STEPS)
    writer = pooled("write", 3, NODES if two else HERE, STEPS, by="part", readers=1)
    reader.until(reader.is_over, "it ends")
    # What it cannot tell is why there is nothing to read.
    writer.ends()
    has_read(reader, 2)


def test_jobs_that_are_begun_before_the_pool(slurm, tmp_path):
    programs = pooled_by(slurm)
    reader = programs("read", 1, THERE, STEPS)
    writer = programs("write", 2, HERE, STEPS, readers=1)
    reader.says("begun")
    writer.says("begun", 2)
    Pool(slurm, tmp_path)
    has_read(reader, 1)
    writer.ends()


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_job_that_reads_is_cancelled(request, go, where):
    """The other one goes on, is told, and waits for nobody."""
    programs, nodes = (request.getfixturevalue("alone"), HERE) if where == "here" else (request.getfixturevalue("pooled"), THERE)
    reader = programs("read", 2, nodes, STEPS, at=0, go=go)
    writer = programs("write", 2, HERE, 4 * STEPS, readers=1, at=1, go=go, gone=2)
    writer.says("half", 2)
    reader.says("half", 2)
    reader.cancel()
    go.touch()
    written = writer.ends()
    assert f"written {4 * STEPS} [(0, 'died'), (1, 'died')]\n" in written, written


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_job_that_writes_is_cancelled(request, go, where):
    """All of its complete steps are read, and then it is told which writer has gone."""
    programs, nodes = (request.getfixturevalue("alone"), HERE) if where == "here" else (request.getfixturevalue("pooled"), THERE)
    reader = programs("read", 2, nodes, STEPS, at=0, go=go)
    writer = programs("write", 2, HERE, 100, readers=1, queue=STEPS + 1, at=STEPS, go=go)
    reader.says("half", 2)
    writer.says("half", 2)
    writer.cancel()
    go.touch()
    said = reader.ends()
    assert said.count(f"read {STEPS}\n") == 2 and len(re.findall(r"^told: .*writer [01]\b", said, re.M)) == 2, said


@pytest.mark.parametrize("how", ["cancelled", "killed"])
def test_a_pool_that_ends_and_is_begun_again(pool, pooled, go, tmp_path, how):
    """Who reads on another node is told which node does not answer, and who writes has another reader."""
    writer = pooled("write", 2, HERE, STEPS, readers=1, at=2, go=go, keep=STEPS)
    reader = pooled("read", 1, THERE, 2, at=1, go=tmp_path / "on")
    writer.says("half", 2)
    reader.says("half")
    pool.job.cancel() if how == "cancelled" else pool.kill()
    (tmp_path / "on").touch()
    said = reader.ends()
    assert re.search(rf"^told: .*node '{HERE[0]}'", said, re.M), said
    pool.begin()
    another = pooled("read", 3, THERE, STEPS, at=0, go=go)
    another.says("half", 3)
    go.touch()
    has_read(another, 3)
    writer.ends()


def test_files_go_from_node_to_node_and_back(pooled):
    """Each has memory of its own: what has the same name there is something else."""
    slurm, (here, there) = pooled.slurm, pooled.slurm.memories()

    def stage(*words: str) -> None:
        slurm.start("none", 1, STEAD, "stage", *words, nodes=THERE, **pooled.env).ends()

    plant(here / "tree", 3_000_003)
    before = tree(here / "tree")
    (there / "tree").write_bytes(b"none of it")
    try:
        # Done where it is asked for, and there.
        stage(f"{HERE[0]}:/dev/shm/tree", "/dev/shm/copy", "--verify")
        assert tree(there / "copy") == before and not (here / "copy").exists()
        stage("/dev/shm/copy", f"{HERE[0]}:/dev/shm/back")
        assert tree(here / "back") == before and not (there / "back").exists()
        # A region of one, and back as a file.
        stage("/dev/shm/tree", f"{HERE[0]}:memory://x")
        region = Path(f"stead-{os.getuid()}", "x")
        assert (here / region).read_bytes() == b"none of it" and not (there / region).exists()
        stage("--move", f"{HERE[0]}:memory://x", "/dev/shm/file")
        assert (there / "file").read_bytes() == b"none of it" and not (here / region).exists()
    finally:
        for path in (here / "tree", here / "back", there / "copy"):
            shutil.rmtree(path, ignore_errors=True)
        for path in (there / "tree", there / "file"):
            path.unlink(missing_ok=True)


FLOW = """
[read.T]
[node.sum]
op = "reduce"
of = "T.T"
how = "sum"
[node.rows]
op = "reduce"
of = "T.T"
how = "max"
over = ["x"]
[write.out]
variables = { sum = "sum", rows = "rows" }
readers = 1
"""

COMPARES = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np, stead
from pooled import values
n = 0
for step in stead.reader("out", timeout=60):
    T = values(step.number)
    assert step["sum"] == T.sum() and np.array_equal(step["rows"], T.max(axis=1)), step.number
    n += 1
print(n)
"""


@pytest.mark.parametrize("nodes", [THERE, NODES], ids=" ".join)
def test_a_flow_is_a_job_between_two_others(pooled, tmp_path, nodes):
    (tmp_path / "flow.toml").write_text(FLOW)
    slurm, words = pooled.slurm, ["flow", "run", tmp_path / "flow.toml", "--format", "json", "--timeout", "60s"]
    flow = slurm.start("openmpi", 2, STEAD, *words, nodes=nodes, **pooled.env)
    compares = slurm.start("none", 1, sys.executable, "-c", COMPARES, nodes=HERE, **pooled.env)
    writer = pooled("write", 2, HERE, STEPS, readers=1)
    assert compares.ends() == f"{STEPS}\n"
    writer.ends()
    report = json.loads(flow.ends())
    assert (report["steps"], report["dropped"]) == (STEPS, 0)
    assert report["streams"] == [{"stream": "out", "steps": STEPS, "bytes": STEPS * (SHAPE[0] * 8 + 8)}]


def mean(n: int, columns: slice) -> float:
    """Of these columns of the plate of two ranks."""
    return float(np.repeat([10.0 * n, 10.0 * n + 1], 100)[:, None].repeat(columns.stop - columns.start, 1).mean())


def plate(ranks: int) -> set[str]:
    """What the ranks of the analysis print."""
    cuts = [800 * rank // ranks for rank in range(ranks + 1)]
    return {f"{n} {a}-{b} {mean(n, slice(a, b))}" for n in range(3) for a, b in zip(cuts, cuts[1:])}


@pytest.fixture
def scripts(slurm, tmp_path):
    """What `sbatch` runs, in a folder with the programs, as the page about coupling has it."""
    for source in [*EXAMPLES.iterdir(), ROOT / "examples" / "mpi" / "coupled_simulation.py"]:
        shutil.copy(source, tmp_path)
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "stead").write_text(f'#!/bin/sh\nexec {shlex.join(LIMITED)} {STEAD} "$@"\n')
    (bin / "stead").chmod(0o755)
    env = {"PATH": f"{bin}:{Path(sys.executable).parent}:{slurm.env['PATH']}", "HOME": str(tmp_path), "MPI4PY_MPIABI": "openmpi"}
    return lambda name: slurm.submit(tmp_path / f"{name}.sh", STEAD_MPI_LIBRARY=str(BUILT / "openmpi" / "libstead_mpi.so"), **PATIENT, **env)


@pytest.mark.parametrize("order", ["analysis simulation pool", "one_job"])
def test_scripts_of_the_page_about_coupling(scripts, order):
    jobs = {name: scripts(name) for name in order.split()}
    pool = jobs.pop("pool", None)
    analysis = jobs.get("analysis") or jobs["one_job"]
    assert set(analysis.ends().splitlines()) == plate(3)
    for job in jobs.values():
        job.ends()
    if pool:
        pool.cancel()
