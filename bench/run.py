"""Measures stead beside the tools that people would pick instead, in turn, in one run.

    python bench/run.py STEAD DATA_DIR OUT_DIR [--bytes N] [--runs N]

Every job runs several times, all tools of a job in turn (A B C A B C ...), so that a drift of the machine
hits all of them. Figures are medians with their range. The page cache is warm. Seconds of stead are of the
whole process; those of the peers are inside a process that has imported and compiled everything already.
Writes OUT_DIR/DATE-HOST.json with the raw numbers and a table beside it.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

NUMBERS = ["bytes", "latency_ms", "cpu", "mem", "temp", "load", "errors", "score"]
COLUMNS = [f"{k}:{c}" for c in NUMBERS for k in ("sum", "mean", "std")]
NINE = ["lines", "sum:latency_ms", "mean:latency_ms", "std:latency_ms", "gram:" + ",".join(NUMBERS),
        "normalize:latency_ms,out=normalized.npy", "digits", "entropy"]
JOBS = [
    ("lines", ["lines"], [("polars", "lines")]),
    ("columns: sum, mean, std of 8", COLUMNS, [("polars", "columns"), ("duckdb", "columns"), ("pandas", "columns")]),
    ("digits and entropy", ["digits", "entropy"], [("numba", "histogram")]),
    ("nine operations", NINE, [("polars", "nine")]),
]
HERE = Path(__file__).parent


def stead(binary, kernels, path, directory):
    command = [binary, "run", str(path), "--format", "json"] + [a for k in kernels for a in ("-k", k)]
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=directory, capture_output=True, check=True)
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": wall, "cpu_seconds": cpu, "peak_bytes": json.loads(done.stdout)["metrics"]["peak_memory_bytes"]}


def peer(tool, job, path):
    done = subprocess.run([sys.executable, str(HERE / "peers.py"), tool, job, str(path)], capture_output=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("stead")
    a.add_argument("data", type=Path)
    a.add_argument("out", type=Path)
    a.add_argument("--bytes", type=int, default=1_000_000_000)
    a.add_argument("--runs", type=int, default=5)
    a = a.parse_args()
    a.stead = os.path.abspath(a.stead)
    a.data.mkdir(parents=True, exist_ok=True)
    a.out.mkdir(parents=True, exist_ok=True)
    log = (a.data / f"log-{a.bytes}.csv").resolve()
    if not log.exists():
        generator = Path(a.stead).with_name("stead-bench")
        subprocess.run([generator, "log", log, "--bytes", str(a.bytes)], check=True)
    gigabytes = log.stat().st_size / 1e9
    with open(log, "rb") as f:
        while f.read(1 << 24):
            pass
    raw, table = [], []
    for name, kernels, peers in JOBS:
        tools = [("stead", lambda k=kernels: stead(a.stead, k, log, a.data))]
        tools += [(tool, lambda t=tool, j=job: peer(t, j, log)) for tool, job in peers]
        results = {tool: [] for tool, _ in tools}
        for _ in range(a.runs):
            for tool, work in tools:
                results[tool].append(work())
        ours = statistics.median(r["seconds"] for r in results["stead"])
        for tool, runs in results.items():
            wall = [r["seconds"] for r in runs]
            cpu = statistics.median(r["cpu_seconds"] for r in runs)
            raw.append({"job": name, "tool": tool, "runs": runs})
            table.append([name, tool, f"{statistics.median(wall):.3f}", f"{min(wall):.3f} to {max(wall):.3f}",
                          f"{cpu / gigabytes:.2f}", f"{max(r['peak_bytes'] for r in runs) / 1e6:.0f}",
                          f"{statistics.median(wall) / ours:.2f}"])
    versions = {p: metadata.version(p) for p in ("polars", "duckdb", "pandas", "numpy", "numba", "pyarrow")}
    versions["stead"] = subprocess.run([a.stead, "--version"], capture_output=True, text=True).stdout.strip()
    machine = {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    stamp = f"{time.strftime('%Y-%m-%d')}-{machine['cpu'].lower().replace(' ', '-')}-{machine['cores']}"
    command = f"python bench/run.py stead DATA OUT --bytes {a.bytes} --runs {a.runs}"
    (a.out / f"{stamp}.json").write_text(
        json.dumps({"command": command, "machine": machine, "versions": versions, "bytes": log.stat().st_size, "results": raw}, indent=1) + "\n")
    head = ["job", "tool", "seconds (median)", "range", "core-seconds per GB", "peak MB", "times stead"]
    lines = [f"# {machine['cpu']}, {machine['cores']} cores, {time.strftime('%Y-%m-%d')}", "", f"`{command}`; page cache warm.",
             ", ".join(f"{k} {v}" for k, v in versions.items()), "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(r) + " |" for r in table]
    (a.out / f"{stamp}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
