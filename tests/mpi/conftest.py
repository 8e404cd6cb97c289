"""The file that ranks read, and the MPIs that are installed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from jobs import BUILT, LENGTH, contents
from tipsy_files import galaxy, write

#: Files of few tests, each of which takes long: they raise pools of daemons and Slurm, or wait until ranks are missed.
LONG = {"test_pool.py", "test_pool_campaign.py", "test_pool_streams.py", "test_slurm_jobs.py", "test_srun.py", "test_offload_hosts.py"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers take file after file in this order (scripts/test.sh): what is short comes last, as all others have nothing to do while the last one runs."""
    many = Counter(item.path.name for item in items)
    items.sort(key=lambda item: (item.path.name not in LONG, -many[item.path.name], item.path.name))


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
