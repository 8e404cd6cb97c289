"""What the documents have a reader type into a shell is typed: each page in a folder of its own, from top to bottom.

`typed.py` stands for the commands that would build, and for jobs over hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from documents import BLOCKS, Block
from support import ROOT, command

MPI = ROOT / ".build" / "mpi" / "openmpi"
LAB = ROOT / "lab" / "lab"

#: Lines that are not typed, and why. A test looks that each is still somewhere.
NOT_TYPED = {
    "cargo install --path crates/cli": "builds all anew, as a release; that what `make install` leaves works is looked at elsewhere",
}

#: What stands in the documents for folders of a machine; here below the folder of the page.
FOLDERS = ("/mnt/nvme", "/local", "/lustre", "/scratch", "/project")

PRELUDE = """
# `pip install` of the clone would build it: what is installed for the tests is shown to the environment instead.
pip() {
  case "$*" in "install ." | "install .[pandas]") ;; *) echo "pip $*: say in test_shell.py what it means" >&2; return 1 ;; esac
  grep -q '^pandas = ' "$DOCS_ROOT/pyproject.toml"
  echo "$DOCS_PACKAGES" >"$(command python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth"
}
# What a reader would type into Python are the snippets of the page.
python() {
  if [ $# = 0 ]; then command python "$DOCS_ROOT/tests/docs/snippets.py" "$DOCS_PAGE"; else command python "$@"; fi
}
"""

SHELL = [b for b in BLOCKS if b.shell]
PAGES = list(dict.fromkeys(b.path for b in SHELL))


@pytest.fixture(scope="module")
def hosts():
    """A lab of four hosts; None where there can be none."""
    if subprocess.run([LAB, "check"], capture_output=True).returncode:
        yield None
        return
    owner = os.environ | {"LAB_OWNER": str(os.getpid())}
    name = subprocess.run([LAB, "up", "4"], capture_output=True, text=True, env=owner, check=True).stdout.strip()
    yield name
    subprocess.run([LAB, "drop", name], check=True)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, flights) -> Path:
    """The files that pages speak of."""
    folder = tmp_path_factory.mktemp("shelf")
    r = np.random.default_rng(5)
    # Of several stripes, but short.
    with open(flights, "rb") as full, open(folder / "flights.csv", "wb") as few:
        few.writelines(line for line, _ in zip(full, range(200_000)))
    rows = "".join("%.6f,%.6f,%.6f,%.6f\n" % tuple(row) for row in r.normal(size=(5000, 4)))
    (folder / "sim.csv").write_text("energy,x,y,z\n" + rows)
    (folder / "snapshot.bin").write_bytes(r.bytes(4_000_000))
    (folder / "FILE").write_bytes(r.normal(size=60_000).tobytes())
    return folder


@pytest.fixture(scope="module")
def bucket():
    """A store that speaks S3, with the bucket of the documents: the variables by which it is reached."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    url, keys = f"http://{host}:{port}", ("testing", "testing")
    s3 = boto3.client("s3", "us-east-1", endpoint_url=url, aws_access_key_id=keys[0], aws_secret_access_key=keys[1])
    s3.create_bucket(Bucket="bucket")
    yield {
        "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": keys[0],
        "AWS_SECRET_ACCESS_KEY": keys[1],
    }  # fmt: skip
    server.stop()


def furnish(page: str, shelf: Path, here: Path) -> None:
    """Puts into a folder what its page needs."""
    for name in ("flights.csv", "sim.csv", "snapshot.bin", "FILE"):
        shutil.copy(shelf / name, here / name)
    (here / "mnt" / "nvme").mkdir(parents=True)
    for name in ("flights.csv", "sim.csv"):
        shutil.copy(shelf / name, here / "mnt" / "nvme" / name)
    (here / "lustre" / "run1").mkdir(parents=True)
    shutil.copy(shelf / "sim.csv", here / "lustre" / "run1" / "1.csv")
    shutil.copy(shelf / "snapshot.bin", here / "lustre" / "run1" / "1.h5")
    for name in ("run1", "results"):
        (here / name).mkdir()
    for name in ("results.h5", "run1/2.h5", "results/3.h5"):
        shutil.copy(shelf / "snapshot.bin", here / name)
    (here / "local").mkdir()
    # A file for each rank: of one host all four, and of two one each, which see them in the same place.
    (here / "run7").mkdir()
    for rank in range(4):
        values = np.random.default_rng(rank).normal(size=10_000)
        values.tofile(here / "local" / f"out.{rank}.bin")
        if rank < 2:
            folder = here / "of" / f"host{rank + 1}" / "run7"
            folder.mkdir(parents=True)
            values.tofile(folder / f"out.{rank}.bin")
    for host in range(1, 5):
        (here / "dataspace" / f"host{host}").mkdir(parents=True)
    for name in ("crates", "examples", "lab"):
        (here / name).symlink_to(ROOT / name)
    (here / "stead").symlink_to(ROOT)
    (here / "read").symlink_to(MPI / "read")
    for name in ("read_ex.c", "read_ex.f90"):
        (here / name).symlink_to(ROOT / "examples" / "mpi" / name)
    first = [b for b in BLOCKS if b.page == page and b.kind == "c" and "main(" in b.text]
    if first:
        (here / "program.c").write_text(first[0].text)
    else:
        (here / "program.c").symlink_to(ROOT / "examples" / "mpi" / "read.c")


def configuration(here: Path) -> str:
    """That of the page about layouts, with a folder for each host."""
    shown = [b.text for b in BLOCKS if b.page == "docs/layouts.md" and b.first == "[dataspace.nvme]"]
    assert len(shown) == 1 and '"/mnt/nvme/${USER}"' in shown[0]
    tiers = f'[dataspace.lustre]\npath = "{here}/lustre"\n[dataspace.nvme0]\npath = "{here}/mnt/nvme"\n'
    return shown[0].replace("/mnt/nvme/${USER}", f"{here}/dataspace/${{NODE}}") + tiers


def profile() -> str:
    """That of the page about computing near the data."""
    shown = [b.text for b in BLOCKS if b.kind == "toml" and "sites = [" in b.text]
    assert len(shown) == 1
    return shown[0]


def lines(block: Block, hosts: str | None) -> tuple[list[str], int]:
    """The lines of a block that are typed here, and how many are not."""
    kept = [line for line in block.text.splitlines() if line not in NOT_TYPED]
    here = [line for line in kept if hosts or not ("--host" in line or " -w " in line or "lab/lab" in line)]
    return here, len(kept) - len(here)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_typed_works(request, page, hosts, shelf, flights, tmp_path):
    here, bin = tmp_path / "here", tmp_path / "bin"
    for folder in (here, bin, tmp_path / "home"):
        folder.mkdir()
    furnish(str(page.relative_to(ROOT)), shelf, here)
    for name in ("mpirun", "srun", "make", "mpicc", "mpifort", "cargo"):
        (bin / name).symlink_to(ROOT / "tests" / "docs" / "typed.py")
    (bin / "stead").symlink_to(command())
    (tmp_path / "stead.toml").write_text(configuration(here))
    (tmp_path / "profile.toml").write_text(profile())
    script, left_out = [PRELUDE], 0
    # A page may say late how to install what it speaks of, or leave that to another one.
    on_page = sorted((b for b in SHELL if b.path == page), key=lambda b: "make install" not in b.text)
    if any("pkg-config" in b.text for b in on_page) and "make install" not in on_page[0].text:
        script.append("make install PREFIX=$HOME/.local")
    for block in on_page:
        kept, away = lines(block, hosts)
        left_out += away
        # Each block begins where the page began; what it has exported stays.
        script += ['cd "$DOCS_HERE"', f"echo '== {block}' >&2", *kept]
    text = "\n".join(script)
    for folder in FOLDERS:
        text = text.replace(folder, f"{here}{folder}")
    env = {
        "HOME": str(tmp_path / "home"),
        "LC_ALL": "C.UTF-8",
        "PATH": f"{bin}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CARGO_HOME": os.environ.get("CARGO_HOME", str(Path.home() / ".cargo")),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
        "PKG_CONFIG_PATH": str(tmp_path / "home" / ".local" / "lib" / "pkgconfig"),
        "LD_LIBRARY_PATH": str(tmp_path / "home" / ".local" / "lib"),
        "STEAD_CACHE": str(tmp_path / "cache"),
        "STEAD_CONFIG": str(tmp_path / "stead.toml"),
        "STEAD_PROFILE": str(tmp_path / "profile.toml"),
        "MPI4PY_MPIABI": "openmpi",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "NODE": "host1",
        "DOCS_ROOT": str(ROOT),
        "DOCS_BUILT": str(Path(command()).parent),
        "DOCS_MPI": str(MPI),
        "DOCS_LAB": hosts or "",
        "DOCS_LOCAL": str(here / "of"),
        "DOCS_HERE": str(here),
        "DOCS_PAGE": str(page),
        "DOCS_FLIGHTS": str(flights),
        "DOCS_PACKAGES": str(Path(np.__file__).parent.parent),
        "DOCS_CARGO": shutil.which("cargo") or "cargo",
    }
    if "s3://" in text:
        env |= request.getfixturevalue("bucket")
    done = subprocess.run(
        ["timeout", "--kill-after=10", "300", "bash", "-e", "-x", "-c", text], cwd=here, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    subprocess.run([LAB, "sweep"], capture_output=True)
    assert done.returncode == 0, done.stdout
    if hosts and "--storage-hosts" in text:
        # A profile that cannot be read would have been an error.
        assert re.search(rf"^ *profile +{re.escape(str(tmp_path))}/profile.toml$", done.stdout, re.M), done.stdout
    if left_out:
        pytest.skip(f"{left_out} lines need hosts, and no lab can be raised here; the others were typed")


def test_what_is_not_typed_is_there():
    typed = {line for b in SHELL for line in b.text.splitlines()}
    assert set(NOT_TYPED) <= typed


def test_a_result_in_python_comes_after_what_the_readme_says():
    """The order of its steps; that they work, what is above looks at, but for the build, which `make test-all` does."""
    block = next(b for b in SHELL if b.page == "README.md" and "python3 -m venv" in b.text)
    steps = ["make demo", "python3 -m venv .venv", ". .venv/bin/activate", "pip install '.[pandas]'", "cd .build/demo", "python"]
    assert block.text.splitlines() == steps
