"""Devices that fail when they are to keep what was written: `stead put` and `stead get` fail as a whole, whichever file or folder it
was, and leave what was there before."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest


@pytest.fixture
def nodes(stead):
    """A file, a dataspace, and a function that does something with the Nth wait for a device failing; True if it came to that."""
    path, space, told = stead.cwd / "f", stead.cwd / "space", stead.cwd.parent / f"{stead.cwd.name}.told"
    path.write_bytes(random.Random(3).randbytes(200_000))
    space.mkdir()

    def failing(shim: Path, n: int, *args) -> bool:
        told.unlink(missing_ok=True)
        env = os.environ | {"LD_PRELOAD": str(shim), "SHIM_SYNC": f"{n}:{told}"}
        done = stead(*args, f"--dataspace=s={space}", code=None, env=env)
        if told.exists():
            assert done.returncode == 1, done
            assert b"input/output error" in done.stderr, done.stderr
        else:
            assert done.returncode == 0, done.stderr
        return told.exists()

    failing.path, failing.space = path, space
    return failing


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


PUT = ("put", "f", "--over", "s", "--parts", 3, "--stripe", "7KiB")


def test_a_device_that_does_not_keep_a_part_or_a_name_fails_the_whole_put(stead, shim, nodes):
    before, n = files(stead.cwd), 1
    while nodes(shim, n, *PUT):
        assert files(stead.cwd) == before, n
        n += 1
    # Parts, folders and the layout, some of them twice.
    assert n > 6
    # What is replaced is there until the new one is.
    whole = files(stead.cwd)
    assert len(whole) == 5
    for n in range(1, 100):
        failed = nodes(shim, n, *PUT, "--force")
        stead("get", "f.stead-layout.toml", "-o", "back", "--force", f"--dataspace=s={nodes.space}")
        assert (stead.cwd / "back").read_bytes() == nodes.path.read_bytes()
        (stead.cwd / "back").unlink()
        now = files(stead.cwd)
        if not failed:
            assert len(now) == 5 and now != whole
            break
        assert now == whole, n


def test_a_device_that_does_not_keep_a_file_fails_the_whole_get(stead, shim, nodes):
    stead(*PUT, f"--dataspace=s={nodes.space}")
    before = files(stead.cwd)
    for n in range(1, 100):
        failed = nodes(shim, n, "get", "f.stead-layout.toml", "-o", "back")
        if not failed:
            break
        assert files(stead.cwd) == before, n
    assert n > 2
    assert (stead.cwd / "back").read_bytes() == nodes.path.read_bytes()
