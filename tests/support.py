"""What all tests share: the command under test, and ways to compare with it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / ".build" / "data"
SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


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


def bits(x: float) -> int:
    """The bits of a float, one pattern for all NaN."""
    return -1 if x != x else struct.unpack("<Q", struct.pack("<d", x))[0]


def same(a: float, b: float) -> bool:
    """Equal to the last bit."""
    return bits(a) == bits(b)
