"""MPI_File_read_ex: what views show is computed where the data are, against NumPy over what MPI-IO's rules say that they show."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from jobs import BUILT, LIMIT, bound, launch, run
from support import repeats
from test_mpi import lab, over  # noqa: F401

# More than the head of the storage ranks would compute on alone.
N = 700_000
M = 1_200_000
BIG = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Doubles that are whole, so that sums are exact in any order, and others; and a log."""
    path = tmp_path_factory.mktemp("read_ex")
    random = np.random.default_rng(7)
    random.integers(-1000, 1000, N).astype("f8").tofile(path / "whole")
    random.integers(-9000, -8000, N).astype("f8").tofile(path / "other")
    random.normal(size=N).tofile(path / "normal")
    random.integers(-50_000, 50_000, M).astype("i4").tofile(path / "ints")
    random.random(40 * 30 * 20, dtype="f4").tofile(path / "volume")
    item = np.zeros(5000, np.dtype({"names": ["tag", "x", "n"], "formats": ["i1", "f8", "i4"], "offsets": [0, 8, 16], "itemsize": 24}))
    item["x"] = random.integers(0, 100, 5000)
    item["tag"], item["n"] = 77, -1
    item.tofile(path / "items")
    lines = [f"{i} {'ERROR' if i % 7 == 0 else 'fine'} it's, {i * i}\n" for i in range(200_000)]
    (path / "log").write_text("".join(lines))
    (path / "table.csv").write_text("x,y,g\n" + "".join(f"{i},{i % 7},g{i % 3}\n" for i in range(5000)))
    return path


def job(mpi: str, compute: int, storage: int, what: str, *words) -> None:
    """All compute ranks say that what they have got is right. Lines of several ranks may be mixed."""
    rights = bound() if what == "errors" else []
    out = run([*rights, *launch(mpi, compute + storage), BUILT / mpi / "asking", what, storage, *words])
    assert "".join(out.split()) == "right" * compute


def ask(mpi: str, compute: int, storage: int, path: Path, cases: list[tuple], folder: Path) -> dict[tuple[int, int], list[str]]:
    """What each compute rank gets for each case: (number of the case, rank) to words."""
    listed = folder / f"{path.name}.{mpi}.{compute}.{storage}.cases"
    listed.write_text("".join("\t".join(map(str, case)) + "\n" for case in cases))
    job(mpi, compute, storage, "cases", path, listed)
    answers = {}
    for rank in range(compute):
        for line in listed.with_name(f"{listed.name}.{rank}").read_text().splitlines():
            case, who, *rest = line.split(" ")
            answers[int(case), int(who)] = rest
    assert len(answers) == len(cases) * compute
    return answers


def numbers(answer: list[str]) -> np.ndarray:
    assert answer[0] != "error", " ".join(answer)
    values = np.array(answer[1:], dtype="f8")
    assert int(answer[0]) == len(values)
    return values


def text(answer: list[str]) -> bytes:
    assert answer[0] != "error", " ".join(answer)
    return bytes.fromhex(answer[1] if len(answer) > 1 else "")


# What was computed of whole files, by any ranks of any MPI: the same to the last bit.
BITS: dict[tuple[str, ...], list[str]] = {}


def same_bits(cases: list[tuple], answers: dict[int, list[str]]) -> None:
    for i, case in enumerate(cases):
        if not case[0].startswith("dealt"):
            assert BITS.setdefault(tuple(map(str, case)), answers[i]) == answers[i], case


@pytest.mark.parametrize("compute, storage", [(1, 0), (2, 1), (2, 2), (2, 3)])
def test_kernels_compute_what_a_view_shows(mpi, folder, compute, storage):
    repeats(mpi == "mpich" and (compute, storage) in ((1, 0), (2, 2)))
    there = np.fromfile(folder / "normal")
    block = 500
    dealt = there.reshape(-1, block)
    columns = there.reshape(-1, 8)
    cases = [
        (f"dealt:{block}", "sum", "double", 0, N, "d"),
        (f"dealt:{block}", "MPI_MAX", "double", 0, N, "d"),
        (f"dealt:{block}", "rows", "double", 100, 2000, "q"),
        ("column:8:3", "mean", "double", 7, 100, "d"),
        ("column:8:3", "std", "double", 0, N, "d"),
        ("all", "sum", "double*4", 0, N // 4, "d"),
        ("all", "MPI_SUM", "double*4", 0, N // 4, "d"),
        ("all", "gram", "double", 0, N, "d", "dims=4"),
        ("all", "hist", "double", 0, N, "q", "bins=20", "lo=-2", "hi=2"),
        ("all", "quantile:value,q=0.25;0.5,exact", "double", 0, N, "d"),
        ("all", "kmeans", "double*2", 0, N // 2, "d", "clusters=3", "threshold=0.01"),
        ("all", "sum", "double", 0, N, "d", "where=value > 0.5"),
        ("all", "count", "double", 8 * 5, 10, "q"),
        ("half:16", "max", "double", 0, N, "d"),
        ("all", "digits", "byte", 0, N * 8, "q"),
        ("all", "entropy", "byte", 0, N * 8, "d"),
        ("all", "mean", "double", 0, N, "t", "result=json", f"result_bytes={BIG}"),
    ]
    got = ask(mpi, compute, storage, folder / "normal", cases, folder)
    for rank in range(compute):
        each = {i: got[i, rank] for i in range(len(cases))}
        mine = dealt[rank::compute].ravel()
        assert numbers(each[0]) == math.fsum(mine)
        assert numbers(each[1]) == mine.max()
        assert numbers(each[2]) == len(mine[100:2100])
        assert np.isclose(numbers(each[3]), math.fsum(columns[7:107, 3]) / 100, rtol=1e-15)
        assert np.isclose(numbers(each[4]), columns[:, 3].std(ddof=1), rtol=1e-14)
        sums = [math.fsum(c) for c in there.reshape(-1, 4).T]
        assert list(numbers(each[5])) == sums
        assert list(numbers(each[6])) == sums
        assert np.allclose(numbers(each[7]).reshape(4, 4), there.reshape(-1, 4).T @ there.reshape(-1, 4), rtol=1e-10)
        assert list(numbers(each[8])) == list(np.histogram(there, 20, (-2, 2))[0])
        assert list(numbers(each[9])) == [np.quantile(there, q, method="inverted_cdf") for q in (0.25, 0.5)]
        assert numbers(each[10]).shape == (6,)
        assert numbers(each[11]) == math.fsum(there[there > 0.5])
        assert numbers(each[12]) == 10
        assert numbers(each[13]) == there[::2].max()
        counts = np.bincount(np.fromfile(folder / "normal", "u1"), minlength=256)
        assert list(numbers(each[14])) == list(counts[48:58])
        share = counts[counts > 0] / counts.sum()
        assert np.isclose(numbers(each[15]), -(share * np.log2(share)).sum(), rtol=1e-12)
        assert np.isclose(json.loads(text(each[16]))["value"], there.mean())
        same_bits(cases, each)


@pytest.mark.parametrize("compute, storage", [(2, 0), (1, 2), (1, 3)])
def test_operations_of_mpi_are_those_of_mpi(mpi, folder, compute, storage):
    repeats(mpi == "mpich" and (compute, storage) == (1, 2))
    there = np.fromfile(folder / "ints", "i4")
    some = there[10:110]
    with np.errstate(over="ignore"):
        expected = {
            "MPI_SUM": np.add.reduce(there, dtype="i4"), "MPI_MIN": there.min(), "MPI_MAX": there.max(),
            "MPI_BAND": np.bitwise_and.reduce(there), "MPI_BOR": np.bitwise_or.reduce(there), "MPI_BXOR": np.bitwise_xor.reduce(there),
            "MPI_LAND": int(there.all()), "MPI_LOR": int(there.any()), "MPI_LXOR": int(np.count_nonzero(there) % 2),
        }
        product = np.multiply.reduce(some, dtype="i4")
    cases = [("all", op, "int", 0, M, "i") for op in expected]
    cases += [("all", "MPI_PROD", "int", 40, 100, "i"), ("all", "MPI_MAX", "int*5", 0, M // 5, "i"), ("all", "sum", "int", 0, M, "d")]
    got = ask(mpi, compute, storage, folder / "ints", cases, folder)
    for rank in range(compute):
        for i, value in enumerate(expected.values()):
            assert numbers(got[i, rank]) == value, cases[i]
        n = len(expected)
        assert numbers(got[n, rank]) == product
        assert list(numbers(got[n + 1, rank])) == list(there.reshape(-1, 5).max(axis=0))
        assert numbers(got[n + 2, rank]) == there.sum(dtype="i8")


@pytest.mark.parametrize("compute, storage", [(1, 0), (2, 1), (1, 2)])
def test_text_records_tables_and_pictures(mpi, folder, compute, storage):
    repeats(mpi == "mpich" and (compute, storage) == (2, 1))
    log = (folder / "log").read_bytes()
    size = len(log)
    cases = [
        ("all", "lines", "char", 0, size, "q"),
        ("all", "grep", "char", 0, size, "q", "pattern=ERROR.*, 4"),
        ("all", "grep", "char", 0, size, "t", "pattern=it's, 9801$", "lines=9", f"result_bytes={BIG}"),
        ("all", "grep:it,invert", "char", 0, size, "q"),
        ("half:1000", "lines", "char", 300, 4000, "q"),
        ("all", "rows", "char", 0, size, "q", "item_length=10"),
        ("all", "rows", "char*16", 32, 50, "q"),
        ("all", "lines", "char", size - 5, 100, "q"),
        ("all", "grep:lines", "char", 0, size, "q"),
    ]
    got = ask(mpi, compute, storage, folder / "log", cases, folder)
    halves = b"".join(log[at : at + 500] for at in range(0, size, 1000))
    for rank in range(compute):
        assert numbers(got[0, rank]) == log.count(b"\n")
        lines = log.decode().splitlines()
        assert numbers(got[1, rank]) == sum("ERROR" in s and ", 4" in s for s in lines)
        assert text(got[2, rank]).decode() == "".join(f"{s}\n" for s in lines if s.endswith("it's, 9801"))
        assert numbers(got[3, rank]) == 0
        part = halves[300:4300]
        assert numbers(got[4, rank]) == part.count(b"\n") + (not part.endswith(b"\n"))
        assert numbers(got[5, rank]) == size // 10
        assert numbers(got[6, rank]) == 50
        assert numbers(got[7, rank]) == log[size - 5 :].count(b"\n")
        assert numbers(got[8, rank]) == 0

    table = folder / "table.csv"
    size = table.stat().st_size
    cases = [
        ("all", "mean", "char", 0, size, "d", "format=csv", "columns=x,y"),
        ("all", "sum:x", "char", 0, size, "t", "format=csv", "by=g", f"result_bytes={BIG}"),
        ("all", "sum", "char", 0, size, "d", "format=csv"),
    ]
    got = ask(mpi, compute, storage, table, cases, folder)
    x = np.arange(5000)
    for rank in range(compute):
        assert list(numbers(got[0, rank])) == [x.mean(), (x % 7).mean()]
        assert json.loads(text(got[1, rank])) == {f"g{i}": float(x[x % 3 == i].sum()) for i in range(3)}
        assert got[2, rank][0] == "error" and "result_bytes" in " ".join(got[2, rank])

    items = [("item", "sum", "double", 0, 5000, "d"), ("item", "MPI_MIN", "double", 10, 20, "d"), ("all", "rows", "byte*24", 0, 5000, "q")]
    got = ask(mpi, compute, storage, folder / "items", items, folder)
    there = np.fromfile(folder / "items", "u1").reshape(-1, 24)[:, 8:16].copy().view("f8").ravel()
    for rank in range(compute):
        assert numbers(got[0, rank]) == there.sum()
        assert numbers(got[1, rank]) == there[10:30].min()
        assert numbers(got[2, rank]) == 5000

    picture = [("all", "render:width=64,height=48", "float", 0, 24_000, "t", "shape=40x30x20", f"result_bytes={BIG}")]
    got = ask(mpi, compute, storage, folder / "volume", picture, folder)
    for rank in range(compute):
        png = text(got[0, rank])
        assert png[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(png[16:20], "big") == 64 and int.from_bytes(png[20:24], "big") == 48
    assert list(folder.glob("*.png")) == []


@pytest.mark.parametrize("compute, storage", [(1, 0), (3, 0), (1, 2), (1, 3)])
@pytest.mark.parametrize("what", ["operations", "pointers", "errors", "empty", "forget", "threads"])
def test_programs(mpi, folder, what, compute, storage):
    repeats(mpi == "mpich" and (compute, storage) in ((1, 0), (1, 2)))
    more = [folder / "other"] if what == "pointers" else []
    job(mpi, compute, storage, what, folder / "whole", *more)


@pytest.mark.parametrize("storage", [1, 2], ids=["the head", "another one"])
def test_a_storage_rank_that_is_killed_is_an_error_of_mpi(folder, storage):
    program = BUILT / "openmpi" / "asking"
    if not program.exists():
        pytest.skip("openmpi is not installed")
    out = run([*launch("openmpi", 1 + storage, "--enable-recovery"), program, "killed", storage, folder / "whole"], expect=None)
    assert out.split() == ["right"]


def test_fortran_has_files_pointers_and_operations_of_its_own(mpi, folder):
    if not (BUILT / mpi / "asking-fortran").exists():
        pytest.skip("there is no Fortran")
    assert run([*launch(mpi, 2), BUILT / mpi / "asking-fortran", folder / "normal"]).split() == ["right"] * 2


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_that_do_not_agree_are_all_told(mpi, folder, ranks):
    job(mpi, ranks, 0, "disagree", folder / "whole")


@pytest.mark.parametrize("what", [["known"], ["large"], ["refused"], ["memory"], *(["random", seed, 400] for seed in range(4))])
def test_datatypes_are_what_mpi_reads_through_them(mpi, tmp_path, what):
    what, *more = what
    assert run([*launch(mpi, 1), BUILT / mpi / "types", what, tmp_path / "f", *more]).strip() == "right"


@pytest.mark.parametrize("what", ["operations", "pointers", "errors", "empty", "threads"])
def test_programs_under_sanitizers(folder, what):
    built = BUILT / "openmpi"
    if not (built / "asking-checked").exists():
        pytest.skip("openmpi is not installed")
    more = [folder / "other"] if what == "pointers" else []
    # Open MPI leaks on its own account.
    env = {"ASAN_OPTIONS": "detect_leaks=0"}
    out = run([*launch("openmpi", 3), built / "asking-checked", what, 1, folder / "whole", *more], env)
    assert "".join(out.split()) == "rightright"
    if what == "errors":
        assert run([*launch("openmpi", 1), built / "types-checked", "random", folder / "types", 9, 200], env).strip() == "right"


@pytest.mark.parametrize("ranks, hosts", [(3, []), (2, ["HERE"])])
def test_examples(mpi, folder, ranks, hosts):
    """On one host all ranks are where the data are, and compute themselves."""
    here = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()
    hosts = [here for _ in hosts]
    there = np.fromfile(folder / "whole")
    out = run([*launch(mpi, ranks), BUILT / mpi / "read_ex", folder / "whole", *hosts])
    assert out.strip() == f"sum: {there.sum():.17g}"
    out = run([*launch(mpi, ranks), BUILT / mpi / "read_ex++", folder / "log", "ERROR", *hosts])
    assert out.strip() == f"lines: {(folder / 'log').read_bytes().count(b'ERROR')}"
    if not (BUILT / mpi / "read_ex-fortran").exists():
        pytest.skip("there is no Fortran")
    there = np.fromfile(folder / "normal")
    out = run([*launch(mpi, ranks), BUILT / mpi / "read_ex-fortran", folder / "normal", *hosts])
    assert out.split() == ["counts:", *map(str, np.histogram(there, 8, (0, 1))[0])]
    out = run([*launch(mpi, ranks), BUILT / mpi / "read_ex-f08", folder / "normal", *hosts])
    name, *means = out.split()
    assert name == "means:" and np.allclose(list(map(float, means)), [math.fsum(c) / len(c) for c in there.reshape(-1, 4).T], rtol=1e-14)


def test_storage_ranks_are_those_on_storage_hosts(lab, mpi, folder):
    there = np.fromfile(folder / "whole")
    for hosts in ("host3", "host[1-2]"):
        out = run([*over(lab, mpi), BUILT / mpi / "read_ex", folder / "whole", hosts])
        assert out.strip() == f"sum: {there.sum():.17g}"


def test_storage_ranks_are_those_on_the_nodes_of_a_layout(lab, mpi, folder, tmp_path):
    layout = tmp_path / "any.stead-layout.toml"
    layout.write_text('version = 1\nname = "any"\nlength = 1\nstripe = 1\nparts = [{ node = "host2", path = "/any", length = 1 }]\n')
    out = run([*over(lab, mpi), BUILT / mpi / "read_ex", folder / "whole", f"layout:{layout}"])
    assert out.strip() == f"sum: {np.fromfile(folder / 'whole').sum():.17g}"


def test_hosts_without_ranks_are_told(mpi, folder):
    command = [*launch(mpi, 2), BUILT / mpi / "read_ex", folder / "whole", "nosuchhost7"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    assert done.returncode != 0 and "sum" not in done.stdout
    assert "no rank is on a storage host: nosuchhost7 was named" in done.stderr


def test_a_program_that_does_not_know_of_it_goes_on_as_before(mpi, folder):
    """Named in LD_PRELOAD, it stands before MPI."""
    preload = f"LD_PRELOAD={BUILT / mpi / 'libstead_mpi_io.so'}"
    out = run([*launch(mpi, 2), "env", preload, BUILT / mpi / "read", folder / "log"])
    assert out.strip() == f"sum of the bytes: {sum((folder / 'log').read_bytes())}"


def test_other_tools_before_mpi_go_on_to_work(mpi, folder):
    """They see what the program opens and closes, whoever is first, and files are known."""
    ranks = launch(mpi, 2)
    for first in ("", f"{BUILT / mpi / 'libstead_mpi_io.so'} "):
        preload = f"LD_PRELOAD={first}{BUILT / mpi / 'libtool.so'}"
        out = run([*ranks, "env", preload, BUILT / mpi / "asking", "pointers", 0, folder / "whole", folder / "other"])
        # One is opened by stead_MPI_File_open, which does not go through MPI_File_open.
        assert out.count("right") == 2 and out.count("opened 11 closed 12") == 2, out
