"""Writers and readers of a stream, any number of each, that look at every element.

    python examples/streams/tester --writers 3 --layout rows --readers 2:columns --shape 400x300 --steps 20
    python examples/streams/tester --readers 2:blocks --readers 1:all:drop --pace 2 --memory 8MiB
    python examples/streams/tester --writers 4 --readers 2 --kill writer:1:5
    python examples/streams/tester --readers 2 --keep 4 --kill daemon:3
    python examples/streams/tester --cases 100 --seed 7

Each rank is a process. It ends with 0 if all elements were right, all complete steps came, and whoever was to be told of a process that
was killed was told.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

# They are forked, and have few cores: threads of their own are of no use.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from cases import Case, Fault, Group, drawn
from job import Job
from layouts import DTYPES, LAYOUTS, READERS


def group(text: str) -> Group:
    """RANKS[:LAYOUT[:block|drop|spill[:oldest|next|first]]]"""
    given = text.split(":")
    made = Group(int(given[0]), *given[1:])
    if made.layout not in READERS or made.behind not in ("block", "drop", "spill") or made.start not in ("oldest", "next", "first") or made.ranks < 1:
        raise ValueError(text)
    return made


def fault(text: str) -> Fault:
    """ROLE:RANK:STEP, of which the role is writer, group0, group1 and so on; or daemon:STEP, that of the node, which then begins anew"""
    role, *rank, step = text.split(":")
    if (role == "daemon") != (not rank):
        raise ValueError(text)
    return Fault("kill", role, *map(int, rank), step=int(step))


def shape(text: str) -> tuple[int, ...]:
    """Lengths, as 400x300; nothing for a single number"""
    return tuple(int(n) for n in text.split("x")) if text else ()


def size(text: str) -> int:
    """Bytes, as 8MiB"""
    for unit, power in ("KiB", 10), ("MiB", 20), ("GiB", 30):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) << power
    return int(text)


def arguments() -> argparse.Namespace:
    parse = argparse.ArgumentParser("tester", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--writers", type=int, default=1, metavar="N", help="how many write")
    parse.add_argument("--layout", choices=LAYOUTS, default="rows", help="what each of them has: several blocks also for several and cuts")
    parse.add_argument("--readers", type=group, action="append", metavar="GROUP", help=f"{group.__doc__}; several times for several groups")
    parse.add_argument("--shape", type=shape, default=(400, 300), help=shape.__doc__)
    parse.add_argument("--dtypes", default="f8", help=f"one variable of each, with commas: {' '.join(DTYPES)}")
    parse.add_argument("--grows", type=int, default=0, metavar="N", help="the first length becomes longer with each step")
    parse.add_argument("--steps", type=int, default=10)
    parse.add_argument("--keep", type=int, default=1, help="steps that stay when all have had them")
    parse.add_argument("--queue", type=int, default=2, help="steps that readers may be behind")
    parse.add_argument("--memory", type=size, default=0, help=f"of the stream: {size.__doc__}")
    parse.add_argument("--empty", action="store_true", help="writers fill memory of the stream, which is not copied")
    parse.add_argument("--pace", type=float, default=0, metavar="MS", help="what writers compute for each step, at most")
    parse.add_argument("--slow", type=float, default=0, metavar="MS", help="what readers do")
    parse.add_argument("--hold", type=int, default=0, metavar="N", help="steps whose arrays readers still have when they go on")
    parse.add_argument("--persist", action="store_true", help="all steps are recorded, too, and read again at the end")
    parse.add_argument("--kill", type=fault, metavar="WHO", help=fault.__doc__)
    parse.add_argument("--cases", type=int, metavar="N", help="so many cases by chance, with processes that are killed or stopped, instead")
    parse.add_argument("--calm", action="store_true", help="nobody is killed or stopped in them")
    parse.add_argument("--seed", type=int, default=0, help="of the first of them: each is repeated by its own, with --cases 1")
    given = parse.parse_args()
    if given.writers < 1 or given.steps < 1 or not set(given.dtypes.split(",")) <= set(DTYPES):
        parse.error("there are writers, steps, and known types of elements")
    return given


def told(given: argparse.Namespace) -> Case:
    """The case of the arguments."""
    groups = given.readers or [Group()]
    for one in groups:
        one.pace_ms, one.hold = given.slow, given.hold
    dtypes = tuple(given.dtypes.split(","))
    made = "empty" if given.empty else "copied"
    policy = {"keep": given.keep, "queue": given.queue, "memory": given.memory}
    shapes = {"shape": given.shape, "dtypes": dtypes, "grows": given.grows, "steps": given.steps}
    return Case(given.seed, given.writers, given.layout, groups, **shapes, **policy, made=made, pace_ms=given.pace, persist=given.persist, fault=given.kill)


def main() -> int:
    given = arguments()
    cases = [told(given)] if given.cases is None else [drawn(given.seed + n, not given.calm) for n in range(given.cases)]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="stead-tester-", dir="/dev/shm") as memory:
        for case in cases:
            job, begun = Job("tester", case, {"memory": memory}), time.monotonic()
            wrong = job.run()
            had = [line for one in job.ranks for line in one.told if line["at"] == "step" and "bytes" in line]
            read, dropped = sum(line["bytes"] for line in had), sum(line["dropped"] for line in had)
            said = f"{len(had)} steps were read, {read} bytes, {dropped} dropped, in {time.monotonic() - begun:.2f} s"
            hit = f"; {case.fault}" if job.was_hit else ""
            print(f"{'WRONG' if wrong else 'right'}  seed {case.seed}: {said}{hit}", flush=True)
            if wrong:
                failed += 1
                print("       " + "\n       ".join([str(case), *wrong]), flush=True)
    print(f"{len(cases)} cases, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
