"""`stead run` under mpirun, and runs of programs over a communicator: the results, outputs and errors of one rank."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import stead
from jobs import BUILT, HASTY, LIMIT, PATIENT, launch, run
from support import ROOT, command
from test_mpi import LAB, lab  # noqa: F401
from test_mpi4py import env  # noqa: F401

STEAD = BUILT / "openmpi" / "stead"
KERNELS = ["rows", "lines", "mean:x", "std:x", "quantile:x,q=0.5", "kmeans:x,y,k=3", "entropy", "grep:two,lines,max=7"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A table with quoted newlines, whole, compressed and in pieces, and an array."""
    path = tmp_path_factory.mktemp("run")
    random = np.random.default_rng(5)
    rows = []
    for i in range(20_000):
        note = '"two\nlines, %d"' % i if i % 5 == 0 else '"he said ""%d"""' % i if i % 7 == 0 else f"plain {i}"
        rows.append(f"{float(random.normal() * 10.0 ** random.integers(-9, 9))!r},{i % 97},g{i % 6},{note}\n")
    header = "x,y,group,note\n"
    (path / "t.csv").write_text(header + "".join(rows))
    (path / "t.csv.gz").write_bytes(gzip.compress((path / "t.csv").read_bytes()))
    (path / "parts").mkdir()
    for n in range(5):
        (path / "parts" / f"{n}.csv").write_text(header + "".join(rows[n * 4000 : (n + 1) * 4000]))
    np.save(path / "m.npy", random.normal(size=(5000, 6)))
    return path


def together(n: int, *words, wrapped: str = "", cwd=None, options=()) -> subprocess.CompletedProcess:
    """`wrapped` is a line of shell that runs "$@" for one rank. It may end by itself, whatever becomes of the others."""
    words = [STEAD, "run", *words]
    job = launch("openmpi", n, *options)
    if wrapped:
        job = launch("openmpi", n, "--enable-recovery", *options)
        words = ["sh", "-c", wrapped, "sh", *words]
    limited = ["timeout", "--kill-after=10", str(LIMIT), *map(str, [*job, *words])]
    given = os.environ | (HASTY if wrapped else PATIENT)
    return subprocess.run(limited, capture_output=True, text=True, env=given, stdin=subprocess.DEVNULL, cwd=cwd)


def alone(*words) -> dict:
    done = subprocess.run([command(), "run", *map(str, words), "--format", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def asked(kernels) -> list[str]:
    return [word for k in kernels for word in ("-k", k)]


def told(done) -> list[str]:
    return re.findall(r"^stead: (.*)", done.stderr, re.M)


@pytest.mark.parametrize("n, data, words", [
    (2, "t.csv", []),
    (4, "t.csv", ["--chunk", "4KiB", "--where", "y > 20 and group != 'g2'"]),
    (3, "t.csv", ["--by", "group"]),
    (3, "t.csv.gz", []),
    (4, "parts/*.csv", ["--lenient"]),
])
def test_all_ranks_make_one_report_with_the_results_of_one(folder, n, data, words):
    kernels = [k for k in KERNELS if "--by" not in words or k[:5] not in ("lines", "kmean", "grep:", "entro")]
    words = [folder / data, *asked(kernels), *words]
    done = together(n, *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    report, one = json.loads(done.stdout), alone(*words)
    assert report["results"] == one["results"]
    plan, metrics = report["plan"], report["metrics"]
    assert (plan["ranks"], plan["nodes"], metrics["rows"]) == (n, 1, one["metrics"]["rows"])
    assert len(metrics["ranks"]) == n and sum(r["bytes_read"] for r in metrics["ranks"]) == metrics["bytes_read"]
    assert metrics["bytes_sent"] == sum(r["bytes_sent"] for r in metrics["ranks"]) > 0
    assert "ranks" not in one["metrics"] and one["metrics"]["bytes_sent"] == 0


def test_what_was_recorded_of_a_stream(tmp_path, lab):  # noqa: F811
    """Each rank reads a part of the elements, and who is kept from them by storage hosts is told."""
    memory, files = tmp_path / "memory", tmp_path / "run"
    memory.mkdir()
    with stead.writer("sim", persist=files, dataspaces={"memory": memory}) as w:
        for n in range(7):
            with w.step():
                w.put("T", np.random.default_rng(n).normal(size=(50, 40)))
                w.put("k", np.full((50, 40), n, "i2"))
    stead.remove_stream("sim", force=True, dataspaces={"memory": memory})
    words = [f"{files}::T,k", *asked(["rows", "mean:T", "quantile:T,q=0.5", "kmeans:T,k,k=3"]), "--chunk", "8KiB"]
    done = together(3, *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["results"] == alone(*words)["results"] and report["plan"]["ranks"] == 3
    # By ranks on several hosts, of which some alone may have data.
    out = run([LAB, "run", lab, "-n", 3, "--map-by", "node", STEAD, "run", *words, "--format", "json"])
    assert json.loads(out)["results"] == report["results"]
    apart = subprocess.run([LAB, "run", lab, "-n", "3", "--map-by", "node", STEAD, "run", *map(str, words), "--storage-hosts", "host1"], capture_output=True, text=True, timeout=LIMIT)
    assert apart.returncode and "which all ranks read" in apart.stderr, apart


def test_an_array_and_its_page(folder):
    words = [folder / "m.npy", *asked(["rows", "gram:*", "kmeans:k=5"])]
    done = together(4, *words, "--explain")
    assert done.returncode == 0, done.stderr
    page = subprocess.run([command(), "run", *map(str, words)], capture_output=True, text=True, check=True).stdout
    assert done.stdout.startswith(page)
    assert re.search(r"ranks +4 on 1 node\(s\), each read .* sent between them", done.stdout), done.stdout


def test_outputs_are_those_of_one_rank(folder, tmp_path):
    kernels = lambda where: asked([f"normalize:x,zscore,out={where}.npy", f"grep:two,out={where}.txt"])
    alone(folder / "t.csv", *kernels(tmp_path / "one"))
    plot = tmp_path / "all.svg"
    done = together(3, folder / "t.csv", *kernels(tmp_path / "all"), "-k", "hist:y", "--plot", plot, "--chunk", "16KiB")
    assert done.returncode == 0, done.stderr
    for end in ("npy", "txt"):
        assert (tmp_path / f"all.{end}").read_bytes() == (tmp_path / f"one.{end}").read_bytes()
    assert b"<svg" in plot.read_bytes()
    assert len([*tmp_path.iterdir()]) == 5, "nothing else is left"


@pytest.mark.parametrize("words, code, says", [
    (["/nowhere", "-k", "rows"], 1, "/nowhere: no such file"),
    (["DATA", "-k", "mean:no"], 2, "no column"),
    (["DATA", "-k", "rows", "--memory", "9MiB"], 2, "too small for 3 ranks on one node"),
    (["DATA", "-k", "sum:x", "--column-type", "note=number", "-k", "sum:note"], 1, "t.csv:2: column 'note'"),
    (["DATA", "-k", "hist:x", "--plot", "/nowhere/p.svg"], 1, "/nowhere/p.svg: "),
])
def test_an_error_of_all_is_told_once_and_all_fail(folder, tmp_path, words, code, says):
    words = [folder / "t.csv" if word == "DATA" else word for word in words]
    codes = f'"$@"; c=$?; echo $c >{tmp_path}/$OMPI_COMM_WORLD_RANK; exit $c'
    done = together(3, *words, wrapped=codes)
    assert done.stdout == "" and len(told(done)) == 1 and says in told(done)[0], done.stderr
    assert [(tmp_path / str(rank)).read_text().strip() for rank in range(3)] == [str(code)] * 3


def test_what_one_rank_has_in_another_way_is_an_error_of_all(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "t.csv").write_text("x,y,group,note\n1,2,g1,a\n")
    cases = [
        ("t.csv -k rows", r"t\.csv: the file has \d+ bytes on rank 0 and 24 on rank 2", "1"),
        ("m.npy -k rows", r"m\.npy: rank 2 on \S+: no such file", "1"),
        (f"{folder}/t.csv -k grep:two,out=o.txt", r"o\.txt: rank 2 on \S+: another rank writes here", "2"),
        (f"{folder}/t.csv -k rows -k lines", r"rank 2 on \S+: ranks differ in a kernel|ranks differ in a kernel", "2"),
    ]
    for words, says, code in cases:
        other = words.replace(" -k lines", "")
        one = f"""if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then cd {elsewhere}; "$1" run {other}; else cd {folder}; "$1" run {words}; fi
            c=$?; echo $c >{tmp_path}/$OMPI_COMM_WORLD_RANK; exit $c"""
        done = together(3, wrapped=one)
        assert done.stdout == "" and len(told(done)) == 1 and re.search(says, told(done)[0]), done.stderr
        assert [(tmp_path / str(rank)).read_text().strip() for rank in range(3)] == [code] * 3
    assert not [*folder.glob("*o.txt*"), *elsewhere.glob("*o.txt*")]


def test_alone_and_without_mpi_each_does_all(folder):
    done = together(2, folder / "t.csv", "-k", "rows", "--alone", "--format", "csv")
    assert done.returncode == 0 and done.stdout.count("20000") == 2 and told(done) == []
    job = [*launch("openmpi", 2), command(), "run", str(folder / "t.csv"), "-k", "rows", "--format", "csv"]
    done = subprocess.run(job, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout.count("20000") == 2
    assert len(told(done)) == 1 and "2 ranks were started, and each of them does all of it, alone" in told(done)[0]


# Many passes, each with a step of all ranks.
LONG = ["-k", "normalize:x,out=o.npy"]
LONG += [word for seed in range(16) for word in ("-k", f"kmeans:x,y,k=4000,tol=0,delta=0,rounds=1000,init=random,seed={seed}")]


def begun(folder: Path) -> None:
    """Waits until the output of a run is under way."""
    end = time.monotonic() + LIMIT
    while not [*folder.glob(".o.npy*")]:
        assert time.monotonic() < end, "it does not begin"
        time.sleep(0.02)


@pytest.mark.parametrize("dead", [0, 2])
def test_a_rank_that_is_killed_ends_the_run_and_leaves_no_output(folder, tmp_path, dead):
    # All know the name of the output by then: what only a killed rank knows of stays.
    one = f"""if [ "$OMPI_COMM_WORLD_RANK" != {dead} ]; then "$@"; exit $?; fi
        "$@" & while [ -z "$(ls .o.npy* 2>/dev/null)" ]; do sleep 0.05; done; sleep 1; kill -9 $!; wait $!"""
    done = together(3, folder / "t.csv", *LONG, wrapped=one, cwd=tmp_path, options=("--mca", "btl", "vader,self"))
    assert done.stdout == ""
    share = rf"rank {dead} on \S+: .*; its share: about bytes \d+ to \d+ of \S+/t.csv"
    assert any(re.search(share, line) for line in told(done)), done.stderr
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_the_job_leaves_no_output(folder, tmp_path, how):
    job = ["timeout", "--kill-after=10", str(LIMIT), *launch("openmpi", 3), STEAD, "run", folder / "t.csv", *LONG]
    with subprocess.Popen([*map(str, job[3:])], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        begun(tmp_path)
        time.sleep(0.3)
        running.send_signal(how)
        out, _ = running.communicate(timeout=LIMIT)
    assert running.returncode != 0 and out == b""
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("program, n", [("run", 1), ("run", 3), ("run++", 3), ("run.py", 3)])
def test_programs_run_kernels_over_ranks(mpi, env, folder, program, n):  # noqa: F811
    words = [sys.executable, ROOT / "examples" / "mpi" / "run.py"] if program == "run.py" else [BUILT / mpi / program]
    out = run([*launch(mpi, n), *words, folder / "t.csv", *KERNELS], env)
    report = json.loads(out)
    assert report["results"] == alone(folder / "t.csv", *asked(KERNELS))["results"]
    assert report["plan"]["ranks"] == n


@pytest.mark.parametrize("program, data, kernel", [("run", "no.csv", "rows"), ("run++", "no.csv", "rows"), ("run.py", "t.csv", "mean:no")])
def test_what_programs_do_wrong_is_an_error_of_all_ranks(mpi, env, folder, program, data, kernel):  # noqa: F811
    words = [sys.executable, ROOT / "examples" / "mpi" / "run.py"] if program == "run.py" else [BUILT / mpi / program]
    assert run([*launch(mpi, 3), *words, folder / data, kernel], env, expect=1) == ""


def test_python_over_ranks(mpi, env, folder, tmp_path):  # noqa: F811
    assert run([*launch(mpi, 3), sys.executable, ROOT / "tests/mpi/run.py", folder, tmp_path], env).count("right") == 3


def test_hosts_of_the_lab(lab, folder, tmp_path):  # noqa: F811
    names = ["rows", "mean:x", "std:x", "grep:two,lines,max=7"]
    kernels = [*asked(names), "-k", f"normalize:x,out={tmp_path}/"]
    one = alone(folder / "t.csv", *kernels[:-1], kernels[-1] + "one.npy")
    words = [STEAD, "run", folder / "t.csv", *kernels[:-1], kernels[-1] + "all.npy", "--format", "json"]
    report = json.loads(run([LAB, "run", lab, "-n", 5, *words]))
    assert [report["results"][k] for k in names] == [one["results"][k] for k in names]
    assert (report["plan"]["ranks"], report["plan"]["nodes"]) == (5, 3)
    assert len({rank["host"] for rank in report["metrics"]["ranks"]}) == 3
    assert (tmp_path / "all.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()
    # States cross the network, and not the data.
    assert report["metrics"]["bytes_sent"] < (folder / "t.csv").stat().st_size / 4
