"""Slows a host of the lab where control groups are not to be had: stops all that runs on it, most of the time.

    brake.py HOST FACTOR

Of each twentieth of a second its processes run a FACTORth. Ends with the host.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

PERIOD = 0.05


def on(host: int) -> list[int]:
    """The processes whose network is that of the host."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}/ns/net").st_ino == host:
                found.append(int(name))
        except OSError:
            pass  # it has ended
    return found


def tell(processes: list[int], sign: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, sign)
        except ProcessLookupError:
            pass


def main() -> None:
    place, factor = Path("/run/netns") / sys.argv[1], float(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    stopped: list[int] = []
    try:
        while place.exists():
            stopped = on(place.stat().st_ino)
            tell(stopped, signal.SIGSTOP)
            time.sleep(PERIOD * (1 - 1 / factor))
            tell(stopped, signal.SIGCONT)
            time.sleep(PERIOD / factor)
    finally:
        tell(stopped, signal.SIGCONT)


main()
