"""Ranks that ask others on hosts of the lab: what crosses the links, who is named when one is killed, and whose rights count."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from jobs import HASTY, LIMIT, bound, launch, run
from support import ROOT
from test_mpi import LAB, lab, over  # noqa: F401
from test_mpi4py import env  # noqa: F401
from test_place import worked
from test_put import sent
from test_run import alone
from test_spread import put

#: Compute ranks ask for kernels over a file, and the last one prints what they got.
ASKS = """
import sys, stead
from mpi4py import MPI
path, storage, *kernels = sys.argv[1:]
comm = MPI.COMM_WORLD
site = stead.offload(comm, storage=storage)
if site is not None:
    with site:
        report = site.run(path, *kernels, type="raw", dtype="u8")
        if comm.rank == site.compute[-1][0]:
            print(report.to_json())
"""

#: Compute ranks ask for what takes long, and then for a little, and print what they are told. MPI would wait for who was killed
#: at its end, so that nobody goes there.
TOLD = """
import os, sys, stead
from mpi4py import MPI
path, storage = sys.argv[1:]
try:
    site = stead.offload(MPI.COMM_WORLD, storage=storage)
except stead.PeerError as e:
    print(str(e).split(": ")[0], flush=True)
    os._exit(0)
for kernel in ["quantile:value", "rows"] if site is not None else []:
    try:
        site.run(path, kernel, "entropy", type="raw", dtype="f64", threads=1)
    except stead.PeerError as e:
        print(str(e).split(": ")[0], flush=True)
if site is not None:
    site.close()
else:
    print("served", flush=True)
os._exit(0)
"""


def python(env, program: str, *words) -> list[str]:  # noqa: F811
    return ["env", *(f"{name}={value}" for name, value in env.items()), sys.executable, "-c", program, *map(str, words)]


@pytest.mark.parametrize("storage", ["host1", "host[2-3]"])
def test_only_results_cross_the_links(lab, mpi, env, tmp_path, storage):  # noqa: F811
    path, size = tmp_path / "n.bin", 48 << 20
    with path.open("wb") as file:
        for i in range(48):
            file.write(bytes([i % 64] * (1 << 20)))
    kernels = ["sum:0", "hist:0,bins=64,min=0,max=64", "entropy"]
    before = sent(lab)
    report = json.loads(run([*over(lab, mpi), *python(env, ASKS, path, storage, *kernels)]))
    moved = sent(lab) - before
    asked = [word for k in kernels for word in ("-k", k)]
    assert report["results"] == alone(path, "--type", "raw", "--dtype", "u8", *asked)["results"]
    assert report["metrics"]["bytes_read"] == size and report["plan"]["ranks"] == storage.count("-") + 1
    # What asks and answers take, and the start of MPI.
    assert moved < size / 16, moved


@pytest.mark.parametrize("victim", ["host2", "host3"], ids=["the head", "another one"])
def test_a_storage_rank_that_is_killed_is_named(lab, tmp_path, victim):  # noqa: F811
    path = tmp_path / "zeros.bin"
    path.touch()
    os.truncate(path, 8 << 30)
    given = {"MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": str(ROOT / ".build" / "mpi" / "openmpi" / "libstead_mpi.so")}
    wrapped = f'h={tmp_path}/$(hostname); echo $$ >$h.part; mv $h.part $h; exec "$@"'
    words = ["sh", "-c", wrapped, "sh", *python(given, TOLD, path, "host[2-3]")]
    job = [LAB, "run", lab, "--enable-recovery", "-x", "STEAD_PEER_SILENCE_S", *words]
    told = os.environ | HASTY
    with subprocess.Popen([*map(str, ["timeout", "--kill-after=10", LIMIT, *job])], env=told, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as under_way:
        end, pid = time.monotonic() + LIMIT, tmp_path / victim
        while not pid.exists():
            assert under_way.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        # It computes for longer than Python and MPI take to start.
        while worked(int(pid.read_text())) < 2.5:
            assert under_way.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        os.kill(int(pid.read_text()), signal.SIGKILL)
        out, err = under_way.communicate(timeout=LIMIT)
    # Who is left of the storage ranks ends, too: without the head by the same error.
    told = [f"rank {int(victim[4:]) - 1} on {victim}"]
    assert sorted(out.splitlines()) == told * 2 + (told if victim == "host2" else ["served"]), (out, err)


LOST = """
import sys, stead
from mpi4py import MPI
layout, file = sys.argv[1:]
site = stead.offload(MPI.COMM_WORLD, storage="host[2-3]")
if site is not None:
    with site:
        try:
            site.run(layout, "rows")
        except stead.NotFoundError as e:
            print(str(e).splitlines()[0], flush=True)
        print(site.run(file, "rows")["rows"], flush=True)
"""


def test_a_part_that_is_lost_is_told_to_who_asks(lab, mpi, env, tmp_path):  # noqa: F811
    file = tmp_path / "t.csv"
    file.write_text("x\n" + "".join(f"{i}\n" for i in range(50_000)))
    layout = put(file, tmp_path / "l", 10_000, ["host2", "host3"])
    (layout.parent / "part1").unlink()
    told, rows = run([*over(lab, mpi), *python(env, LOST, layout, file)]).splitlines()
    assert "part 1 of 't.csv'" in told and re.search(r"rank 2 on host3: ", told) and rows == "50000", told


REFUSED = """
import sys, stead
from mpi4py import MPI
site = stead.offload(MPI.COMM_WORLD, storage=MPI.COMM_WORLD.rank < int(sys.argv[2]))
if site is not None:
    with site:
        for view in [None, stead.FileView(8, [(0, 1)], 1)]:
            try:
                site.run(sys.argv[1], "rows", type="raw", dtype="u8", view=view)
            except stead.PermissionDeniedError as e:
                assert "rank 0 on " in str(e) and e.path == sys.argv[1], repr(e)
                print("refused", flush=True)
"""


@pytest.mark.parametrize("storage", [1, 2])
def test_what_the_user_may_not_read_is_not_read_for_him(mpi, env, tmp_path, storage):  # noqa: F811
    path = tmp_path / "secret.bin"
    path.write_bytes(bytes(100))
    path.chmod(0)
    out = run([*bound(), *launch(mpi, 3), *python(env, REFUSED, path, storage)])
    # Lines of several ranks may come in one.
    assert out.replace("\n", "") == "refused" * 2 * (3 - storage)
