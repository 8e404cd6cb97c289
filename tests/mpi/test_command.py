"""`stead read` under mpirun: one report of all ranks, one error of all ranks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile

import pytest
from jobs import BUILT, HASTY, LENGTH, LIMIT, PATIENT, launch
from support import command

STEAD = BUILT / "openmpi" / "stead"


def stead(n: int, *words, program=STEAD, wrapped: str = "") -> subprocess.CompletedProcess:
    """`wrapped` is a line of shell that runs "$@" for one rank. It may end by itself, whatever becomes of the others."""
    words = [program, "read", *words]
    job = launch("openmpi", n)
    if wrapped:
        job = launch("openmpi", n, "--enable-recovery")
        words = ["sh", "-c", wrapped, "sh", *words]
    job += words
    env = os.environ | (HASTY if wrapped else PATIENT)
    limited = ["timeout", "--kill-after=10", str(LIMIT), *map(str, job)]
    return subprocess.run(limited, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("engine", ["auto", "pread"])
def test_all_ranks_make_one_report(file, n, engine):
    done = stead(n, file, "--tasks", "64", "--engine", engine, "--format", "json", "--compare", "--explain")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["ranks"], report["nodes"], report["bytes"], report["requests"]) == (n, 1, LENGTH, 64)
    if engine == "pread":
        assert report["bytes_fetched"] == LENGTH
    assert report["alone"]["ratio"] > 0
    alone = subprocess.run([command(), "read", file, "--format", "json"], capture_output=True, text=True, check=True)
    alone = json.loads(alone.stdout)
    assert report["sum"] == alone["sum"] and "ranks" not in alone


def test_the_page_says_how_many_ranks_there_were(file):
    asked = ["--tasks", "1000", "--threads", "1", "--scattered", "--range", "1000-5000003", "--engine", "pread", "--explain"]
    done = stead(3, file, *asked)
    assert done.returncode == 0, done.stderr
    assert "by 1,000 task(s) on 1 thread(s) of each of 3 ranks on 1 node(s)" in done.stdout
    assert done.stdout.count("took ") == 1 and "blocks of the node  shared by 3 ranks" in done.stdout


@pytest.mark.parametrize("words, code, told", [
    (["/nowhere"], 1, "/nowhere: cannot open"),
    (["FILE", "--range", "9GiB-10GiB"], 2, "do not lie within the file"),
])
def test_an_error_of_all_is_told_once_and_all_fail(file, tmp_path, words, code, told):
    words = [file if word == "FILE" else word for word in words]
    codes = f'"$@"; c=$?; echo $c >{tmp_path}/$OMPI_COMM_WORLD_RANK; exit $c'
    for done in (stead(3, *words, wrapped=codes), stead(3, *words)):
        assert done.stdout == ""
        assert len(re.findall(r"^stead: ", done.stderr, re.M)) == 1 and told in done.stderr, done.stderr
    assert done.returncode != 0
    assert [(tmp_path / str(rank)).read_text().strip() for rank in range(3)] == [str(code)] * 3


def test_an_error_of_one_rank_is_that_of_all(file, tmp_path):
    (tmp_path / file.name).write_bytes(b"x" * 1000)
    elsewhere = f"cd {tmp_path}; file={file.name}"
    cases = [
        # Another file of that name, and another name.
        (f"cd {file.parent}; file={file.name}", r"rank 2: the file has \d+ bytes here and \d+ on rank", "1"),
        (f"file={file}", r"rank \d: ranks open different files", "2"),
    ]
    for there, told, code in cases:
        one = f"""if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then {elsewhere}; else {there}; fi
            "$1" read $file; c=$?; echo $c >{tmp_path}/$OMPI_COMM_WORLD_RANK; exit $c"""
        done = stead(3, wrapped=one)
        assert done.stdout == ""
        assert len(re.findall(r"^stead: ", done.stderr, re.M)) == 1, done.stderr
        assert re.search(told, done.stderr), done.stderr
        assert all((tmp_path / str(rank)).read_text().strip() == code for rank in range(3))


def test_a_stead_without_mpi_says_that_each_rank_is_alone(file):
    done = stead(3, file, "--format", "json", program=command())
    assert done.returncode == 0
    assert done.stderr.count("3 ranks were started, and each of them does all of it, alone") == 1
    assert "make install MPI=1" in done.stderr


def test_a_launcher_of_another_mpi_is_told(file):
    if subprocess.run(["which", "mpirun.mpich"], capture_output=True).returncode:
        pytest.skip("mpich is not installed")
    # What the MPI of this stead finds out by itself, without its own launcher.
    few = ["env", "OMPI_MCA_btl_tcp_if_include=lo", "UCX_NET_DEVICES=lo"]
    # Open MPI has one folder for all jobs of a user otherwise, and one of two that make it at the same time fails now and then.
    own = ["sh", "-c", 'OMPI_MCA_orte_tmpdir_base=$(mktemp -d "$0/XXXXXX") exec "$@"']
    with tempfile.TemporaryDirectory(prefix="mpi") as base:
        job = ["timeout", str(LIMIT), *few, "mpirun.mpich", "-n", "2", *own, base, STEAD, "read", file]
        done = subprocess.run(job, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("2 ranks were started, and the MPI of this stead sees 1") == 1
