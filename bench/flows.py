"""Flows: what is computed beside a simulation, or in a process of its own, and the same by NumPy in a reader of the whole stream.

    flows.py ROLE OPTIONS     one process of it: the simulation, or the analysis, which prints how long a step took; OPTIONS are JSON
"""

import json
import os
import subprocess
import sys
import time

STEPS, WARM = 12, 3


def moments(T):
    mean = T.mean()
    d = T - mean
    square = d * d
    return [mean, square.mean(), (square * d).mean(), (square * square).mean()]


# What is computed, by a flow and by NumPy, and whether the last bits may differ: a flow adds up exactly.
WHAT = {
    "mean": (lambda T: T.mean(), lambda T: T.mean()),
    "moments": (lambda T: T.moments(), moments),
    "slice": (lambda T: T[::4, ::4], lambda T: T[::4, ::4].copy()),
}
WAYS = ("flow in the simulation", "flow by itself", "NumPy in a reader")


def used():
    """Core-seconds of this process."""
    return sum(os.times()[:2])


def field(size):
    import numpy as np

    rows = max(size // (8 * 4096), 1)
    return np.arange(rows * 4096, dtype="f8").reshape(rows, 4096) % 1000.0


def flow(o):
    import stead

    made = stead.flow(name="bench-flow")
    made.write("small", x=WHAT[o["what"]][0](made.read("bench")["T"]), readers=1)
    return made


def simulate(o):
    import stead

    T = field(o["bytes"])
    spaces, before = {"memory": o["folder"]}, used()
    running = flow(o).start(dataspaces=spaces, timeout=120) if o["way"] == WAYS[0] else None
    with stead.writer("bench", readers=1, timeout=120, dataspaces=spaces) as w:
        for _ in range(o["steps"] + WARM):
            with w.step():
                w.put("T", T)
    if running:
        running.join()
    print(json.dumps({"cpu": used() - before}))


def compute(o):
    made, before = flow(o), used()
    made.run(dataspaces={"memory": o["folder"]}, timeout=120)
    print(json.dumps({"cpu": used() - before}))


def analyse(o):
    import numpy as np
    import stead

    T = field(o["bytes"])
    right = np.asarray(WHAT[o["what"]][1](T))
    by_numpy = o["way"] == WAYS[2]
    before, begin, n = used(), 0.0, 0
    for step in stead.reader("bench" if by_numpy else "small", timeout=120, dataspaces={"memory": o["folder"]}):
        got = WHAT[o["what"]][1](step["T"]) if by_numpy else step["x"]
        n += 1
        if n == WARM:
            begin = time.perf_counter()
    seconds = time.perf_counter() - begin
    assert n == o["steps"] + WARM
    assert np.allclose(np.asarray(got), right, rtol=1e-9, atol=1e-6 * abs(right).max())
    print(json.dumps({"seconds": seconds / o["steps"], "cpu": used() - before}))


ROLES = {"simulate": simulate, "compute": compute, "analyse": analyse}


def once(a, what, way):
    o = {"bytes": a.bytes, "steps": STEPS if a.scale > 0.1 else 2, "folder": str(a.folder), "what": what, "way": way}
    roles = ["simulate", "analyse"] + (["compute"] if way == WAYS[1] else [])
    begun = [subprocess.Popen([sys.executable, __file__, role, json.dumps(o)], stdout=subprocess.PIPE, text=True) for role in roles]
    try:
        said = [json.loads(one.communicate(timeout=300)[0] or "null") for one in begun]
    finally:
        for one in begun:
            one.kill()
            one.wait()
    if None in said:
        raise RuntimeError(f"{what}, {way}: a process has failed")
    return {"seconds": said[1]["seconds"], "cpu": sum(one["cpu"] for one in said) / (o["steps"] + WARM)}


def flows_section(a):
    rows = {f"{what}, {way}": [] for what in WHAT for way in WAYS}
    for _ in range(a.runs):
        for what in WHAT:
            for way in WAYS:
                rows[f"{what}, {way}"].append(once(a, what, way))
    return {"bytes": a.bytes, "rows": rows}


if __name__ == "__main__":
    ROLES[sys.argv[1]](json.loads(sys.argv[2]))
