"""Fixtures of all tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from support import DATA, ROOT, Stead, command, sweep

# What a test hands to a daemon it hands to its own one.
os.environ["STEAD_SOCKET"] = "none"


def pytest_sessionstart(session) -> None:
    # Once for all workers.
    if not hasattr(session.config, "workerinput"):
        sweep(*{Path("/dev/shm"), Path("/tmp"), Path(tempfile.gettempdir())})


def is_large(value) -> bool:
    """True of what nobody wants to see whole."""
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return len(value) > 1 << 16
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return any(map(is_large, value))


@pytest.hookimpl(hookwrapper=True)
def pytest_assertrepr_compare(left, right):
    """Of large texts that differ the first difference is told. Where CI is set pytest would compare them line by line, for minutes."""
    if not (is_large(left) or is_large(right)):
        yield
        return
    kept = {name: os.environ.pop(name) for name in ("CI", "BUILD_NUMBER") if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


@pytest.fixture
def stead(tmp_path) -> Stead:
    """The command, run in an empty directory."""
    return Stead(command(), tmp_path)


@pytest.fixture(scope="session")
def flights() -> Path:
    """The flights data: 336,776 rows with missing values."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "fetch_flights.py", DATA])
    assert done.returncode == 0
    return DATA / "flights.csv"


@pytest.fixture(scope="session")
def frame(flights) -> pd.DataFrame:
    """The flights, read by pandas."""
    return pd.read_csv(flights)
