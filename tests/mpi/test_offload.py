"""Ranks that ask others, which are where the data are, in Python through mpi4py and libstead_mpi."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from jobs import BUILT, asleep, launch, run
from support import ROOT
from test_mpi4py import env, job

__all__ = ["env"]

PROGRAM = ROOT / "tests" / "mpi" / "offload.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> tuple[Path, Path]:
    """A table, and doubles of more bytes than one rank runs over alone."""
    folder = tmp_path_factory.mktemp("offload")
    table, binary = folder / "t.csv", folder / "d.bin"
    rows = (f"{i},{i * 37 % 101}.5,g{i % 3}" for i in range(2000))
    table.write_text("x,y,g\n" + "\n".join(rows) + "\n")
    np.random.default_rng(7).normal(size=1_500_000).tofile(binary)
    return table, binary


def offload(mpi, env, data, what: str, ranks: int, storage: int) -> str:
    return job(mpi, ranks, env, what, storage, *data, program=PROGRAM)


@pytest.mark.parametrize(("ranks", "storage"), [(2, 1), (4, 2), (5, 3)])
def test_answers_are_those_of_one_rank(mpi, env, data, ranks, storage):
    assert offload(mpi, env, data, "answers", ranks, storage).count("right") == ranks


def test_what_is_wrong_is_told_to_who_asks(mpi, env, data):
    assert offload(mpi, env, data, "wrong", 4, 2).count("right") == 4


def test_children_that_were_forked_cannot_ask_and_are_told(mpi, env, data):
    assert offload(mpi, env, data, "forked", 4, 2).count("right") == 4


@pytest.mark.parametrize("what", ["open", "end", "fails"])
def test_storage_ranks_end_when_nobody_asks_any_more(mpi, env, data, what):
    assert offload(mpi, env, data, what, 4, 2).count("right") == 4


def test_the_example_prints_what_one_rank_would(mpi, env, data):
    out = job(mpi, 3, env, data[0], "rows", "sum:x", program=ROOT / "examples" / "mpi" / "offload.py")
    assert json.loads(out)["results"] == {"rows": 2000, "sum:x": 1999000.0}


@pytest.mark.parametrize(("what", "ranks", "storage"), [
    ("unfreed", 2, 1), ("unfreed", 5, 2), ("away", 4, 2), ("away", 5, 3), ("headless", 2, 1), ("headless", 5, 3), ("large", 4, 2),
])
def test_programs_in_c_that_end_as_they_like_keep_nobody(mpi, file, what, ranks, storage):
    """MPI_Finalize waits for all ranks, and a storage rank that serves must be told that nobody asks any more."""
    assert run([*launch(mpi, ranks), BUILT / mpi / "asks", what, file, storage]).count("right") == ranks


def test_idle_storage_ranks_take_no_processor(mpi, file):
    out = run([*launch(mpi, 3), BUILT / mpi / "asks", "idle", file, 2, 6])
    assert len(asleep(out)) == 2, out
