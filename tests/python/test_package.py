"""The package: the command in the wheel, types, imports, examples."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import stead
from stead._kernels import RESULTS
from support import ROOT
from tipsy_files import example as galaxy

COMMAND = Path(sysconfig.get_path("scripts")) / "stead"


def shipped(*args, **options):
    """Runs the command that the wheel installed."""
    return subprocess.run([COMMAND, *map(str, args)], capture_output=True, timeout=60, **options)


@pytest.mark.parametrize(
    "args",
    [
        ["--version"],
        ["--help"],
        ["run", "--help"],
        [],
        ["no-such-verb"],
        ["kernels", "mean"],
        ["run", "x.csv", "-k", "sum:x", "-k", "rows"],
        ["run", "x.csv", "-k", "sum:nope"],
        ["run", "nope.csv", "-k", "rows"],
        ["describe", "x.csv"],
    ],
    ids=" ".join,
)
def test_the_command_is_the_command(cli, tmp_path, args):
    (tmp_path / "x.csv").write_text("x\n1\n2\n")
    ours, theirs = shipped(*args, cwd=tmp_path), cli(*args, code=None)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


def test_the_command_stops_at_ctrl_c(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300_000, 8)))
    job = "kmeans:k=400,tol=0,rounds=30000,init=first"
    child = subprocess.Popen(
        [COMMAND, "run", tmp_path / "x.npy", "-k", job, "--progress", "always"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert b"pass 1" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130 and out == b""
    assert err.endswith(b"stead: stopped before the end\n") and b"Traceback" not in err


def test_a_reader_that_goes_away_ends_the_command_in_silence():
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {COMMAND} kernels grep | head -1"], capture_output=True)
    assert done.stdout.startswith(b"grep - ") and done.stderr == b"" and done.returncode == 0


def test_importing_loads_neither_numpy_nor_pandas():
    code = "import sys, stead; stead.mean('x'); print(sorted({'numpy', 'pandas', 'typing'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['typing']")


def test_the_version_is_that_of_the_wheel():
    assert stead.__version__ == importlib.metadata.version("stead")
    assert f"stead {stead.__version__}\n" == shipped("--version").stdout.decode()


def test_everything_public_is_documented():
    for name in stead.__all__:
        thing = getattr(stead, name)
        if callable(thing):
            assert inspect.getdoc(thing), name
    classes = [c for c in map(stead.__dict__.get, stead.__all__) if isinstance(c, type)]
    assert len(classes) > 25
    for cls in classes:
        # What a class inherits from Python's own is documented there.
        ours = [c for c in cls.__mro__ if c.__module__.split(".")[0] == "stead"]
        for name in {name for c in ours for name in vars(c) if not name.startswith("_")}:
            member = inspect.getattr_static(cls, name)
            if not isinstance(member, (str, type(None))):
                assert inspect.getdoc(member), f"{cls.__name__}.{name}"


@pytest.mark.parametrize("kernel", stead.kernels(), ids=lambda k: k.name)
def test_help_says_what_results_are(kernel):
    """With shapes and units, in the words of the stub, and true ones."""
    said = " ".join(RESULTS[kernel.name].split())
    assert f"Result: {said}." in " ".join(inspect.getdoc(getattr(stead, kernel.name)).split())
    stub = (Path(stead.__file__).parent / "_kernels.pyi").read_text()
    text = re.search(rf'^def {kernel.name}\(.*?-> Spec:\n    """(.*?)"""', stub, flags=re.S | re.M)
    assert " ".join(text[1].split()).endswith(f": {said}.")


def test_results_are_what_help_says(tmp_path):
    table = np.random.default_rng(2).normal(size=(500, 3))
    ds, made = stead.open(table, names=["x", "y", "z"]), {}
    specs = [stead.kmeans(k=4), stead.gram("*"), stead.hist("x", bins=5), stead.quantile("x"), stead.count("x"), stead.mean("x")]
    specs += [stead.normalize("x", out=tmp_path / "x.npy"), stead.mean("*"), stead.rows()]
    for spec, value in ds.run(specs).items():
        made[spec.split(":")[0]] = value
        if isinstance(value, dict) and spec != "mean:*":
            # Each member is named in the text.
            said = RESULTS[spec.split(":")[0]]
            assert [m for m in value if not re.search(rf"\b{m}\b", said)] == [], spec
    shapes = {n: (v.dtype, v.shape) for k in made.values() if isinstance(k, dict) for n, v in k.items() if isinstance(v, np.ndarray)}
    assert shapes == {
        "centroids": ("f8", (4, 3)), "sizes": ("i8", (4,)), "matrix": ("f8", (3, 3)), "edges": ("f8", (6,)), "counts": ("i8", (5,)),
    }  # fmt: skip
    assert isinstance(made["rows"], int) and isinstance(made["count"], int) and isinstance(made["quantile"], float)
    assert list(made["mean"]) == ["x", "y", "z"]


def test_types():
    package = Path(stead.__file__).parent
    assert (package / "py.typed").exists()
    run = [sys.executable, "-m"]
    config = ["--config-file", str(ROOT / "pyproject.toml")]
    env = os.environ | {"MYPY_CACHE_DIR": str(ROOT / ".build" / "mypy")}
    checked = subprocess.run([*run, "mypy", *config, "-p", "stead"], capture_output=True, text=True, env=env)
    assert checked.returncode == 0, checked.stdout
    stubs = [*run, "mypy.stubtest", "--mypy-config-file", config[1], "stead._stead", "stead._kernels"]
    checked = subprocess.run(stubs, capture_output=True, text=True, env=env)
    assert checked.returncode == 0, checked.stdout


def test_each_option_of_a_kernel_is_in_its_stub():
    stub = (Path(stead.__file__).parent / "_kernels.pyi").read_text()
    for k in stead.kernels():
        signature = re.search(rf"^def {k.name}\((.*?)\) -> Spec:", stub, flags=re.S | re.M)
        assert signature, f"{k.name} has no stub"
        for option in re.findall(r"\[,(\w+)(?:=[^\]]*)?\]", k.usage):
            if not option.isupper():
                assert re.search(rf"\b{option}: ", signature[1]), f"{k.name}: {option}"


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "python").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(path, flights, tmp_path):
    (tmp_path / "flights.csv").symlink_to(flights)
    galaxy(tmp_path / "galaxy.tipsy")
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout and not done.stderr, done.stderr
    everywhere = ROOT / "examples" / "expected" / f"{path.stem}.txt"
    if everywhere.exists():
        assert done.stdout == everywhere.read_text()
        return
    # One that is there in Python alone says at its end what it prints.
    shown = re.search(r"^# Prints:\n((?:#.*\n)+)", path.read_text() + "\n", flags=re.M)
    assert shown, "an example ends with what it prints"
    expected = "".join(line[2:] + "\n" for line in shown[1].splitlines())
    assert squeezed(done.stdout) == squeezed(expected)


def squeezed(text: str) -> list[str]:
    """Lines without the spaces at their ends, which editors take away."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]
