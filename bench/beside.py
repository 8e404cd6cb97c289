"""Computations beside transfers: what each takes from the other. Part of bench/staging.py.

Machines are seldom as fast in one minute as in the next. So computations do not end here: they run on and count their rounds, and there are
short windows in turn, of the computation alone, of a transfer alone (the computation is stopped), and of both. What is compared is a window
with the one before it and the one after it; the medians of all of these are told.
"""

import contextlib
import mmap
import os
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

WINDOW_S = 4.0
# The first part of a window is nobody's: files are opened, processes come up to speed.
LEAD_S = 0.5
# A virtual machine has its processors only as far as its host leaves them to it. Where that was less than all but this part of the time,
# what is compared says nothing of transfers: it is done again, so many times at most.
MOST_STOLEN = 0.01
MOST_TRIES = 2

# Each counts its rounds where the bench looks; argv: file of the counter, its place there, a big file.
HEAD = """
import mmap, os, random, struct, sys
with open(sys.argv[1], "r+b") as file:
    counter = mmap.mmap(file.fileno(), 0)
at = 8 * int(sys.argv[2])
def rounds():
    n = 0
    while True:
        yield n
        n += 1
        struct.pack_into("q", counter, at, n)
"""
COMPUTE = {
    # As the kernels of HPCG: streams through arrays that no cache holds.
    "memory": HEAD + """
import numpy as np
a = np.ones(4_000_000); b = np.ones_like(a)
for _ in rounds(): np.multiply(a, 1.000001, out=b); np.add(a, b, out=a); a *= 0.4
""",
    "processor": HEAD + """
x = 0
for _ in rounds():
    for i in range(20_000): x = (x * 31 + i) & 0xffffffff
""",
    "disk": HEAD + """
fd = os.open(sys.argv[3], os.O_RDONLY | os.O_DIRECT); size = os.fstat(fd).st_size
room = mmap.mmap(-1, 1 << 16); pick = random.Random(1)
for _ in rounds(): os.preadv(fd, [room], pick.randrange(size >> 16) << 16)
""",
}


# As batch systems do that keep a core of a node for the system and its daemons: computations have all others.
LEFT = ", a core left"


class Computation:
    """A process on each processor that it has, which run until the end; they are stopped while others are alone."""

    def __init__(self, kind, a):
        self.counts = a.data / "rounds.bin"
        processors = sorted(os.sched_getaffinity(0))
        if kind.endswith(LEFT):
            kind, processors = kind.removesuffix(LEFT), processors[:-1]
        self.n = len(processors)
        self.counts.write_bytes(bytes(8 * self.n))
        with open(self.counts, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.jobs = [subprocess.Popen([sys.executable, "-c", COMPUTE[kind], str(self.counts), str(i), str(a.big)]) for i in range(self.n)]
        for job, processor in zip(self.jobs, processors, strict=True):
            os.sched_setaffinity(job.pid, {processor})
        deadline = time.monotonic() + 60
        while min(self.rounds()) < 3:
            assert time.monotonic() < deadline and all(j.poll() is None for j in self.jobs), f"{kind}: nothing is computed"
            time.sleep(0.05)

    def rounds(self):
        return struct.unpack(f"{self.n}q", self.map[:])

    def tell(self, what):
        for job in self.jobs:
            job.send_signal(what)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for job in self.jobs:
            job.kill()
            job.wait()
        self.counts.unlink()


class Transfer:
    """A copy that is begun, and stopped when its window ends."""

    def __init__(self, a, way):
        self.way = way
        shutil.rmtree(way.folder, ignore_errors=True)
        shutil.rmtree(a.data / "state", ignore_errors=True)
        way.folder.mkdir()
        with open(a.big, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.job = subprocess.Popen([str(w) for w in way.words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.moved = 0

    def bytes(self):
        """What the disk was asked for, as the system counts it; of what is written, to memory first, where it goes through the page cache."""
        if self.job.poll() is None:
            with contextlib.suppress(OSError):
                counts = dict(line.split(": ") for line in Path(f"/proc/{self.job.pid}/io").read_text().splitlines())
                self.moved = max(self.moved, int(counts[self.way.counted]))
        return self.moved

    def stop(self):
        self.job.send_signal(signal.SIGINT)
        self.job.wait(60)
        shutil.rmtree(self.way.folder)


def stolen():
    """Seconds that the host has kept the processors to itself, and seconds in all."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7] / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")


def window(seconds, computation, transfer):
    """Rounds a second of all processes, bytes a second, and the part of the time that the host had; no bytes if the transfer has ended before
    there was anything to see."""
    time.sleep(min(LEAD_S, seconds / 8))
    host, everyone = stolen()
    began, rounds = time.perf_counter(), computation.rounds()
    bytes_then = transfer.bytes() if transfer else 0
    at = time.perf_counter()
    moved = None
    while time.perf_counter() - began < seconds and (transfer is None or transfer.job.poll() is None):
        time.sleep(0.05)
        moved = (transfer.bytes() - bytes_then) / (time.perf_counter() - at) if transfer else None
    took = time.perf_counter() - began
    done = (sum(computation.rounds()) - sum(rounds)) / took
    host_now, everyone_now = stolen()
    return done, moved, (host_now - host) / max(everyone_now - everyone, 1e-9)


def fair(row):
    """The turns of a way in which the host has left the processors to the machine; all, if there is none."""
    return [i for i, stolen in enumerate(row["stolen"]) if stolen <= MOST_STOLEN] or range(len(row["stolen"]))


def kept(row):
    return sum(stolen <= MOST_STOLEN for stolen in row["stolen"])


class Way(NamedTuple):
    words: list
    folder: Path
    # Which of the counts of /proc/PID/io are its bytes: those of a disk at one of its ends.
    counted: str


def ways_of(a, kind, inside):
    """Within the disk beside everything; to memory and from there beside what does not use the disk. cp is for comparison."""
    on_disk, in_memory = a.data / "beside", a.memory / "beside"

    def way(words, source, folder, *options):
        return Way([*words, source, folder / "copy.bin", *options], folder, "write_bytes" if folder == on_disk else "read_bytes")

    stage = [a.stead, "stage"]
    ways = {"stead stage --gentle": way(stage, a.big, on_disk, "--gentle"), "cp": way(["cp"], a.big, on_disk)}
    if shutil.which("ionice"):
        ways["nice ionice cp"] = way(["nice", "-n", "19", "ionice", "-c", "3", "cp"], a.big, on_disk)
    if inside and kind != "disk":
        ways["stead stage --gentle, to memory"] = way(stage, a.big, in_memory, "--gentle")
        ways["stead stage --gentle, from memory"] = way(stage, inside, on_disk, "--gentle")
    return ways


def beside_section(a):
    # What is staged out of memory lies there.
    inside = a.memory / "beside.bin" if a.memory.stat().st_dev != a.data.stat().st_dev else None
    if inside:
        shutil.copyfile(a.big, inside)
    try:
        return beside_all(a, inside)
    finally:
        if inside:
            inside.unlink()


def beside_all(a, inside):
    seconds = max(WINDOW_S * min(a.scale, 1.0), 0.3)
    found = {}
    for kind in [*COMPUTE, *(kind + LEFT for kind in ("memory", "processor") if len(os.sched_getaffinity(0)) > 1)]:
        ways = ways_of(a, kind, inside)
        with Computation(kind, a) as computation:
            rows = {way: {"slower": [], "rate": [], "alone": [], "stolen": []} for way in ways}
            for turn in range(MOST_TRIES * max(2 * a.runs, 2)):
                # Of the others every second time is enough.
                wanted = {way: max(2 * a.runs, 2) if way.startswith("stead") else a.runs for way in ways}
                names = [way for way in ways if kept(rows[way]) < wanted[way] and (way.startswith("stead") or turn % 2 == 0)]
                if not any(kept(rows[way]) < wanted[way] for way in ways):
                    break
                before = window(seconds, computation, None)
                for way in names:
                    transfer = Transfer(a, ways[way])
                    both = window(seconds, computation, transfer)
                    transfer.stop()
                    computation.tell(signal.SIGSTOP)
                    transfer = Transfer(a, ways[way])
                    alone = window(seconds, computation, transfer)
                    transfer.stop()
                    os.sync()
                    computation.tell(signal.SIGCONT)
                    after = window(seconds, computation, None)
                    row = rows[way]
                    row["slower"].append((before[0] + after[0]) / 2 / both[0] - 1 if both[0] else float("inf"))
                    row["rate"].append(both[1])
                    row["alone"].append(alone[1])
                    row["stolen"].append(max(before[2], both[2], after[2]))
                    before = after
        found[kind] = rows
    return found


def beside_report(found, table):
    rows = []
    for kind, ways in found.items():
        for way, r in ways.items():
            turns = fair(r)
            all_slower = [r["slower"][i] for i in turns]
            slower, low, high = statistics.median(all_slower), min(all_slower), max(all_slower)
            rate, alone = (statistics.median([r[k][i] for i in turns if r[k][i] is not None] or [0]) for k in ("rate", "alone"))
            used = f"{kept(r)} of {len(r['stolen'])}"
            rows.append([kind, way, f"{100 * slower:.1f} %", f"{100 * low:.0f} to {100 * high:.0f} %", used, f"{rate / 1e6:.0f}", f"{alone / 1e6:.0f}",
                         f"{rate / alone:.2f}" if alone else ""])
    return ["## Beside a computation on all processors, and on all but one\n",
            "Medians of windows: what is computed with the transfer, and without it just before and after. It is within the disk where nothing else is said. "
            "What cp has written is in memory, not on the device. "
            f"Windows in which the host took more than {100 * MOST_STOLEN:.0f} % of the processors' time are left out, if there are others.\n",
            table(["bound by", "transfer", "slower by", "in windows", "windows", "MB/s", "MB/s alone", "of it"], rows)]
