"""Blocks in memory that ranks of one node share: read once, looked at by all, within the memory of the node."""

from __future__ import annotations

import re

import pytest
from jobs import BUILT, LENGTH, launch, run


def ranks(
    mpi: str, n: int, file, how: str = "all", memory: int = 64 << 20, readers: int = 0
) -> list[tuple[int, int, str]]:
    out = run([*launch(mpi, n), BUILT / mpi / "shared", how, file, memory, readers])
    said = re.findall(r"right, (\d+) bytes read, (\d+) shared; (.*)", out)
    assert len(said) == n, out
    return [(int(read), int(shared), how) for read, shared, how in said]


@pytest.mark.parametrize("n", [2, 4, 6])
def test_blocks_are_read_once_and_looked_at_by_all(mpi, file, n):
    said = ranks(mpi, n, file)
    assert sum(read for read, _, _ in said) == LENGTH
    # Nothing came as a message.
    assert all(f"shared by {n} ranks" in how and "fetched: 0 B" in how for _, _, how in said), said
    # The blocks lie there, once.
    assert LENGTH <= sum(shared for _, shared, _ in said) <= LENGTH + n * (1 << 20)


@pytest.mark.parametrize("n", [2, 4])
def test_the_memory_of_the_node_is_a_bound(mpi, file, n):
    # Several threads of each rank read, as they do by themselves on hosts with more than four cores.
    said = ranks(mpi, n, file, memory=4 << 20, readers=3)
    # With a page of each rank by which others know it.
    assert sum(shared for _, shared, _ in said) <= (4 << 20) + n * 4096, said


def test_where_no_memory_can_be_shared_messages_carry_the_bytes(mpi, file):
    said = ranks(mpi, 3, file, how="private")
    assert sum(read for read, _, _ in said) == LENGTH
    assert all("not shared" in how and "fetched: 0 B" not in how for _, _, how in said), said
    assert all(shared <= 4096 for _, shared, _ in said)


def test_views_are_valid_when_files_are_closed_and_mpi_has_ended(mpi, file):
    assert run([*launch(mpi, 3), BUILT / mpi / "shared", "keep", file]).count("right") == 3


def test_what_a_rank_looked_at_when_it_was_killed_is_free_again(file):
    command = launch("openmpi", 3, "--enable-recovery", "--mca", "btl", "vader,self")
    out = run([*command, BUILT / "openmpi" / "shared", "die", file], expect=None)
    assert out.count("right") == 2, out
