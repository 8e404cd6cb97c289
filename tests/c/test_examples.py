"""The numbered examples print what they should in each language, and the programs in the documents run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from building import SANITIZERS, run
from documents import programs
from node import node
from support import ROOT, command
from tipsy_files import example

EXAMPLES = ROOT / "examples"
NAMES = sorted(p.stem for p in (EXAMPLES / "expected").glob("*.txt"))

# Those that are run on a snapshot, and the others on flights.
SNAPSHOTS = ["08_tipsy", "09_tree_pieces"]


def expected(name: str) -> str:
    return (EXAMPLES / "expected" / f"{name}.txt").read_text()


@pytest.fixture
def data(name, flights, tmp_path) -> Path:
    """What an example is run on."""
    if name in SNAPSHOTS:
        example(tmp_path / "galaxy.tipsy")
        return tmp_path / "galaxy.tipsy"
    return flights


def test_every_example_is_there_in_every_language():
    for folder, suffix in (("c", ".c"), ("cpp", ".cpp"), ("rust", ".rs")):
        assert sorted(p.name for p in (EXAMPLES / folder).iterdir()) == [n + suffix for n in NAMES]
    # In Python, where tests/python runs them, there are more.
    python = sorted(p.stem for p in (EXAMPLES / "python").glob("*.py"))
    assert set(NAMES) <= set(python)
    for name in python:
        assert f"`{name}`" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", ["c", "cpp"])
def test_examples_in_c_and_cpp(installed, data, tmp_path, folder, name):
    program = installed.compile(EXAMPLES / folder / f"{name}.{folder}", tmp_path)
    assert installed.run(program, data) == expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_examples_in_rust(data, name):
    """They are built with the tests (`cargo test`, `cargo build -p stead --examples`)."""
    program = Path(command()).parent / "examples" / name
    assert program.is_file(), "build the examples first: cargo build -p stead --examples"
    assert run(program, data) == expected(name)


@pytest.mark.parametrize("name", SNAPSHOTS)
@pytest.mark.parametrize("folder", ["c", "cpp"])
def test_examples_load_every_variant_of_snapshots(installed, tmp_path, folder, name):
    program = installed.compile(EXAMPLES / folder / f"{name}.{folder}", tmp_path, *SANITIZERS)
    for variant in [("<", 28, "f4", "f4"), (">", 28, "f8", "f4"), ("<", 32, "f8", "f8")]:
        example(tmp_path / "galaxy.tipsy", **dict(zip(("order", "length", "pos", "vel"), variant, strict=True)))
        assert installed.run(program, "galaxy.tipsy", cwd=tmp_path) == expected(name)


@pytest.mark.parametrize("block", programs(), ids=str)
def test_programs_of_the_documents(installed, flights, tmp_path, block):
    (tmp_path / "flights.csv").symlink_to(flights)
    source = tmp_path / f"program.{block.kind}"
    source.write_text(block.text)
    program = installed.compile(source, tmp_path)
    if "stead_daemon" not in block.text:
        # What streams there are of this user is nothing to them.
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            (tmp_path / "own.toml").write_text(f'[dataspace.memory]\npath = "{memory}"\n')
            assert run(program, cwd=tmp_path, env={**installed.env, "STEAD_CONFIG": str(tmp_path / "own.toml")}) != ""
        return
    with node() as one:
        env = {**installed.env, "STEAD_SOCKET": str(one.path)}
        assert run(program, cwd=tmp_path, env=env) == "transfer 1 is done\n"
