"""A node with a daemon of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import command


class Node:
    """A folder, and a daemon that is begun and ended. It does two transfers at a time."""

    def __init__(self, at: Path):
        self.at, self.path, self.process = at, at / "s", None

    def begin(self) -> None:
        words = [command(), "daemon", "--socket", self.path, "--state", self.at / "state", "--transfers", "2"]
        env = {key: value for key, value in os.environ.items() if not key.startswith(("STEAD_", "XDG_"))}
        with open(self.at / "log", "a") as log:
            self.process = subprocess.Popen(words, env=env | {"HOME": str(self.at)}, stderr=log)
        until = time.monotonic() + 60
        while not self.listens():
            assert self.process.poll() is None and time.monotonic() < until, (self.at / "log").read_text()
            time.sleep(0.01)

    def listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as one:
            return one.connect_ex(str(self.path)) == 0

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


@contextmanager
def node() -> Iterator[Node]:
    """With a daemon that listens, and the folder `from` and the file `big`, of 24 MiB, to be staged."""
    # The path of a socket is to be short.
    at = Path(tempfile.mkdtemp(dir="/tmp"))
    (at / "from" / "deep").mkdir(parents=True)
    for i, size in enumerate([0, 5, 4096]):
        (at / "from" / "deep" / f"f{i}").write_bytes(bytes([i]) * size)
    (at / "big").write_bytes(os.urandom(1 << 20) * 24)
    one = Node(at)
    try:
        one.begin()
        yield one
    finally:
        one.end()
        shutil.rmtree(at, ignore_errors=True)
