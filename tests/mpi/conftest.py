"""The file that ranks read, and the MPIs that are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import BUILT, LENGTH, contents
from tipsy_files import galaxy, write


@pytest.fixture(scope="session")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("mpi") / "f"
    path.write_bytes(contents(LENGTH))
    return path


@pytest.fixture(scope="session")
def snapshot(tmp_path_factory) -> Path:
    """One of several blocks, and beside it a file that is none."""
    path = tmp_path_factory.mktemp("mpi") / "run.00042"
    write(path, galaxy(9000, 20_000, 13), ">", 32, "f8", "f4")
    path.with_name(path.name + ".bad").write_bytes(b"no snapshot" * 100)
    return path


@pytest.fixture(params=["openmpi", "mpich"], scope="session")
def mpi(request) -> str:
    if not (BUILT / request.param / "ranks").exists():
        pytest.skip(f"{request.param} is not installed")
    return request.param
