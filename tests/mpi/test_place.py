"""Hosts that have data and hosts that ask for them: the results of one host, wherever it is computed; and the profile of a job."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from jobs import run
from test_mpi import LAB, lab  # noqa: F401
from test_run import STEAD, alone, asked, folder, together  # noqa: F401

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


def test_what_moves_follows_from_the_place(lab, folder):  # noqa: F811
    size = (folder / "m.npy").stat().st_size
    report = {
        place: json.loads(run([LAB, "run", lab, "-n", "3", STEAD, "run", folder / "m.npy", "-k", "gram:*", "--storage-hosts",
                               "host1", "--place", place, "--format", "json"]))
        for place in ["push", "pull"]
    }
    moved = {place: r["metrics"]["bytes_fetched"] for place, r in report.items()}
    # Each rank looks at the beginning.
    assert moved["push"] <= 2 * 256 << 10 and size <= moved["pull"] < size + (1 << 20)
    hosts = {place: [m["bytes_read"] for m in r["metrics"]["ranks"]] for place, r in report.items()}
    assert hosts["push"][1:] == [0, 0] and hosts["pull"][0] == 0
    assert report["push"]["results"] == report["pull"]["results"]


def test_a_host_is_named_that_is_none(lab, folder):  # noqa: F811
    job = [LAB, "run", lab, STEAD, "run", folder / "t.csv", "-k", "rows", "--storage-hosts", "host7"]
    done = subprocess.run(list(map(str, job)), capture_output=True, text=True, env=os.environ, timeout=100)
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
    # They have 1 Gb/s; the first burst goes faster.
    assert all(5e7 < rate < 5e8 for rate in links.values()), links
    assert list(tmp_path.iterdir()) == [output]
    # And it is used.
    words = [STEAD, "run", folder / "m.npy", "-k", "gram:*", "--storage-hosts", "host1", "--format", "json"]
    report = json.loads(run([LAB, "run", lab, "-x", f"STEAD_PROFILE={output}", *words]))
    assert report["plan"]["place"]["profile"] == str(output) and report["plan"]["place"]["assumed"] == []


def test_ranks_of_one_host_measure_it_together(tmp_path: Path):
    output = tmp_path / "profile.toml"
    run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", "2", STEAD, "calibrate", tmp_path, "--seconds", "0.5", "-o", output])
    profile = tomllib.loads(output.read_text())
    assert len(profile["sites"]) == 1 and "links" not in profile or profile["links"] == []
