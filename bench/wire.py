"""What the links of the lab carry at best: bytes of TCP between two programs, and large messages of plain MPI.

    python bench/wire.py receive PORT
    python bench/wire.py send ADDRESS PORT BYTES

are the two programs, each run on its host; the first one prints what it has got, and in how many seconds.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from run import command

HERE = Path(__file__).parent
LAB = HERE.parent / "lab" / "lab"
PORT = 7500
# Of plain MPI: windows as large, and as many under way, as reads of ranks that fetch have.
WINDOW, WINDOWS = 1 << 20, 16
MPI = {"Open MPI": ("openmpi", []), "MPICH": ("mpich", ["--mpich"])}


def receive(port):
    listens = socket.create_server(("0.0.0.0", port))
    listens.settimeout(30)
    comes, _ = listens.accept()
    memory, count = bytearray(1 << 20), 0
    begin = None
    while got := comes.recv_into(memory):
        begin = begin or time.perf_counter()
        count += got
    print(json.dumps({"bytes": count, "seconds": time.perf_counter() - begin}))


def send(address, port, count):
    end = time.monotonic() + 30
    while True:
        try:
            goes = socket.create_connection((address, port))
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    memory = memoryview(bytes(1 << 20))
    while count:
        now = min(count, len(memory))
        goes.sendall(memory[:now])
        count -= now
    goes.close()


def tcp(name, pairs, count):
    """Seconds in which each of the first hosts of a lab sends so many bytes to one of the others, all at once."""
    addresses = command([LAB, "addresses", name]).split()
    begin = lambda host, *words: subprocess.Popen([*map(str, [LAB, "exec", name, host, sys.executable, __file__, *words])], stdout=subprocess.PIPE, text=True)
    comes = [begin(pairs + i + 1, "receive", PORT) for i in range(pairs)]
    goes = [begin(i + 1, "send", addresses[pairs + i], PORT, count) for i in range(pairs)]
    try:
        found = [json.loads(one.communicate(timeout=120)[0]) for one in comes]
    finally:
        for one in comes + goes:
            one.kill()
            one.wait()
    if any(one["bytes"] != count for one in found):
        raise SystemExit(f"of {count} bytes came {[one['bytes'] for one in found]}")
    return max(one["seconds"] for one in found)


def plain(name, mpi, pairs, count, folder, command=command):
    """Seconds of several runs in which so many ranks send so many bytes each to as many others; None where this MPI is not."""
    which, words = MPI[mpi]
    mpicc = next(filter(shutil.which, [f"mpicc.{which}", "mpicc"]), None)
    said = subprocess.run([mpicc, "-show"], capture_output=True, text=True).stdout if mpicc else ""
    if not re.search(which.removesuffix("mpi"), said, re.I):
        return None
    program = (Path(folder) / f"wire-{which}").resolve()
    subprocess.run([mpicc, "-std=c11", "-O2", str(HERE / "mpi" / "wire.c"), "-o", str(program)], check=True, stderr=subprocess.DEVNULL)
    # MPICH would find that the hosts are of one machine, and pass the network by.
    out = command([*map(str, ["env", "UCX_TLS=tcp,self", LAB, "run", name, *words, "-n", 2 * pairs, program, count, WINDOW, WINDOWS])])
    return [json.loads(line)["seconds"] for line in out.splitlines()]


if __name__ == "__main__":
    if sys.argv[1:2] == ["receive"]:
        receive(int(sys.argv[2]))
    elif sys.argv[1:2] == ["send"]:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        raise SystemExit(__doc__)
