"""The flights as pandas reads them, and tools to compare with."""

import struct

import pandas as pd
import pytest


@pytest.fixture(scope="session")
def frame(flights) -> pd.DataFrame:
    """The flights, read by pandas."""
    return pd.read_csv(flights)


def bits(x: float) -> int:
    """The bits of a float, one pattern for all NaN."""
    return -1 if x != x else struct.unpack("<Q", struct.pack("<d", x))[0]


def same(a: float, b: float) -> bool:
    """Equal to the last bit."""
    return bits(a) == bits(b)
