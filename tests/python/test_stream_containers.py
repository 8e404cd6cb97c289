"""Streams whose folder programs of other containers see: who lives there is not known here."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import stead
from support import command
from test_streams import PATIENCE, programs, space

__all__ = ["programs", "space"]

#: A namespace of process numbers of its own, as containers have; for users who may have one only with one of users.
APART = ["unshare", "--pid", "--fork", "--mount-proc"]


@pytest.fixture(scope="module")
def apart():
    for words in (APART, [*APART, "--user", "--map-root-user"], [*APART, "--user", "--map-current-user"]):
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("this user may have no namespace of process numbers")


def run(apart, space, code: str) -> subprocess.CompletedProcess:
    words = [*apart, sys.executable, "-c", f"import stead\nS = {space!r}\n" + textwrap.dedent(code)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_programs_of_another_container_are_not_taken_for_dead(space, apart, tmp_path):
    with stead.writer("sim", keep=2, dataspaces=space) as w:
        with w.step():
            w.put("T", np.arange(4.0))
        for code in ("stead.reader('sim', timeout=60, dataspaces=S)", "stead.writer('sim', dataspaces=S)", "stead.stream_info('sim', dataspaces=S)"):
            said = run(apart, space, code)
            assert said.returncode == 1 and "another container" in said.stderr and "container:NAME" in said.stderr, said.stderr
        # Others of the same folder are nothing to them.
        said = run(apart, space, "stead.writer('own', dataspaces=S).close(); print(stead.streams(dataspaces=S))")
        assert said.returncode == 0, said.stderr
        assert not stead.remove_stream("nothing", dataspaces=space)
        with pytest.raises(stead.UsageError, match="another container"):
            stead.remove_stream("own", dataspaces=space)
        with w.step():
            w.put("T", np.arange(4.0) + 1)
        with stead.reader("sim", dataspaces=space) as r:
            assert [r.next()["T"][0] for _ in range(2)] == [0, 1]
    # Of a container that is gone somebody removes what it has left.
    config = tmp_path / "stead.toml"
    config.write_text(f'[dataspace.memory]\npath = "{space["memory"]}"\n')
    env = os.environ | {"STEAD_CONFIG": str(config)}
    subprocess.run([command(), "stream", "rm", "--force", "own"], env=env, check=True, capture_output=True)
    with stead.writer("own", dataspaces=space) as w:
        assert w.number == 0
    assert stead.remove_stream("own", dataspaces=space)
