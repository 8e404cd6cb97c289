"""`stead put` and `stead get` under mpirun: files over folders that stand in for disks of nodes, and over hosts of the lab."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import BUILT, HASTY, LIMIT, PATIENT, launch, run
from support import ROOT
from test_mpi import LAB, lab  # noqa: F401
from test_mpi4py import env  # noqa: F401

STEAD = BUILT / "openmpi" / "stead"
LAYOUT = "f.stead-layout.toml"


def contents(length: int) -> bytes:
    return (b"".join(b"%d," % i for i in range(2000)) * (length // 8000 + 1))[:length]


@pytest.fixture
def shared(tmp_path) -> Path:
    for name in "shared", "space", "host1", "host2", "host3":
        (tmp_path / name).mkdir()
    (tmp_path / "shared" / "f").write_bytes(contents(5_000_003))
    return tmp_path / "shared"


def left(tmp_path: Path) -> list[str]:
    """What is there beside the file."""
    return sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file() and p.name != "f" and "pid" not in p.name)


def job(n: int, *words, wrapped: str = "", options=()) -> list[str]:
    """`wrapped` is a line of shell that runs "$@" for one rank."""
    words = [STEAD, *words]
    if wrapped:
        words = ["sh", "-c", wrapped, "sh", *words]
    return ["timeout", "--kill-after=10", str(LIMIT), *map(str, [*launch("openmpi", n, *options), *words])]


def together(*args, **kwargs) -> subprocess.CompletedProcess:
    env = os.environ | PATIENT
    return subprocess.run(job(*args, **kwargs), capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("ranks, stripe", [(2, "4MiB"), (4, "64KiB"), (3, "10007"), (2, "1")])
def test_ranks_of_a_node_share_its_parts(shared, tmp_path, ranks, stripe):
    if stripe == "1":
        (shared / "f").write_bytes(contents(100_003))
    space = ["--dataspace", f"nvme={tmp_path}/space"]
    done = together(ranks, "put", shared / "f", "--over", "nvme", "--parts", 3, "--stripe", stripe, "--format", "json", *space)
    assert done.returncode == 0, done.stderr
    copied = json.loads(done.stdout)
    assert (copied["ranks"], copied["parts"], copied["nodes"]) == (ranks, 3, 1)
    assert len(left(tmp_path)) == 4
    done = together(ranks, "get", shared / LAYOUT, "-o", shared / "back", *space)
    assert done.returncode == 0 and "3 part(s) on 1 node(s)" in done.stdout, done.stderr
    assert (shared / "back").read_bytes() == (shared / "f").read_bytes()
    # Other numbers of ranks, too: one process has all parts.
    done = subprocess.run([STEAD, "get", shared / LAYOUT, "-o", shared / "again", *space], capture_output=True, text=True)
    assert done.returncode == 0 and (shared / "again").read_bytes() == (shared / "f").read_bytes(), done.stderr


PYTHON = """
import sys, stead
from mpi4py import MPI
file, space, back = sys.argv[1:]
comm = MPI.COMM_WORLD
put = stead.put(file, "nvme", stripe="10007", parts=4, dataspaces={"nvme": space}, comm=comm)
got = stead.get(put.layout, back, dataspaces={"nvme": space}, comm=comm)
assert put.bytes == got.bytes and put.ranks == got.ranks == comm.size
try:
    stead.put(file, "nvme", dataspaces={"nvme": space}, comm=comm)
except stead.UsageError:
    print("right")
"""


def test_python_puts_and_gets_with_a_communicator(mpi, env, shared, tmp_path):  # noqa: F811
    words = [sys.executable, "-c", PYTHON, shared / "f", tmp_path / "space", shared / "back"]
    assert run([*launch(mpi, 3), *words], env).count("right") == 3
    assert (shared / "back").read_bytes() == (shared / "f").read_bytes()
    assert len(left(shared)) + len(left(tmp_path / "space")) == 6


def test_c_puts_runs_and_gets_with_a_communicator(mpi, shared, tmp_path):
    text = "".join(f"line {i}\n" for i in range(30_000))
    (shared / "f").write_text(text)
    out = run([*launch(mpi, 3), BUILT / mpi / "ranks", "put", shared / "f", tmp_path / "space", shared])
    assert out == "30000\n"
    assert (shared / "back").read_text() == (shared / "found").read_text() == text


# Each host has a folder of its own, as the configuration says.
CONFIGURED = """set -e
export NODE=$(hostname) STEAD_CONFIG={0}/stead.toml
exec "$@"
"""


@pytest.mark.parametrize("align", [[], ["--align", "record"]])
def test_hosts_of_the_lab_have_their_parts(lab, shared, tmp_path, align):  # noqa: F811
    (tmp_path / "stead.toml").write_text(f'[dataspace.nvme]\npath = "{tmp_path}/${{NODE}}"\n')
    (shared / "f").write_text("x,y\n" + "".join(f'{i},"two\nlines {i % 7}"\n' for i in range(200_000)))
    on = lambda n, *words: [LAB, "run", lab, "-n", n, "sh", "-c", CONFIGURED.format(tmp_path), "sh", STEAD, *words]
    run(on(5, "put", shared / "f", "--over", "nvme@host[1-3]", "--stripe", "100001", *align))
    files = left(tmp_path)
    assert [f.split("/")[0] for f in files] == ["host1", "host2", "host3", "shared", "stead.toml"], files
    page = json.loads(run([STEAD, "describe", shared / "f.stead-layout.toml", "--format", "json"]))
    assert [n["node"] for n in page["nodes"]] == ["host1", "host2", "host3"]
    assert sum(p["bytes"] for p in page["parts"]) == (shared / "f").stat().st_size
    assert (page["stripe"] is None) == bool(align)
    for part in page["parts"]:
        text = (tmp_path / part["node"] / part["path"]).read_bytes()
        # With quotes around what is between records.
        assert not align or text.endswith(b'"\n')
    run(on(4, "get", shared / LAYOUT, "-o", shared / "back"))
    assert (shared / "back").read_bytes() == (shared / "f").read_bytes()
    # A node without a rank.
    page = subprocess.run(
        list(map(str, on(3, "put", shared / "f", "--over", "nvme@host[1-4]", "--force"))), capture_output=True, text=True, timeout=LIMIT
    )
    assert page.returncode and "node 'host4' has no rank: they run on host[1-3]" in page.stderr, page.stderr
    assert len(left(tmp_path)) == len(files) + 1


def sent(lab: str) -> int:  # noqa: F811
    """Bytes that the hosts of a lab have sent so far."""
    counts = [run([LAB, "exec", lab, host, "cat", "/sys/class/net/eth0/statistics/tx_bytes"]) for host in (1, 2, 3)]
    return sum(map(int, counts))


@pytest.mark.parametrize("ranks", [3, 5])
def test_hosts_of_the_lab_keep_data_and_outputs_home(lab, shared, tmp_path, ranks):  # noqa: F811
    (tmp_path / "stead.toml").write_text(f'[dataspace.nvme]\npath = "{tmp_path}/${{NODE}}"\n')
    (shared / "f").write_text("x,y\n" + "".join(f"{i * 37 % 1009}.25,number {i}\n" for i in range(1_000_000)))
    size = (shared / "f").stat().st_size
    on = lambda *words: run([LAB, "run", lab, "-n", ranks, "sh", "-c", CONFIGURED.format(tmp_path), "sh", *words])
    kernels = ["rows", "mean:x", "quantile:x,q=0.5", f"grep:'9.25,number .*7$',out={shared}/found", f"normalize:x,out={shared}/scaled.csv"]
    asked = [a for k in kernels for a in ("-k", k)]
    command = [STEAD, "run", shared / "f", "--type", "csv", *asked, "--format", "json"]
    one = json.loads(run(command))["results"]
    want = {name: (shared / name).read_bytes() for name in ("found", "scaled.csv")}
    for name in want:
        (shared / name).unlink()
    on(STEAD, "put", shared / "f", "--over", "nvme@host[1-3]", "--stripe", "1MiB")
    before = sent(lab)
    report = json.loads(on(STEAD, "run", shared / LAYOUT, "--type", "csv", *asked, "--format", "json"))
    moved = sent(lab) - before
    assert report["results"] == one
    # Neither the data nor the outputs: the beginning of the file for each rank, the ends of records, and MPI itself.
    assert moved < size / 4 and report["metrics"]["bytes_fetched"] < size / 8, (moved, report["metrics"], size)
    for name, data in want.items():
        assert not (shared / name).exists()
        layout = shared / f"{name}.stead-layout.toml"
        page = json.loads(run([STEAD, "describe", layout, "--format", "json"]))
        assert [n["node"] for n in page["nodes"]] == ["host1", "host2", "host3"] and page["bytes"] == len(data)
        for part in page["parts"]:
            assert (tmp_path / part["node"] / part["path"]).stat().st_size == part["bytes"]
        on(STEAD, "get", layout)
        assert (shared / name).read_bytes() == data
    # What was written is a dataset like others, in C, too.
    kernels = ["rows", "min:x", "max:x"]
    one = json.loads(run([STEAD, "run", shared / "scaled.csv", *(a for k in kernels for a in ("-k", k)), "--format", "json"]))
    c = on(BUILT / "openmpi" / "run", shared / "scaled.csv.stead-layout.toml", *kernels)
    assert json.loads(c)["results"] == one["results"]


def test_an_output_of_which_a_part_does_not_fit_leaves_nothing(shared, tmp_path):
    (shared / "f").write_text("x\n" + "".join(f"{i % 10}\n" for i in range(2_000_000)))
    space = ["--dataspace", f"nvme={tmp_path}/space"]
    assert together(2, "put", shared / "f", "--over", "nvme", "--parts", 2, "--stripe", "100KiB", *space).returncode == 0
    before = left(tmp_path)
    full = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then trap "" XFSZ; ulimit -f 30000; fi; exec "$@"'
    words = mapped(shared, space)
    done = together(2, *words, wrapped=full)
    told = re.findall(r"^stead: (.*)", done.stderr, re.M)
    assert done.returncode == 1 and len(told) == 1, done.stderr
    assert re.search(r"/space/o\.csv\.parts/out-\w+\.1( at byte \d+)?: rank 1 on \S+: cannot write: file too large", told[0]), told
    assert left(tmp_path) == before and [p.name for p in (tmp_path / "space").iterdir()] == ["f.parts"]
    assert together(2, *words).returncode == 0
    assert len(left(tmp_path)) == len(before) + 3


OUTPUT = ["-k", "normalize:x,zscore,out={}/o.csv", "--type", "csv"]


def mapped(shared: Path, space: list) -> list:
    return ["run", shared / LAYOUT, *(word.format(shared) for word in OUTPUT), *space]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small device")
def test_an_output_on_a_full_device_leaves_nothing(shared, tmp_path):
    (shared / "f").write_text("x\n" + "".join(f"{i % 10}\n" for i in range(1_000_000)))
    space = ["--dataspace", f"nvme={tmp_path}/space"]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "stead-test", tmp_path / "space"], check=True)
    try:
        assert together(2, "put", shared / "f", "--over", "nvme", "--parts", 2, "--stripe", "100KiB", *space).returncode == 0
        before = left(tmp_path)
        done = together(2, *mapped(shared, space))
        told = re.findall(r"^stead: (.*)", done.stderr, re.M)
        assert done.returncode == 1 and len(told) == 1, done.stderr
        where = r"/space/o\.csv\.parts/out-\w+\.\d at byte \d+: rank \d on \S+: cannot write: no space left on device"
        assert re.search(where, told[0]), told
        assert left(tmp_path) == before and [p.name for p in (tmp_path / "space").iterdir()] == ["f.parts"]
    finally:
        subprocess.run(["umount", tmp_path / "space"], check=True)


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    run(["gcc", "-shared", "-fPIC", "-O1", ROOT / "tests" / "faults" / "shim.c", "-o", library, "-ldl"])
    return library


@pytest.mark.parametrize("fails", [0, 1])
def test_a_device_that_does_not_keep_an_output_fails_the_whole_run(shim, shared, tmp_path, fails):
    (shared / "f").write_text("x\n" + "".join(f"{i % 10}\n" for i in range(1000)))
    space = ["--dataspace", f"nvme={tmp_path}/space"]
    assert together(2, "put", shared / "f", "--over", "nvme", "--parts", 2, "--stripe", 100, *space).returncode == 0
    there = lambda: {p: p.read_bytes() for p in map(tmp_path.joinpath, left(tmp_path)) if p.name != "told"}
    # The first output, and one in its place.
    for again in False, True:
        before = there()
        for n in range(1, 30):
            (tmp_path / "told").unlink(missing_ok=True)
            faulty = f"export LD_PRELOAD={shim} SHIM_SYNC={n}:{tmp_path}/told"
            wrapped = f'if [ "$OMPI_COMM_WORLD_RANK" = {fails} ]; then {faulty}; fi; exec "$@"'
            done = together(2, *mapped(shared, space), wrapped=wrapped)
            if not (tmp_path / "told").exists():
                break
            assert done.returncode == 1 and "input/output error" in done.stderr, (n, done.stderr)
            assert there() == before, n
        # A part and its folder; on rank 0 the layout, too.
        assert done.returncode == 0 and n > 2, (n, done.stderr)
        now = there()
        assert len(now) == len(before) + (0 if again else 3) and now != before


@pytest.mark.parametrize("dies", [0, 1])
def test_a_rank_that_is_killed_in_a_run_leaves_no_output(shared, tmp_path, dies):
    (shared / "f").write_text("x\n" + "".join(f"{i % 10}\n" for i in range(1000)) * 5000)
    space = ["--dataspace", f"nvme={tmp_path}/space"]
    assert together(2, "put", shared / "f", "--over", "nvme", "--parts", 2, *space).returncode == 0
    before = left(tmp_path)
    wrapped = f'echo $$ >{tmp_path}/pid$OMPI_COMM_WORLD_RANK; exec "$@"'
    command = job(2, *mapped(shared, space), "--threads", 1, wrapped=wrapped, options=["--enable-recovery"])
    env = os.environ | HASTY
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as under_way:
        # Each has made its part, and the data are read now.
        while len(left(tmp_path)) < len(before) + 2:
            assert under_way.poll() is None
            time.sleep(0.001)
        os.kill(int((tmp_path / f"pid{dies}").read_text()), signal.SIGKILL)
        told = under_way.communicate(timeout=LIMIT)[1]
    assert "stead: " in told and f"rank {dies}" in told, told
    files = [f for f in left(tmp_path) if f not in before]
    # Only what the dead one was writing under a hidden name.
    assert all(re.search(r"/\.[^/]*\.tmp$", f) for f in files) and len(files) <= 1, files
    # It is no hindrance.
    assert together(2, *mapped(shared, space)).returncode == 0


@pytest.mark.parametrize("limited", [0, 1])
def test_a_rank_whose_device_is_full_leaves_nothing_anywhere(shared, tmp_path, limited):
    (shared / "f").write_bytes(contents(40_000_000))
    full = f'if [ "$OMPI_COMM_WORLD_RANK" = {limited} ]; then trap "" XFSZ; ulimit -f 30000; fi; exec "$@"'
    words = ["put", shared / "f", "--over", "nvme", "--parts", 2, "--dataspace", f"nvme={tmp_path}/space"]
    done = together(2, *words, wrapped=full)
    told = re.findall(r"^stead: (.*)", done.stderr, re.M)
    assert done.returncode == 1 and len(told) == 1, done.stderr
    assert re.search(rf"/space/f\.parts/\w+\.\d: rank {limited} on \S+: cannot write: file too large", told[0]), told
    assert left(tmp_path) == [] and [*(tmp_path / "space").iterdir()] == []


@pytest.mark.parametrize("dies", [0, 1])
def test_a_rank_that_is_killed_leaves_no_layout(shared, tmp_path, dies):
    os.truncate(shared / "f", 1 << 30)
    wrapped = f'echo $$ >{tmp_path}/pid$OMPI_COMM_WORLD_RANK; exec "$@"'
    words = ["put", shared / "f", "--over", "nvme", "--parts", 2, "--threads", 1, "--dataspace", f"nvme={tmp_path}/space"]
    command = job(2, *words, wrapped=wrapped, options=["--enable-recovery"])
    env = os.environ | HASTY
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as under_way:
        while len(left(tmp_path / "space")) < 2:
            assert under_way.poll() is None
            time.sleep(0.01)
        os.kill(int((tmp_path / f"pid{dies}").read_text()), signal.SIGKILL)
        told = under_way.communicate(timeout=LIMIT)[1]
    assert "stead: " in told and f"rank {dies}" in told, told
    files = left(tmp_path)
    # Only what the dead one was writing under hidden names.
    assert all(re.search(r"/\.[^/]*\.tmp$", f) for f in files) and len(files) <= 2, files


def test_an_interrupt_leaves_nothing(shared, tmp_path):
    # mpirun tells its ranks a second after it was told itself.
    os.truncate(shared / "f", 4 << 30)
    words = ["put", shared / "f", "--over", "nvme", "--parts", 2, "--threads", 1, "--dataspace", f"nvme={tmp_path}/space"]
    with subprocess.Popen(job(2, *words), stderr=subprocess.PIPE, text=True) as under_way:
        while len(left(tmp_path / "space")) < 2:
            assert under_way.poll() is None
            time.sleep(0.01)
        # Not `timeout`, which passes a signal on twice: mpirun takes the second one for an order to kill at once.
        (mpirun,) = Path(f"/proc/{under_way.pid}/task/{under_way.pid}/children").read_text().split()
        os.kill(int(mpirun), signal.SIGTERM)
        under_way.communicate(timeout=LIMIT)
    assert under_way.returncode and left(tmp_path) == []


def test_a_part_with_another_byte_is_told_once(shared, tmp_path):
    space = ["--dataspace", f"nvme={tmp_path}/space"]
    assert together(3, "put", shared / "f", "--over", "nvme", "--parts", 3, *space).returncode == 0
    part = sorted((tmp_path / "space" / "f.parts").iterdir())[1]
    with part.open("r+b") as file:
        file.seek(1000)
        file.write(b"!")
    before = left(tmp_path)
    done = together(3, "get", shared / LAYOUT, "-o", shared / "back", *space)
    told = re.findall(r"^stead: (.*)", done.stderr, re.M)
    assert done.returncode == 1 and len(told) == 1 and f"{part}: " in told[0] and "has the checksum crc32c:" in told[0], done.stderr
    assert left(tmp_path) == before
