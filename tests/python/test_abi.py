"""One wheel for every Python from 3.10 on: it says so, and other Pythons of the machine load what this one installed."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import stead

#: What needs neither NumPy nor anything else that another Python may not have, through all of the extension's sorts of objects.
PROGRAM = """
import asyncio, sys, threading, stead

open("x.csv", "w").write("x,g\\n1,a\\n2,b\\n4,b\\n")
seen = []
r = stead.run("x.csv", stead.mean("x"), stead.rows(), "grep:b,lines", by="g", progress=lambda now: seen.append(now.rows))
assert r["mean:x"] == {"a": 1.0, "b": 3.0} and r["rows"] == {"a": 1, "b": 2}, r.results
assert r.plan["by"] == ["g"] and "mean:x" in repr(r) and seen[-1] == 3
try:
    stead.run("x.csv", "sum:nope")
except stead.UsageError as e:
    assert "nope" in str(e) and isinstance(e, ValueError)
else:
    sys.exit("no error")

async def some(s):
    return [bytes(v) for v in await s.read_many([(0, 3), (4, 1)])]

with stead.read_session("x.csv") as s:
    view = s.pread(0, 3)
    assert bytes(view) == b"x,g" and memoryview(view).readonly and len(view) == 3
    into = bytearray(5)
    assert s.pread_into(into, 4) == 5 and into == b"1,a\\n2"
    assert asyncio.run(some(s)) == [b"x,g", b"1"]
    done = threading.Event()
    s.read(0, 1).add_done_callback(lambda read: done.set())
    assert done.wait(60)
cancel = stead.Cancel()
cancel.cancel()
try:
    stead.run("x.csv", "rows", cancel=cancel)
except stead.CancelledError:
    pass
else:
    sys.exit("not cancelled")
print("right", stead.__version__)
"""


def others() -> list[str]:
    """Other versions of Python here, from 3.10 on: those on the PATH, of the system, and of pyenv."""
    names = [f"python3.{minor}" for minor in range(10, 20)]
    found = [shutil.which(name) for name in names] + [f"/usr/bin/{name}" for name in names]
    found += sorted(map(str, Path.home().glob(".pyenv/versions/*/bin/python3")))
    versions = {}
    for python in found:
        if python and Path(python).exists():
            asked = [python, "-c", "import sys; print(sys.implementation.name, *sys.version_info[:2])"]
            said = subprocess.run(asked, capture_output=True, text=True)
            name, *version = said.stdout.split() or [""]
            if said.returncode == 0 and name == "cpython" and (3, 10) <= tuple(map(int, version)) != sys.version_info[:2]:
                versions.setdefault(".".join(version), python)
    return [f"{version}={python}" for version, python in versions.items()]


OTHERS = others()


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.split("=")[0])
def test_another_python_loads_it(other, tmp_path):
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "stead").symlink_to(Path(stead.__file__).parent)
    env = {"PYTHONPATH": str(tmp_path / "packages"), "PYTHONDONTWRITEBYTECODE": "1", "STEAD_CACHE": str(tmp_path), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [other.split("=")[1], "-c", PROGRAM], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, f"right {stead.__version__}\n"), done.stderr


def test_there_is_another_python():
    if not OTHERS:
        pytest.skip("NO OTHER PYTHON from 3.10 on is here: that the wheel works with them was not looked at")


def test_the_wheel_says_so():
    wheel = importlib.metadata.distribution("stead").read_text("WHEEL")
    assert re.search(r"^Tag: cp310-abi3-", wheel, re.MULTILINE), wheel
