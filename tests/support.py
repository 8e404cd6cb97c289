"""What all tests share: the command under test, and ways to compare with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / ".build" / "data"
#: Tests that take long and say of more cases what others say are for `make test-all`.
in_all = pytest.mark.skipif(os.environ.get("STEAD_TESTS") != "all", reason="it is of make test-all")
#: Tests make folders in memory, and such as have short names, outside of their own ones. Each has the number of its process in its name.
tempfile.template = f"stead-p{os.getpid()}-"
MADE = re.compile(r"stead-p(\d+)-[a-z0-9_]{8}|stead-(?:test|test-ranks|campaign)-(\d+)")
SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def sweep(*tops: Path) -> None:
    """Removes what tests have left there that were killed: only what has such a name, is this user's, and is of no process that lives."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in (path for top in tops if top.is_dir() for path in top.iterdir()):
        made = MADE.fullmatch(path.name)
        if made is None or Path(f"/proc/{made[1] or made[2]}").exists() or any(at.startswith(str(path)) for at in mounted):
            continue
        with suppress(OSError):
            if path.lstat().st_uid != os.geteuid():
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def repeats(does: bool) -> None:
    """As `in_all`, of a case of a test: one that says with an MPI, or of so many ranks, what other cases say of the same code."""
    if does and os.environ.get("STEAD_TESTS") != "all":
        pytest.skip("it is of make test-all")


def plain(value):
    """A result as Python sees it: the three numbers that JSON lacks become floats again."""
    if isinstance(value, str):
        return SPECIAL.get(value, value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


class Stead:
    """The command, run in a directory of its own."""

    def __init__(self, path: str, cwd: Path):
        self.path, self.cwd = path, cwd

    def __call__(self, *args, code: int | None = 0, timeout=300, **kwargs) -> subprocess.CompletedProcess:
        """Runs `stead ARGS` and checks its exit code (any code if `None`)."""
        command = [self.path, *map(str, args)]
        kwargs.setdefault("cwd", self.cwd)
        done = subprocess.run(command, capture_output=True, timeout=timeout, **kwargs)
        assert b"panicked" not in done.stderr, done.stderr.decode()
        if code is not None:
            assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout!r}\n{done.stderr.decode()}"
        return done

    def document(self, dataset, *specs, **options) -> dict:
        """The JSON document of a run. Options: `by="a,b"` is `--by a,b`, `lenient=True` is `--lenient`."""
        args = ["run", *(dataset if isinstance(dataset, (list, tuple)) else [dataset])]
        for spec in specs:
            args += ["-k", spec]
        for name, value in options.items():
            flag = "--" + name.rstrip("_").replace("_", "-")
            if value is True:
                args.append(flag)
            else:
                for v in value if isinstance(value, list) else [value]:
                    args.append(f"{flag}={v}")
        return json.loads(self(*args, "--format", "json").stdout)

    def results(self, dataset, *specs, **options) -> list:
        """Results in the order of `specs`."""
        results = self.document(dataset, *specs, **options)["results"]
        return [plain(results[s]) for s in specs]

    def result(self, dataset, spec, **options):
        return self.results(dataset, spec, **options)[0]

    def fails(self, *args, code: int, says: tuple[str, ...] = (), **kwargs) -> str:
        """Runs a command that must fail with `code`, print nothing else, and say all of `says`."""
        done = self(*args, code=code, **kwargs)
        message = done.stderr.decode()
        assert done.stdout == b"", done.stdout
        for word in says:
            assert word in message, f"{word!r} is not in: {message}"
        return message


def command() -> str:
    path = os.environ.get("STEAD") or str(ROOT / "target" / "debug" / "stead")
    if not Path(path).is_file():
        pytest.exit(f"{path} is not there; build it first (cargo build -p stead-cli) or set STEAD", 1)
    return str(Path(path).resolve())


@contextmanager
def unanswered() -> Iterator[str]:
    """The URL of a server that does not answer: its port is taken, and nobody listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def spent(pid: int) -> tuple[float, int]:
    """Seconds of processors that a process has taken, and how often its threads that are there have gone to sleep."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    naps = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            naps += int((task / "status").read_text().rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK"), naps


def bits(x: float) -> int:
    """The bits of a float, one pattern for all NaN."""
    return -1 if x != x else struct.unpack("<Q", struct.pack("<d", x))[0]


def same(a: float, b: float) -> bool:
    """Equal to the last bit."""
    return bits(a) == bits(b)


def read_png(path) -> np.ndarray:
    """The pixels of a PNG with 8 bits a channel, without interlacing."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, header = 8, b"", None
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + body) == int.from_bytes(data[at + 8 + length : at + 12 + length], "big")
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    assert header[8] == 8 and header[12] == 0
    channels = {0: 1, 2: 3, 6: 4}[header[9]]
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    out = np.zeros((height, width * channels), np.int64)
    for y in range(height):
        kind, line = rows[y, 0], rows[y, 1:].astype(np.int64)
        above = out[y - 1] if y else np.zeros_like(line)
        for x in range(len(line)):
            left = out[y, x - channels] if x >= channels else 0
            corner = above[x - channels] if x >= channels else 0
            p = left + above[x] - corner
            near = min((abs(p - left), 0, left), (abs(p - above[x]), 1, above[x]), (abs(p - corner), 2, corner))[2]
            out[y, x] = (line[x] + [0, left, above[x], (left + above[x]) // 2, near][kind]) % 256
    return out.reshape(height, width, channels)[:, :, :3]
