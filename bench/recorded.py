"""Streams that are recorded: what it takes of a writer, and how fast steps come to files and back, beside plain files and BP5."""

import os
import shutil
import subprocess
import time
from pathlib import Path

STEPS = 8

BP5 = """import sys, time
import numpy as np
from adios2 import Stream
path, size, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = np.arange(size // 8, dtype="f8")
begin = time.perf_counter()
with Stream(path, "w") as s:
    for step in range(steps):
        s.begin_step()
        s.write("T", data, list(data.shape), [0], list(data.shape))
        s.end_step()
print(time.perf_counter() - begin)
begin = time.perf_counter()
with Stream(path, "r") as s:
    for _ in s.steps():
        s.read("T")
print(time.perf_counter() - begin)"""


def stream(a, into):
    """Steps of a stream that is recorded, or not: until the last one is put, and until it is closed; then they are read."""
    import numpy as np
    import stead

    data = np.arange(a.bytes // 8, dtype="f8")
    spaces = {"memory": str(a.folder)}
    options = {"persist": into} if into else {}
    begin = time.perf_counter()
    w = stead.writer("bench", memory=max(STEPS * a.bytes * 2, 1 << 20), dataspaces=spaces, **options)
    for _ in range(STEPS):
        with w.step():
            w.put("T", data)
    put = time.perf_counter() - begin
    w.close()
    closed = time.perf_counter() - begin
    stead.remove_stream("bench", force=True, dataspaces=spaces)
    if not into:
        return {"put": put, "closed": closed}
    begin = time.perf_counter()
    with stead.reader(into, dataspaces=spaces) as r:
        for step in r:
            assert step["T"][-1] == data[-1]
    return {"put": put, "closed": closed, "read": time.perf_counter() - begin}


def plain(a, into):
    """The same bytes by hand: written and made durable, and read."""
    import numpy as np

    data = np.arange(a.bytes // 8, dtype="f8")
    begin = time.perf_counter()
    with open(into, "wb") as f:
        for _ in range(STEPS):
            f.write(data)
        f.flush()
        put = time.perf_counter() - begin
        os.fsync(f.fileno())
    closed = time.perf_counter() - begin
    begin = time.perf_counter()
    with open(into, "rb") as f:
        for _ in range(STEPS):
            f.readinto(np.empty_like(data))
    return {"put": put, "closed": closed, "read": time.perf_counter() - begin}


def bp5(a, into):
    done = subprocess.run([a.peers, "-c", BP5, into, str(a.bytes), str(STEPS)], capture_output=True, text=True, check=True)
    closed, read = map(float, done.stdout.split())
    return {"closed": closed, "read": read}


def recorded_section(a):
    ways = {"stream, not recorded": None}
    has = subprocess.run([a.peers, "-c", "import adios2"], capture_output=True).returncode == 0
    for place, folder in (("tmpfs", a.folder), ("disk", a.data)):
        ways[f"stream, persist on {place}"] = (stream, folder)
        ways[f"write and fsync by hand, {place}"] = (plain, folder)
        if has:
            ways[f"ADIOS2 BP5, {place}"] = (bp5, folder)
    rows = {name: [] for name in ways}
    for _ in range(a.runs):
        for name, way in ways.items():
            if way is None:
                rows[name].append(stream(a, None))
                continue
            work, folder = way
            into = Path(folder) / "recorded"
            rows[name].append(work(a, str(into)))
            shutil.rmtree(into, ignore_errors=True)
            into.unlink(missing_ok=True)
    return {"bytes": a.bytes, "steps": STEPS, "rows": rows}
