"""Hosts that have data and hosts that ask for them: the results of one host, wherever it is computed; and the profile of a job."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from jobs import HASTY, LIMIT, launch, run
from support import in_all, repeats
from test_lab import tell
from test_mpi import LAB, lab, over  # noqa: F401
from test_mpi4py import env  # noqa: F401
from test_put import CONFIGURED, sent
from test_run import STEAD, alone, asked, folder  # noqa: F401

KERNELS = ["rows", "mean:x", "std:x", "grep:two,lines,max=7", "kmeans:x,y,k=3"]


def placed(lab, data, place, *words, ranks=3, storage="host1") -> dict:  # noqa: F811
    command = [STEAD, "run", data, *asked(KERNELS), "--storage-hosts", storage, "--place", place]
    return json.loads(run([LAB, "run", lab, "-n", ranks, "-x", "STEAD_PROFILE=", *command, *words, "--format", "json"]))


@pytest.mark.parametrize("place", ["push", "pull", "split", "auto"])
def test_the_same_bits_in_every_place(lab, folder, place):  # noqa: F811
    one = alone(folder / "t.csv", *asked(KERNELS))
    for ranks, storage in [(3, "host1"), (5, "host[2-3]")]:
        report = placed(lab, folder / "t.csv", place, ranks=ranks, storage=storage)
        assert report["results"] == one["results"]
        said = report["plan"]["place"]
        assert said["wish"] == place and said["place"] in ("push", "pull", "split")
        assert said["storage_ranks"] + said["compute_ranks"] == ranks and said["profile"] is None
        assert {a["place"] for a in said["alternatives"]} == {"push", "pull", "split"}
        assert all(a["seconds"] > 0 for a in said["alternatives"]) and said["took"]["seconds"] > 0


COLUMNS = ["rows", "mean:x", "std:x", "quantile:y", "kmeans:x,y,k=3"]


def test_columns_are_sent_in_place_of_bytes(lab, folder):  # noqa: F811
    one = alone(folder / "t.csv", *asked(COLUMNS))
    for ranks, storage, words in [(3, "host1", []), (5, "host[2-3]", []), (4, "host[1,3]", ["--chunk", "64KiB"])]:
        command = [STEAD, "run", folder / "t.csv", *asked(COLUMNS), "--storage-hosts", storage, "--place", "vector", *words]
        report = json.loads(run([LAB, "run", lab, "-n", ranks, "-x", "STEAD_PROFILE=", *command, "--format", "json"]))
        assert report["results"] == one["results"] and report["metrics"]["rows"] == one["metrics"]["rows"]
        said = report["plan"]["place"]
        assert said["wish"] == said["place"] == "vector" and said["left_out"] == []
        assert {a["place"] for a in said["alternatives"]} == {"push", "pull", "vector", "split"}
        moved, rows = report["metrics"]["bytes_fetched"], report["metrics"]["rows"]
        # Two columns once, their heads, and the start of the file.
        assert 16 * rows <= moved < 17 * rows + (2 << 20), (moved, rows)


def test_bytes_are_no_columns(lab, folder):  # noqa: F811
    job = [LAB, "run", lab, STEAD, "run", folder / "t.csv", "-k", "entropy", "--storage-hosts", "host1", "--place"]
    done = subprocess.run(list(map(str, [*job, "vector"])), capture_output=True, text=True, env=os.environ, timeout=LIMIT)
    assert done.returncode != 0 and done.stderr.count("the place 'vector' cannot be had: the kernels look at the bytes") == 1, done.stderr
    report = json.loads(run([*job, "auto", "--format", "json"]))
    assert [left["place"] for left in report["plan"]["place"]["left_out"]] == ["vector"]


def test_what_moves_follows_from_the_place(lab, folder):  # noqa: F811
    size = (folder / "m.npy").stat().st_size
    report = {
        place: json.loads(run([LAB, "run", lab, "-n", "3", STEAD, "run", folder / "m.npy", "-k", "gram:*", "--storage-hosts",
                               "host1", "--place", place, "--format", "json"]))
        for place in ["push", "pull"]
    }
    moved = {place: r["metrics"]["bytes_fetched"] for place, r in report.items()}
    # Each rank looks at the header.
    assert moved["push"] <= 2 * 1024 and size <= moved["pull"] < size + (1 << 20)
    hosts = {place: [m["bytes_read"] for m in r["metrics"]["ranks"]] for place, r in report.items()}
    assert hosts["push"][1:] == [0, 0] and hosts["pull"][0] == 0
    assert report["push"]["results"] == report["pull"]["results"]


def test_what_the_links_count(lab, tmp_path):  # noqa: F811
    path, size = tmp_path / "n.bin", 48 << 20
    with path.open("wb") as file:
        for i in range(48):
            file.write(bytes([i % 64] * (1 << 20)))
    words = [path, "--type", "raw", "--dtype", "u8", "-k", "sum:0", "-k", "hist:0,bins=64,min=0,max=64"]
    moved, results = {}, [alone(*words)["results"]]
    for place in "push", "pull", "split", "auto":
        before = sent(lab)
        report = json.loads(run([LAB, "run", lab, STEAD, "run", *words, "--storage-hosts", "host1", "--place", place, "--format", "json"]))
        moved[place] = sent(lab) - before
        results.append(report["results"])
        took = report["plan"]["place"]["took"]
        assert took["moved_bytes"] <= moved[place] and 0 <= took["asked_share"] <= 1
    assert all(one == results[0] for one in results)
    # Nothing but the start of MPI, the beginning of the file, and results.
    assert moved["push"] < size / 16 and size <= moved["pull"] < 1.25 * size, moved
    assert moved["split"] < 1.25 * size and moved["auto"] < 1.25 * size


PYTHON = """
import json, sys, stead
from mpi4py import MPI
path, storage, place, *kernels = sys.argv[1:]
comm = MPI.COMM_WORLD
data = stead.open(path, comm=comm, storage_hosts=storage)
report = data.run(*kernels, comm=comm, place=place)
assert len(set(comm.allgather(json.dumps(json.loads(report.to_json())["results"])))) == 1
if comm.rank == 0:
    print(report.to_json())
"""


@pytest.mark.parametrize("place", ["push", "pull", "split", "auto"])
def test_python_on_hosts(lab, mpi, env, folder, place):  # noqa: F811
    repeats(mpi == "mpich" and place in ("push", "pull"))
    given = ["env", *(f"{name}={value}" for name, value in env.items())]
    words = [*given, sys.executable, "-c", PYTHON, folder / "t.csv", "host1", place, *KERNELS]
    report = json.loads(run([*over(lab, mpi), *words]))
    assert report["results"] == alone(folder / "t.csv", *asked(KERNELS))["results"]
    said = report["plan"]["place"]
    assert said["wish"] == place and (said["storage_ranks"], said["compute_ranks"]) == (1, 2)


def test_python_gets_columns(lab, mpi, env, folder):  # noqa: F811
    given = ["env", *(f"{name}={value}" for name, value in env.items())]
    words = [*given, sys.executable, "-c", PYTHON, folder / "t.csv", "host1", "vector", *COLUMNS]
    report = json.loads(run([*over(lab, mpi), *words]))
    assert report["results"] == alone(folder / "t.csv", *asked(COLUMNS))["results"]
    assert report["plan"]["place"]["place"] == "vector"


def volume(side: int) -> np.ndarray:
    """Blobs, as in bench/active.py."""
    random, axis = np.random.default_rng(3), (np.arange(side) + 0.5) / side
    values = np.zeros((side, side, side), "f4")
    for x, y, z, size in random.uniform(0, 1, (20, 4)):
        square = (axis[:, None, None] - x) ** 2 + (axis[:, None] - y) ** 2 + (axis - z) ** 2
        values += np.maximum(0, 1 - square / (0.02 + 0.1 * size) ** 2).astype("f4")
    return values


MOVED = {
    "kmeans": (lambda: np.random.default_rng(4).normal(size=(250_000, 10)), "4MiB", "kmeans:k=20,init=first,tol=0,rounds=10"),
    "render": (lambda: volume(176), 6 * 16 * 176 * 176 * 4, "render:width=176,height=176,shading=none,min=0,max=1,out={out}"),
}


@pytest.mark.parametrize("what", MOVED)
def test_states_and_pictures_are_little_of_the_data(lab, mpi, env, tmp_path, what):  # noqa: F811
    make, stripe, kernel = MOVED[what]
    (tmp_path / "stead.toml").write_text(f'[dataspace.nvme]\npath = "{tmp_path}/${{NODE}}"\n')
    for folder in [shared := tmp_path / "shared", tmp_path / "host2", tmp_path / "host3"]:
        folder.mkdir()
    np.save(shared / "d.npy", make())
    size = (shared / "d.npy").stat().st_size
    one = alone(shared / "d.npy", *asked([kernel.format(out=shared / "one.png")]))
    on = lambda *words: run([*over(lab, mpi), "-n", 6, "sh", "-c", CONFIGURED.format(tmp_path), "sh", *words])  # noqa: E731
    # The first rank asks, and writes the picture.
    run([LAB, "run", lab, "sh", "-c", CONFIGURED.format(tmp_path), "sh", STEAD, "put", shared / "d.npy", "--over",
         "nvme@host[2-3]", "--stripe", stripe])
    given = ["env", *(f"{name}={value}" for name, value in env.items())]
    words = [*given, sys.executable, "-c", PYTHON, shared / "d.npy.stead-layout.toml", "host[2-3]", "push"]
    report = json.loads(on(*words, kernel.format(out=shared / "many.png")))
    metrics = report["metrics"]
    assert (metrics["bytes_sent"] + metrics["bytes_fetched"]) / size < 0.03, metrics
    assert metrics["bytes_sent"] > 0 and (what == "kmeans" or metrics["bytes_fetched"] > 176 * 176 * 4)
    if what == "kmeans":
        assert report["results"] == one["results"]
    else:
        assert (shared / "many.png").read_bytes() == (shared / "one.png").read_bytes()


@pytest.mark.skipif(not shutil.which("stress-ng"), reason="stress-ng is not installed")
@pytest.mark.parametrize("place", ["split", "auto"])
def test_a_device_that_is_slow_and_hosts_that_are_busy(lab, folder, place):  # noqa: F811
    one = alone(folder / "t.csv", *asked(KERNELS))
    try:
        tell("slow", lab, 1, 6.8)
        assert placed(lab, folder / "t.csv", place)["results"] == one["results"]
        tell("stress", lab, 2, 4)
        tell("stress", lab, 3, 4)
        report = placed(lab, folder / "t.csv", place)
        assert report["results"] == one["results"]
        tell("slow", lab, 1, 1)
        assert placed(lab, folder / "t.csv", place)["results"] == one["results"]
    finally:
        tell("slow", lab, 1, 1)
        tell("calm", lab, 2)
        tell("calm", lab, 3)


@pytest.mark.skipif(not shutil.which("stress-ng"), reason="stress-ng is not installed")
def test_a_host_that_becomes_busy_while_work_is_split(lab, tmp_path):  # noqa: F811
    path, kernel = tmp_path / "m.npy", "kmeans:k=100,init=first,tol=0,delta=0,rounds=300"
    np.save(path, np.random.default_rng(4).normal(size=(100_000, 10)))
    one = alone(path, "-k", kernel)
    words = [path, "-k", kernel, "--chunk", "256KiB", "--threads", 1]
    wrapped = f'h={tmp_path}/$(hostname); echo $$ >$h.part; mv $h.part $h; exec "$@"'
    command = [STEAD, "run", *words, "--storage-hosts", "host1", "--place", "split", "--format", "json"]
    job = ["timeout", "--kill-after=10", LIMIT, LAB, "run", lab, "-x", "STEAD_PROFILE=", "sh", "-c", wrapped, "sh", *command]
    pid, end = tmp_path / "host2", time.monotonic() + LIMIT
    with subprocess.Popen([*map(str, job)], stdout=subprocess.PIPE, text=True) as under_way:
        try:
            while not pid.exists() or worked(int(pid.read_text())) < 0.5:
                assert under_way.poll() is None and time.monotonic() < end
                time.sleep(0.01)
            tell("stress", lab, 2, 4)
            assert under_way.poll() is None, "it was over before"
            out = under_way.communicate(timeout=LIMIT)[0]
        finally:
            tell("calm", lab, 2)
    assert under_way.returncode == 0
    report = json.loads(out)
    assert report["results"] == one["results"]
    assert report["plan"]["place"]["place"] == "split"


def worked(pid: int) -> float:
    """Seconds of processors that a process has had."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("place, host", [("push", 2), ("pull", 3), *(pytest.param(*more, marks=in_all) for more in (("pull", 2), ("split", 2), ("vector", 2), ("push", 1)))])
def test_a_rank_that_is_killed_is_named(lab, tmp_path, place, host):  # noqa: F811
    """The second host has the data, the others ask."""
    path = tmp_path / "zeros.bin"
    path.touch()
    os.truncate(path, 2 << 30)
    # Places in the list of hosts are ranks: the storage rank is not the first one.
    wrapped = f'h={tmp_path}/$(hostname); echo $$ >$h.part; mv $h.part $h; exec "$@"'
    kernels = ["quantile:0"] if place == "vector" else ["quantile:0", "entropy"]
    words = [STEAD, "run", path, "--type", "raw", "--dtype", "f64", *asked(kernels), "--threads", 1, "--storage-hosts", "host2",
             "--place", place]
    job = [LAB, "run", lab, "--enable-recovery", "-x", "STEAD_PEER_SILENCE_S", "sh", "-c", wrapped, "sh", *words]
    given = os.environ | HASTY
    with subprocess.Popen([*map(str, ["timeout", "--kill-after=10", LIMIT, *job])], env=given, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as under_way:
        end, pids = time.monotonic() + LIMIT, [tmp_path / f"host{n}" for n in (1, 2, 3)]
        while not all(pid.exists() for pid in pids):
            assert under_way.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        before, process = sent(lab), int(pids[1].read_text())
        # It serves, or computes, for longer than MPI takes to start.
        while sent(lab) - before < 64 << 20 if place in ("pull", "vector") else worked(process) < 1.5:
            assert under_way.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        os.kill(int(pids[host - 1].read_text()), signal.SIGKILL)
        out, err = under_way.communicate(timeout=LIMIT)
    assert out == "", (out, err)
    lines = re.findall(r"^stead: (.*)", err, re.M)
    # With what it had, or the bytes that somebody waits for.
    share = "its share: none of the data" if (place, host) == ("push", 1) else r"bytes \d+ to \d+ of "
    # Open MPI may be caught for good in a message to an asking rank that goes, and the storage rank is lost to the others with it.
    lost = [host] if host == 2 or place == "push" else [host, 2]
    named = any(re.search(rf"rank {n - 1} on host{n}: .*{share}", line) for line in lines for n in lost)
    # Who asks may be caught in a message to the one that went: it says so, and is the one whom the others miss.
    assert named or any("MPI has not returned from a call" in line for line in lines), err


def test_a_host_is_named_that_is_none(lab, folder):  # noqa: F811
    job = [LAB, "run", lab, STEAD, "run", folder / "t.csv", "-k", "rows", "--storage-hosts", "host7"]
    done = subprocess.run(list(map(str, job)), capture_output=True, text=True, env=os.environ, timeout=LIMIT)
    assert done.returncode != 0 and "host7" in done.stderr, done.stderr


def test_alone_there_is_nothing_to_choose(folder):  # noqa: F811
    done = subprocess.run([STEAD, "run", folder / "t.csv", "-k", "rows", "--storage-hosts", "x"], capture_output=True, text=True)
    assert done.returncode == 2 and "this one is alone" in done.stderr


def test_hosts_and_links_are_measured(lab, folder, tmp_path):  # noqa: F811
    output = tmp_path / "profile.toml"
    said = json.loads(run([LAB, "run", lab, "-n", "4", STEAD, "calibrate", tmp_path, "--seconds", "6", "--output", output,
                           "--format", "json"]))
    profile = tomllib.loads(output.read_text())
    assert said["profile"]["sites"] == profile["sites"] and said["path"] == str(output)
    hosts = {site["name"] for site in profile["sites"]}
    assert hosts == {"host1", "host2", "host3"} and {t["site"] for t in profile["tiers"]} == hosts
    links = {(link["from"], link["to"]): link["bytes_per_s"] for link in profile["links"]}
    assert set(links) == {(a, b) for a in hosts for b in hosts if a != b}
    # They have 1 Gb/s; the first burst goes faster, and what else runs here at the time makes it slower.
    assert all(2e6 < rate < 5e8 for rate in links.values()), links
    assert list(tmp_path.iterdir()) == [output]
    # And it is used.
    words = [STEAD, "run", folder / "m.npy", "-k", "gram:*", "--storage-hosts", "host1", "--format", "json"]
    report = json.loads(run([LAB, "run", lab, "-x", f"STEAD_PROFILE={output}", *words]))
    assert report["plan"]["place"]["profile"] == str(output) and report["plan"]["place"]["assumed"] == []


def test_ranks_of_one_host_measure_it_together(tmp_path: Path):
    output = tmp_path / "profile.toml"
    run([*launch("openmpi", 2), STEAD, "calibrate", tmp_path, "--seconds", "0.5", "-o", output])
    profile = tomllib.loads(output.read_text())
    assert len(profile["sites"]) == 1 and "links" not in profile or profile["links"] == []
