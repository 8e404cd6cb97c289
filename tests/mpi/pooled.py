"""Programs that were begun by themselves on nodes whose daemons are a pool.

    pooled.py write MEMORY STEPS     writes so many steps; without readers it waits for one
    pooled.py read MEMORY STEPS [N]  reads so many, and says `begun` when it has the first one; opens the stream anew if the node does not answer,
                                     and reads on until that has happened N times

The daemon of the node is that of $STEAD_SOCKET. A reader prints the steps that it had, all of which are as they were written.
"""

from __future__ import annotations

import sys

import numpy as np
import stead

SHAPE = (300, 500)


def values(step: int) -> np.ndarray:
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return step * 1e6 + y * 1000.0 + x


def write(memory: str, steps: int) -> None:
    with stead.writer("pooled", readers=1, timeout=60, dataspaces={"memory": memory}) as w:
        for n in range(steps):
            with w.step():
                w.put("T", values(n))


def read(memory: str, steps: int, times: int = 0) -> None:
    had: list[int] = []
    again = 0
    while len(had) < steps or again < times:
        try:
            for step in stead.reader("pooled", timeout=60, dataspaces={"memory": memory}):
                assert np.array_equal(step.get("T", np.s_[10:200, 7:]), values(step.number)[10:200, 7:]), step.number
                if not had:
                    print("begun", flush=True)
                if step.number not in had:
                    had.append(step.number)
                if len(had) >= steps and again >= times:
                    break
            else:
                break
        except stead.PeerError as e:
            assert "node 'n0'" in str(e), e
            again += 1
    print(had, again, flush=True)


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
