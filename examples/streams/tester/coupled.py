"""The same with the ranks of an MPI job, on one node or on several: cases by chance, in which nobody is killed.

    mpirun -n 6 python examples/streams/tester/coupled.py FOLDER CASES SEED

FOLDER has a folder for each node, in memory, for the streams and what is recorded of them. A case has no more ranks than the job.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import judge
import stead
from cases import Case, drawn
from judge import Rank
from mpi4py import MPI
from ranks import Place, read, write


class Voice:
    """Keeps what a rank tells."""

    def __init__(self) -> None:
        self.told: list[dict] = []

    def say(self, **told: object) -> None:
        self.told.append(told)


def fitted(case: Case, ranks: int) -> Case:
    """With so many ranks at most, and readers of each group."""
    groups = case.groups[: ranks - 1]
    while case.writers + sum(g.ranks for g in groups) > ranks:
        largest = max(groups, key=lambda g: g.ranks)
        if case.writers >= largest.ranks:
            case.writers -= 1
        else:
            largest.ranks -= 1
    case.groups = groups
    return case


def run(case: Case, comm: MPI.Comm, folder: Path) -> Rank:
    """What becomes of this rank."""
    roles = [("writer", n) for n in range(case.writers)] + [(f"group{n}", rank) for n, g in enumerate(case.groups) for rank in range(g.ranks)]
    role, rank = roles[comm.rank]
    voice = Voice()
    try:
        with stead.couple(comm, role, dataspaces={"memory": str(folder)}) as part:
            place = Place(str(folder / f"files-{case.seed}"), comm=part)
            if role == "writer":
                write(f"tester{case.seed}", case, rank, place, voice, comm.Barrier)
            else:
                read(f"tester{case.seed}", case, int(role.removeprefix("group")), rank, place, voice, comm.Barrier)
        voice.say(at="end")
    except Exception as e:
        voice.say(at="error", kind=type(e).__name__, text=str(e)[:2000])
        if not any(line["at"] == "here" for line in voice.told):
            # Others wait for it to begin.
            print(f"seed {case.seed}, {role} {rank}: {e}", file=sys.stderr, flush=True)
            MPI.COMM_WORLD.Abort(1)
    return Rank(role, rank, os.getpid(), voice.told)


def main() -> int:
    base, cases, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    world = MPI.COMM_WORLD
    folder = base / str(world.Split_type(MPI.COMM_TYPE_SHARED).allreduce(world.rank, MPI.MIN))
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for n in range(seed, seed + cases):
        case, begun = fitted(drawn(n, faults=False), world.size), time.monotonic()
        needed = case.writers + sum(g.ranks for g in case.groups)
        comm = world.Split(0 if world.rank < needed else MPI.UNDEFINED)
        mine = run(case, comm, folder) if comm != MPI.COMM_NULL else None
        all_ranks = world.gather(mine)
        world.Barrier()
        shutil.rmtree(folder / f"files-{n}", ignore_errors=True)
        if all_ranks is None:
            continue
        ranks = [one for one in all_ranks if one]
        wrong = judge.ends(ranks, None) + judge.steps(case, ranks, None)
        steps = sum(len(one.steps()) for one in ranks if one.role != "writer")
        print(f"{'WRONG' if wrong else 'right'}  seed {n}: {steps} steps were read, in {time.monotonic() - begun:.2f} s", flush=True)
        if wrong:
            failed += 1
            print("       " + "\n       ".join([str(case), *wrong]), flush=True)
    if world.rank == 0:
        print(f"{cases} cases, {failed} wrong", flush=True)
    return 1 if world.bcast(failed) else 0


if __name__ == "__main__":
    sys.exit(main())
