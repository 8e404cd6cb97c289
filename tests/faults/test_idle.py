"""Programs that wait for a read cost no processor time: an event loop of Python, and one of C."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOOP = """
import asyncio, sys, time, stead

async def main():
    s = stead.read_session(sys.argv[1], engine="pread", block=65536, memory=4 * 65536, ahead=False)
    cached = stead.read_session(sys.argv[1])
    assert len(await cached.read(0, 1_000_000)) == 1_000_000
    views = [await s.read(i * 65536, 10) for i in range(4)]
    waits = asyncio.ensure_future(s.read(9 * 65536, 10))
    await asyncio.sleep(0)
    before = time.process_time()
    await asyncio.sleep(float(sys.argv[2]))
    print(int((time.process_time() - before) * 1e6))
    assert not waits.done()
    del views
    assert len(await waits) == 10

asyncio.run(main())
"""


@pytest.mark.parametrize("face", ["c", "python"])
def test_a_read_that_waits_costs_nothing(programs, tmp_path, face):
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1_000_000))
    command = programs["idle"] if face == "c" else [sys.executable, "-c", LOOP]
    done = subprocess.run([*map(str, command), str(path), "1"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    # Of a second.
    assert int(done.stdout) < 50_000
