"""Measures stead beside the tools that people would pick instead, in turn, in one run.

    python bench/run.py STEAD DATA_DIR OUT_DIR [--scale F] [--runs N] [--only TEXT] [--installed] [--check]

Every job runs several times, all tools of a job in turn (A B C A B C ...), so that a drift of the machine hits all
of them. Figures are medians with their range. The page cache is warm but for the group 'cold'. Seconds of stead,
ripgrep and fio are of the whole process; those of the other peers are inside a process that has imported,
compiled and (arrays) loaded everything already. Peers must find what stead finds.

Writes OUT_DIR/DATE-HOST.json with the raw numbers and DATE-HOST.md with tables, after each job. --installed leaves out peers that
are not installed, and says so; without it all must be there before the first job. --check writes nothing. Both are for a quick test
that the benchmarks work.
"""

import argparse
import importlib.util
import json
import math
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import report
from jobs import DATA, RECORDS, jobs

HERE = Path(__file__).parent
MODULES = {"sklearn": "scikit-learn", "polars": "polars", "duckdb": "duckdb", "pandas": "pandas", "numpy": "numpy",
           "numba": "numba", "scipy": "scipy", "vtk": "vtk", "pynbody": "pynbody"}


def children(work):
    """Wall and processor seconds of the processes that `work` starts and waits for."""
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    out = work()
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return out, {"seconds": wall, "cpu_seconds": cpu, "peak_bytes": None, "answer": None}


def command(words, cwd=None, codes=(0,), env=None):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, env=env)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def evict(path):
    """Takes a file out of the page cache."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(path):
    with open(path, "rb") as f:
        while f.read(1 << 24):
            pass


class Stead:
    name = "stead"

    def __init__(self, binary, job, path, directory):
        self.job, self.path, self.directory = job, path, directory
        self.env = {**os.environ, **job.env}
        self.words = [binary, "run", str(path), "--format", "json", *job.args]
        self.words += [a for k in job.kernels for a in ("-k", k)]

    def run(self):
        if self.job.cold:
            evict(self.path)
        out, figures = children(lambda: command(self.words, self.directory, env=self.env))
        out = json.loads(out)
        figures["peak_bytes"] = out["metrics"]["peak_memory_bytes"]
        if self.job.inside:
            figures["inside_seconds"] = out["metrics"]["seconds"]
        if self.job.same:
            figures["answer"] = self.job.same(out["results"])
        return figures

    def close(self):
        pass


class Process:
    """A peer that is started anew each time."""

    def __init__(self, name, words, cold, path, answer=lambda out: None, seconds=None):
        self.name, self.words, self.cold, self.path = name, words, cold, path
        self.answer, self.seconds = answer, seconds

    def run(self):
        if self.cold:
            evict(self.path)
        out, figures = children(lambda: command(self.words, codes=(0, 1)))
        figures["answer"] = self.answer(out)
        if self.seconds:
            figures["seconds"] = self.seconds(out)
        return figures

    def close(self):
        pass


class Resident:
    """A peer that stays in memory and works when it is told to."""

    def __init__(self, tool, job, path):
        self.name = tool
        words = [sys.executable, str(HERE / "peers.py"), tool, job, str(path)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.line("ready")

    def line(self, what):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"peer {self.name} ended before it was {what}")
        return line

    def run(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return json.loads(self.line("done"))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def peer(tool, what, job, path, binary):
    if tool == "ripgrep":
        words = ["rg", "--no-config", "-c", "-j1", *what, str(path)]
        return Process(tool, words, job.cold, path, lambda out: int(out or 0))
    if tool == "read":
        return Process("two threads that add words", [str(Path(binary).with_name("stead-bench")), "read", str(path)], False, path)
    if tool == "fio":
        size = path.stat().st_size
        words = ["fio", "--name=read", f"--filename={path}", "--readonly", "--rw=read", "--direct=1", "--bs=1M",
                 "--ioengine=libaio", "--iodepth=32", f"--size={size // (1 << 20) << 20}", "--output-format=json"]
        # In milliseconds, which a small file does not take.
        seconds = lambda out: max(json.loads(out[out.index("{"):])["jobs"][0]["read"]["runtime"], 1) / 1000
        return Process("fio, O_DIRECT", words, False, path, seconds=seconds)
    return Resident(tool, what, path)


def installed(tool, what):
    if tool in MODULES:
        # All nine operations have their bytes counted by numba.
        needs = [tool] + (["pyarrow"] if tool == "pandas" else []) + (["numba"] if what == "nine" else [])
        return all(importlib.util.find_spec(m) for m in needs)
    return tool == "read" or shutil.which({"ripgrep": "rg"}.get(tool, tool)) is not None


def prepare(a, wanted):
    """The data sets of these names, made where they are not there yet."""
    generator = Path(a.stead).with_name("stead-bench")
    paths = {}
    for name, (kind, size) in DATA.items():
        if name not in wanted:
            continue
        directory = a.data / f"scale-{a.scale:g}"
        directory.mkdir(parents=True, exist_ok=True)
        paths[name] = directory / name
        if not paths[name].exists():
            temporary = paths[name].with_suffix(".part")
            command([generator, kind, temporary, "--bytes", str(max(int(size * a.scale), 100_000))])
            temporary.rename(paths[name])
    paths["tiny.csv"] = a.data / "tiny.csv"
    paths["tiny.csv"].write_text("x,y\n" + "".join(f"{i},{i * i}\n" for i in range(120)))
    return {k: v.resolve() for k, v in paths.items()}


def agree(job, results):
    """Peers that find something else do something else."""
    ours = results["stead"][0]["answer"] if job.same else None
    for tool, runs in results.items():
        theirs = runs[0]["answer"]
        if job.same and theirs is not None and not math.isclose(ours, theirs, rel_tol=1e-9):
            raise SystemExit(f"{job.group}, {job.name}: stead found {ours}, {tool} {theirs}")


def versions(a, used):
    found = {p: metadata.version(MODULES[p]) for p in sorted(used) if p in MODULES}
    for name, words in [("ripgrep", ["rg", "--version"]), ("fio", ["fio", "--version"])]:
        if name in used:
            found[name] = command(words).split("\n")[0].replace("ripgrep ", "").replace("fio-", "")
    return {"stead": command([a.stead, "--version"]).split()[-1] + commit(), **found}


def commit():
    """Of the clone that this is in, and whether it differs from that."""
    done = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True)
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""


def exactness():
    """What an exact sum takes beside a plain one: the program that measures it is an example of the kernels."""
    words = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "stead-kernel", "--example", "exact_sum"]
    return command(words, HERE.parent)


def machine():
    name = platform.machine()
    flags = set()
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            name = re.sub(r"\((R|TM)\)", "", line.split(":", 1)[1]).strip()
        if line.startswith("flags"):
            flags = {f for f in ("avx2", "avx512f") if f in line.split()}
    return {"cpu": name, "cores": os.cpu_count(), "simd": sorted(flags), "kernel": platform.release(),
            "python": platform.python_version()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("stead")
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--scale", type=float, default=1.0, help="size of the data, 1 being about a gigabyte")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--only", help="jobs whose group or name has this text")
    p.add_argument("--installed", action="store_true", help="leave out peers that are not installed")
    p.add_argument("--check", action="store_true", help="write no results")
    a = p.parse_args()
    a.stead = os.path.abspath(a.stead)
    # Commands that are installed beside this Python.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    host = machine()
    chosen = [job for job in jobs(host["simd"]) if not a.only or a.only in f"{job.group}, {job.name}"]
    missing = sorted({t for job in chosen for t, w in job.peers if not installed(t, w)})
    if missing and not a.installed:
        raise SystemExit(f"not installed: {', '.join(missing)}; --installed leaves them out")
    for tool in missing:
        print(f"peers, {tool}: LEFT OUT, it is not installed", file=sys.stderr, flush=True)
    paths = prepare(a, {job.data for job in chosen})
    words = ["--scale", f"{a.scale:g}", "--runs", str(a.runs)] + (["--only", a.only] if a.only else [])
    whole = {"command": "python bench/run.py stead DATA OUT " + " ".join(words), "machine": host,
             "versions": versions(a, {t for job in chosen for t, w in job.peers if installed(t, w)}), "jobs": []}
    if not a.check and not a.only:
        whole["exactness"] = exactness()
    for job in chosen:
        path = paths[job.data]
        peers = [(t, w) for t, w in job.peers if installed(t, w) or not a.installed]
        tools = [Stead(a.stead, job, path, path.parent)] if job.kernels else []
        tools += [peer(t, w, job, path, a.stead) for t, w in peers]
        results = {t.name: [] for t in tools}
        for _ in range(max(a.runs, 20) if job.group == "start" and not a.check else a.runs):
            for t in tools:
                # Again each time: what lies idle in the page cache may have gone.
                if not job.cold:
                    warm(path)
                results[t.name].append(t.run())
        for t in tools:
            t.close()
        agree(job, results)
        whole["jobs"].append({"group": job.group, "job": job.name, "target": job.target, "bytes": path.stat().st_size,
                         "kernels": job.kernels, "args": job.args, "tools": results})
        told = ", ".join(f"{t} {statistics.median(r['seconds'] for r in runs):.3f} s" for t, runs in results.items())
        print(f"{job.group}, {job.name}: {told}", file=sys.stderr, flush=True)
        if not a.check:
            text = write(a.out, whole)
    if not a.check:
        print(text)


def write(out, whole):
    """What has been measured until now: a later job that fails takes nothing with it."""
    host = whole["machine"]
    out.mkdir(parents=True, exist_ok=True)
    stamp = f"{time.strftime('%Y-%m-%d')}-{host['cpu'].lower().replace(' ', '-')}-{host['cores']}"
    (out / f"{stamp}.json").write_text(json.dumps(whole, indent=1) + "\n")
    text = report.tables(whole)
    (out / f"{stamp}.md").write_text(text)
    return text


if __name__ == "__main__":
    main()
