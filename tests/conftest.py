"""Fixtures of all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from support import DATA, ROOT, Stead, command

# What a test hands to a daemon it hands to its own one.
os.environ["STEAD_SOCKET"] = "none"


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
