"""Measures read sessions beside tasks that read by themselves, a memory map, dd or fio, std::ifstream, MPI_File_read_at_all
and chares that read by themselves, in turn, in one run. What is not there is left out.

    python bench/reading.py STEAD DATA_DIR OUT_DIR [--bytes N] [--runs N] [--tasks A,B,...] [--check]

Peers are rows of PEERS: a name, whether it can run here, and a function that takes the file and the number of tasks and
gives seconds. All read every byte of the same file and add it up; sums must agree. Figures are medians; ratios are those
of the peer's seconds to stead's.

Writes OUT_DIR/DATE-HOST-reading.json and .md; --check writes nothing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ranks import chares, ranks
from reader import reader
from run import command, evict, machine, warm

CORES = os.cpu_count()


def bench(a, what, *words):
    out = command([a.bench, "sessions", what, a.file, *map(str, words)])
    return [json.loads(line) for line in out.splitlines()]


def mmap_tasks(path, tasks):
    """Threads that look at parts of one memory map, without any session."""
    import numpy as np

    begin = time.perf_counter()
    words = np.memmap(path, np.uint64, "r")
    share = -(-len(words) // tasks)
    with ThreadPoolExecutor(CORES) as pool:
        parts = pool.map(lambda i: int(words[i * share:(i + 1) * share].sum(dtype=np.uint64)), range(tasks))
        total = sum(parts) % (1 << 64)
    return time.perf_counter() - begin, total


def has_numpy():
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


# Warm page cache: name, whether it runs here, function of path and tasks that gives seconds and the sum of all words.
PEERS = [("mmap (NumPy)", has_numpy, mmap_tasks)]


def median(values):
    return statistics.median(values)


def warm_tasks(a):
    """Each number of tasks: views and buffers of a session, tasks alone, and the peers."""
    rows, sums = {}, set()
    for _ in range(a.runs):
        for order in ([], ["--scattered"]):
            for tasks in a.tasks:
                warm(a.file)
                for r in bench(a, "tasks", "--tasks", tasks, "--runs", 1, *order):
                    name = r["way"] + (", scattered" if order else "")
                    rows.setdefault(name, {}).setdefault(tasks, []).append(r["seconds"])
                    sums.add(r["sum"])
        for name, there, work in PEERS:
            if there():
                for tasks in a.tasks:
                    seconds, total = work(a.file, tasks)
                    rows.setdefault(name, {}).setdefault(tasks, []).append(seconds)
                    sums.add(total)
    if len(sums) != 1:
        raise SystemExit(f"the tools have read different bytes: {sums}")
    return {name: {t: median(s) for t, s in by.items()} for name, by in rows.items()}


def device(a):
    """What the device gives with O_DIRECT: fio where it is installed, and dd."""
    found = {}
    if shutil.which("fio"):
        for depth in (8, 32):
            words = ["fio", "--name=read", f"--filename={a.file}", "--readonly", "--rw=read", "--direct=1", "--bs=1M",
                     "--ioengine=libaio", f"--iodepth={depth}", "--output-format=json"]
            out = command(words)
            took = max(json.loads(out[out.index("{"):])["jobs"][0]["read"]["runtime"], 1) / 1000
            found[f"fio, O_DIRECT, {depth} in flight"] = took
    begin = time.perf_counter()
    done = subprocess.run(["dd", f"if={a.file}", "of=/dev/null", "bs=4M", "iflag=direct"], capture_output=True)
    if done.returncode == 0:
        found["dd iflag=direct"] = time.perf_counter() - begin
    return found


def cold_tasks(a):
    rows = {}
    for _ in range(a.runs):
        for name, seconds in device(a).items():
            rows.setdefault(name, {}).setdefault(0, []).append(seconds)
        for tasks in a.tasks:
            for name, words in (("views", []), ("views, O_DIRECT", ["--direct"])):
                evict(a.file)
                found = bench(a, "once", "--tasks", tasks, *words)[0]
                rows.setdefault(name, {}).setdefault(tasks, []).append(found["seconds"])
    return {name: {t: median(s) for t, s in by.items()} for name, by in rows.items()}


def sweep(a):
    """The choice beside what is set by hand: readers x block."""
    rows = {}
    middle = a.tasks[len(a.tasks) // 2]
    hand = [(r, b) for r in (1, 2, 4) for b in ("256KiB", "1MiB", "4MiB", "16MiB")]
    for _ in range(a.runs):
        for readers, block in [(None, None), *hand]:
            words = [] if readers is None else ["--readers", readers, "--block", block]
            evict(a.file)
            took = bench(a, "once", "--tasks", middle, *words)[0]["seconds"]
            name = "chosen" if readers is None else f"{readers} x {block}"
            rows.setdefault(name, []).append(took)
    return {name: median(s) for name, s in rows.items()}


def overlap(a):
    found = bench(a, "overlap", "--tasks", ",".join(map(str, a.tasks)), "--runs", a.runs, "--seconds", a.seconds)
    rows = {}
    for r in found:
        rows.setdefault(r["tasks"], []).append(r["both"] / max(r["input"], r["computation"]))
    return {"runs": found, "ratio": {t: median(s) for t, s in rows.items()}}


def memory(a):
    evict(a.file)
    mapped = bench(a, "once", "--tasks", 1024)[0]["peak_bytes"]
    blocks = bench(a, "once", "--tasks", 1024, "--direct")[0]["peak_bytes"]
    many = bench(a, "many", "--sessions", a.sessions)[0]
    return {"peak": {"views of the page cache": mapped, "blocks (O_DIRECT)": blocks}, "many": many}


def small_reads(a):
    """FileReader beside std::ifstream; None where it cannot be built."""
    return reader(Path(a.bench).parent, a.data, a.records, 2 * a.runs + 1)


def of_ranks(a):
    """Two ranks of an MPI job beside MPI_File_read_at_all; None where libstead_mpi is not built."""
    warm(a.file)
    return ranks(a.mpi, a.data, a.file, a.tasks, a.runs)


def of_chares(a):
    """Chares of Charm4py; None where it is not installed."""
    warm(a.file)
    return chares(a.file, a.chares, a.runs)


def table(rows, tasks):
    lines = ["| | " + " | ".join(map(str, tasks)) + " | slowest over fastest |", "|---" * (len(tasks) + 2) + "|"]
    for name, by in rows.items():
        if 0 in by:
            lines.append(f"| {name} | {by[0]:.3f} |" + " |" * len(tasks))
            continue
        flat = max(by.values()) / min(by.values())
        lines.append(f"| {name} | " + " | ".join(f"{by[t]:.3f}" for t in tasks) + f" | {flat:.2f} |")
    return lines


def report(r):
    tasks, gb = r["tasks"], r["bytes"] / 1e9
    host = r["machine"]
    lines = [f"# Reading in parallel: {host['cpu']}, {host['cores']} cores", "",
             f"{gb:.2f} GB, Linux {host['kernel']}. Seconds, medians of {r['runs']} runs, by number of tasks.", "",
             "## Page cache warm", "", *table(r["warm"], tasks), "", "## Page cache cold", "", *table(r["cold"], tasks), "",
             "## Readers x block by hand, page cache cold", "",
             "| | seconds |", "|---|---|", *(f"| {n} | {s:.3f} |" for n, s in r["sweep"].items()), "",
             "## Beside a computation on all cores", "",
             "| tasks | both over the longer one |", "|---|---|",
             *(f"| {t} | {s:.3f} |" for t, s in r["overlap"]["ratio"].items()), "",
             "## Memory", "", *(f"- {n}: peak {b / 1e6:.0f} MB" for n, b in r["memory"]["peak"].items())]
    many = r["memory"]["many"]
    lines.append(f"- {many['sessions']} sessions opened and closed in {many['seconds']:.2f} s: resident "
                 f"{many['resident'][0] / 1e6:.1f} MB before, {many['resident'][1] / 1e6:.1f} MB after; threads "
                 f"{many['threads'][0]}, {many['threads'][1]}; descriptors {many['files'][0]}, {many['files'][1]}")
    if r["reader"]:
        ways = {way: median(seconds) for way, seconds in r["reader"].items()}
        lines += ["", f"## {r['records']} reads of 48 bytes, one after the other, page cache warm", "", "| | seconds |", "|---|---|",
                  *(f"| {way} | {s:.4f} |" for way, s in ways.items()), "",
                  f"FileReader takes the time of std::ifstream over {ways['ifstream'] / ways['FileReader']:.1f}."]
    for title, rows in (("Two ranks of an MPI job", r["ranks"]), ("Chares of Charm4py on two processes", r["chares"])):
        if rows:
            counts = list(next(iter(rows.values())))
            medians = {way: {n: median(s) for n, s in by.items()} for way, by in rows.items()}
            lines += ["", f"## {title}, page cache warm", "", *table(medians, counts)]
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("stead")
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--bytes", type=int, default=2 << 30)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--tasks", default="2,32,1024,16384,65536")
    p.add_argument("--seconds", type=float, default=3.0, help="of the computation beside")
    p.add_argument("--sessions", type=int, default=10_000)
    p.add_argument("--records", type=int, default=1_000_000, help="of 48 bytes, read one by one")
    p.add_argument("--chares", default="256,4096")
    p.add_argument("--mpi", type=Path, default=Path(".build/mpi/openmpi"), help="where libstead_mpi is (scripts/mpi.sh)")
    p.add_argument("--check", action="store_true", help="write no results")
    a = p.parse_args()
    a.bench = os.path.abspath(Path(a.stead).with_name("stead-bench"))
    a.tasks = [int(t) for t in a.tasks.split(",")]
    a.chares = [int(n) for n in a.chares.split(",")]
    a.data.mkdir(parents=True, exist_ok=True)
    a.file = str((a.data / f"reading-{a.bytes}.bin").resolve())
    if not os.path.exists(a.file):
        command([a.bench, "strings", a.file + ".part", "--bytes", str(a.bytes)])
        os.rename(a.file + ".part", a.file)
    os.environ["STEAD_CACHE"] = str((a.data / "cache").resolve())
    found = {"bytes": os.path.getsize(a.file), "tasks": a.tasks, "runs": a.runs, "records": a.records,
             "machine": machine()}
    for name, work in [("warm", warm_tasks), ("cold", cold_tasks), ("sweep", sweep), ("overlap", overlap), ("memory", memory),
                       ("reader", small_reads), ("ranks", of_ranks), ("chares", of_chares)]:
        found[name] = work(a)
        print(f"reading, {name}: done", file=sys.stderr, flush=True)
    text = report(found)
    print(text)
    if a.check:
        return
    host = found["machine"]
    stamp = f"{time.strftime('%Y-%m-%d')}-{host['cpu'].lower().replace(' ', '-')}-{host['cores']}-reading"
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / f"{stamp}.json").write_text(json.dumps(found, indent=1) + "\n")
    (a.out / f"{stamp}.md").write_text(text)


if __name__ == "__main__":
    main()
