"""Targets that are full, that two transfers want at once, sources that go meanwhile, and a journal without room."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from rigs import stopped

STEAD = os.path.abspath(os.environ.get("STEAD", "target/debug/stead"))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")


@pytest.fixture
def stead(tmp_path):
    def begin(*args, state: Path = tmp_path / "state") -> subprocess.Popen:
        command = [STEAD, "stage", *map(str, args), "--format", "json"]
        env = os.environ | {"STEAD_STATE": str(state)}
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return begin


def ended(transfer: subprocess.Popen, code: int = 0) -> tuple[dict, str]:
    out, err = transfer.communicate(timeout=100)
    assert transfer.returncode == code and "panicked" not in err, err
    return json.loads(out) if out else {}, err


def write(at: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(data)


def named(at: Path) -> dict[str, bytes]:
    paths = [path for path in at.rglob("*") if path.is_file()]
    assert not [path for path in paths if path.name.startswith(".stead-")]
    return {str(path.relative_to(at)): path.read_bytes() for path in paths}


def named_or_begun(at: Path) -> dict[str, bytes]:
    paths = [path for path in at.rglob("*") if path.is_file() and not path.name.startswith(".stead-")]
    return {str(path.relative_to(at)): path.read_bytes() for path in paths}


@pytest.fixture
def mounted(tmp_path):
    """Mounts a small file system of some kind, and takes it down after the test."""
    at = []

    def mount(kind: str, size: int) -> Path:
        folder = tmp_path / f"{kind}{len(at)}"
        folder.mkdir()
        if kind == "tmpfs":
            command = ["mount", "-t", kind, "-o", f"size={size}", "none", folder]
        else:
            image = tmp_path / f"{kind}{len(at)}.img"
            with image.open("wb") as file:
                file.truncate(size)
            try:
                subprocess.run([f"mkfs.{kind}", "-q", image], check=True)
            except FileNotFoundError:
                pytest.skip(f"there is no mkfs.{kind} here")
            command = ["mount", "-o", "loop", image, folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no {kind} can be mounted here: {done.stderr.strip()}")
        at.append(folder)
        return folder

    yield mount
    for folder in at:
        subprocess.run(["umount", "-l", folder], check=True)


@needs_root
def test_a_disk_that_becomes_full(stead, mounted, tmp_path):
    """A device has less room than is free: for names, and since bytes get their place when they are written to it."""
    small = mounted("ext4", 32 << 20)
    files = {f"d{i % 7}/f{i}": bytes([i % 251]) * (40_000 + i) for i in range(400)}
    write(tmp_path / "from", files)
    slow = stead(tmp_path / "from", small / "to", "--limit", "4MiB", "--threads", 2)
    deadline = time.monotonic() + 60
    while not (small / "to").exists():
        assert slow.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    # Somebody else takes nearly all of it.
    stopped(slow)
    room = os.statvfs(small)
    (small / "other").write_bytes(b"y" * (room.f_bavail * room.f_frsize - (1 << 20)))
    slow.send_signal(signal.SIGCONT)
    _, err = ended(slow, 1)
    assert "no space" in err.lower() and "resume the transfer" in err, err
    there = named_or_begun(small / "to")
    assert all(files[name] == data for name, data in there.items())
    (small / "other").unlink()
    [status], _ = ended(stead("--resume"))
    assert status["state"] == "finished" and named(small / "to") == files


def not_shared(*paths: Path) -> list[str]:
    """Extents that no other file has, as the file system tells: how much is free tells less, as some of it comes and goes with what is noted of it."""
    os.sync()
    said = subprocess.run(["filefrag", "-v", *paths], capture_output=True, text=True, check=True).stdout
    extents = [line for line in said.splitlines() if re.match(r"\s*\d+:", line)]
    assert len(extents) >= len(paths), said
    return [line for line in extents if "shared" not in line]


@needs_root
@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_blocks_that_file_systems_share(stead, mounted, kind):
    at = mounted(kind, 512 << 20)
    files = {"large": os.urandom(1 << 20) * 96, "small": b"small"}
    write(at / "from", files)
    os.sync()
    assert not_shared(at / "from/large")
    for to, words in (("to", ()), ("verified", ("--verify",))):
        status, _ = ended(stead(at / "from", at / to, *words))
        assert status["state"] == "finished" and named(at / to) == files
        assert not not_shared(at / "from/large", at / to / "large")


@needs_root
def test_subvolumes_share_blocks(stead, mounted, tmp_path):
    """Each is a device of its own to whoever looks, and nothing is renamed from one to another."""
    at = mounted("btrfs", 512 << 20)
    for name in ("one", "two", "one/from/inner"):
        (at / name).parent.mkdir(exist_ok=True)
        subprocess.run(["btrfs", "subvolume", "create", at / name], check=True, capture_output=True)
    files = {"large": os.urandom(1 << 20) * 96, "inner/deep/large": os.urandom(1 << 20) * 4, "small": b"small"}
    write(at / "one/from", files)
    assert len({(at / name).stat().st_dev for name in ("", "one", "two", "one/from/inner")}) == 4
    os.sync()
    for to, words in (("to", ()), ("verified", ("--verify",)), ("moved", ("--move",))):
        status, _ = ended(stead(at / "one/from", at / "two" / to, *words))
        assert status["state"] == "finished" and named(at / "two" / to) == files
        assert (at / "one/from").exists() == (to != "moved")
        assert not not_shared(*(at / "two" / to / name for name in files if name != "small"))
    # By way of another mount, across which not every kernel shares them.
    apart = tmp_path / "apart"
    apart.mkdir()
    subprocess.run(["mount", "--bind", at / "one", apart], check=True)
    try:
        status, _ = ended(stead(at / "two/to", apart / "back"))
        assert status["state"] == "finished" and named(apart / "back") == files
    finally:
        subprocess.run(["umount", "-l", apart], check=True)


@needs_root
def test_folders_of_what_cannot_be_renamed_keep_their_rights(stead, mounted, tmp_path):
    """Two mounts of one file system are one device to whoever looks, and nothing is renamed from one to the other."""
    at = mounted("tmpfs", 32 << 20)
    files = {"deep/a.h5": b"a", "deep/er/b.h5": b"b", "deep/c.tmp": b"c", "own/d.h5": b"d"}
    write(at / "from", files)
    for name, mode in ("deep", 0o750), ("deep/er", 0o711), ("own", 0o755):
        (at / "from" / name).chmod(mode)
        os.utime(at / "from" / name, (1_500_000_000, 1_500_000_000))
    (at / "real").mkdir()
    apart = tmp_path / "apart"
    apart.mkdir()
    subprocess.run(["mount", "--bind", at / "real", apart], check=True)
    try:
        assert apart.stat().st_dev == at.stat().st_dev
        status, _ = ended(stead("--move", at / "from", apart, "--include", "*.h5"))
        assert status["state"] == "finished"
        there = apart / "from"
        assert named(there) == {name: data for name, data in files.items() if name.endswith(".h5")}
        modes = {name: (there / name).stat().st_mode & 0o777 for name in ("deep", "deep/er", "own")}
        assert modes == {"deep": 0o750, "deep/er": 0o711, "own": 0o755}
        assert all((there / name).stat().st_mtime == 1_500_000_000 for name in modes)
    finally:
        subprocess.run(["umount", "-l", apart], check=True)
    assert named(at / "from") == {"deep/c.tmp": b"c"} and not (at / "from/own").exists() and not (at / "from/deep/er").exists()


def test_a_source_that_vanishes_meanwhile(stead, tmp_path):
    files = {f"f{i:02}": bytes([i]) * (1 << 20) for i in range(20)}
    write(tmp_path / "from", files)
    # They are copied in the order of their numbers on the device.
    gone = max(files, key=lambda name: (tmp_path / "from" / name).stat().st_ino)
    slow = stead(tmp_path / "from", tmp_path / "to", "--limit", "4MiB", "--threads", 1)
    deadline = time.monotonic() + 60
    while not (tmp_path / "to").exists():
        assert slow.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "from" / gone).unlink()
    status, _ = ended(slow, 1)
    assert (status["state"], status["failed"]) == ("failed", 1)
    assert "no such file" in status["failures"][0]["error"] and status["failures"][0]["path"].endswith(gone)
    last = files.pop(gone)
    assert named(tmp_path / "to") == files
    # It is tried again by its number only, and that is said.
    listed, err = ended(stead("--resume"))
    assert listed == [] and "nothing waits to be resumed" in err, err
    assert f"transfer(s) {status['id']} failed: stead stage --resume ID" in err, err
    write(tmp_path / "from", {gone: last})
    status, _ = ended(stead("--resume", status["id"]))
    assert status["state"] == "finished" and named(tmp_path / "to") == files | {gone: last}


@pytest.mark.parametrize("exists", ["refuse", "replace"])
def test_two_transfers_onto_one_target_at_once(stead, tmp_path, exists):
    """Each file is that of one of them, as a whole, and whoever came second is told so."""
    all_files = [{f"f{i:02}": bytes([number]) * (300_000 + i) for i in range(60)} for number in (1, 2)]
    for number, files in enumerate(all_files):
        write(tmp_path / f"from{number}", files)
    both = [
        stead(f"{tmp_path}/from{n}/", tmp_path / "to", "--exists", exists, "--limit", "20MiB", state=tmp_path / f"state{n}") for n in (0, 1)
    ]
    told = [json.loads(one.communicate(timeout=100)[0] or "{}") for one in both]
    there = named(tmp_path / "to")
    assert set(there) == set(all_files[0])
    assert all(data in (all_files[0][name], all_files[1][name]) for name, data in there.items())
    for number, status in enumerate(told):
        # One that was refused as a whole says so without a status. What was not there when it was planned is not replaced.
        failures = status.get("failures", [])
        assert all("of this name already" in failure["error"] for failure in failures)
        own = sum(there[name] == data for name, data in all_files[number].items())
        if exists == "refuse":
            assert own == 0 if not status else status["failed"] == len(failures) == len(there) - own


@needs_root
def test_a_journal_without_room(stead, mounted, tmp_path):
    state = mounted("tmpfs", 1 << 20)
    files = {f"d{i % 50}/{'n' * 100}{i}": b"x" * 10 for i in range(4000)}
    write(tmp_path / "from", files)
    (state / "other").write_bytes(b"y" * (500 << 10))
    _, err = ended(stead(tmp_path / "from", tmp_path / "to", state=state), 1)
    assert "no space" in err.lower() or "disk is full" in err.lower(), err
    assert "STEAD_STATE" in err
    there = named_or_begun(tmp_path / "to")
    assert all(files[name] == data for name, data in there.items())
    subprocess.run(["mount", "-o", "remount,size=64m", state], check=True)
    # The same again begins it, or goes on with it.
    status, _ = ended(stead(tmp_path / "from", tmp_path / "to", state=state))
    assert status["state"] == "finished" and named(tmp_path / "to") == files
