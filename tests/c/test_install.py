"""`make install`: what lies where, and that other build systems find it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from building import HERE, install, run
from support import ROOT

VERSION = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
SERIES = VERSION.rsplit(".", 1)[0] if VERSION.startswith("0.") else VERSION.split(".")[0]


def test_what_is_installed(installed):
    there = {str(p.relative_to(installed.prefix)) for p in installed.prefix.rglob("*") if not p.is_dir()}
    wanted = {
        "bin/stead",
        "bin/steadd",
        "lib/systemd/system/steadd.service",
        "share/systemd/user/steadd.service",
        "include/stead.h",
        "include/stead_admin.h",
        "include/stead.hpp",
        "include/stead_flow.hpp",
        "include/stead_kernel.hpp",
        "include/stead_read.hpp",
        "include/stead_reader.hpp",
        "include/stead_layout.hpp",
        "include/stead_stage.hpp",
        "include/stead_stream.hpp",
        "include/stead_stream.f90",
        "include/stead_stream_told.f90",
        "include/stead_stream_buffer.f90",
        "include/stead_admin.hpp",
        "include/stead_tipsy.hpp",
        "lib/libstead.a",
        "lib/libstead.so",
        f"lib/libstead.so.{SERIES}",
        f"lib/libstead.so.{VERSION}",
        "lib/pkgconfig/stead.pc",
        "lib/cmake/stead/steadConfig.cmake",
        "lib/cmake/stead/steadConfigVersion.cmake",
        "share/bash-completion/completions/stead",
        "share/zsh/site-functions/_stead",
        "share/fish/vendor_completions.d/stead.fish",
        "share/man/man1/stead.1",
        "share/man/man1/stead-run.1",
    }
    assert wanted <= there
    assert installed.run(installed.prefix / "bin" / "stead", "--version").split() == ["stead", VERSION]


def test_the_daemon_has_a_name_and_a_unit(installed):
    assert "Usage: steadd" in installed.run(installed.prefix / "bin" / "steadd", "--help")
    unit = installed.prefix / "lib/systemd/system/steadd.service"
    assert f"ExecStart={installed.prefix}/bin/steadd\n" in unit.read_text()
    # tests/faults/test_daemon.py has what is said.
    assert "Type=notify\nNotifyAccess=main\n" in unit.read_text()
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and unit.name not in done.stderr, done.stderr


def test_the_daemon_of_one_user_has_a_unit_that_managers_of_users_find(installed, tmp_path):
    unit = installed.prefix / "share/systemd/user/steadd.service"
    assert f"ExecStart={installed.prefix}/bin/steadd\n" in unit.read_text()
    assert "Type=notify\nNotifyAccess=main\n" in unit.read_text()
    # There are other targets than those of the system; root's daemon is that of all users.
    assert "WantedBy=default.target\n" in unit.read_text() and "ConditionUser=!root\n" in unit.read_text()
    if shutil.which("systemd-analyze"):
        env = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_DATA_DIRS": str(installed.prefix / "share")}
        run_by = {"env": env, "capture_output": True, "text": True, "timeout": 60}
        done = subprocess.run(["systemd-analyze", "--user", "verify", unit], **run_by)
        assert done.returncode == 0 and unit.name not in done.stderr, done.stderr
        looked = subprocess.run(["systemd-analyze", "--user", "unit-paths"], **run_by)
        assert str(unit.parent) in looked.stdout.splitlines(), looked


def test_the_shared_library_has_its_name_and_nothing_but_its_functions(installed):
    library = installed.prefix / "lib" / "libstead.so"
    assert f"[libstead.so.{SERIES}]" in run("readelf", "-d", library)
    symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()]
    # The checksums of object stores come with C functions of their own, which Rust has every shared library export.
    symbols = [symbol for symbol in symbols if not symbol.startswith("crc_fast_")]
    assert [s for s in symbols if not s.startswith("stead_")] == []
    header = "".join((ROOT / "include" / name).read_text() for name in ("stead.h", "stead_admin.h"))
    assert set(symbols) == set(re.findall(r"^[a-z].*?\b(stead_[a-z_0-9]+)\(", header, re.MULTILINE))


def test_pkg_config(installed, tmp_path):
    assert installed.pkg_config("--modversion") == [VERSION]
    for source in ("program.c", "program.cpp"):
        for static in (False, True):
            program = installed.compile(HERE / "cmake" / source, tmp_path, static=static)
            assert installed.run(program) == f"{VERSION} 7\n"
            uses = subprocess.run(["ldd", program], capture_output=True, text=True, env=installed.env).stdout
            assert ("libstead" in uses) != static


def test_cmake(installed, tmp_path):
    run("cmake", "-S", HERE / "cmake", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={installed.prefix}")
    run("cmake", "--build", tmp_path)
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    for program in ("c_stead", "c_stead_static", "cpp_stead", "cpp_stead_static"):
        assert run(tmp_path / program, env=env) == f"{VERSION} 7\n"


@pytest.mark.parametrize("wanted, found", [("0.1", True), ("0.1.0", True), ("0.2", False), ("1.0", False), ("", True)])
def test_cmake_knows_the_version(installed, tmp_path, wanted, found):
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.13)\nproject(p LANGUAGES C)\nfind_package(stead {wanted} QUIET)\n"
        'message(STATUS "found=${stead_FOUND}.")\n'
    )
    said = run("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={installed.prefix}")
    assert f"found={1 if found else 0}." in said


def test_staging_for_a_package(tmp_path):
    install(tmp_path / "usr", tmp_path / "stage")
    assert not (tmp_path / "usr").exists()
    staged = tmp_path / "stage" / str(tmp_path / "usr").lstrip("/")
    assert (staged / "lib" / "libstead.so").is_symlink() and (staged / "bin" / "stead").exists()
    assert f"prefix={tmp_path / 'usr'}\n" in (staged / "lib" / "pkgconfig" / "stead.pc").read_text()
    assert str(tmp_path / "stage") not in (staged / "lib" / "cmake" / "stead" / "steadConfig.cmake").read_text()


def test_a_prefix_must_be_absolute():
    env = {**os.environ, "PREFIX": "out", "BUILT": "."}
    done = subprocess.run([ROOT / "scripts" / "install.sh"], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "no absolute path" in done.stderr
