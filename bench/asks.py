"""Measures what a small ask of another rank takes (stead.offload), beside a message of MPI there and back.

    python bench/asks.py LIBRARIES DATA_DIR [--mpi openmpi,mpich] [--asks N] [--quiet N] [--bytes N] [--ranks N] [--json]

LIBRARIES has a folder for each MPI, with its libstead_mpi.so: .build/mpi. The package of stead and mpi4py are installed. The first
rank is the storage rank, and the last one asks for the mean of a small table, one ask after the other; all ranks are on this
machine. Ways: *ping-pong* (8 bytes there and back by MPI_Send and MPI_Recv), *here* (stead.run in the asking process, opened
anew each time), *ask* (one after the other) and *quiet* (asks after two seconds without any). Medians and 90th percentiles, in
microseconds.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

QUIET_S = 2.0


def times(count, work, before=lambda: None):
    """Microseconds of each of so many, after a tenth as many that do not count."""
    found = []
    for i in range(count + count // 10):
        before()
        begun = time.perf_counter()
        work()
        found.append((time.perf_counter() - begun) * 1e6)
    return found[count // 10 :]


def rank(path, count, quiet):
    """What one rank does; the last one prints what it has found."""
    import stead
    from mpi4py import MPI

    comm, message, last = MPI.COMM_WORLD, bytearray(8), MPI.COMM_WORLD.size - 1

    def there_and_back():
        if comm.rank == last:
            comm.Send(message, 0)
            comm.Recv(message, 0)
        else:
            comm.Recv(message, last)
            comm.Send(message, last)

    found = {}
    if comm.rank in (0, last):
        found["ping-pong"] = times(count, there_and_back)
    site = stead.offload(comm, storage=comm.rank == 0)
    if site is None:
        return
    with site:
        if comm.rank != last:
            return
        here = stead.run(path, "mean:x", threads=1)
        if site.run(path, "mean:x")["mean:x"] != here["mean:x"]:
            raise SystemExit("the storage rank has found something else")
        found["here"] = times(count, lambda: stead.run(path, "mean:x", threads=1))
        found["ask"] = times(count, lambda: site.run(path, "mean:x"))
        if quiet:
            found["quiet"] = times(quiet, lambda: site.run(path, "mean:x"), lambda: time.sleep(QUIET_S))
    print(json.dumps(found))


def launch(mpi, library, ranks, path, count, quiet):
    """What so many ranks with an MPI have found; None where it is not installed."""
    mpirun = shutil.which(f"mpirun.{mpi}")
    if mpirun is None or not library.exists():
        return None
    env = os.environ | {"MPI4PY_MPIABI": mpi, "STEAD_MPI_LIBRARY": str(library.resolve())}
    words = [mpirun, "-n", str(ranks)]
    if mpi == "openmpi":
        words[1:1] = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    with tempfile.TemporaryDirectory() as folder:
        linked = subprocess.run(["ldd", library], capture_output=True, text=True).stdout
        if mpi == "mpich" and (found := re.search(r"(/\S+/libmpich\.so\.12) ", linked)):
            # Where a system has several MPIs, its library has a name that mpi4py does not look for.
            Path(folder, "libmpi.so.12").symlink_to(found[1])
            env["LD_LIBRARY_PATH"] = folder
        done = subprocess.run([*words, sys.executable, __file__, "rank", str(path), str(count), str(quiet)], env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{mpi}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--mpi", default="openmpi,mpich")
    parser.add_argument("--asks", type=int, default=1000)
    parser.add_argument("--quiet", type=int, default=10)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="raw numbers in place of a table")
    a = parser.parse_args()
    a.data.mkdir(parents=True, exist_ok=True)
    path = (a.data / f"asks-{a.bytes}.csv").resolve()
    if not path.exists():
        path.write_text("x,y\n" + "".join(f"{i},{i * 37 % 101}\n" for i in range(max(a.bytes // 8, 1))))
        # What was changed just now is opened anew for each ask.
        time.sleep(3)
    for mpi in a.mpi.split(","):
        found = launch(mpi, a.libraries / mpi / "libstead_mpi.so", a.ranks, path, a.asks, a.quiet)
        if found is None:
            print(f"{mpi} is not installed, or has no libstead_mpi", file=sys.stderr)
        elif a.json:
            print(json.dumps({"mpi": mpi, "ranks": a.ranks, "bytes": path.stat().st_size, "microseconds": found}))
        else:
            for way, took in found.items():
                print(f"{mpi:8} {way:10} {statistics.median(took):9.1f} us, 90 %: {statistics.quantiles(took, n=10)[-1]:9.1f} us")


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
