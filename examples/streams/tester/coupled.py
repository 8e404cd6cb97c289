"""The same with the ranks of an MPI job, on one node or on several: cases by chance.

    mpirun -n 6 python examples/streams/tester/coupled.py FOLDER CASES SEED
    mpirun -n 6 --enable-recovery python examples/streams/tester/coupled.py FOLDER 1 SEED --kill writer

FOLDER has a folder for each node, in memory, for the streams and what is recorded of them. A case has no more ranks than the job. With --kill
a rank is killed in the middle, a writer or a reader, which ends the job for MPI, so that it is one case; mpirun must let the others go on: that
of Open MPI has an option for it, and that of MPICH ends all of them.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import judge
import stead
from cases import Case, Fault, drawn
from judge import Rank
from mpi4py import MPI
from ranks import PATIENCE_S, Place, read, replay, write


class Voice:
    """Keeps what a rank tells."""

    def __init__(self) -> None:
        self.told: list[dict] = []

    def say(self, **told: object) -> None:
        self.told.append(told)


class Doomed(Voice):
    """That of the rank that is killed: where it says something of a step, or so many milliseconds later. A reader may miss that step, and has
    the next one then; whatever happens it is killed before it has closed its stream."""

    def __init__(self, at: str, fault: Fault) -> None:
        super().__init__()
        self.at, self.fault = at, fault

    def say(self, **told: object) -> None:
        def die() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        if told["at"] == "closing":
            die()
        if told["at"] == self.at and told.get("step", -1) >= self.fault.step:
            if not self.fault.delay_ms:
                die()
            threading.Timer(self.fault.delay_ms / 1000, die).start()


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


def roles(case: Case) -> list[tuple[str, int]]:
    """Of the ranks of the job."""
    return [("writer", n) for n in range(case.writers)] + [(f"group{n}", rank) for n, g in enumerate(case.groups) for rank in range(g.ranks)]


def drawn_death(case: Case, who: str) -> tuple[int, str]:
    """Which rank is killed, and what it is about to say then. The case has the rest."""
    chance = random.Random(f"{case.seed} death")
    rank = chance.choice([n for n, (role, _) in enumerate(roles(case)) if (role == "writer") == (who == "writer")])
    role, place = roles(case)[rank]
    case.fault = Fault("kill", role, place, step=chance.randrange(case.steps), delay_ms=chance.choice((0, 0, chance.uniform(0, 5))))
    return rank, chance.choice(("step", "put", "ended") if role == "writer" else ("step",))


def last_words(case: Case, rank: int, at: str, pid: int) -> Rank:
    """What the one that is killed has ended by then, and may have begun until it was."""
    role, place = roles(case)[rank]
    ended = case.fault.step + (at == "ended")
    begun = case.steps if case.fault.delay_ms else ended
    return Rank(role, place, pid, [{"at": "step", "step": n, "dropped": 0} for n in range(begun)] + [{"at": "ended", "step": n} for n in range(ended)])


def run(case: Case, comm: MPI.Comm, folder: Path, voice: Voice, then=lambda mine: None) -> Rank:
    """What becomes of this rank. `then` is called before it leaves the others."""
    role, rank = roles(case)[comm.rank]
    mine = Rank(role, rank, os.getpid(), voice.told)

    def work(part: stead.Coupling) -> None:
        place = Place(str(folder / f"files-{case.seed}"), comm=part)
        if role == "writer":
            write(f"tester{case.seed}", case, rank, place, voice, comm.Barrier)
        else:
            read(f"tester{case.seed}", case, int(role.removeprefix("group")), rank, place, voice, comm.Barrier)
        voice.say(at="end")

    def failed(e: Exception) -> None:
        voice.say(at="error", kind=type(e).__name__, text=str(e)[:2000])
        if not any(line["at"] == "here" for line in voice.told):
            # Others wait for it to begin.
            print(f"seed {case.seed}, {role} {rank}: {e}", file=sys.stderr, flush=True)
            MPI.COMM_WORLD.Abort(1)

    try:
        with stead.couple(comm, role, dataspaces={"memory": str(folder)}) as part:
            try:
                work(part)
            except Exception as e:
                failed(e)
            then(mine)
    except Exception as e:
        failed(e)
    return mine


def wait_for(comm: MPI.Comm, rank: int) -> object:
    """A message, within the time that nobody takes."""
    until = time.monotonic() + 2 * PATIENCE_S
    while not comm.iprobe(source=rank):
        if time.monotonic() > until:
            print(f"WRONG  rank {rank} says nothing", flush=True)
            MPI.COMM_WORLD.Abort(1)
        time.sleep(0.01)
    return comm.recv(source=rank)


def replayed(case: Case, place: Place) -> Rank:
    """Reads what the writers have recorded."""
    voice = Voice()
    try:
        replay(case, place, voice)
        voice.say(at="end")
    except Exception as e:
        voice.say(at="error", kind=type(e).__name__, text=str(e)[:2000])
    return Rank("replay", 0, os.getpid(), voice.told)


def killed(seed: int, who: str, folder: Path) -> None:
    """A case in which a rank is killed. Nobody comes back from it: MPI does not end without all ranks, so that these end without MPI."""
    world = MPI.COMM_WORLD
    case = fitted(drawn(seed, faults=False), world.size)
    victim, at = drawn_death(case, who)
    comm = world.Split(0 if world.rank < len(roles(case)) else MPI.UNDEFINED)
    if comm == MPI.COMM_NULL:
        os._exit(0)
    pids, nodes = comm.allgather(os.getpid()), comm.allgather(str(folder))
    alive = [rank for rank in range(comm.size) if rank != victim]
    first, begun = alive[0], time.monotonic()

    def then(mine: Rank) -> None:
        # Streams are over. Until all know what has become of it, readers of other nodes may want what is here.
        if comm.rank != first:
            # Both have it when it returns: who has ended delivers nothing.
            comm.ssend(mine, first)
            wait_for(comm, first)
            os._exit(0)
        ranks = {first: mine, victim: last_words(case, victim, at, pids[victim])} | {rank: wait_for(comm, rank) for rank in alive[1:]}
        for rank in alive[1:]:
            comm.ssend(None, rank)
        dead, all_ranks = ranks[victim], [ranks[n] for n in range(comm.size)]
        if case.persist and len(set(nodes)) == 1:
            all_ranks.append(replayed(case, Place(str(folder / f"files-{seed}"))))
        wrong = judge.ends(all_ranks, dead) + judge.steps(case, all_ranks, dead)
        steps = sum(len(one.steps()) for one in all_ranks if one.role.startswith("group"))
        tell(case, steps, begun, wrong)
        print(f"1 cases, {len(wrong) and 1} wrong", flush=True)
        shutil.rmtree(folder / f"files-{seed}", ignore_errors=True)
        os._exit(1 if wrong else 0)

    mine = run(case, comm, folder, Doomed(at, case.fault) if comm.rank == victim else Voice(), then)
    print(f"WRONG  {mine} has not come to its end: {mine.error}", flush=True)
    world.Abort(1)


def tell(case: Case, steps: int, begun: float, wrong: list[str]) -> None:
    hit = f"; {case.fault}" if case.fault else ""
    print(f"{'WRONG' if wrong else 'right'}  seed {case.seed}: {steps} steps were read, in {time.monotonic() - begun:.2f} s{hit}", flush=True)
    if wrong:
        print("       " + "\n       ".join([str(case), *wrong]), flush=True)


def arguments() -> argparse.Namespace:
    parse = argparse.ArgumentParser("coupled", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("folder", type=Path)
    parse.add_argument("cases", type=int)
    parse.add_argument("seed", type=int)
    parse.add_argument("--kill", choices=("writer", "reader"))
    given = parse.parse_args()
    if given.kill and (given.cases != 1 or MPI.COMM_WORLD.size < 3):
        parse.error("who is killed is one of three ranks or more, in one case")
    return given


def main() -> int:
    given, world = arguments(), MPI.COMM_WORLD
    folder = given.folder / str(world.Split_type(MPI.COMM_TYPE_SHARED).allreduce(world.rank, MPI.MIN))
    folder.mkdir(parents=True, exist_ok=True)
    if given.kill:
        killed(given.seed, given.kill, folder)
    failed = 0
    for n in range(given.seed, given.seed + given.cases):
        case, begun = fitted(drawn(n, faults=False), world.size), time.monotonic()
        comm = world.Split(0 if world.rank < len(roles(case)) else MPI.UNDEFINED)
        mine = run(case, comm, folder, Voice()) if comm != MPI.COMM_NULL else None
        all_ranks = world.gather(mine)
        world.Barrier()
        shutil.rmtree(folder / f"files-{n}", ignore_errors=True)
        if all_ranks is None:
            continue
        ranks = [one for one in all_ranks if one]
        wrong = judge.ends(ranks, None) + judge.steps(case, ranks, None)
        tell(case, sum(len(one.steps()) for one in ranks if one.role != "writer"), begun, wrong)
        failed += bool(wrong)
    if world.rank == 0:
        print(f"{given.cases} cases, {failed} wrong", flush=True)
    return 1 if world.bcast(failed) else 0


if __name__ == "__main__":
    sys.exit(main())
