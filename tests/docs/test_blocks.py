"""No block of a document is looked at by nobody: what it is decides which test has it, and what is none of that is listed.

Sessions, snippets of Python, programs and what is typed into a shell are run by `test_docs.py`, `tests/c/test_examples.py` and
`test_shell.py`. Here are the others.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import stead
from documents import BLOCKS, Block, programs
from support import ROOT, command

#: Those that nothing can run, by page and first line, and why.
PICTURES = {
    ("ARCHITECTURE.md", "files -> store: bytes of extents -> format: blocks -> filter -> kernels: states -> merge -> finish -> report"): "a drawing",
    ("docs/computing-near-the-data.md", "plan"): "what hosts print that the tests do not have; its shape is tested in tests/mpi/test_place.py",
    ("docs/flows.md", "stead flow run small.toml --background --on node7"): "the tests of pages have no pool; tests/mpi/test_pool_streams.py and tests/python/test_daemon_flows.py give such",
    ("docs/json.md", "{"): "an outline; the tables below it are compared with reports",
    ("docs/limits.md", "stead: FILE:LINE: column 'NAME': what is wrong"): "the shape of a message; tests/oracle/test_errors.py has messages",
    ("docs/protocol.md", '{"protocol": 1, "version": "0.1.0", "node": "node7", "user": 1000, "drained": false, "job": null}'): "tests/faults/test_daemon.py has this page",
    ("docs/protocol.md", '{"failed": {"kind": "usage", "message": "there is no transfer 9", "hint": "stead stage --list shows those of this user, stead admin transfers those of others"}}'): "the same",
    ("docs/protocol.md", '{"action": "copy", "sources": ["/data/a.h5", "nvme0://run1/"], "target": "lustre://run1/",'): "the same",
    ("docs/staging.md", "stead persist store nvme0://run1 --expires 30d"): "tests/faults/test_admin.py gives such, to another user",
    ("docs/staging.md", """aws s3api put-bucket-lifecycle-configuration --bucket BUCKET --lifecycle-configuration '{"Rules": [{"ID": "unfinished","""): "a tool of others",
    ("docs/staging.md", "stead stage node7:/scratch/run1/ nvme0://run1/"): "the tests of pages have no pool; tests/mpi/test_pool.py gives such",
    ("docs/steadd.md", "srun --mpi=pmix --kill-on-bad-exit --nodes=16 --ntasks-per-node=1 stead daemon --pool"): "the same; tests/mpi/test_slurm_jobs.py gives such",
    ("docs/steadd.md", "stead stage node2:/scratch/run1/ nvme0://run1/         from node2 to this node"): "the same",
    ("docs/steadd.md", "stead admin dataspace add nvme0 path=/mnt/nvme quota=6TB user_quota=1TB expires=14d"): "tests/faults/test_admin.py gives such",
    ("docs/steadd.md", "stead admin dataspace add burst path=/mnt/burst transfers=4 limit=2GB/s"): "tests/faults/test_tiers.py gives such",
    ("docs/steadd.md", "#!/bin/sh"): "the tests have no jobs of Slurm with root's scripts; tests/faults/test_admin.py gives these commands",
    ("docs/steadd.md", "systemctl --user enable --now steadd"): "the same as of the unit of the system below",
    ("docs/steadd.md", "systemctl enable --now steadd"): "the tests have no systemd; systemd-analyze looks at the unit in tests/c/test_install.py",
}

#: What stands before a part of a program in C, by what is in it.
DECLARED = {
    "stead_MPI_File_read_ex(": "MPI_Comm compute; MPI_File file; MPI_Datatype filetype; MPI_Status status; double sum; int count;",
    "stead_mpi_file_open(": "int argc, level; char **argv; stead_file *file; stead_session *session; stead_view view; uint64_t offset, length;",
    "stead_mpi_tipsy_open(": "stead_tipsy *snapshot; uint64_t piece, pieces; struct stead_tipsy_column *columns; size_t n;",
    "stead_read_options options": "",
    "stead_mpi_coupling(": "",
}


def included(block: Block) -> None:
    """A file that is there, has the part that is named, and is known to a test."""
    named = re.fullmatch(r'--8<-- "([^":]+)(?::(\w+))?"\n', block.text)
    assert named, block.text
    file = ROOT / named[1]
    text = file.read_text(encoding="utf-8")
    assert not named[2] or (f"[start:{named[2]}]" in text and f"[end:{named[2]}]" in text), named[2]
    if file.is_relative_to(ROOT / "include"):
        return
    if (ROOT / "examples" / "expected" / f"{file.stem}.txt").exists() and file.parent.name in ("c", "cpp", "rust"):
        return
    tests = [*(ROOT / "tests").rglob("*.py"), ROOT / "scripts" / "mpi.sh"]
    assert any(re.search(rf"\b{file.stem}\b", t.read_text(encoding="utf-8")) for t in tests), f"no test runs {named[1]}"


def part_of_c(block: Block, tmp_path: Path) -> None:
    compiler = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
    if compiler is None:
        pytest.skip("there is no mpicc")
    declared = [text for call, text in DECLARED.items() if call in block.text]
    assert declared, "say in DECLARED what stands before it"
    source = tmp_path / "part.c"
    headers = "".join(f"#include <{h}>\n" for h in ("mpi.h", "stead.h", "stead_mpi.h", "stead_mpi_io.h"))
    source.write_text(f"{headers}void part(void);\nvoid part(void) {{\n{declared[0]}\n{block.text}}}\n")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-Wno-uninitialized", f"-I{ROOT / 'include'}"]
    done = subprocess.run([compiler, *flags, "-fsyntax-only", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


FORTRAN = """subroutine part(step)
    use, intrinsic :: iso_c_binding
    use stead_stream
    type(c_ptr) :: step, data, array
    integer(c_int64_t) :: nx
    integer(c_int) :: status
    real(c_double), pointer :: column(:, :)
    nx = 5
{}end subroutine
"""


def part_of_fortran(block: Block, tmp_path: Path) -> None:
    """Is compiled, with what it takes for granted."""
    if not shutil.which("gfortran"):
        pytest.skip("there is no gfortran")
    source = tmp_path / "part.f90"
    source.write_text(FORTRAN.format(block.text))
    words = ["gfortran", "-std=f2018", "-Wall", f"-J{tmp_path}", "-c", ROOT / "include" / "stead_stream.f90", source]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def part_of_rust(block: Block, tmp_path: Path) -> None:
    deps = Path(command()).parent / "deps"
    # One for each set of features that it was built with; an old one may be of crates that are there no more.
    libraries = sorted(deps.glob("libstead-*.rlib"), key=lambda p: p.stat().st_mtime, reverse=True)
    assert libraries, "build it first: cargo build --workspace"
    source = tmp_path / "part.rs"
    body = f"fn main() -> stead::Result<()> {{\n{block.text}Ok(())\n}}\n"
    source.write_text(f"#![allow(unused_variables, unused_imports)]\nuse stead::read::Options;\n{body}")
    flags = ["--edition=2024", "--emit=metadata", "-L", f"dependency={deps}", "--extern"]
    said = []
    for library in libraries:
        done = subprocess.run(["rustc", *flags, f"stead={library}", source], cwd=tmp_path, capture_output=True, text=True)
        if done.returncode == 0:
            return
        said.append(done.stderr)
    pytest.fail("\n".join(said))


def part_of_python(block: Block) -> None:
    """What cannot be run without hosts: each call is one that the package has, with these arguments."""
    of = {"stead": stead, "ds": stead.Dataset, "site": stead.Site, "t": stead.Transfer, "d": stead.Daemon, "clear": stead.Handed, "flow": stead.Flow}
    bound = 0
    for call in ast.walk(ast.parse(block.text)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            owner = of[call.func.value.id]
            function = getattr(owner, call.func.attr)
            this = [] if owner is stead else [None]
            inspect.signature(function).bind(*this, *call.args, **{k.arg: k.value for k in call.keywords})
            bound += 1
    assert bound, "there is no call in it"


def part_of_toml(block: Block) -> None:
    said = tomllib.loads(block.text)
    if "dependencies" in said:
        for name, where in said["dependencies"].items():
            # Beside a clone that is called `stead`.
            folder = ROOT / where["path"].removeprefix("../stead/")
            crate = tomllib.loads((folder / "Cargo.toml").read_text())
            assert crate["package"]["name"] == name
            assert set(where.get("features", [])) <= set(crate.get("features", {}))
    elif "parts" in said:
        # A test of the room reads all of them.
        assert block.page == "docs/layouts.md"
        assert 'include_str!("../../../../docs/layouts.md")' in (ROOT / "crates" / "core" / "src" / "layout" / "tests.rs").read_text()
    elif "write" in said:
        stead.flow(block.text).check()
    elif "read" in said:
        # What is said of a stream that a flow reads.
        (stream, source), *_ = said["read"].items()
        name = next(iter(source["variables"]))
        told = stead.flow(f'{block.text}\n[node.a]\nop = "reduce"\nof = "{stream}.{name}"\nhow = "sum"\n[write.out]\nvariables = {{ a = "a" }}\n').check()
        assert told["nodes"][0]["makes"] == ["f64 []"]
    else:
        # The profile that test_shell.py gives to jobs.
        assert {"sites", "tiers", "links"} <= set(said)


def part_of_configuration(block: Block, tmp_path: Path) -> None:
    """What a `stead.toml` may say: the command reads it."""
    path = tmp_path / "stead.toml"
    path.write_text(block.text)
    env = os.environ | {"STEAD_CONFIG": str(path), "STEAD_STATE": str(tmp_path), "STEAD_SOCKET": "none", "USER": "ada"}
    done = subprocess.run([command(), "df", "--format", "json"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    said = tomllib.loads(block.text)["dataspace"]
    assert set(said) <= {space["name"] for space in json.loads(done.stdout)}


def generated(block: Block) -> None:
    """The page of kernels is compared with the command; what it shows is how they are written."""
    shown = block.text.splitlines()
    of_kernels = [[k.usage] for k in stead.kernels()] + [k.examples for k in stead.kernels()]
    assert shown in of_kernels or shown[0].startswith("NAME "), shown


ELSEWHERE = {"console", "python", "sh"}
REST = [b for b in BLOCKS if b.kind not in ELSEWHERE and not b.shell and b not in programs()]


@pytest.mark.parametrize("block", REST, ids=str)
def test_blocks(block, tmp_path):
    if (block.page, block.first) in PICTURES:
        return
    if block.included:
        included(block)
    elif block.kind == "c":
        part_of_c(block, tmp_path)
    elif block.kind == "rust":
        part_of_rust(block, tmp_path)
    elif block.kind == "fortran":
        part_of_fortran(block, tmp_path)
    elif block.kind == "py":
        part_of_python(block)
    elif block.kind == "toml":
        part_of_toml(block)
    elif block.kind == "text" and block.first.startswith("[dataspace."):
        part_of_configuration(block, tmp_path)
    elif block.kind == "indented" and block.page == "docs/kernels.md":
        generated(block)
    else:
        pytest.fail(f"{block}: no test runs a block of kind '{block.kind}' that begins with: {block.first}")


def test_what_is_listed_is_there():
    assert set(PICTURES) <= {(b.page, b.first) for b in REST}


def test_no_kind_is_forgotten():
    """What a test finds by its kind is there: a mistake in reading the documents would empty it."""
    kinds = {kind: sum(b.kind == kind for b in BLOCKS) for kind in {b.kind for b in BLOCKS}}
    assert kinds["console"] > 20 and kinds["python"] > 20 and len(programs()) > 8, kinds
    assert sum(b.shell for b in BLOCKS) > 20 and sum(b.included for b in BLOCKS) > 15


@pytest.mark.parametrize("kernel", stead.kernels(), ids=lambda k: k.name)
def test_examples_of_kernels_run(kernel, tmp_path, monkeypatch):
    """Those of `stead kernels NAME` and of docs/kernels.md, over a table or a volume."""
    # Outputs without a name are written to where one is.
    monkeypatch.chdir(tmp_path)
    columns = ["arr_delay", "dep_delay", "distance", "x", "y", "z"]
    rows = ("".join(f"{(i * 7 + c * 3) % 101}," for c in range(len(columns))) for i in range(500))
    (tmp_path / "table.csv").write_text(",".join(columns) + "\n" + "".join(f"{row[:-1]}\n" for row in rows))
    np.save(tmp_path / "volume.npy", np.arange(4096.0).reshape(16, 16, 16))
    for example in kernel.examples:
        stead.run("volume.npy" if kernel.name == "render" else "table.csv", example)
