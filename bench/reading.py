"""Measures read sessions beside tasks that read by themselves, a memory map, fio or dd, std::ifstream, MPI_File_read_at_all
and chares of Charm4py, in turn, in one run. What is not installed is left out, and named.

    python bench/reading.py STEAD DATA_DIR OUT_DIR [--scale F] [--runs N] [--only SECTION,...] [--check]

All tools read every byte of the same file and add it up; sums must agree. Figures are medians. Each way of reading is a
process of its own, and the memory of tasks begins with a page, whoever fills it. Beside the seconds stand those of processors:
of the whole process, its start included, and without what threads of the kernel do for it.

Writes OUT_DIR/DATE-HOST-reading.json with the raw numbers and .md with the targets and tables; --check writes nothing, and
fails if a section fails, never because of a time.
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import ranks
import reader
import reading_report
from run import children, command, commit, evict, machine, warm

CORES = os.cpu_count()
FILE = 2 << 30


def bench(a, what, file, *words):
    out = command([a.bench, "sessions", what, file, *map(str, words)])
    return [json.loads(line) for line in out.splitlines()]


def one(a, file, tasks, way, *words):
    """One run of tasks, with the processor seconds of its process."""
    words = ["--tasks", tasks, "--runs", 1, "--ways", way, *words]
    (found,), took = children(lambda: bench(a, "tasks", file, *words))
    return {**found, "processor": took["cpu_seconds"]}


class Rows:
    """Seconds, and those of processors, by way and number of tasks."""

    def __init__(self):
        self.seconds, self.processor = {}, {}

    def add(self, name, tasks, seconds, processor):
        for rows, value in ((self.seconds, seconds), (self.processor, processor)):
            rows.setdefault(name, {}).setdefault(tasks, []).append(value)


# --- Page cache warm --------------------------------------------------------------------------------


def mmap_tasks(path, tasks):
    """Threads that look at parts of one memory map, without any session."""
    import numpy as np

    begin, used = time.perf_counter(), time.process_time()
    words = np.memmap(path, np.uint64, "r")
    share = -(-len(words) // tasks)
    with ThreadPoolExecutor(CORES) as pool:
        parts = pool.map(lambda i: int(words[i * share:(i + 1) * share].sum(dtype=np.uint64)), range(tasks))
        total = sum(parts) % (1 << 64)
    return time.perf_counter() - begin, time.process_time() - used, total


def has(module):
    return importlib.util.find_spec(module) is not None


# Name, whether it runs here, function of path and tasks that gives seconds, those of processors, and the sum of all words.
PEERS = [("mmap (NumPy)", lambda: has("numpy"), mmap_tasks)]


def small_pages(path):
    """Brings a file into the page cache in pages of 4 KiB, as what was read on demand, and a piece at a time, lies there."""
    evict(path)
    step = 1 << 20
    with open(path, "rb") as f:
        for at in range(0, os.path.getsize(path), step):
            os.posix_fadvise(f.fileno(), at, step, os.POSIX_FADV_WILLNEED)
    warm(path)


def take_memory(size):
    """Takes memory, and gives it back: a virtual machine may have given free memory to its host, and who is the first to take
    it again pays for that. What runs next finds it here."""
    fill = "import mmap, sys\nm = mmap.mmap(-1, int(sys.argv[1]))\nwhile m.tell() < len(m): m.write(bytes(min(1 << 24, len(m) - m.tell())))"
    command([sys.executable, "-c", fill, str(size)])


def warm_rounds(a, runs, ways, peers):
    rows, sums = Rows(), set()
    size = os.path.getsize(a.file)
    # Who maps the pages of a file first takes longer, whoever that is.
    bench(a, "tasks", a.file, "--tasks", a.tasks[-1], "--runs", 1, "--ways", "views")
    for i in range(runs):
        turned = i % len(ways)
        for tasks in a.tasks:
            # Nobody always finds the memory that the same one before has left.
            for way, words in ways[turned:] + ways[:turned]:
                take_memory(size)
                found = one(a, a.file, tasks, way.split(",")[0], *words)
                rows.add(way, tasks, found["seconds"], found["processor"])
                sums.add(found["sum"])
            for name, there, work in peers:
                if there():
                    seconds, processor, total = work(a.file, tasks)
                    rows.add(name, tasks, seconds, processor)
                    sums.add(total)
    if len(sums) != 1:
        raise SystemExit(f"the tools have read different bytes: {sums}")
    return rows


def warm_section(a):
    """Each number of tasks: views and buffers of a session, tasks alone, and the peers."""
    evict(a.file)
    warm(a.file)
    scattered = [(f"{way}, scattered", ["--scattered"]) for way in ("views", "pread")]
    whole = warm_rounds(a, a.runs, [("views", []), ("buffers", []), ("pread", []), *scattered], PEERS)
    small_pages(a.file)
    small = warm_rounds(a, a.runs, [("views", []), ("buffers", []), ("pread", [])], [])
    return {"large": whole.seconds, "small": small.seconds,
            "processor": {"large": whole.processor, "small": small.processor}}


# --- Page cache cold --------------------------------------------------------------------------------


def device(a, rows):
    """What the device gives with O_DIRECT: fio where it is installed, at several depths, and dd."""
    size = os.path.getsize(a.file) >> 20 << 20
    if shutil.which("fio"):
        for depth in (8, 32):
            words = ["fio", "--name=read", f"--filename={a.file}", "--readonly", "--rw=read", "--direct=1", "--bs=1M",
                     "--ioengine=libaio", f"--iodepth={depth}", f"--size={size}", "--output-format=json"]
            out, whole = children(lambda: command(words))
            took = max(json.loads(out[out.index("{"):])["jobs"][0]["read"]["runtime"], 1) / 1000
            rows.add(f"fio, O_DIRECT, {depth} in flight", 0, took, whole["cpu_seconds"])
    words = ["dd", f"if={a.file}", "of=/dev/null", "bs=4M", "iflag=direct"]
    done, whole = children(lambda: subprocess.run(words, capture_output=True))
    if done.returncode == 0:
        rows.add("dd iflag=direct", 0, whole["seconds"], whole["cpu_seconds"])


def cold_section(a):
    """The device is measured before every other number of tasks: many give more for a while and less after that, so that
    each round begins with another number.

    The file is read once before each run, so that the page cache gets memory that was in use a moment ago: a virtual machine
    may have given free memory back to its host, and then what is read first pays for having it again.
    """
    rows, held = Rows(), {}
    for i in range(max((a.runs + 1) // 2, 1)):
        turned = 2 * i % len(a.tasks)
        for place, tasks in enumerate(a.tasks[turned:] + a.tasks[:turned]):
            if place % 2 == 0:
                device(a, rows)
            for name, words in (("views", []), ("views, O_DIRECT", ["--direct"])):
                warm(a.file)
                evict(a.file)
                found = one(a, a.file, tasks, "views", *words)
                rows.add(name, tasks, found["seconds"], found["processor"])
                # Fewer tasks hold more at once than any budget: what they asked for.
                if tasks >= 1024:
                    held[name] = max(held.get(name, 0), found["peak_bytes"])
    return {"seconds": rows.seconds, "processor": rows.processor, "peak_bytes": held}


# --- The choice -------------------------------------------------------------------------------------

READERS = (1, 2, 4)
BLOCKS = ("256KiB", "2MiB", "8MiB")


def copy(a, size):
    """The first bytes of the file, as a file of its own: what is chosen follows from the file."""
    path = a.data / f"reading-{size}.bin"
    if not path.exists() or path.stat().st_size != size:
        part = path.with_suffix(".part")
        with open(a.file, "rb") as source, open(part, "wb") as target:
            for _ in range(0, size, 1 << 20):
                target.write(source.read(1 << 20))
            target.truncate(size)
        part.rename(path)
    return str(path.resolve())


def sweep_section(a):
    """The choice beside what is set by hand, page cache cold: readers x block, over sizes and numbers of tasks."""
    whole = os.path.getsize(a.file)
    rows = []
    for size in (whole // 32, whole // 4, whole):
        file = a.file if size == whole else copy(a, size)
        for tasks in a.tasks[1::2] + ([a.tasks[-1]] if size < whole else []):
            ways = [("chosen", [])]
            ways += [(f"{r} x {b}", ["--readers", r, "--block", b]) for r in READERS for b in BLOCKS]

            def once(words):
                evict(file)
                return one(a, file, tasks, "views", *words)

            found, processor = {}, {}
            for i in range(a.sweeps):
                # Nobody is always the first after a pause, in which many devices save up strength.
                for name, words in ways[3 * i:] + ways[:3 * i]:
                    took = once(words)
                    found.setdefault(name, []).append(took["seconds"])
                    processor.setdefault(name, []).append(took["processor"])
            # The best of nine is the best by chance, too: it is run again beside the choice, in turn.
            hand = min((name for name, _ in ways[1:]), key=lambda name: statistics.median(found[name]))
            again = {}
            # What takes a twentieth of a second varies by more than there is to be seen.
            for i in range(a.runs * (3 if size == whole // 32 else 1)):
                for name, words in ways[::-1] if i % 2 else ways:
                    if name in ("chosen", hand):
                        again.setdefault(name, []).append(once(words)["seconds"])
            rows.append({"bytes": size, "tasks": tasks, "seconds": found, "processor": processor, "again": again})
    return rows


# --- The rest ---------------------------------------------------------------------------------------


def overlap_section(a):
    """Input while processors compute: all of them, and all but one."""
    tasks = f"{a.tasks[len(a.tasks) // 2]},{a.tasks[-1]}"
    found = []
    for busy in sorted({CORES, max(CORES - 1, 1)}, reverse=True):
        found += bench(a, "overlap", a.file, "--tasks", tasks, "--runs", max(a.runs // 2, 1), "--seconds", a.seconds,
                       "--busy", busy)
    return found


def many_python(file, sessions):
    """Sessions of the Python package; None without it."""
    if not has("stead"):
        return None
    return json.loads(command([sys.executable, str(Path(__file__).with_name("many.py")), file, str(sessions)]))


def memory_section(a):
    """Sessions that are opened and closed, each with one read of a file that is in the page cache, by each interface; and the
    peak memory of tasks over files of several sizes, the larger ones without any data on the device."""
    file = copy(a, os.path.getsize(a.file) // 4)
    warm(file)
    many = {"page cache": bench(a, "many", file, "--sessions", a.sessions)[0],
            "blocks in memory": bench(a, "many", file, "--sessions", a.sessions, "--pread")[0],
            "C": reader.many(Path(a.bench).parent, a.data, file, a.sessions),
            "Python": many_python(file, a.sessions)}
    peaks = []
    for size in (os.path.getsize(a.file) // 4, os.path.getsize(a.file), 4 * os.path.getsize(a.file)):
        path = a.data / "reading-holes.bin"
        try:
            with open(path, "wb") as f:
                f.truncate(size)
            for name, words in (("page cache", []), ("O_DIRECT", ["--direct"])):
                evict(path)
                found = one(a, path, 4096, "views", *words)
                peaks.append({"bytes": size, "way": name, "peak_bytes": found["peak_bytes"]})
        finally:
            path.unlink()
    return {"many": {name: found for name, found in many.items() if found}, "peaks": peaks}


def reader_section(a):
    """FileReader beside std::ifstream; None where it cannot be built."""
    return reader.reader(Path(a.bench).parent, a.data, a.records, 2 * a.runs + 1)


def ranks_section(a):
    """Two ranks of an MPI job beside MPI_File_read_at_all; None where libstead_mpi is not built."""
    warm(a.file)
    return ranks.ranks(a.mpi, a.data, a.file, a.tasks[1::2], a.runs)


def same_section(a):
    """Ranks that each read all of a file, with blocks in memory that they share; None where libstead_mpi is not built."""
    file = copy(a, os.path.getsize(a.file) // 4)
    warm(file)
    return ranks.same(a.mpi, a.data, file, a.ranks, min(a.runs, 3))


def chares_section(a):
    """Chares of Charm4py, and NumPy, on an eighth of the file; None where they are not installed."""
    file = copy(a, os.path.getsize(a.file) // 8)
    warm(file)
    return ranks.chares(file, a.chares, a.runs)


SECTIONS = {"warm": warm_section, "cold": cold_section, "sweep": sweep_section, "overlap": overlap_section,
            "memory": memory_section, "reader": reader_section, "ranks": ranks_section, "same": same_section,
            "chares": chares_section}


def versions(a):
    found = {"stead": command([a.stead, "--version"]).split()[-1] + commit()}
    for module in ("numpy", "charm4py"):
        if has(module):
            found[module] = metadata.version(module)
    for name, words in (("fio", ["fio", "--version"]), ("mpirun", ["mpirun", "--version"]), ("g++", ["g++", "--version"])):
        if shutil.which(words[0]):
            found[name] = command(words).split("\n")[0]
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("stead")
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--scale", type=float, default=1.0, help="size of the data, 1 being 2 GiB")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--tasks", default="2,32,1024,16384,65536")
    p.add_argument("--only", help=f"some of {', '.join(SECTIONS)}")
    p.add_argument("--mpi", type=Path, default=Path(".build/mpi/openmpi"), help="where libstead_mpi is (scripts/mpi.sh)")
    p.add_argument("--check", action="store_true", help="write no results")
    a = p.parse_args()
    part = min(a.scale, 1.0)
    a.stead = os.path.abspath(a.stead)
    a.bench = str(Path(a.stead).with_name("stead-bench"))
    a.tasks = [int(t) for t in a.tasks.split(",")]
    a.seconds = max(3 * part, 0.02)
    a.sessions = max(int(10_000 * part), 200)
    a.records = max(int(1_000_000 * part), 5000)
    a.chares = [256, 4096] if part == 1 else [16]
    a.ranks = [2, 4] if part == 1 else [2]
    a.sweeps = min(a.runs, 3)
    a.data.mkdir(parents=True, exist_ok=True)
    size = max(int(FILE * a.scale) >> 20, 8) << 20
    a.file = str((a.data / f"reading-{size}.bin").resolve())
    if not os.path.exists(a.file):
        command([a.bench, "strings", a.file + ".part", "--bytes", str(size)])
        os.rename(a.file + ".part", a.file)
    # What one run has learnt of the device is not known to the next one.
    os.environ["STEAD_CACHE"] = str((a.data / "cache").resolve())
    shutil.rmtree(a.data / "cache", ignore_errors=True)
    words = ["--scale", f"{a.scale:g}", "--runs", str(a.runs), "--tasks", ",".join(map(str, a.tasks))]
    wanted = a.only.split(",") if a.only else list(SECTIONS)
    words += ["--only", a.only] if a.only else []
    found = {"command": "python bench/reading.py stead DATA OUT " + " ".join(words), "machine": machine(),
             "versions": versions(a), "bytes": os.path.getsize(a.file), "tasks": a.tasks, "runs": a.runs,
             "records": a.records, "took": {}}
    for name in wanted:
        begin = time.perf_counter()
        try:
            found[name] = SECTIONS[name](a)
        except (SystemExit, Exception) as e:
            # What was measured before is not lost.
            if a.check:
                raise
            found[name], found.setdefault("failed", {})[name] = None, str(e)
            print(f"reading, {name}: FAILED: {e}", file=sys.stderr, flush=True)
            continue
        found["took"][name] = time.perf_counter() - begin
        left_out = ": LEFT OUT, what it needs is not installed" if found[name] is None else ""
        print(f"reading, {name}: {found['took'][name]:.0f} s{left_out}", file=sys.stderr, flush=True)
    text = reading_report.page(found)
    print(text)
    if a.check:
        return
    host = found["machine"]
    stamp = f"{time.strftime('%Y-%m-%d')}-{host['cpu'].lower().replace(' ', '-')}-{host['cores']}-reading"
    stamp += "-" + a.only.replace(",", "-") if a.only else ""
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / f"{stamp}.json").write_text(json.dumps(found, indent=1) + "\n")
    (a.out / f"{stamp}.md").write_text(text)
    if "failed" in found:
        raise SystemExit(f"failed: {', '.join(found['failed'])}")


if __name__ == "__main__":
    main()
