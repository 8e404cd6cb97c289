"""What is measured: jobs, the data they run on, the peers that do the same work, and the ratio to reach.

A job is one request of stead. `same` picks the figure of stead's JSON that its peers must find too (None: nothing
to compare); a benchmark whose tools do different work says nothing.
"""

from dataclasses import dataclass, field
from typing import Callable, Optional

NUMBERS = ["bytes", "latency_ms", "cpu", "mem", "temp", "load", "errors", "score"]
COLUMNS = [f"{k}:{c}" for c in NUMBERS for k in ("sum", "mean", "std")]
GRAM8 = "gram:" + ",".join(NUMBERS)
NORMALIZE = "normalize:latency_ms,out=normalized.npy"
# Lines; sum, mean and deviation of a column; Gramian of the numbers; a column normalised (which tells its mean and
# deviation); frequency of the digits; entropy of the bytes.
NINE = ["lines", "sum:latency_ms", "mean:latency_ms", "std:latency_ms", GRAM8, NORMALIZE, "digits", "entropy"]

# Bytes at scale 1, and what stead-bench calls it.
DATA = {
    "log.csv": ("log", 1_000_000_000),
    "strings.txt": ("strings", 512_000_000),
    "points.npy": ("points", 80_000_128),
    "matrix.npy": ("matrix", 1_024_000_128),
    "volume.npy": ("volume", 108_000_128),
    "particles.tipsy": ("particles", 412_000_000),
}
PHASE_SPACE = ["mass", "x", "y", "z", "vx", "vy", "vz"]
RECORDS = ["--type", "records", "--record-length", "128"]
ROUNDS = 20
KMEANS = f"kmeans:k=20,init=first,tol=0,rounds={ROUNDS}"
RENDER = "render:width=1024,height=1024,shading=none,min=0,max=1,step=1,azimuth=0,elevation=0,colors=gray," \
    "opacity='0:0;0.05:0;0.3:0.02;1:0.3',out=volume.png"


@dataclass
class Job:
    group: str
    name: str
    data: str
    kernels: list
    peers: list = field(default_factory=list)
    args: list = field(default_factory=list)
    # Best peer over stead (seconds); None where no ratio is asked for.
    target: Optional[float] = None
    same: Optional[Callable] = None
    cold: bool = False
    # Also told: what stead's scan takes inside its process, as the clocks of resident peers have it.
    inside: bool = False
    env: dict = field(default_factory=dict)


def result(*path):
    def pick(results):
        value = results
        for p in path:
            value = value[p]
        return value

    return pick


def jobs(simd=()):
    """All of them; `simd` are the vectors of this machine, widest last."""
    text, points, matrix = "text", "dense", "dense"
    all_jobs = [
        Job(text, "lines", "log.csv", ["lines"], [("polars", "lines"), ("numpy", "lines")], target=1.0,
            same=result("lines"), inside=True),
        Job(text, "columns: sum, mean, std of 8", "log.csv", COLUMNS,
            [("polars", "columns"), ("duckdb", "columns"), ("pandas", "columns")], target=4.0,
            same=result("mean:latency_ms")),
        Job(text, "digits and entropy", "log.csv", ["digits", "entropy"], [("numba", "histogram")], target=3.0,
            same=result("digits", "7")),
        Job(text, "the buffer read once", "log.csv", [], [("read", "once")]),
        Job(text, "nine operations", "log.csv", NINE, [("polars", "nine"), ("duckdb", "nine"), ("pandas", "nine")],
            target=4.0, same=result("mean:latency_ms")),
    ]
    for spec in ["lines", "sum:latency_ms", "std:latency_ms", GRAM8, NORMALIZE, "digits", "entropy"]:
        all_jobs.append(Job("one of the nine alone", spec.split(",")[0].split(":")[0], "log.csv", [spec]))
    for threads in (1, 2):
        t = ["--threads", str(threads)]
        # ripgrep reads one file with one thread, so two threads are compared with the same figure.
        want = {1: 1.0, 2: 1.7}[threads]
        for name, spec, pattern in [
            ("fixed string", "grep:needle-in-it,fixed", ["-F", "needle-in-it"]),
            ("regular expression", "grep:'[a-f]{3}needle.{3}it[x-z]'", ["[a-f]{3}needle.{3}it[x-z]"]),
            ("class", "grep:'[q-z]{10}'", ["[q-z]{10}"]),
        ]:
            peer = [("ripgrep", pattern)]
            all_jobs.append(Job("grep", f"{name}, lines, {threads} thread(s)", "strings.txt", [spec], peer, t,
                                want, same=result(spec)))
            # The newline of each record matches no class of these patterns.
            all_jobs.append(Job("grep", f"{name}, records, {threads} thread(s)", "strings.txt", [spec], peer,
                                t + RECORDS, want, same=result(spec)))
    all_jobs += [
        Job(points, f"kmeans 1M x 10, k=20, {ROUNDS} rounds", "points.npy", [KMEANS], [("sklearn", "kmeans")],
            target=2.0, same=result(KMEANS, "inertia")),
        Job(points, "gram 1M x 10", "points.npy", ["gram:*"], [("scipy", "gram")], target=1.0,
            same=result("gram:*", "matrix", 1, 0)),
        Job(matrix, "gram 2M x 64", "matrix.npy", ["gram:*"], [("scipy", "gram")], target=1.0,
            same=result("gram:*", "matrix", 0, 0)),
        Job(matrix, "mean of 64 columns", "matrix.npy", [f"mean:{i}" for i in range(64)], [("numpy", "means")],
            same=result("mean:0")),
        Job("particles", "mean, std of 7 columns", "particles.tipsy",
            [f"{k}:{c}" for c in PHASE_SPACE for k in ("mean", "std")],
            [("numpy", "particles"), ("pynbody", "particles")], target=2.0, same=result("mean:x"), inside=True),
        Job("particles", "centre of mass of one species", "particles.tipsy",
            ["gram:mass,x,y,z"], [("numpy", "centre")], ["--species", "star"],
            same=result("gram:mass,x,y,z", "matrix", 0, 1)),
        Job(points, "render 300^3 to 1024^2", "volume.npy", [RENDER], [("vtk", "render")], target=2.0),
    ]
    for name, data, kernels, args in [
        ("lines", "log.csv", ["lines"], []),
        ("digits", "log.csv", ["digits"], []),
        ("columns", "log.csv", COLUMNS, []),
        ("grep", "strings.txt", ["grep:needle-in-it,fixed"], []),
        ("mean of a column", "matrix.npy", ["mean:0"], []),
        ("least and greatest", "matrix.npy", ["min:0", "max:0"], []),
        ("rows of records", "strings.txt", ["rows", "digits"], RECORDS),
        ("mean, std of 7 columns of particles", "particles.tipsy", [f"{k}:{c}" for c in PHASE_SPACE for k in ("mean", "std")], []),
    ]:
        all_jobs.append(Job("cold", name, data, kernels, [("fio", "read")], args, 0.95, cold=True))
    for name, data, kernels in [
        ("columns", "log.csv", COLUMNS), ("digits and entropy", "log.csv", ["digits", "entropy"]),
        ("kmeans", "points.npy", [KMEANS]), ("gram 2M x 64", "matrix.npy", ["gram:*"]),
        ("render", "volume.npy", [RENDER]),
    ]:
        for threads in (1, 2):
            all_jobs.append(Job("threads", f"{name}, {threads}", data, kernels, [], ["--threads", str(threads)]))
    # Kernels of several passes, whose blocks would be kept if they were fewer.
    for name, data, kernels in [
        ("kmeans, 3 rounds, 2M x 64", "matrix.npy", ["kmeans:k=4,init=first,tol=0,rounds=3"]),
        ("40 histograms without ends", "matrix.npy", [f"hist:{i},bins=10" for i in range(40)]),
        ("normalize 12 columns", "matrix.npy", [f"normalize:{','.join(map(str, range(12)))},out=normalized-matrix.npy"]),
    ]:
        all_jobs.append(Job("memory", name, data, kernels))
    for name, data, kernels in [
        ("columns", "log.csv", COLUMNS), ("entropy", "log.csv", ["entropy"]), ("kmeans", "points.npy", [KMEANS]),
        ("gram 2M x 64", "matrix.npy", ["gram:*"]), ("render", "volume.npy", [RENDER]),
    ]:
        for level in ["portable", *(s.removesuffix("f") for s in simd)]:
            all_jobs.append(Job("vectors", f"{name}, {level}", data, kernels, env={"STEAD_SIMD": level}))
    all_jobs.append(Job("start", "1 KB of CSV", "tiny.csv", ["mean:x"]))
    return all_jobs
