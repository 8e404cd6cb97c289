"""`stead run` and `stead.run` over files whose parts lie on several nodes: the results of one node."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import BUILT, LIMIT, bound, launch, run
from test_mpi import LAB, lab  # noqa: F401
from test_mpi4py import env  # noqa: F401
from test_run import KERNELS, STEAD, alone, asked, folder, together  # noqa: F401

PYTHON = """
import json, sys, stead
from mpi4py import MPI
report = stead.run(sys.argv[1], *sys.argv[2:], comm=MPI.COMM_WORLD)
if MPI.COMM_WORLD.rank == 0:
    print(report.to_json())
"""


def put(file: Path, to: Path, stripe: int, nodes: list[str], beside: bool = False) -> Path:
    """Its layout. Parts `beside` it have relative paths."""
    to.mkdir()
    data, n = file.read_bytes(), len(nodes)
    parts = []
    for i, node in enumerate(nodes):
        part = b"".join(data[at : at + stripe] for at in range(i * stripe, len(data), n * stripe))
        (to / f"part{i}").write_bytes(part)
        path = f"part{i}" if beside else str(to / f"part{i}")
        parts.append(f'  {{ node = "{node}", path = "{path}", length = {len(part)} }},\n')
    layout = to / f"{file.name}.stead-layout.toml"
    layout.write_text(
        f'version = 1\nname = "{file.name}"\nlength = {len(data)}\nstripe = {stripe}\nparts = [\n{"".join(parts)}]\n'
    )
    return layout


@pytest.mark.parametrize("data", ["t.csv", "t.csv.gz", "m.npy"])
def test_one_host_and_its_ranks(folder, tmp_path, data):  # noqa: F811
    kernels = KERNELS if data != "m.npy" else ["rows", "gram:*", "kmeans:k=5"]
    one = alone(folder / data, *asked(kernels))
    nodes = [platform.node()] * 2
    layout = put(folder / data, tmp_path / "here", 10_001, nodes)
    for words in [layout], [str(layout).removesuffix(".stead-layout.toml")]:
        done = together(3, *words, *asked(kernels), "--format", "json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["results"] == one["results"]
        assert report["metrics"]["bytes_fetched"] == 0
    assert alone(layout, *asked(kernels))["results"] == one["results"]
    # Whoever sees the folder reads parts beside the layout, whatever their nodes are called.
    beside = put(folder / data, tmp_path / "beside", 5000, ["x1", "x2", "x3"], beside=True)
    done = together(2, beside, *asked(kernels), "--format", "json")
    assert done.returncode == 0 and json.loads(done.stdout)["results"] == one["results"], done.stderr


def test_a_node_without_a_rank_is_named_once(folder, tmp_path):  # noqa: F811
    layout = put(folder / "t.csv", tmp_path / "l", 10_000, [platform.node(), "nowhere7"])
    done = together(2, layout, "-k", "rows")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("node nowhere7 has parts of it, and no rank") == 1, done.stderr
    assert f"--host {platform.node()},nowhere7" in done.stderr


def test_python_over_ranks(mpi, env, folder, tmp_path):  # noqa: F811
    layout = put(folder / "t.csv", tmp_path / "l", 7777, [platform.node()] * 3)
    out = run([*launch(mpi, 3), sys.executable, "-c", PYTHON, layout, *KERNELS], env)
    assert json.loads(out)["results"] == alone(folder / "t.csv", *asked(KERNELS))["results"]


def test_files_of_each_process(folder, tmp_path):  # noqa: F811
    for n in range(5):
        (tmp_path / f"p.{n:02}.csv").write_bytes((folder / "parts" / f"{n}.csv").read_bytes())
    done = together(3, tmp_path / "p.%02r.csv", *asked(KERNELS), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"] == alone(folder / "parts/*.csv", *asked(KERNELS))["results"]


@pytest.mark.parametrize("ranks", [3, 5])
def test_hosts_of_the_lab(lab, folder, tmp_path, ranks):  # noqa: F811
    names = ["rows", "mean:x", "std:x", "grep:two,lines,max=7", "kmeans:x,y,k=3"]
    one = alone(folder / "t.csv", *asked(names))
    layout = put(folder / "t.csv", tmp_path / "l", 50_000, ["host1", "host2", "host3"])
    words = [STEAD, "run", layout, *asked(names), "--format", "json"]
    report = json.loads(run([LAB, "run", lab, "-n", ranks, *words]))
    assert report["results"] == one["results"]
    metrics = report["metrics"]
    assert (report["plan"]["ranks"], report["plan"]["nodes"]) == (ranks, 3)
    assert sum(r["bytes_served"] for r in metrics["ranks"]) == metrics["bytes_fetched"] > 0
    # Each rank sees the beginning; beyond that, the ends of records.
    stripes = (folder / "t.csv").stat().st_size / 50_000 + 1
    assert metrics["bytes_fetched"] < ranks * 300_000 + stripes * 5000 * 3


def test_what_lies_over_hosts_is_described_once(lab, folder, tmp_path):  # noqa: F811
    layout = put(folder / "t.csv", tmp_path / "l", 50_000, ["host1", "host2", "host3"])
    one = json.loads(run([STEAD, "describe", folder / "t.csv", "--format", "json"]))
    # A document of one rank, with what the others have.
    described = json.loads(run([LAB, "run", lab, STEAD, "describe", layout, "--format", "json"]))
    assert [p["node"] for p in described["parts"]] == ["host1", "host2", "host3"]
    for member in "format", "columns", "rows", "bytes":
        assert described["data"][member] == one[member]
    # A node of it has no rank.
    described = json.loads(run([LAB, "run", lab, "-n", 2, STEAD, "describe", layout, "--format", "json"]))
    assert described["data"] is None and "node host3 has parts of it, and no rank" in described["not_read"]
    for n in range(3):
        (tmp_path / f"out.{n}.bin").write_bytes(np.arange(9 + n).astype("f8").tobytes())
    ranks = [*launch("openmpi", 2), STEAD, "describe", tmp_path / "out.%r.bin", "--dtype", "f64", "--format", "json"]
    described = json.loads(run(ranks))
    assert described["bytes"] == 8 * (9 + 10 + 11) and len(described["files"]) == 3


def test_python_on_hosts_of_the_lab(lab, folder, tmp_path):  # noqa: F811
    names = ["rows", "mean:x", "std:x"]
    one = alone(folder / "t.csv", *asked(names))
    layout = put(folder / "t.csv", tmp_path / "l", 50_000, ["host1", "host2", "host3"])
    built = {"MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": str(BUILT / "openmpi" / "libstead_mpi.so")}
    given = [word for name in built for word in ("-x", name)]
    out = run([LAB, "run", lab, "-n", 3, *given, sys.executable, "-c", PYTHON, layout, *names], built)
    assert json.loads(out)["results"] == one["results"]


def test_a_host_of_the_lab_that_has_no_rank(lab, folder, tmp_path):  # noqa: F811
    layout = put(folder / "t.csv", tmp_path / "l", 50_000, ["host1", "host2", "host3"])
    job = [LAB, "run", lab, "-n", "2", STEAD, "run", layout, "-k", "rows"]
    done = subprocess.run(list(map(str, job)), capture_output=True, text=True, env=os.environ, timeout=LIMIT)
    assert done.returncode != 0 and "node host3 has parts of it, and no rank" in done.stderr, done.stderr


def test_a_layout_says_who_has_the_data(lab, folder, tmp_path):  # noqa: F811
    names = ["rows", "mean:x", "std:x"]
    one = alone(folder / "t.csv", *asked(names))
    layout = put(folder / "t.csv", tmp_path / "l", 50_000, ["host2", "host3"])
    for said in "layout", f"layout:{layout}":
        for place in "auto", "push", "pull":
            words = [STEAD, "run", layout, *asked(names), "--storage-hosts", said, "--place", place, "--format", "json"]
            report = json.loads(run([LAB, "run", lab, "-n", 4, *words]))
            assert report["results"] == one["results"]
            chosen = report["plan"]["place"]
            # The first host, of which there are two ranks, has no part.
            assert (chosen["wish"], chosen["storage_ranks"], chosen["compute_ranks"]) == (place, 2, 2)
    for file, says in ("l/t.csv.stead-layout.toml.x", "is none"), ("no.stead-layout.toml", "no.stead-layout.toml"):
        job = [LAB, "run", lab, STEAD, "run", tmp_path / file, "-k", "rows", "--storage-hosts", "layout"]
        done = subprocess.run(list(map(str, job)), capture_output=True, text=True, env=os.environ, timeout=LIMIT)
        told = re.findall(r"^stead: (.*)", done.stderr, re.M)
        assert done.returncode != 0 and len(told) == 1 and says in told[0], done.stderr


def test_a_part_that_its_host_may_not_read_is_named(lab, folder, tmp_path):  # noqa: F811
    layout = put(folder / "t.csv", tmp_path / "l", 50_000, ["host1", "host2", "host3"])
    (layout.parent / "part1").chmod(0)
    for more in [], ["--storage-hosts", "host[1-3]"]:
        job = [LAB, "run", lab, *bound(), STEAD, "run", layout, "-k", "rows", *more]
        done = subprocess.run(list(map(str, job)), capture_output=True, text=True, env=os.environ, timeout=LIMIT)
        assert done.returncode != 0 and done.stdout == ""
        told = re.findall(r"^stead: (.*)", done.stderr, re.M)
        assert len(told) == 1 and re.search(r"part1: rank 1 on host2: part 1 of 't.csv', .*: permission denied", told[0]), done.stderr
