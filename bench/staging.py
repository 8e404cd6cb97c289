"""Measures `stead stage` beside cp, dd, rclone and rsync, in turn, in one run. What is not installed is left out, and named.

    python bench/staging.py STEAD DATA_DIR OUT_DIR [--memory DIR] [--scale F] [--runs N] [--only SECTION,...] [--check]

- big: one file of 4 GB, from the disk to memory (tmpfs) and to the disk, page cache cold and warm, beside what fio reads past the page
  cache, and reads there and writes at the same time. All but dd and cp compare or take checksums.
- small: 20,000 files of 4 KiB in 200 folders, to memory and to the disk, page cache cold. On the disk with the same durability: `stead stage`
  as it is beside the others and a `sync` of the file system, and with --no-sync beside the others as they are.
- beside: a computation on all processors (and on all but one), bound by memory or by the processor, or one that reads the disk, alone and while a big file is
  staged with --gentle from the disk to the disk, to memory and from there, or copied by cp; and what is copied meanwhile, of what is copied alone.
- served: the daemon: how soon it takes a transfer, what 100,000 that wait need of memory, how right it is about the time that is left: of one file, of
  small ones, of four at once, and of one after another.
- tiers: a producer and a consumer of data through a slow shared store, and through memory with transfers behind them; needs root.

Figures are medians. Writes OUT_DIR/DATE-HOST-staging.json with the raw numbers and .md with tables; --check writes nothing.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from beside import beside_report, beside_section
from reading_report import Targets
from run import children, command, commit, evict, machine, warm
from served import gone, laid, lay, report, served_section, tiers_section

BIG = 4 << 30
SMALL, EACH, FOLDERS = 20_000, 4096, 200
CORES = os.cpu_count()
FSYNC = "rsync --fsync"


def cold(*paths):
    """As after a long time: names and inodes are on the device, too, where this user may have the system drop them."""
    command(["sync"])
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3")
    for path in paths:
        for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
            evict(file)


def timed(words, sync=None):
    def work():
        command([str(w) for w in words])
        if sync:
            command(["sync", "-f", str(sync)])

    _, took = children(work)
    return took


def stage(a, *words):
    # A journal of its own each time: nothing is gone on with.
    shutil.rmtree(a.data / "state", ignore_errors=True)
    return [a.stead, "stage", *words]


def fio(a, *jobs):
    words = ["fio", "--output-format=json", "--direct=1", "--ioengine=libaio", "--iodepth=16", "--bs=2m", *jobs]
    said = command([str(w) for w in words])
    # Notes may come first.
    return {j["jobname"]: j for j in json.loads(said[said.index("{"):])["jobs"]}


def medians(rows):
    """By way: medians of seconds and of processor seconds, and all seconds."""
    return {name: {"seconds": statistics.median(r["seconds"] for r in runs), "cpu": statistics.median(r["cpu_seconds"] for r in runs),
                   "all": [r["seconds"] for r in runs]} for name, runs in rows.items()}


def same(a, b):
    if a.is_file():
        return os.path.getsize(a) == os.path.getsize(b) and subprocess.run(["cmp", "-s", a, b]).returncode == 0
    files = [p.relative_to(a) for p in a.rglob("*") if p.is_file()]
    return bool(files) and all((a / f).read_bytes() == (b / f).read_bytes() for f in files)


def turns(a, ways, before, aside=None, seldom=()):
    """Runs all ways in turn, as often as is wanted, and those that are slow every second time. A way is what runs it, what it writes, what
    is to be synced after it and what it copies, or something that tells how long it took. What was written is removed before the next, or
    laid `aside`."""
    rows = {}

    def remove(path):
        lay(path, aside) if aside else gone(path)

    for turn in range(a.runs):
        names = list(ways)
        for name in names[turn % len(names):] + names[: turn % len(names)]:
            if turn % 2 and name in seldom:
                continue
            if callable(ways[name]):
                before()
                rows.setdefault(name, []).append({"seconds": ways[name](), "cpu_seconds": 0.0})
                continue
            words, target, sync, source = ways[name]
            remove(target)
            before()
            rows.setdefault(name, []).append(timed(words(), sync))
            if turn == 0:
                assert same(source, target), f"{name}: other bytes"
            remove(target)
    return medians(rows)


def limit(a, target):
    """Seconds that it takes to read it past the page cache and, if there is a target, to write as much there at the same time: to a disk
    past the page cache, to memory by as many threads as there are processors."""
    size = os.path.getsize(a.big)
    jobs = ["--name=read", f"--filename={a.big}", "--rw=read", f"--size={size}"]
    if target == a.memory:
        part = size // CORES
        for i in range(CORES):
            jobs += [f"--name=write{i}", f"--filename={target / 'fio.bin'}", "--rw=write", f"--offset={i * part}", f"--size={part}",
                     "--direct=0", "--ioengine=psync", "--iodepth=1", "--fallocate=none"]
    elif target:
        jobs += ["--name=write", f"--filename={target / 'fio.bin'}", "--rw=write", "--end_fsync=1", f"--size={size}"]
    found = fio(a, *jobs)
    if target:
        gone(target / "fio.bin")
    return max(max(j["read"]["runtime"], j["write"]["runtime"]) for j in found.values()) / 1000


def big_section(a):
    found = {"bytes": os.path.getsize(a.big)}
    for place, target in [("memory", a.memory / "staged.bin"), ("disk", a.data / "staged.bin")]:
        fsync = None if place == "memory" else a.data
        ways = {"stead stage": (lambda t=target: stage(a, a.big, t), target, None, a.big),
                "cp": (lambda t=target: ["cp", a.big, t], target, fsync, a.big),
                "dd": (lambda t=target: ["dd", f"if={a.big}", f"of={t}", "bs=4M", "status=none"]
                       + (["iflag=direct"] if place == "memory" else ["iflag=direct", "oflag=direct"]), target, fsync, a.big)}
        if shutil.which("rclone"):
            ways["rclone"] = (lambda t=target: ["rclone", "copyto", a.big, t], target, fsync, a.big)
        limits = {"fio, read": lambda: limit(a, None), "fio, read and write": lambda t=target.parent: limit(a, t)} if shutil.which("fio") else {}
        found[f"{place}, cold"] = turns(a, limits | ways, lambda: cold(a.big), seldom=("rclone",))
        found[f"{place}, warm"] = turns(a, ways, lambda: warm(a.big), seldom=("rclone",))
    return found


def small_tree(a):
    """Small files in folders, which are made if they are not there."""
    tree = a.data / f"small-{a.files}"
    if not tree.exists():
        part = a.data / "small.part"
        shutil.rmtree(part, ignore_errors=True)
        for i in range(a.files):
            folder = part / f"d{i % min(FOLDERS, a.files)}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{i}").write_bytes(os.urandom(EACH))
        command(["sync", "-f", str(a.data)])
        part.rename(tree)
    return tree


def small_section(a):
    found, tree = {"files": a.files, "bytes": a.files * EACH}, small_tree(a)
    with laid(a.memory / "aside") as memory, laid(a.data / "aside") as disk:
        small_ways(a, tree, found, [("memory", a.memory / "staged", memory), ("disk", a.data / "staged", disk)])
    return found


def small_ways(a, tree, found, places):
    for place, target, aside in places:
        for durable in [True, False] if place == "disk" else [False]:
            sync, words = (a.data, []) if durable else (None, ["--no-sync"])
            ways = {"stead stage": (lambda t=target, w=words: stage(a, f"{tree}/", t, *w), target, None, tree),
                    "cp": (lambda t=target: ["cp", "-a", tree, t], target, sync, tree)}
            if shutil.which("rsync"):
                ways["rsync"] = (lambda t=target: ["rsync", "-a", f"{tree}/", t], target, sync, tree)
                # As `stead stage` does, it has no file get its name before it is durable; a `sync` in the end promises less.
                if durable and "--fsync" in command(["rsync", "--help"]):
                    ways[FSYNC] = (lambda t=target: ["rsync", "-a", "--fsync", f"{tree}/", t], target, sync, tree)
            if shutil.which("rclone"):
                ways["rclone"] = (lambda t=target: ["rclone", "copy", tree, t], target, sync, tree)
            found[f"{place}, {'durable' if durable else 'not durable'}"] = turns(a, ways, lambda: cold(tree), aside=aside, seldom=(FSYNC,))


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def ways_table(found, keys):
    ways = list(dict.fromkeys(w for k in keys for w in found[k]))
    rows = []
    for way in ways:
        cells = [way]
        for k in keys:
            r = found[k].get(way)
            cells += ["", ""] if r is None else [f"{r['seconds']:.2f}", f"{r['cpu']:.2f}" if r["cpu"] else ""]
        rows.append(cells)
    head = [""] + [c for k in keys for c in (f"{k}, s", "core-s")]
    return table(head, rows)


def big_targets(big, keys):
    t = Targets()
    for key in keys:
        seconds = {way: r["seconds"] for way, r in big[key].items()}
        ours, limit = seconds.pop("stead stage"), "fio, read" if key.startswith("memory") else "fio, read and write"
        if limit in seconds:
            t.least(f"{key}: time of {limit} over it", 0.95, seconds[limit] / ours)
        others = {way: s for way, s in seconds.items() if not way.startswith("fio")}
        best = min(others, key=others.get)
        t.least(f"{key}: time of the best of the others over it", 1, others[best] / ours, best)
    return "\n".join(t.lines()) + "\n"


def small_targets(small, keys):
    t = Targets()
    for key in keys:
        for way, wanted in [("cp", 3), ("rsync", 5), (FSYNC, 5)]:
            if way in small[key]:
                t.least(f"{key}: time of {way} over it", wanted, small[key][way]["seconds"] / small[key]["stead stage"]["seconds"])
    return "\n".join(t.lines()) + "\n"


def page(found):
    m = found["machine"]
    text = [f"# Staging: {m['cpu']}, {m['cores']} cores\n",
            f"`{found['command']}`; Linux {m['kernel']}; " + ", ".join(f"{k} {v}" for k, v in found["versions"].items()) + ".\n",
            f"Medians of {found['runs']} runs in turn. Core-seconds are those of processes, without what threads of the kernel do for them.\n"]
    if big := found.get("big"):
        keys = [k for k in big if k.endswith(("cold", "warm"))]
        text += [f"## One file of {big['bytes'] / 1e9:.2f} GB\n", "To the disk all wait until the device has it.\n",
                 ways_table(big, keys), big_targets(big, keys)]
    if small := found.get("small"):
        keys = [k for k in small if "durable" in k]
        text += [f"## {small['files']} files of {EACH} bytes, page cache cold\n", ways_table(small, keys), small_targets(small, keys)]
    if beside := found.get("beside"):
        text += beside_report(beside, table)
    return "\n".join(text + report(found, table))


SECTIONS = {"big": big_section, "small": small_section, "beside": beside_section, "served": served_section, "tiers": tiers_section}


def versions(a):
    found = {"stead": command([a.stead, "--version"]).split()[-1] + commit()}
    for words in (["cp", "--version"], ["rclone", "version"], ["rsync", "--version"], ["fio", "--version"]):
        if shutil.which(words[0]):
            found[words[0]] = command(words).split("\n")[0].removeprefix(f"{words[0]} ")
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("stead")
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--memory", type=Path, default=Path("/dev/shm/stead-bench"))
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--only", help=f"some of {', '.join(SECTIONS)}")
    p.add_argument("--check", action="store_true", help="write no results")
    a = p.parse_args()
    a.stead, a.data = os.path.abspath(a.stead), a.data.resolve() / "staging"
    a.files, a.tree = max(int(SMALL * a.scale), 50), small_tree
    for folder in (a.data, a.memory):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ["STEAD_STATE"] = str(a.data / "state")
    size = max(int(BIG * a.scale) >> 20, 8) << 20
    a.big = a.data / f"big-{size}.bin"
    if not a.big.exists():
        command([str(Path(a.stead).with_name("stead-bench")), "strings", str(a.big) + ".part", "--bytes", str(size)])
        os.rename(str(a.big) + ".part", a.big)
    words = ["--scale", f"{a.scale:g}", "--runs", str(a.runs)] + (["--only", a.only] if a.only else [])
    found = {"command": "python bench/staging.py stead DATA OUT " + " ".join(words), "machine": machine(), "versions": versions(a),
             "runs": a.runs, "took": {}}
    try:
        for name in a.only.split(",") if a.only else SECTIONS:
            begin = time.perf_counter()
            found[name] = SECTIONS[name](a)
            found["took"][name] = time.perf_counter() - begin
            if found[name]:
                print(f"staging, {name}: {found['took'][name]:.0f} s", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(a.memory, ignore_errors=True)
    text = page(found)
    print(text)
    if a.check:
        return
    host = found["machine"]
    stamp = f"{time.strftime('%Y-%m-%d')}-{host['cpu'].lower().replace(' ', '-')}-{host['cores']}-staging"
    stamp += "-" + a.only.replace(",", "-") if a.only else ""
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / f"{stamp}.json").write_text(json.dumps(found, indent=1) + "\n")
    (a.out / f"{stamp}.md").write_text(text)


if __name__ == "__main__":
    main()
