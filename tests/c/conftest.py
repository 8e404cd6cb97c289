"""Fixtures of the tests of the C and C++ faces."""

import pytest
from building import Installed, install


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Installed:
    prefix = tmp_path_factory.mktemp("prefix")
    install(prefix)
    return Installed(prefix)
