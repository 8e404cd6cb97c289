#!/usr/bin/env python3
"""Stands for commands of the documents, by the name that it is called by: runs what was built in place of building it, and jobs
of MPI over hosts of a lab that has other names. `test_shell.py` puts it on the PATH.

Of its environment: DOCS_ROOT is the clone, DOCS_BUILT the folder of the command, DOCS_MPI that of what is built with Open MPI,
DOCS_LAB a lab, DOCS_LOCAL what its hosts have each for itself, DOCS_FLIGHTS the flights.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT, BUILT, MPI = (Path(os.environ[f"DOCS_{name}"]) for name in ("ROOT", "BUILT", "MPI"))

#: What ranks are told, which an agent of mpirun does not hand on.
TOLD = ("STEAD_CONFIG", "STEAD_CACHE", "STEAD_PROFILE", "STEAD_MPI_LIBRARY", "LD_LIBRARY_PATH", "MPI4PY_MPIABI", "PATH")

#: Each host has a folder of its own behind the paths of all: what a program has written there, and its dataspaces.
ON_A_HOST = """
export NODE=$(hostname)
if [ -d "$DOCS_LOCAL/$NODE" ]; then
  for folder in "$DOCS_LOCAL/$NODE"/*; do
    mountpoint -q "$(basename "$folder")" || mount --bind "$folder" "$(basename "$folder")"
  done
fi
exec "$@"
"""


def run(*words: object, **env: str) -> None:
    """Becomes a command."""
    sys.exit(subprocess.run([str(w) for w in words], env=os.environ | env).returncode)


def named(name: str) -> str:
    """A command of Open MPI, where the machine may have another MPI, too."""
    return shutil.which(f"{name}.openmpi") or shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") or sys.exit(f"no {name}")


def program(words: list[str]) -> list[str]:
    """What ranks run: the command that knows MPI, and only briefly what measures."""
    if words[0] == "stead":
        words = [str(MPI / "stead"), *words[1:]]
        if words[1] == "calibrate":
            words += ["--seconds", "0.5"]
    return words


def mpirun(words: list[str]) -> None:
    ranks, hosts = None, None
    while words[0].startswith("-"):
        option, *words = words
        option, equals, value = option.partition("=")
        if not equals:
            value, *words = words
        if option in ("-n", "-N"):
            ranks = int(value)
        elif option == "--host":
            hosts = [name.split(":")[0] for name in value.split(",")]
        elif option == "-w":
            lists = re.findall(r"([a-z]+)\[(\d+)-(\d+)\]", value)
            hosts = [f"{name}{i}" for name, first, last in lists for i in range(int(first), int(last) + 1)]
        elif option != "--mpi":
            sys.exit(f"mpirun {option}: say in typed.py what it means")
    if hosts is None:
        few = ["--oversubscribe", "--allow-run-as-root", "--mca", "mpi_yield_when_idle", "1"]
        run(named("mpirun"), *few, "-n", ranks, *program(words))
    # Hosts of a lab are called host1 to hostN.
    names = {name: i for i, name in enumerate(hosts, 1)}
    lists = re.compile(r"\b([a-z]+)\[(\d+)-(\d+)\]")
    words = [lists.sub(lambda m: f"host[{names[m[1] + m[2]]}-{names[m[1] + m[3]]}]", word) for word in words]
    given = [f"{name}={os.environ[name]}" for name in TOLD if name in os.environ]
    if words[:2] == ["stead", "put"]:
        # Later lines find the layout by the name of the file, where there is no such file.
        atexit.register(Path(words[2]).unlink)
    shell = ["env", f"DOCS_LOCAL={os.environ['DOCS_LOCAL']}", *given, "bash", "-c", ON_A_HOST, "bash"]
    run(ROOT / "lab" / "lab", "run", os.environ["DOCS_LAB"], "-n", ranks or len(hosts), *shell, *program(words))


def make(words: list[str]) -> None:
    if words[0] == "install":
        # What was built is installed.
        given = dict(word.split("=", 1) for word in words[1:])
        assert set(given) <= {"PREFIX", "MPI"}, words
        if "MPI" in given:
            given["MPI"] = str(MPI / "libstead_mpi.so")
        run(ROOT / "scripts" / "install.sh", BUILT=str(BUILT), **given)
    if words == ["demo"]:
        # What it leaves, and nothing else of it.
        Path(".build/demo").mkdir(parents=True, exist_ok=True)
        Path(".build/demo/flights.csv").unlink(missing_ok=True)
        Path(".build/demo/flights.csv").symlink_to(os.environ["DOCS_FLIGHTS"])
    # There is such a target, and all that it needs.
    run("/usr/bin/make", "--dry-run", "--directory", ROOT, *words)


def cargo(words: list[str]) -> None:
    match words:
        case ["run", "-p", "stead", "--example", name, *arguments]:
            run(BUILT / "examples" / name, *arguments)
        case ["new" | "add", *_]:
            run(os.environ["DOCS_CARGO"], *words, CARGO_NET_OFFLINE="true")
    sys.exit(f"cargo {words}: say in typed.py what it means")


def main() -> None:
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if name in ("mpirun", "srun"):
        mpirun(words)
    elif name == "make":
        make(words)
    elif name == "cargo":
        cargo(words)
    elif name in ("mpicc", "mpifort"):
        run(named(name), *words)
    sys.exit(f"{name}?")


if __name__ == "__main__":
    main()
