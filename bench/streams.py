"""Measures streams beside a hand-over by shared memory, ADIOS2, Ray's object store and Redis, in turn, in one run. What is not installed is
left out, and named.

    python bench/streams.py STEAD DIR OUT_DIR [--peers PYTHON] [--runs N] [--only SECTION,...] [--scale F] [--check]

- handover: steps of 128 MB from one process to another, on this node: GB/s from the beginning of a step in the writer to the check in the
  reader, core-seconds per GB of all processes, their servers included, and in a run of its own the peak of their memory beside what they had
  before. Readers look at some elements of each step.
- layouts: a field of 128 MB that writers and readers divide alike, or not; all is copied into memory of readers.
- latency: steps of 1 KB, as ping-pong and one way; from the beginning of both programs to the first step; steps of 100,000 variables.
- coupled: a simulation and an analysis, each alone, coupled by a stream, and through files.
- recorded: steps of 128 MB that are recorded in files, on tmpfs and on the disk, beside plain files and BP5: until the last one is put, until all
  are durable, and read again.
- nodes: two hosts of the lab that write and two that read, by links of 1 Gb/s, as ranks of one job and by a pool of daemons: what each reader gets
  beside what TCP brings it, the time to the first step, and the peak of memory. Needs root, Open MPI, libstead_mpi, and for the pool the command with MPI.
- flows: mean, moments and a slice of a field of 128 MB, by a flow in the simulation or by itself, and by NumPy in a reader.
- lines: what a user writes for each end, counted in examples/streams.

Figures are medians. The package of stead is that of this Python; peers are those of PYTHON, which is this one if none is named. Writes
OUT_DIR/DATE-HOST-streams.json with the raw numbers and .md with tables; --check writes nothing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from coupled import coupled_section
from flows import flows_section
from reader import build
from nodes import nodes_section
from recorded import recorded_section
from processes import End, ends, fresh, measured, pair
from run import command, commit, machine
from streams_report import page

HERE = Path(__file__).parent
BYTES = 128 << 20
WARM, STEPS = 12, 16
VARIABLES = 100_000


# --- Hand-over ----------------------------------------------------------------------------------------


def redis_server(a):
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", a.folder / "redis.sock", "--save", "", "--appendonly", "no",
                               "--dir", a.folder, "--loglevel", "warning"], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not (a.folder / "redis.sock").exists():
        if server.poll() is not None or time.monotonic() > until:
            raise RuntimeError("redis-server does not come up")
        time.sleep(0.01)
    return server


def handover(a, way, put, take, steps=STEPS, look=False, **more):
    """One run of a way to hand steps over."""
    fresh(a)
    steps, warm = max(round(steps * min(a.scale * 4, 1)), 2), WARM if steps >= STEPS else 1
    o = {"bytes": a.bytes, "steps": steps, "warm": warm, "folder": str(a.folder), "scratch": str(a.data), "put": put, "take": take, "keep": 1,
         "queue": 2, **more}
    roles, servers, server = ["writer", "reader"], [], None
    if way == "plain":
        with open(a.folder / "plain", "wb") as f:
            f.truncate(3 * a.bytes)
        for name in ("full", "empty"):
            os.mkfifo(a.folder / name)
    if way == "ray":
        roles = ["both"]
    try:
        if way == "redis":
            server = redis_server(a)
            servers = [server.pid]
        return measured(a, way, roles, [o] * len(roles), None if way in ("plain", "stead") else a.peers, servers, look)
    finally:
        if server:
            server.kill()
            server.wait()
        fresh(a)


# What is handed over, how it is called, and how many copies each end makes.
WAYS = {
    "shared memory by hand: copy in, look": ("plain", "copy", "look", {}),
    "stead: put, look": ("stead", "copy", "look", {}),
    "shared memory by hand: copy in, copy out": ("plain", "copy", "copy", {}),
    "stead: put, copy out": ("stead", "copy", "copy", {}),
    "shared memory by hand: in place, copy out": ("plain", "place", "copy", {}),
    "stead: empty, copy out": ("stead", "place", "copy", {}),
    "shared memory by hand: copy in, add up": ("plain", "copy", "sum", {}),
    "stead: put, add up": ("stead", "copy", "sum", {}),
    "shared memory by hand: in place, add up": ("plain", "place", "sum", {}),
    "stead: empty, add up": ("stead", "place", "sum", {}),
    "stead: empty, look (no byte moves)": ("stead", "place", "look", {"steps": 400}),
}


# The way whose peak of memory is looked at while steps stay that readers have had.
KEPT = "stead", "copy", "copy"


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def planes(a):
    """The data planes of SST that are there: it takes another one, and says so, in place of one that is not."""
    probe = """import sys
from adios2 import bindings as b
adios = b.ADIOS()
io = adios.DeclareIO("probe")
io.SetEngine("SST")
io.SetParameters({"DataTransport": sys.argv[1], "RendezvousReaderCount": "0"})
io.Open(sys.argv[2], b.Mode.Write).Close()"""
    there = []
    for plane in ("RDMA", "UCX", "MPI", "WAN"):
        done = subprocess.run([a.peers, "-c", probe, plane, str(a.folder / "probe")], capture_output=True, text=True)
        if done.returncode == 0 and "not found" not in done.stderr:
            there.append(plane)
    return there


def peers(a):
    """Those that are there, and how they are run."""
    found, left = {}, []
    if has(a.peers, "adios2"):
        for plane in planes(a):
            found[f"ADIOS2 SST ({plane}), a copy for the reader"] = ("adios", "copy", "copy", {"engine": "SST", "plane": plane, "steps": 8})
        found["ADIOS2 BP5 on tmpfs, a copy for the reader"] = ("adios", "copy", "copy", {"engine": "BP5", "plane": "", "steps": 8})
    else:
        left.append("adios2")
    if has(a.peers, "ray"):
        found["Ray: look"] = ("ray", "copy", "look", {"steps": 8})
        found["Ray: copy out"] = ("ray", "copy", "copy", {"steps": 8})
    else:
        left.append("ray")
    if has(a.peers, "redis") and shutil.which("redis-server"):
        found["Redis, a copy for the reader"] = ("redis", "copy", "copy", {"steps": 4})
    else:
        left.append("redis")
    for name in left:
        print(f"streams, {name}: LEFT OUT, it is not installed", file=sys.stderr, flush=True)
    return found


def handover_section(a):
    few = a.scale < 0.1
    some = [name for name in WAYS if not few or "copy out" in name or "no byte" in name][-4:]
    ways = {**{name: WAYS[name] for name in (some if few else WAYS)}, **peers(a)}
    rows, failed = {name: [] for name in ways}, []
    for turn in range(a.runs):
        names = list(ways)
        for name in names[turn % len(names):] + names[: turn % len(names)]:
            way, put, take, more = ways[name]
            try:
                rows[name].append(handover(a, way, put, take, **more))
            except RuntimeError as e:
                # What is wrong with a peer here is told, and no reason to have no numbers of the others.
                if name in WAYS:
                    raise
                print(f"streams, {name.split()[0].lower().rstrip(':')}: FAILED, {e}", file=sys.stderr, flush=True)
                failed.append(name)
        for name in failed:
            ways.pop(name, None)
    # One step at a time, so that what is needed is known: memory in steps of these bytes.
    looked = {}
    for name, (way, put, take, more) in ways.items():
        if few and name != some[-1]:
            continue
        found = handover(a, way, put, take, **{**more, "steps": 8, "keep": 0, "queue": 1}, look=True)
        start = handover(tiny(a), way, put, take, **{**more, "steps": 8, "keep": 0, "queue": 1}, look=True)
        looked[name] = (found["memory"] - start["memory"]) / a.bytes
    # And where steps stay that the reader has had.
    least = handover(tiny(a), *KEPT, steps=8, keep=0, queue=1, look=True)["memory"]
    kept = [(keep, (handover(a, *KEPT, steps=8, keep=keep, queue=1, look=True)["memory"] - least) / a.bytes) for keep in ((1,) if few else (1, 4))]
    return {"bytes": a.bytes, "ways": {name: {"runs": rows[name], "memory": looked.get(name)} for name in ways}, "failed": failed, "kept": kept}


def tiny(a):
    """The same with hardly any bytes: what processes have of memory in any case."""
    small = argparse.Namespace(**vars(a))
    small.bytes = 1 << 16
    return small


# --- Layouts ------------------------------------------------------------------------------------------


def cut(n, parts, unit=64):
    """A length in parts that begin at multiples of a unit."""
    units = n // unit
    edges = [units * i // parts * unit for i in range(parts)] + [n]
    return [(at, end - at) for at, end in zip(edges, edges[1:])]


def boxes(side, what):
    """The boxes of `rows 2`, `columns 3`, or `blocks 2`, which are 2 x 2."""
    kind, n = what.split()
    rows = cut(side, 1 if kind == "columns" else int(n))
    columns = cut(side, 1 if kind == "rows" else int(n))
    return [((i, j), (h, w)) for i, h in rows for j, w in columns]


# Writers, readers, and which of them it is compared with: as many of both, that divide alike.
CASES = [("rows 2", "rows 2", None), ("columns 2", "columns 2", None), ("rows 2", "columns 2", ("rows 2", "rows 2")),
         ("columns 2", "rows 2", ("rows 2", "rows 2")), ("blocks 2", "blocks 2", None), ("rows 4", "blocks 2", ("blocks 2", "blocks 2")),
         ("blocks 2", "columns 4", ("blocks 2", "blocks 2")), ("rows 3", "rows 3", None), ("rows 3", "columns 3", ("rows 3", "rows 3")),
         ("blocks 2", "rows 1", None), ("rows 4", "columns 1", None)]


def layout(a, writers, readers, take="copy"):
    fresh(a)
    side = max(int(4096 * a.scale**0.5) // 256, 1) * 256
    common = {"folder": str(a.folder), "shape": [side, side], "steps": max(round(12 * min(a.scale * 4, 1)), 2), "warm": 4, "take": take}
    roles, o = [], []
    for role, what in (("writer", writers), ("reader", readers)):
        these = boxes(side, what)
        roles += [role] * len(these)
        o += [{**common, "rank": i, "ranks": len(these), "box": box} for i, box in enumerate(these)]
    return {**measured(a, "layout", roles, o), "bytes": side * side * 8}


def layouts_section(a):
    cases = CASES if a.scale >= 0.1 else CASES[2:3]
    rows = {f"{w} to {r}": [] for w, r, _ in cases}
    for _ in range(a.runs):
        for w, r, _ in cases:
            rows[f"{w} to {r}"].append(layout(a, w, r))
    return {"bytes": rows[next(iter(rows))][0]["bytes"], "cases": rows,
            "beside": {f"{w} to {r}": " to ".join(b) for w, r, b in cases if b}}


# --- Latency ------------------------------------------------------------------------------------------



def small(a, face, what, n):
    fresh(a)
    if what == "by hand":
        with open(a.folder / "plain", "wb") as f:
            f.truncate(4096)
    if face == "C":
        both = [End([a.program, what, end, a.folder, n]) for end in "ab"]
    else:
        steps = 6 if what == "many" else n
        both = ends("small", ["writer", "reader"], [{"what": what, "folder": str(a.folder), "steps": steps, "variables": n}] * 2)
    begun, _, found = pair(both, what == "many")
    if what == "first":
        return {"median": found[1]["at"] - begun}
    if what == "many":
        return {"writer": found[0], "reader": found[1]}
    return found[1] if what == "oneway" else found[0]


def latency_section(a):
    a.program = build("cc", "c11", "streams.c", Path(a.stead).parent, a.data)
    faces = ["Python"] + (["C"] if a.program else [])
    few = a.scale < 0.1
    work = {"pingpong": 100 if few else 3000, "oneway": 100 if few else 2000, "first": 1, "many": max(int(VARIABLES * a.scale), 100)}
    found = {}
    for _ in range(a.runs):
        if a.program:
            found.setdefault("by hand, C", []).append(small(a, "C", "by hand", work["pingpong"]))
        for face in faces:
            for what, n in work.items():
                if few and (face, what) in (("Python", "pingpong"), ("Python", "first"), ("C", "oneway")):
                    continue
                times = 1 if what != "first" or few else 5
                found.setdefault(f"{what}, {face}", []).extend(small(a, face, what, n) for _ in range(times))
    return {"variables": work["many"], "rows": found}


# --- Lines --------------------------------------------------------------------------------------------


def lines_section(a):
    """Lines that are neither empty nor comment, and those of them that are there for the stream."""
    found = {}
    for name in ("simulation.py", "analysis.py", "write.c", "read.c", "write.cpp", "read.cpp", "write.f90", "read.f90"):
        path = HERE.parent / "examples/streams" / name
        if not path.exists():
            continue
        text = [line.strip() for line in path.read_text().splitlines()]
        comment = "!" if path.suffix == ".f90" else ("#", "//", "/*", "*")
        text = [line for line in text if line and not line.startswith(comment) or line.startswith("#include")]
        words = ("stead", "w.step", "w.put", "step[", "writer", "reader", "options", "step.", "step(")
        found[name] = {"all": len(text), "stream": sum(any(w in line for w in words) for line in text)}
    return found


SECTIONS = {"handover": handover_section, "layouts": layouts_section, "latency": latency_section, "coupled": coupled_section,
            "recorded": recorded_section, "nodes": nodes_section, "flows": flows_section, "lines": lines_section}


def versions(a):
    found = {"stead": command([a.stead, "--version"]).split()[-1] + commit(), "NumPy": metadata.version("numpy")}
    for name in ("adios2", "ray", "redis"):
        told = subprocess.run([a.peers, "-c", f"from importlib.metadata import version; print(version('{name}'))"], capture_output=True, text=True)
        if told.returncode == 0:
            found[name if name != "redis" else "redis-py"] = told.stdout.strip()
    if shutil.which("redis-server"):
        found["Redis"] = command(["redis-server", "--version"]).split("v=")[1].split()[0]
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("stead")
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--peers", default=sys.executable, help="a Python that has adios2, ray and redis")
    p.add_argument("--memory", type=Path, default=Path(f"/dev/shm/stead-bench-{os.getpid()}"))
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--only", help=f"some of {', '.join(SECTIONS)}")
    p.add_argument("--check", action="store_true", help="write no results")
    a = p.parse_args()
    a.stead, a.data, a.folder = os.path.abspath(a.stead), a.data.resolve() / "streams", a.memory
    a.peers = shutil.which(a.peers)
    a.data.mkdir(parents=True, exist_ok=True)
    a.bytes = max(int(BYTES * a.scale) >> 16, 1) << 16
    words = ["--scale", f"{a.scale:g}", "--runs", str(a.runs)] + (["--only", a.only] if a.only else [])
    found = {"command": "python bench/streams.py stead DIR OUT " + " ".join(words), "machine": machine(), "versions": versions(a),
             "runs": a.runs, "load": [os.getloadavg()[0]], "took": {}}
    try:
        for name in a.only.split(",") if a.only else SECTIONS:
            begin = time.perf_counter()
            fresh(a)
            section = SECTIONS[name](a)
            if section is None:
                continue
            found[name] = section
            found["took"][name] = time.perf_counter() - begin
            print(f"streams, {name}: {found['took'][name]:.0f} s", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(a.folder, ignore_errors=True)
    found["load"].append(os.getloadavg()[0])
    text = page(found, statistics.median)
    print(text)
    if a.check:
        return
    host = found["machine"]
    stamp = f"{time.strftime('%Y-%m-%d')}-{host['cpu'].lower().replace(' ', '-')}-{host['cores']}-streams"
    stamp += "-" + a.only.replace(",", "-") if a.only else ""
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / f"{stamp}.json").write_text(json.dumps(found, indent=1) + "\n")
    (a.out / f"{stamp}.md").write_text(text)


if __name__ == "__main__":
    main()
