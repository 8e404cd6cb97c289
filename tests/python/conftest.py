"""Fixtures of the tests of the Python package."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from support import Stead, command

if importlib.util.find_spec("stead") is None:
    pytest.exit("the package is not installed; run scripts/python.sh first", 1)


@pytest.fixture
def cli(tmp_path) -> Stead:
    """The command, run in an empty directory."""
    return Stead(command(), tmp_path)


@pytest.fixture
def points() -> np.ndarray:
    """20,000 points in 3 dimensions."""
    return np.random.default_rng(3).normal(size=(20_000, 3))


@pytest.fixture(scope="session")
def long_job() -> str:
    """Python code that defines `ds` and `job`: a run that takes far longer than any test waits."""
    return (
        "import numpy as np, stead\n"
        "ds = stead.open(np.random.default_rng(0).normal(size=(300_000, 8)))\n"
        "job = stead.kmeans(k=400, tol=0, rounds=30_000, init='first')\n"
    )
