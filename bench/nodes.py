"""Streams between hosts of the lab: two that write and two that read, each reader its half of columns while writers have rows, so that each
link carries half of each writer's array. What readers get in a second is held against what TCP brings over the same links, all at once.

    python bench/nodes.py rank FOLDER SIDE STEPS WARM

is what each rank does, through mpi4py.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import wire
from run import command

HERE = Path(__file__).parent
LAB = HERE.parent / "lab" / "lab"
LIBRARY = HERE.parent / ".build" / "mpi" / "openmpi" / "libstead_mpi.so"
PAIRS = 2
# Bytes a second of the links, as they are shaped.
LINK = 125e6
STEPS, WARM = 8, 2


def rank(base, side, steps, warm):
    import numpy as np
    import stead
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    node = world.Split_type(MPI.COMM_TYPE_SHARED).allreduce(world.rank, MPI.MIN)
    memory = Path(base) / str(node)
    memory.mkdir(parents=True, exist_ok=True)
    part, half = world.rank % PAIRS, side // PAIRS
    with stead.couple(world, "write" if world.rank < PAIRS else "read", dataspaces={"memory": memory}) as coupling:
        if world.rank < PAIRS:
            with stead.writer("field", comm=coupling, readers=1, queue=2, timeout=120) as w:
                for n in range(steps):
                    with w.step():
                        rows = w.empty("T", (side, side), start=(part * half, 0), count=(half, side))
                        rows[:] = n + np.arange(side)
                        w.put("T", rows)
            return
        begin, took = 0.0, time.process_time()
        for step in stead.reader("field", comm=coupling, timeout=120):
            got = step.get("T", np.s_[:, part * half : (part + 1) * half])
            if got[0, 0] != step.number + part * half or got[-1, -1] != step.number + (part + 1) * half - 1:
                raise SystemExit(f"step {step.number} has something else")
            if step.number == warm - 1:
                begin, took = time.perf_counter(), time.process_time()
        print(json.dumps({"seconds": time.perf_counter() - begin, "bytes": (steps - warm) * side * half * 8, "core_s": time.process_time() - took}))


def run(name, base, side, steps):
    env = os.environ | {"MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": str(LIBRARY), "STEAD_PEER_SILENCE_S": "30"}
    given = [word for name in ("MPI4PY_MPIABI", "STEAD_MPI_LIBRARY", "STEAD_PEER_SILENCE_S") for word in ("-x", name)]
    words = [LAB, "run", name, "-n", 2 * PAIRS, "--map-by", "node", *given, sys.executable, __file__, "rank", base, side, steps, min(WARM, steps - 1)]
    return [json.loads(line) for line in command([*map(str, words)], env=env).splitlines()]


def nodes_section(a):
    able = subprocess.run([LAB, "check"], capture_output=True, text=True)
    if able.returncode or not LIBRARY.exists():
        print(f"streams, nodes: LEFT OUT, {able.stderr.strip() or f'there is no {LIBRARY.name}'}", file=sys.stderr, flush=True)
        return None
    side = max(int(4096 * a.scale**0.5) // 64, 1) * 64
    name = command([LAB, "up", str(2 * PAIRS)], env=os.environ | {"LAB_OWNER": str(os.getpid())}).strip()
    rows = {"TCP": [], "stream": [], "core_s": []}
    try:
        for turn in range(a.runs):
            count = max(side * side * 4, 1 << 20) * (STEPS - WARM)
            rows["TCP"].append(count / wire.tcp(name, PAIRS, count))
            found = run(name, a.folder / f"nodes{turn}", side, STEPS)
            rows["stream"] += [one["bytes"] / one["seconds"] for one in found]
            rows["core_s"] += [one["core_s"] / one["bytes"] * 1e9 for one in found]
    finally:
        command([LAB, "drop", name])
    return {"bytes": side * side * 8, "link": LINK, "rows": rows}


if __name__ == "__main__":
    if sys.argv[1:2] != ["rank"]:
        raise SystemExit(__doc__)
    rank(sys.argv[2], *map(int, sys.argv[3:]))
