"""Ways to install what was built into a prefix of the tests' own, and to compile programs against it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support import ROOT, command

HERE = Path(__file__).parent
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror", "-pedantic"]
# Every finding ends the program with a failure.
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


def run(*args, **kwargs) -> str:
    """Runs a command that must succeed; what it prints."""
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=900, **kwargs)
    assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Installed:
    """An installation under `prefix`."""

    def __init__(self, prefix: Path):
        self.prefix = prefix
        self.env = {
            **os.environ,
            "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"),
            "LD_LIBRARY_PATH": str(prefix / "lib"),
        }

    def pkg_config(self, *args: str) -> list[str]:
        return run("pkg-config", *args, "stead", env=self.env).split()

    def compile(self, source: Path, into: Path, *flags: str, standard: str | None = None, static=False) -> Path:
        """Compiles a program, with the flags that pkg-config says."""
        cpp = source.suffix == ".cpp"
        standard = standard or ("c++17" if cpp else "c99")
        program = into / f"{source.stem}-{standard}"
        if static:
            libraries = ["-static", *self.pkg_config("--static", "--libs")]
        else:
            libraries = self.pkg_config("--libs")
        run(
            "g++" if cpp else "gcc", f"-std={standard}", "-g1", *WARNINGS, *flags, *self.pkg_config("--cflags"),
            source, "-o", program, *libraries, "-pthread", "-lm",
        )  # fmt: skip
        return program

    def compile_fortran(self, source: Path, into: Path, *flags: str) -> Path:
        """Compiles a program in Fortran with the modules of streams, which are installed as their sources."""
        program = into / source.stem
        names = ("stead_stream.f90", "stead_stream_told.f90", "stead_stream_buffer.f90")
        modules = [self.prefix / "include" / name for name in names]
        words = ["-std=f2018", "-g1", "-Wall", "-Wextra", "-Werror", f"-J{into}", *flags]
        run("gfortran", *words, *modules, source, "-o", program, *self.pkg_config("--libs"), "-pthread", "-lm")
        return program

    def run(self, *args, **kwargs) -> str:
        return run(*args, env=self.env, **kwargs)


def install(prefix: Path, destdir: Path | None = None) -> None:
    """What `make install` does, without building again."""
    env = {**os.environ, "PREFIX": str(prefix), "BUILT": str(Path(command()).parent)}
    if destdir:
        env["DESTDIR"] = str(destdir)
    run(ROOT / "scripts" / "install.sh", env=env)
