"""The file that ranks read, and the MPIs that are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import BUILT, LENGTH, contents


@pytest.fixture(scope="session")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("mpi") / "f"
    path.write_bytes(contents(LENGTH))
    return path


@pytest.fixture(params=["openmpi", "mpich"], scope="session")
def mpi(request) -> str:
    if not (BUILT / request.param / "ranks").exists():
        pytest.skip(f"{request.param} is not installed")
    return request.param
