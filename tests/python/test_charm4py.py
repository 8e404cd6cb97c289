"""Chares of Charm4py, many more than there are processes, read a file through sessions."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from support import ROOT
from tipsy_files import example

PROGRAM = ROOT / "examples" / "charm4py" / "chares.py"
TREE_PIECES = ROOT / "examples" / "charm4py" / "tree_pieces.py"

needs_charm = pytest.mark.skipif(
    importlib.util.find_spec("charm4py") is None,
    reason="CHARM4PY IS NOT INSTALLED (no wheel for this machine?): its example is not tested",
)


@needs_charm
@pytest.mark.parametrize("processes, chares", [(1, 1), (1, 300), (2, 37), (2, 2000)])
def test_chares_read_their_shares(tmp_path, processes, chares):
    data = np.random.default_rng(chares).bytes(1_000_003)
    (tmp_path / "data").write_bytes(data)
    command = [sys.executable, "-m", "charmrun.start", f"+p{processes}", "++local", PROGRAM, "data", str(chares)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = f"{len(data)} bytes, sum {sum(data)}, {data.count(10)} lines"
    assert f"{chares} chares on {processes} processes: {expected}" in done.stdout.splitlines(), done.stdout + done.stderr


@needs_charm
def test_more_chares_than_bytes(tmp_path):
    (tmp_path / "data").write_bytes(b"a\nb\n")
    command = [sys.executable, "-m", "charmrun.start", "+p2", "++local", PROGRAM, "data", "64"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "64 chares on 2 processes: 4 bytes, sum 215, 2 lines" in done.stdout.splitlines(), done.stdout + done.stderr


@needs_charm
@pytest.mark.parametrize("processes, pieces", [(1, 1), (2, 300), (2, 6000)])
@pytest.mark.parametrize("variant", [{}, {"order": "<", "length": 28, "pos": "f8", "vel": "f8"}], ids=["standard", "native"])
def test_tree_pieces_load_their_particles(tmp_path, processes, pieces, variant):
    """Also more pieces than a species has particles."""
    example(tmp_path / "galaxy.tipsy", **variant)
    command = [
        sys.executable, "-m", "charmrun.start", f"+p{processes}", "++local", TREE_PIECES, "galaxy.tipsy", str(pieces),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    # The same numbers as those of the examples in other languages.
    expected = (ROOT / "examples" / "expected" / "08_tipsy.txt").read_text().splitlines()[1:]
    lines = done.stdout.splitlines()
    assert f"{pieces} pieces on {processes} processes" in lines, done.stdout + done.stderr
    assert [line for line in lines if " particles, " in line] == expected
