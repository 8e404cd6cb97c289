"""Streams between ranks of one job: on one node, and on hosts of the lab, which have a memory each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import stead
from jobs import BUILT, LIMIT, PATIENT, launch, run
from support import ROOT, repeats
from test_mpi import lab, over  # noqa: F401
from test_mpi4py import env  # noqa: F401

PROGRAM = ROOT / "tests" / "mpi" / "streams.py"
FLOWS = ROOT / "tests" / "mpi" / "flows.py"
TESTER = ROOT / "examples" / "streams" / "tester" / "coupled.py"
# Cases of the tester.
MATRIX = max(8, int(os.environ.get("STEAD_CRASHES", "0")) // 20)


@pytest.fixture
def base():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def left(base: Path) -> list[Path]:
    """What streams have left in memory."""
    return [path for path in base.rglob("*") if path.is_file()]


def had(out: str) -> dict[int, str]:
    return {int(rank): steps for rank, steps in re.findall(r"right (\d+) on \d+: (.*)", out)}


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (2, 1), (3, 2)])
def test_ranks_of_one_node(mpi, env, base, writers, readers):  # noqa: F811
    repeats(mpi == "mpich" and (writers, readers) == (2, 1))
    out = run([*launch(mpi, writers + readers), sys.executable, PROGRAM, base, writers], env)
    steps = had(out)
    assert len(steps) == writers + readers, out
    assert all(steps[rank] == "[0, 1, 2, 3, 4, 5]" for rank in range(writers, writers + readers))
    assert left(base) == []


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (2, 1), (3, 3)])
def test_ranks_of_several_hosts(lab, mpi, env, base, writers, readers):  # noqa: F811
    """Ranks go around the hosts, so that writers and readers are on the same one, too, where there are six."""
    repeats(mpi == "mpich" and (writers, readers) == (2, 1))
    given = [word for name in env if mpi == "openmpi" for word in ("-x", name)]
    ranks = writers + readers
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", ranks, *spread, *given, sys.executable, PROGRAM, base, writers], env)
    steps = had(out)
    assert len(steps) == ranks, out
    assert all(steps[rank] == "[0, 1, 2, 3, 4, 5]" for rank in range(writers, ranks))
    nodes = set(re.findall(r"on (\d+):", out))
    assert len(nodes) == min(ranks, 3), out
    assert left(base) == []


def in_memory(base: Path) -> list[Path]:
    return [path for path in left(base) if "files" not in str(path.relative_to(base))]


def test_ranks_that_come_late_have_all_steps(mpi, env, base):  # noqa: F811
    steps = had(run([*launch(mpi, 3), sys.executable, PROGRAM, base, 2, "late"], env))
    assert steps == {0: "None", 1: "None", 2: "[0, 1, 2, 3, 4, 5]"}
    assert in_memory(base) == []


def test_ranks_of_other_hosts_that_come_late_have_all_steps(lab, mpi, env, base):  # noqa: F811
    """Writers have recorded them, each host in a folder of its own."""
    given = [word for name in env if mpi == "openmpi" for word in ("-x", name)]
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", 5, *spread, *given, sys.executable, PROGRAM, base, 3, "late"], env)
    steps = had(out)
    assert [steps[rank] for rank in (3, 4)] == 2 * ["[0, 1, 2, 3, 4, 5]"], out
    assert in_memory(base) == []


WAITS = """
import sys, threading, time
from pathlib import Path
import numpy as np, stead
from mpi4py import MPI

base, rank = Path(sys.argv[1]), MPI.COMM_WORLD.rank
seen = base / "seen"

def look():
    # Until whoever wakes up does so no more often than it ever will.
    time.sleep(1.2)
    before, begun = time.process_time(), time.monotonic()
    time.sleep(1.5)
    print(f"{100 * (time.process_time() - before) / (time.monotonic() - begun):.1f} % of a core", flush=True)
    seen.touch()

with stead.couple(MPI.COMM_WORLD, "ana" if rank else "sim", dataspaces={"memory": base / "memory"}) as part:
    if rank == 0:
        with stead.writer("T", comm=part, readers=1, timeout=120) as w:
            for n in range(2):
                with w.step():
                    w.put("T", np.full(9, n))
                while n == 0 and not seen.exists():
                    time.sleep(0.05)
    else:
        with stead.reader("T", comm=part, timeout=120) as r:
            assert (r.next()["T"] == 0).all()
            looks = threading.Thread(target=look)
            looks.start()
            assert (r.next()["T"] == 1).all()
            looks.join()
"""


def test_a_rank_that_waits_for_a_step_takes_next_to_nothing_of_a_core(mpi, env, base):  # noqa: F811
    (base / "memory").mkdir()
    out = run([*launch(mpi, 2), sys.executable, "-c", WAITS, base], env)
    (share,) = re.findall(r"([\d.]+) % of a core", out)
    assert float(share) < 10, out
    assert left(base / "memory") == []


def cases(said: str, many: int) -> None:
    assert said.endswith(f"{many} cases, 0 wrong\n"), said


@pytest.mark.parametrize("ranks", [3, 6])
def test_all_elements_are_right_on_one_node(mpi, env, base, ranks):  # noqa: F811
    """Each layout of writers with each one of readers, drop, spill and persist by chance."""
    repeats(mpi == "mpich" and ranks == 3)
    cases(run([*launch(mpi, ranks), sys.executable, TESTER, base, MATRIX, ranks * 1000], env), MATRIX)
    assert left(base) == []


def test_all_elements_are_right_on_several_hosts(lab, mpi, env, base):  # noqa: F811
    given = [word for name in env if mpi == "openmpi" for word in ("-x", name)]
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    cases(run([*over(lab, mpi), "-n", 6, *spread, *given, sys.executable, TESTER, base, MATRIX, 0], env), MATRIX)
    assert left(base) == []


@pytest.mark.parametrize("who", ["writer", "reader"])
@pytest.mark.parametrize("seed", range(4))
def test_who_is_killed_in_a_case_of_the_tester_is_told(base, seed, who):
    """A case of the tester. Streams go through shared memory, and MPI is what they are coupled by: one of the MPIs lets the others go on."""
    env = {"MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": str(BUILT / "openmpi" / "libstead_mpi.so")}
    command = launch("openmpi", 5, "--enable-recovery", "--mca", "btl", "vader,self")
    said = run([*command, sys.executable, TESTER, base, 1, seed, "--kill", who], env, expect=None)
    assert "1 cases, 0 wrong\n" in said, said
    # Who comes next clears up what a process has left that was killed.
    with pytest.raises(stead.TimedOutError):
        stead.reader("sweep", timeout=0, dataspaces={"memory": base / "0"})
    assert left(base) == []


def test_a_flow_of_one_node(mpi, env, base):  # noqa: F811
    """Two ranks that simulate, two of a flow that add up parts together, and one that reads what comes out."""
    out = run([*launch(mpi, 5), sys.executable, FLOWS, base, 2, 2], env)
    assert had(out) == dict.fromkeys(range(5), "6"), out
    assert left(base) == []


def test_a_flow_of_several_hosts(lab, mpi, env, base):  # noqa: F811
    given = [word for name in env if mpi == "openmpi" for word in ("-x", name)]
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", 4, *spread, *given, sys.executable, FLOWS, base, 1, 2], env)
    assert had(out) == dict.fromkeys(range(4), "6"), out
    assert left(base) == []


FLOW = """
[read.sim]
[node.sum]
op = "reduce"
of = "sim.T"
how = "sum"
[node.twice]
op = "scale"
of = "sim.T"
factor = 2.0
[write.out]
variables = {{ sum = "sum", twice = "twice" }}
persist = "{folder}"
"""


SIMULATION = """
import sys
import numpy as np, stead
with stead.writer("sim", readers=1, timeout=120, dataspaces={"memory": sys.argv[1]}) as w:
    for n in range(6):
        with w.step():
            w.put(sys.argv[2], np.arange(300.0 * 400).reshape(300, 400) + n)
"""


def simulation(memory: Path, variable: str = "T") -> subprocess.Popen:
    """A program that was begun by itself, on one node."""
    return subprocess.Popen([sys.executable, "-c", SIMULATION, memory, variable])


def computed(folder: Path, said: str) -> None:
    """What the command prints is one report of all ranks, and what they wrote is whole."""
    report = json.loads(said)
    T = np.arange(300.0 * 400).reshape(300, 400)
    assert (report["steps"], report["unpaired"]) == (6, 0)
    assert report["streams"] == [{"stream": "out", "steps": 6, "bytes": 6 * (T.nbytes + 8)}]
    for step in stead.reader(folder, timeout=60):
        assert step["sum"] == (T + step.number).sum()
        assert np.array_equal(step["twice"], 2 * (T + step.number))


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_command_runs_a_flow_by_the_ranks_of_a_job(base, ranks):
    memory = base / "memory"
    memory.mkdir()
    (base / "stead.toml").write_text(f'[dataspace.memory]\npath = "{memory}"\n')
    (base / "flow.toml").write_text(FLOW.format(folder=base / "files"))
    command = [*launch("openmpi", ranks), BUILT / "openmpi" / "stead", "flow", "run", base / "flow.toml", "--format", "json", "--timeout", "60s"]
    env = {"STEAD_CONFIG": str(base / "stead.toml")}
    with simulation(memory) as sim:
        out = run(command, env)
    assert sim.returncode == 0
    computed(base / "files", out)
    # Who is of no job reads it, too.
    assert [step.number for step in stead.reader("out", timeout=60, dataspaces={"memory": memory})][-1] == 5
    assert left(memory) == []
    # An error of all is told once.
    (base / "flow.toml").write_text(FLOW.format(folder=base / "more"))
    with simulation(memory, "U"):
        done = subprocess.run(["timeout", str(LIMIT), *map(str, command)], capture_output=True, text=True, env=os.environ | env)
    assert done.returncode == 2 or done.returncode == 1, done
    assert done.stdout == "" and done.stderr.count("no variable 'T' is in step 0") == 1, done.stderr


def test_the_command_runs_a_flow_over_hosts(lab, base, tmp_path):  # noqa: F811
    """Ranks on three hosts, with a memory each, of which the simulation is on one."""
    program = f"""
import os, subprocess, sys
from pathlib import Path
memory = Path("{base}")
memory.mkdir(parents=True, exist_ok=True)
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    subprocess.Popen([sys.executable, "-c", {SIMULATION!r}, memory, "T"], stdout=subprocess.DEVNULL)
os.environ["STEAD_CONFIG"] = "{tmp_path / "stead.toml"}"
os.execv(sys.argv[1], sys.argv[1:])
"""
    (tmp_path / "stead.toml").write_text(f'[dataspace.memory]\npath = "{base}"\n')
    (tmp_path / "flow.toml").write_text(FLOW.format(folder=tmp_path / "files"))
    words = [BUILT / "openmpi" / "stead", "flow", "run", tmp_path / "flow.toml", "--format", "json", "--timeout", "60s"]
    out = run([*over(lab, "openmpi"), "-n", 3, "--map-by", "node", sys.executable, "-c", program, *words])
    computed(tmp_path / "files", out)


def test_a_writer_of_another_host_that_fails_is_named(lab, mpi, env, base):  # noqa: F811
    given = [word for name in env if mpi == "openmpi" for word in ("-x", name)]
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", 3, *spread, *given, sys.executable, PROGRAM, base, 2, "killed"], env)
    assert "told 1: as it is told to" in out
    # The other writer is on another host, too.
    for rank in (0, 2):
        assert f"told {rank}: writer 1 of stream 'T', on another node, has closed it before the others or within a step, or was killed, after step 2" in out, out


def recovering(base, how) -> str:
    """Of four ranks, two of which write, one is killed: of the MPIs, one has an mpirun that lets others go on then."""
    env = {"MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": str(BUILT / "openmpi" / "libstead_mpi.so")}
    command = launch("openmpi", 4, "--enable-recovery", "--mca", "btl", "vader,self")
    return run([*command, sys.executable, PROGRAM, base, 2, how], env, expect=None)


def test_a_reader_that_is_killed_is_waited_for_no_longer(base):
    assert had(recovering(base, "reader dies")) == {0: "None", 1: "None", 2: "[0, 1, 2, 3, 4, 5]"}


def test_a_writer_that_is_killed_is_told_to_readers_and_writers(base):
    out = recovering(base, "writer dies")
    for rank in (0, 2, 3):
        assert re.search(rf"told {rank}: writer 1 of stream 'T'.*, after step 2", out), out


def test_programs_of_one_job(mpi, env, base):  # noqa: F811
    """As on the page: two programs, begun by one command."""
    folder = base / "memory"
    folder.mkdir()
    (base / "stead.toml").write_text(f'[dataspace.memory]\npath = "{folder}"\n')
    sim, analysis = ([sys.executable, ROOT / "examples" / "mpi" / name] for name in ("coupled_simulation.py", "coupled_analysis.py"))
    out = run([*launch(mpi, 2), *sim, ":", "-n", 2, *analysis], env | {"STEAD_CONFIG": str(base / "stead.toml")})
    assert out.splitlines()[:3] == ["0 0.5", "1 10.5", "2 20.5"]
    assert left(folder) == []


@pytest.mark.parametrize("first", ["simulation", "analysis"])
@pytest.mark.parametrize("launcher", ["none", "mpirun"])
def test_programs_of_one_job_are_programs_of_their_own(mpi, env, base, launcher, first):  # noqa: F811
    """The same two files as jobs of their own on a node, and as processes that nobody has launched, in any order."""
    folder = base / "memory"
    folder.mkdir()
    (base / "stead.toml").write_text(f'[dataspace.memory]\npath = "{folder}"\n')
    env = os.environ | PATIENT | env | {"STEAD_CONFIG": str(base / "stead.toml"), "STEAD_SOCKET": "none"}
    ranks, both = {"simulation": 2, "analysis": 3}, {}
    for name in sorted(ranks, key=lambda name: name != first):
        job = launch(mpi, ranks[name]) if launcher == "mpirun" else []
        words = ["timeout", "--kill-after=10", str(LIMIT), *job, sys.executable, str(ROOT / "examples" / "mpi" / f"coupled_{name}.py")]
        both[name] = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = {name: one.communicate() for name, one in both.items()}
    assert all(one.returncode == 0 for one in both.values()), said
    mean = 0.5 if launcher == "mpirun" else 0.0
    assert said["analysis"][0].splitlines()[:3] == [f"{n} {10 * n + mean}" for n in range(3)], said
    assert left(folder) == []


def test_programs_of_one_job_in_fortran_and_python(mpi, env, base):  # noqa: F811
    """As on the page."""
    sim, analysis = BUILT / mpi / "coupled_simulation-f08", [sys.executable, ROOT / "examples" / "mpi" / "coupled_analysis.py"]
    if not sim.exists():
        pytest.skip("there is no Fortran")
    folder = base / "memory"
    folder.mkdir()
    (base / "stead.toml").write_text(f'[dataspace.memory]\npath = "{folder}"\n')
    out = run([*launch(mpi, 2), sim, ":", "-n", 2, *analysis], env | {"STEAD_CONFIG": str(base / "stead.toml")})
    assert out.splitlines()[:3] == ["0 0.5", "1 10.5", "2 20.5"]
    assert left(folder) == []


@pytest.mark.parametrize(("program", "writers", "readers"), [("coupled", 1, 1), ("coupled", 3, 2), ("coupled++", 2, 3)])
def test_ranks_in_c(mpi, base, program, writers, readers):
    repeats(mpi == "mpich" and writers == 1)
    (base / "memory").mkdir()
    (base / "stead.toml").write_text(f'[dataspace.memory]\npath = "{base / "memory"}"\n')
    out = run([*launch(mpi, writers + readers), BUILT / mpi / program, writers], {"STEAD_CONFIG": str(base / "stead.toml")})
    assert out.count("right") == writers + readers
    assert left(base / "memory") == []


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (3, 2), (2, 3)])
def test_ranks_in_fortran(mpi, base, writers, readers):
    repeats(mpi == "mpich" and writers == 1)
    if not (BUILT / mpi / "coupled-fortran").exists():
        pytest.skip("there is no Fortran")
    (base / "memory").mkdir()
    (base / "none").touch()
    out = run([*launch(mpi, writers + readers), BUILT / mpi / "coupled-fortran", writers, base / "memory"], {"STEAD_CONFIG": str(base / "none")})
    assert out.count("right") == writers + readers
    assert left(base / "memory") == []


def test_ranks_of_several_hosts_in_fortran(lab, mpi, base):  # noqa: F811
    """Each host has a /dev/shm of its own."""
    if not (BUILT / mpi / "coupled-fortran").exists():
        pytest.skip("there is no Fortran")
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", 5, *spread, BUILT / mpi / "coupled-fortran", 3, base])
    assert out.count("right") == 5
    assert left(base) == []


def test_ranks_of_several_hosts_in_c(lab, mpi, base):  # noqa: F811
    spread = ["--map-by", "node"] if mpi == "openmpi" else ["-ppn", "1"]
    out = run([*over(lab, mpi), "-n", 5, *spread, BUILT / mpi / "coupled", 3, base])
    assert out.count("right") == 5
    assert left(base) == []


def test_where_it_cannot_be(mpi, env, base):  # noqa: F811
    program = """
import os, sys, stead
from mpi4py import MPI
try:
    stead.couple(MPI.COMM_WORLD, "a part" if MPI.COMM_WORLD.rank else "sim", dataspaces={"memory": sys.argv[1]})
except stead.Error as e:
    os.write(1, f"{MPI.COMM_WORLD.rank} {type(e).__name__} {str(e).splitlines()[0]}\\n".encode())
"""
    (base / "memory").mkdir()
    said = sorted(run([*launch(mpi, 2), sys.executable, "-c", program, base / "memory"], env).strip().splitlines())
    assert said[0].startswith("0 PeerError"), said
    assert "rank 1" in said[0] and "cannot take part" in said[0], said
    assert said[1].startswith("1 UsageError 'a part' is no name"), said


def test_a_rank_that_does_not_come_to_be_coupled_is_not_waited_for_for_ever(mpi, env, base):  # noqa: F811
    """MPI itself would wait for it without an end. It comes when the others have given it up, and is told so."""
    program = """
import os, sys, time
from pathlib import Path
import stead
from mpi4py import MPI

base, world = Path(sys.argv[1]), MPI.COMM_WORLD

def wait_for(others):
    until = time.monotonic() + 120
    while not all((base / f"told{rank}").exists() for rank in others) and time.monotonic() < until:
        time.sleep(0.01)

if world.rank == 1:
    wait_for((0, 2))
try:
    stead.couple(world, "sim", timeout=2, dataspaces={"memory": base / "memory"})
    said = "coupled"
except stead.TimedOutError as e:
    said = str(e).splitlines()[0]
(base / f"said{world.rank}").write_text(said)
(base / f"told{world.rank}").touch()
wait_for(range(world.size))
# MPI does not end without what was begun.
os._exit(0)
"""
    (base / "memory").mkdir()
    run([*launch(mpi, 3), sys.executable, "-c", program, base], env, expect=None)
    for rank in range(3):
        assert (base / f"said{rank}").read_text() == "not all of 3 ranks of the communicator have come within 2 s"
