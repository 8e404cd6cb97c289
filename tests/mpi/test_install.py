"""`make install MPI=...`: programs find libstead_mpi by pkg-config, and Python by its name."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import BUILT, launch, run
from support import ROOT, command

INSTALL = ROOT / "scripts" / "install.sh"
MPI = BUILT / "openmpi"


def install(prefix: Path, **given: str) -> subprocess.CompletedProcess:
    env = os.environ | {"PREFIX": str(prefix), "BUILT": str(Path(command()).parent)} | given
    return subprocess.run([INSTALL], env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    prefix = tmp_path_factory.mktemp("prefix")
    done = install(prefix, MPI=str(MPI / "libstead_mpi.so"))
    assert done.returncode == 0, done.stderr
    return prefix


def test_programs_are_linked_by_pkg_config(prefix, file, tmp_path):
    env = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib")}
    flags = run(["pkg-config", "--cflags", "--libs", "stead_mpi"], env).split()
    mpicc = "mpicc.openmpi" if subprocess.run(["which", "mpicc.openmpi"], capture_output=True).returncode == 0 else "mpicc"
    run([mpicc, "-std=c11", "-Werror", ROOT / "examples" / "mpi" / "read.c", *flags, "-o", tmp_path / "read"])
    needed = run(["readelf", "-d", tmp_path / "read"])
    assert re.search(r"\[libstead_mpi\.so\.\d", needed) and re.search(r"\[libstead\.so\.\d", needed)
    out = run([*launch("openmpi", 2), tmp_path / "read", file], env)
    assert out.strip() == f"sum of the bytes: {sum(file.read_bytes())}"


def test_programs_that_compute_by_mpi_io_are_linked_by_pkg_config(prefix, tmp_path):
    env = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib")}
    flags = run(["pkg-config", "--cflags", "--libs", "stead_mpi_io"], env).split()
    libraries = [word for word in flags if word.startswith("-l")]
    assert libraries == ["-lstead_mpi_io", "-lstead_mpi", "-lstead"], "each stands before what it calls, and all before MPI"
    mpicc = "mpicc.openmpi" if subprocess.run(["which", "mpicc.openmpi"], capture_output=True).returncode == 0 else "mpicc"
    run([mpicc, "-std=c11", "-Werror", ROOT / "examples" / "mpi" / "read_ex.c", *flags, "-o", tmp_path / "read_ex"])
    assert re.search(r"\[libstead_mpi_io\.so\.\d", run(["readelf", "-d", tmp_path / "read_ex"]))
    (tmp_path / "doubles").write_bytes(struct.pack("<3000d", *range(3000)))
    out = run([*launch("openmpi", 2), tmp_path / "read_ex", tmp_path / "doubles"], env)
    assert out.strip() == f"sum: {sum(range(3000))}"
    assert (prefix / "include" / "stead_mpi_io.hpp").exists() and all((prefix / "include" / f"stead_mpi_{face}.f90").exists() for face in ("io", "io_f08", "stream", "stream_f08"))


def test_python_finds_it_where_libraries_are(prefix, file):
    env = {"LD_LIBRARY_PATH": str(prefix / "lib"), "MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": ""}
    out = run([*launch("openmpi", 2), sys.executable, ROOT / "examples" / "mpi" / "read.py", file], env)
    assert out.strip() == f"sum of the bytes: {sum(file.read_bytes())}"


def test_without_being_asked_nothing_of_mpi_is_installed(tmp_path):
    assert install(tmp_path).returncode == 0
    assert (tmp_path / "include" / "stead.h").exists()
    assert list((tmp_path / "include").glob("*mpi*")) + list((tmp_path / "lib").rglob("*mpi*")) == []


def test_an_mpi_that_is_not_there_is_told(tmp_path):
    for given in ({"MPI": "1", "MPICC": "no-such-mpicc"}, {"MPI": str(tmp_path / "no.so")}):
        done = install(tmp_path / "prefix", **given)
        assert done.returncode == 1 and "there is no" in done.stderr
        assert not (tmp_path / "prefix").exists()
