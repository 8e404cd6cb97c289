"""Programs that read what they are told to, and a disk that fails."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).parent
CHANGED, IO = 6, 9
PAGE = 4096
LIBC = ctypes.CDLL(None, use_errno=True)
CACHESTAT = 451
#: Options of a session, as C has them.
ON_DEMAND, DIRECT, URING, PREAD = 1, 2, 4, 8


class Reader:
    """A program that has a session over a file."""

    def __init__(self, command: list, path: Path, flags: int, env: dict | None = None):
        self.path = path
        self.program = subprocess.Popen(
            [*map(str, command), str(path), str(flags)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | (env or {}),
        )  # fmt: skip
        assert self.program.stdout.readline() == "ready\n"

    def say(self, way: str, offset: int, length: int) -> None:
        self.program.stdin.write(f"{way} {offset} {length}\n")
        self.program.stdin.flush()

    def hear(self) -> tuple[str, ...]:
        return tuple(self.program.stdout.readline().rstrip("\n").split(maxsplit=3))

    def ask(self, way: str, offset: int, length: int) -> tuple[str, ...]:
        self.say(way, offset, length)
        return self.hear()

    def fails(self, way: str, offset: int, length: int, kind: int, at: int) -> None:
        assert self.ask(way, offset, length) == ("error", str(kind), str(at), str(self.path)), (way, offset, length)

    def gives(self, way: str, offset: int, length: int, data: bytes) -> None:
        assert self.ask(way, offset, length) == right(way, offset, length, data), (way, offset, length)

    def strides(self, bad: int, data: bytes) -> None:
        """Between its pieces, bad bytes are nobody's."""
        self.gives("strided", bad - 1000, 2000, data)
        self.fails("strided", bad - 10_500, 2000, IO, bad)

    def end(self) -> None:
        self.program.stdin.close()
        assert self.program.wait(60) == 0
        self.program.stdout.close()


def right(way: str, offset: int, length: int, data: bytes) -> tuple[str, str]:
    part = data[offset : offset + length]
    if way == "strided":
        # Pieces at some distance, so many that they have that many bytes together.
        part = b"".join(data[offset + 10_000 * i :][:1000] for i in range(length // 1000))
    return ("ok", str(zlib.adler32(part)))


#: Of ranges. C has "strided", too.
WAYS = {"c": ["view", "into", "queue"], "cpp": ["view", "into", "stream"], "python": ["view", "into", "await", "stream"]}


def idle_threads(pid: int) -> int:
    """Threads of a process whose reads and writes go when a device has nothing else to do."""
    get = {"x86_64": 252, "aarch64": 31}[platform.machine()]
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return 0
    return sum(LIBC.syscall(get, 1, int(thread)) >> 13 == 3 for thread in threads)


def stopped(process: subprocess.Popen) -> None:
    """Stops all its threads, and waits until they are."""
    process.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{process.pid}/task").glob("*/stat")]
        except OSError:
            continue
        if all(state in "TtZX" for state in states):
            return
        time.sleep(0.002)
    raise AssertionError("it does not stop")


class Disk:
    """A file on a file system on a disk that does as it is told."""

    SIZE = 12 << 20
    data = random.Random(1).randbytes(SIZE)

    def __init__(self, into: Path):
        for name in ("files", "disk", "mounted"):
            (into / name).mkdir()
        (into / "files" / "data").write_bytes(self.data)
        image = into / "image"
        image.touch()
        os.truncate(image, 32 << 20)
        self.do("mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^has_journal", "-d", into / "files", image)
        written = image.read_bytes()
        # Where on the disk each page of the file lies.
        self.places: list[int] = []
        for at in range(0, self.SIZE, PAGE):
            page = self.data[at : at + PAGE]
            follows = self.places[-1] + PAGE if self.places else 0
            self.places.append(follows if written.startswith(page, follows) else written.find(page))
        assert min(self.places) >= 0
        self.pages = {place: i * PAGE for i, place in enumerate(self.places)}
        self.server = subprocess.Popen(
            [sys.executable, HERE / "disk.py", image, into / "disk", into / "mounted"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            if self.server.stdout.readline() != "ready\n":
                raise OSError(self.server.stderr.read().strip().splitlines()[-1])
            device = self.do("losetup", "--find", "--show", "--read-only", "--direct-io=on", into / "disk" / "disk").strip()
            try:
                self.do("mount", "-t", "ext4", "-o", "ro,noload", device, into / "mounted")
            finally:
                # It goes with the last that uses it.
                self.do("losetup", "--detach", device)
        except BaseException:
            self.end()
            raise
        self.file = into / "mounted" / "data"

    def do(self, *command) -> str:
        try:
            return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, timeout=60).stdout
        except subprocess.CalledProcessError as e:
            raise OSError(f"{command[0]}: {e.stderr.strip()}") from None

    def rule(self, **rules) -> list[int]:
        """What holds from now on, for ranges of the file that lie within a page; the pages of it that were read since the
        last time."""
        for name in ("bad", "held"):
            if name in rules:
                rules[name] = [(self.place(a), self.place(a) + b - a) for a, b in rules[name]]
        self.server.stdin.write(json.dumps(rules) + "\n")
        self.server.stdin.flush()
        reads = json.loads(self.server.stdout.readline())
        read = (place for offset, size in reads for place in range(offset, offset + size, PAGE))
        return [self.pages[place] for place in read if place in self.pages]

    def place(self, offset: int) -> int:
        return self.places[offset // PAGE] + offset % PAGE

    def forget(self) -> None:
        """Nothing of it is in memory. What is on its way there cannot be taken out, as after a test whose sector was held."""
        file = os.open(self.file, os.O_RDONLY)
        until = time.monotonic() + 60
        while True:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            if not self.cached(file) or time.monotonic() > until:
                break
            time.sleep(0.01)
        left = self.cached(file)
        os.close(file)
        assert not left, f"{left} pages stay in memory"

    @staticmethod
    def cached(file: int) -> int:
        """Pages of a file that are in memory; none where the system does not tell (`cachestat`, Linux 6.5)."""
        part, pages = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
        return 0 if LIBC.syscall(CACHESTAT, file, part, pages, 0) else pages[0]

    def end(self) -> None:
        self.server.stdin.close()
        self.server.wait(60)
        self.server.stdout.close()
        self.server.stderr.close()
