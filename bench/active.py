"""Measures where to compute: on the hosts that have the data, on those that ask, or on both, over hosts of the lab (lab/lab).

    python bench/active.py STEAD DATA_DIR OUT_DIR [--scale F] [--runs N] [--only SECTION,...] [--check]

STEAD is a command that was built with Open MPI. All hosts are network namespaces of one machine, joined by links of 1 Gb/s: they
share its processors and its memory, and nothing else is between them but the network. Each lab is measured by `stead calibrate`
first, and predictions are from that. Bytes over the network are what the links counted, the start of MPI among them. Answers of
all places must be equal to the last bit.

Sections: *wire* (what links carry: TCP, large messages of plain MPI, and data brought to those who ask), *asks* (what a small ask of
another rank takes), *traditional* (data brought to 4 hosts, against computing on the 4 that have them), *scaling* (1, 2 and 4 storage hosts,
64 MB to 2 GB), *map* (a storage device 6.8 times slower than the host, a host that is idle or busy, 1 MB to 1 GB, each place
and what stead chooses), *vector* (text on a device that has half of the processors: all places, the columns alone among them), *nine* (nine
operations on text over 4 storage hosts, beside a cluster of PySpark on them). Each has a time, after which what is left of it is left
out, and what is under way is ended; tables say so. All of them take less than half an hour.

Writes OUT_DIR/DATE-HOST-active.json with the raw numbers, .md with tables, and .svg with pictures of map, traditional and scaling; --check writes nothing.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import active_report
import spark_peer
import wire
from jobs import DATA, NINE
from run import command, machine, warm

HERE = Path(__file__).parent
LAB = HERE.parent / "lab" / "lab"
# Each host has a folder of its own for its parts.
CONFIGURED = 'export NODE=$(hostname) STEAD_CONFIG="$0" STEAD_PROFILE="$1"; shift; exec "$@"'
DEVICE = 6.8
# Of the section of vectors, where parsing is to be worth sharing.
HALF = 2
# What takes longer is run once.
LONG = 5
# Seconds that are given to what is under way when the time of a section is over.
GRACE = 15
MB = 1_000_000
RECORDS = ["--type", "records", "--record-length", "128"]
# Name, data, kernels, arguments, the share of the bytes that computing near the data is to save, and sizes for the map.
REQUESTS = [
    ("sum", "numbers.bin", ["sum:0"], ["--type", "raw", "--dtype", "f64"], 0.99, (1, 16, 128, 1000)),
    ("grep", "strings.txt", ["grep:needle-in-it,fixed"], RECORDS, 0.99, (1, 16, 128, 1000)),
    ("kmeans", "points.npy", ["kmeans:k=20,init=first,tol=0,rounds=10"], [], 0.97, (1, 16, 80)),
    ("render", "volume.npy", ["render:width=512,height=512,shading=none,min=0,max=1,out={out}"], [], 0.97, (1, 16, 108)),
]
# On text, for the place where columns are sent: one pass with little to do for a number, several with much.
ON_TEXT = [
    ("std", "log.csv", ["std:latency_ms"], [], (16, 64)),
    ("kmeans", "log.csv", ["kmeans:latency_ms,cpu,k=20,init=first,tol=0,rounds=10"], [], (16, 64)),
]


class Late(Exception):
    """The time of a section is over."""


def within(a, words):
    """What a command prints, if it ends before the section has to."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            out, said = process.communicate(timeout=max(a.until - time.perf_counter(), 0) + GRACE)
        except BaseException as e:
            # With what it has begun; what runs on hosts goes with the lab.
            os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()
            process.stderr.close()
            raise Late(words[1]) if isinstance(e, subprocess.TimeoutExpired) else e
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: exit code {process.returncode}\n{said}")
    return out


class Lab:
    """Hosts, of which the first ones have the data. `before` is done to them before they are measured, if they are at all."""

    def __init__(self, a, hosts, before=lambda lab: None, measured=True):
        able = subprocess.run([LAB, "check"], capture_output=True, text=True, timeout=60)
        if able.returncode:
            raise LeftOut(able.stderr.strip())
        self.a, self.hosts, self.measured = a, hosts, measured
        self.name = command([LAB, "up", str(hosts)], env=os.environ | {"LAB_OWNER": str(os.getpid())}).strip()
        folder = a.data / "active"
        for i in range(hosts):
            (folder / f"host{i + 1}").mkdir(parents=True, exist_ok=True)
        self.config, self.profile = folder / "stead.toml", folder / f"profile-{hosts}.toml"
        self.config.write_text(f'[dataspace.disk]\npath = "{folder.resolve()}/${{NODE}}"\n')
        self.profile.unlink(missing_ok=True)
        try:
            before(self)
            if measured:
                self.run(hosts, [a.stead, "calibrate", folder, "--seconds", a.seconds, "--output", self.profile], profile="")
        except BaseException:
            self.drop()
            raise

    def run(self, ranks, words, profile=None):
        known = self.profile.resolve() if self.measured else ""
        given = [self.config.resolve(), known if profile is None else profile]
        return within(self.a, [*map(str, [LAB, "run", self.name, "-n", ranks, "sh", "-c", CONFIGURED, *given, *words])])

    def tell(self, *words):
        # What it begins must not hold our output open.
        subprocess.run([*map(str, [LAB, words[0], self.name, *words[1:]])], check=True)

    def received(self):
        """Bytes that came to hosts so far."""
        count = ["cat", "/sys/class/net/eth0/statistics/rx_bytes"]
        return sum(int(command([LAB, "exec", self.name, str(i + 1), *count])) for i in range(self.hosts))

    def drop(self):
        subprocess.run([LAB, "drop", self.name], check=True)


class LeftOut(Exception):
    """What a section needs is not there."""


@contextlib.contextmanager
def lab(a, hosts, before=lambda lab: None, measured=True):
    raised = Lab(a, hosts, before, measured)
    try:
        yield raised
    finally:
        raised.drop()


def named(hosts):
    return "host1" if hosts == 1 else f"host[1-{hosts}]"


def sizes(a, wanted):
    """In bytes; small ones are one."""
    return sorted({max(int(size * a.scale), 100_000) for size in wanted})


def made(a, name, size):
    """The data set of a name, of about so many bytes."""
    path = a.data / "active" / f"{size}-{name}"
    part = path.with_suffix(".part")
    if path.exists():
        return path.resolve()
    if name == "numbers.bin":
        import numpy as np

        random, left = np.random.default_rng(1), size // 8
        with open(part, "wb") as out:
            while left:
                n = min(left, 1 << 22)
                random.standard_normal(n).tofile(out)
                left -= n
    else:
        command([a.bench, DATA[name][0], part, "--bytes", str(size)])
    part.rename(path)
    return path.resolve()


def put(a, on, file, hosts):
    """Its layout over so many hosts, with parts in the page cache."""
    layout = file.with_name(f"{file.name}-{hosts}.stead-layout.toml")
    stripe = 4 << 20
    if "volume" in file.name:
        # Pictures are made of bricks of 16 planes; those that lie on one host need nothing of others but a plane.
        side = round((file.stat().st_size / 4) ** (1 / 3))
        stripe = 16 * -(-side // (16 * hosts)) * side * side * 4
    if not layout.exists():
        on.run(hosts, [a.stead, "put", file, "--over", f"disk@{named(hosts)}", "--layout", layout, "--stripe", str(stripe)])
    told = json.loads(command([a.stead, "describe", str(layout), "--format", "json"]))
    for part in told["parts"]:
        warm(on.config.parent / part["node"] / part["path"])
    return layout


def forget(a, layout):
    """Its parts, and it: room on the disk for what comes next."""
    if not layout.exists():
        return
    told = json.loads(command([a.stead, "describe", str(layout), "--format", "json"]))
    for part in told["parts"]:
        (layout.parent / part["node"] / part["path"]).unlink()
    layout.unlink()


def run(a, on, ranks, words, kernels):
    """Seconds of the run, of the whole job, bytes over the network, the plan and the answer."""
    words = [a.stead, "run", *words, "--format", "json", *(word for k in kernels for word in ("-k", k))]
    before, begin = on.received(), time.perf_counter()
    report = json.loads(on.run(ranks, words))
    whole = time.perf_counter() - begin
    plan = report["plan"].get("place")
    if plan and plan.get("profile"):
        # Where it lies is no matter.
        plan["profile"] = Path(plan["profile"]).name
    return {
        "seconds": report["metrics"]["seconds"],
        "cpu_seconds": report["metrics"]["cpu_seconds"],
        "job_seconds": whole,
        "network_bytes": on.received() - before,
        "plan": plan,
        "results": report["results"],
    }


def places(a, on, layout, hosts, which, kernels, args):
    """All places in turn, several times. Answers must be equal."""
    found = []
    kernels = [k.format(out=a.data / "active" / "picture.png") for k in kernels]
    long = set()
    for _ in range(a.runs):
        for place in which:
            if place in long:
                continue
            words = [layout, "--storage-hosts", named(hosts), "--place", place, *args]
            found.append({"place": place, **run(a, on, on.hosts, words, kernels)})
            if found[-1]["seconds"] > LONG:
                long.add(place)
    answers = {json.dumps(one.pop("results"), sort_keys=True) for one in found}
    if len(answers) != 1:
        raise SystemExit(f"{kernels} over {layout}: places have found different things")
    return found


def is_late(a, name):
    """True if the time of the section is over: then this is left out."""
    if time.perf_counter() < a.until:
        return False
    print(f"  {name}: left out, the time of the section is over", file=sys.stderr, flush=True)
    a.left_out.append(name)
    return True


def wires(a, found):
    """Bytes of links: of one, and of four at once."""
    for pairs in (1, 4):
        if is_late(a, f"{pairs} link(s)"):
            continue
        with lab(a, 2 * pairs, measured=False) as on:
            for size in sizes(a, [250 * MB]):
                found.append({"pairs": pairs, "way": "TCP", "bytes": size * pairs, "seconds": [wire.tcp(on.name, pairs, size) for _ in range(a.runs)]})
                # Ranks of MPICH that wait keep a processor busy each: as many as there are.
                for mpi in wire.MPI if pairs == 1 else ["Open MPI"]:
                    took = wire.plain(on.name, mpi, pairs, size, a.data, lambda words: within(a, words))
                    if took:
                        found.append({"pairs": pairs, "way": mpi, "bytes": size * pairs, "seconds": took})
            for size in sizes(a, [1000 * MB]):
                file = made(a, "numbers.bin", size)
                layout = put(a, on, file, pairs)
                runs = places(a, on, layout, pairs, ["pull"], ["sum:0"], REQUESTS[0][3])
                found.append({"pairs": pairs, "way": "pull", "bytes": file.stat().st_size, "seconds": [one["seconds"] for one in runs], "runs": runs})
                forget(a, layout)
        said = ", ".join(f"{one['way']} {one['bytes'] / statistics.median(one['seconds']) / pairs / 1e6:.1f} MB/s" for one in found if one["pairs"] == pairs)
        print(f"  {pairs} link(s): {said}", file=sys.stderr, flush=True)


def asks(a, found):
    """What bench/asks.py has found of each MPI."""
    for package in ("stead", "mpi4py"):
        if subprocess.run([a.python, "-c", f"import {package}"], capture_output=True).returncode:
            raise LeftOut(f"{a.python} has no {package}")
    count, quiet = (1000, 10) if a.scale == 1 else (20, 0)
    words = [a.python, HERE / "asks.py", a.libraries, a.data / "active", "--asks", count, "--quiet", quiet, "--json"]
    found += [json.loads(line) for line in within(a, [*map(str, words)]).splitlines()]
    if not found:
        raise LeftOut(f"{a.libraries} has no libstead_mpi")
    for one in found:
        said = ", ".join(f"{way} {statistics.median(took):.1f} us" for way, took in one["microseconds"].items())
        print(f"  {one['mpi']}: {said}", file=sys.stderr, flush=True)


def traditional(a, found):
    with lab(a, 8) as on:
        for name, data, kernels, args, saved, _ in REQUESTS:
            if is_late(a, name):
                continue
            size = 512 * MB if data in ("numbers.bin", "strings.txt") else DATA[data][1]
            file = made(a, data, sizes(a, [size])[0])
            layout = put(a, on, file, 4)
            runs = places(a, on, layout, 4, ["pull", "push"], kernels, args)
            found.append({"request": name, "bytes": file.stat().st_size, "saved": saved, "runs": runs})
            tell(name, runs)
            forget(a, layout)


def scaling(a, found):
    for hosts in (1, 2, 4):
        with lab(a, hosts + 1) as on:
            for size in sizes(a, [64 * MB, 256 * MB, 1000 * MB, 2000 * MB]):
                name = f"{hosts} host(s), {size / 1e6:.3g} MB"
                if is_late(a, name):
                    continue
                file = made(a, "numbers.bin", size)
                layout = put(a, on, file, hosts)
                runs = places(a, on, layout, hosts, ["push"], ["sum:0"], REQUESTS[0][3])
                found.append({"hosts": hosts, "bytes": file.stat().st_size, "runs": runs})
                tell(name, runs)
                forget(a, layout)
                if hosts == 4 and size > 1000 * MB:
                    file.unlink()


def offload_map(a, found):
    """One storage device and one host: which place wins, and which one was chosen."""
    with lab(a, 2, before=lambda on: on.tell("slow", 1, DEVICE)) as on:
        for name, data, kernels, args, _, whole in REQUESTS:
            for size in sizes(a, [n * MB for n in whole]):
                if is_late(a, f"{name}, {size / 1e6:.1f} MB"):
                    continue
                file = made(a, data, size)
                on.tell("slow", 1, 1)
                layout = put(a, on, file, 1)
                on.tell("slow", 1, DEVICE)
                for busy in (False, True):
                    if busy:
                        on.tell("stress", 2)
                    runs = places(a, on, layout, 1, ["pull", "push", "split", "auto"], kernels, args)
                    if busy:
                        on.tell("calm", 2)
                    found.append({"request": name, "busy": busy, "bytes": size, "runs": runs})
                    tell(f"{name}, {size / 1e6:.1f} MB, {'busy' if busy else 'idle'}", runs)
                forget(a, layout)


def on_vectors(a, found):
    """Columns of text, parsed where the text lies and computed on where it was asked for, beside the other places."""
    with lab(a, 2, before=lambda on: on.tell("slow", 1, HALF)) as on:
        for name, data, kernels, args, whole in ON_TEXT:
            for size in sizes(a, [n * MB for n in whole]):
                if is_late(a, f"{name}, {size / 1e6:.1f} MB"):
                    continue
                file = made(a, data, size)
                layout = put(a, on, file, 1)
                runs = places(a, on, layout, 1, ["pull", "push", "vector", "split", "auto"], kernels, args)
                found.append({"request": name, "busy": False, "bytes": file.stat().st_size, "runs": runs})
                tell(f"{name}, {size / 1e6:.1f} MB", runs)
                forget(a, layout)


def nine(a, found):
    """Stead computes where the parts lie, Spark's workers on the same hosts; each has all of the file in the page cache."""
    scratch = (a.data / "active" / "spark").resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    with lab(a, 5) as on, contextlib.ExitStack() as started:
        started.callback(shutil.rmtree, scratch, ignore_errors=True)
        addresses = command([LAB, "addresses", on.name]).split()
        spark = importlib.util.find_spec("pyspark") is not None
        if spark:
            cluster = spark_peer.cluster(addresses[:4], on.name, scratch)
            started.callback(spark_peer.end, cluster)
        for size in sizes(a, [100 * MB, 500 * MB, 2000 * MB]):
            name = f"nine operations, {size / 1e6:.3g} MB"
            if is_late(a, name):
                continue
            file = made(a, "log.csv", size)
            layout = put(a, on, file, 4)
            warm(file)
            # What is written to files is computed on the hosts that have the data, alone, and stays there.
            out = a.data.resolve() / "active" / "normalized.npy"
            runs = []
            for _ in range(a.runs):
                runs.append(run(a, on, 4, [layout], [k.replace("out=normalized.npy", f"out={out}") for k in NINE]))
                runs[-1]["place"] = "push"
                forget(a, out.with_name(out.name + ".stead-layout.toml"))
            results = [one.pop("results") for one in runs]
            tell(name, runs)
            peer = None
            if spark:
                limit = max(min(spark_peer.limit(size), a.until - time.perf_counter()), 1)
                print(f"  {name}: PySpark, for {limit:.0f} s at most", file=sys.stderr, flush=True)
                peer = spark_peer.measure(on.name, addresses, file, scratch / "out", 2, limit)
                for one in peer["runs"]:
                    same(one, results[0])
                said = ", ".join(f"{one['seconds']:.1f} s" for one in peer["runs"])
                print(f"  {name}: PySpark {said}{' and no more within that' if peer['over'] else ''}", file=sys.stderr, flush=True)
            found.append({"bytes": file.stat().st_size, "runs": runs, "spark": peer})
            forget(a, layout)
            file.unlink()


def same(theirs, ours):
    """Tools that do different work are not to be compared."""
    wanted = {"lines": ours["lines"], "mean": ours["mean:latency_ms"], "entropy": ours["entropy"], "digits": sum(ours["digits"].values())}
    for name, value in wanted.items():
        if abs(theirs[name] - value) > 1e-9 * abs(value):
            raise SystemExit(f"nine operations: {name} is {value} by stead and {theirs[name]} by PySpark")


def tell(name, runs):
    chosen = active_report.chosen(runs)
    said = ", ".join(f"{place} {active_report.median(runs, place):.3f} s" for place in dict.fromkeys(one["place"] for one in runs))
    print(f"  {name}: {said}{f' ({chosen})' if chosen else ''}", file=sys.stderr, flush=True)


# Each with its time, in seconds.
SECTIONS = {
    "wire": (wires, 150), "asks": (asks, 100), "traditional": (traditional, 150), "scaling": (scaling, 180), "map": (offload_map, 540),
    "vector": (on_vectors, 120), "nine": (nine, 420),
}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("stead")
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--bench", help="the program that makes the data; beside STEAD unless told otherwise")
    p.add_argument("--libraries", type=Path, default=Path(".build/mpi"), help="a folder for each MPI with its libstead_mpi.so")
    p.add_argument("--python", default=sys.executable, help="one that has mpi4py and the package of stead, for asks; this one unless told otherwise")
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--only", help=f"some of {', '.join(SECTIONS)}")
    p.add_argument("--check", action="store_true", help="write no results")
    a = p.parse_args()
    a.stead = os.path.abspath(a.stead)
    a.bench = os.path.abspath(a.bench or Path(a.stead).with_name("stead-bench"))
    a.seconds = 10 if a.scale == 1 else 1
    if os.geteuid() == 0:
        os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    os.environ["STEAD_CACHE"] = str((a.data / "cache").resolve())
    host = machine()
    words = ["--scale", f"{a.scale:g}", "--runs", str(a.runs)] + (["--only", a.only] if a.only else [])
    whole = {"command": "python bench/active.py stead DATA OUT " + " ".join(words), "machine": host,
             "versions": {"stead": command([a.stead, "--version"]).split()[-1]}, "took": {}, "left_out": {}}
    for name in a.only.split(",") if a.only else SECTIONS:
        begin = time.perf_counter()
        measure, most = SECTIONS[name]
        a.until, a.left_out = begin + most, whole["left_out"].setdefault(name, [])
        found = []
        try:
            measure(a, found)
        except LeftOut as e:
            print(f"active, {name}: LEFT OUT, {e}", file=sys.stderr, flush=True)
            continue
        except Late:
            print(f"  {name}: ended, the time of the section is over", file=sys.stderr, flush=True)
            a.left_out.append("what was under way then")
        if found:
            whole[name] = found
        whole["took"][name] = time.perf_counter() - begin
        print(f"active, {name}: {whole['took'][name]:.0f} s", file=sys.stderr, flush=True)
    text = active_report.tables(whole)
    pictures = active_report.pictures(whole)
    print(text)
    if a.check:
        return
    a.out.mkdir(parents=True, exist_ok=True)
    stamp = f"{time.strftime('%Y-%m-%d')}-{host['cpu'].lower().replace(' ', '-')}-{host['cores']}-active"
    stamp += "-" + a.only.replace(",", "-") if a.only else ""
    (a.out / f"{stamp}.json").write_text(json.dumps(whole, indent=1) + "\n")
    (a.out / f"{stamp}.md").write_text(text)
    for end, picture in pictures.items():
        (a.out / f"{stamp.removesuffix(end)}{end}.svg").write_text(picture)


if __name__ == "__main__":
    main()
