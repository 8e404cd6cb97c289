"""Dataspaces whose transfers give way to programs: seen by the threads that copy, whose reads and writes are of the idle class."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from rigs import idle_threads
from test_admin import admin, df, until
from test_daemon import STEAD, daemon, folder, under_way  # noqa: F401

MIB = 1 << 20


def gives_way(process: subprocess.Popen, target: Path) -> bool:
    """While a transfer copies, at some time; if it does not, that is known at its end."""
    begun = False
    while process.poll() is None:
        if idle_threads(process.pid):
            return True
        begun |= any(name.startswith(".stead-") for name in os.listdir(target))
        time.sleep(0.01)
    assert begun, process.communicate()
    return False


@pytest.fixture
def spaces(tmp_path):
    """`soft` is gentle, `hard` is not."""
    for name in ("soft", "hard"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(os.urandom(8 * MIB))
    text = "".join(f"[dataspace.{name}]\npath = '{tmp_path / name}'\n" for name in ("hard", "soft"))
    (tmp_path / "stead.toml").write_text(text + "gentle = true\n")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "target", "way"),
    [
        ("hard://f", "soft://to", True),
        ("soft://f", "hard://to", True),
        # By its folder, it is the same dataspace.
        ("{}/soft/f", "hard://to", True),
        ("hard://f", "{}/hard/to", False),
        ("--gentle hard://f", "hard://to", True),
    ],
)
def test_who_reads_or_writes_there_gives_way(spaces, source, target, way):
    env = os.environ | {"STEAD_CONFIG": str(spaces / "stead.toml"), "STEAD_STATE": str(spaces / "state"), "STEAD_SOCKET": "none"}
    words = f"{source} {target}".replace("{}", str(spaces)).split()
    command = [STEAD, "stage", *words, "--limit", "4MiB", "--format", "json"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        at = spaces / ("soft" if "soft" in target else "hard")
        assert gives_way(process, at) == way
        out, err = process.communicate(timeout=100)
        assert json.loads(out)["state"] == "finished", err
        assert (at / "to").read_bytes() == Path(spaces, "soft" if "soft" in source else "hard", "f").read_bytes()
    finally:
        process.kill()
        process.wait()


def test_it_is_told(spaces):
    env = os.environ | {"STEAD_CONFIG": str(spaces / "stead.toml"), "STEAD_STATE": str(spaces / "state"), "STEAD_SOCKET": "none"}
    for words in (["df"], ["ls"]):
        done = subprocess.run([STEAD, *words, "--format", "json"], env=env, capture_output=True, text=True, check=True, timeout=60)
        told = {space["name"]: space for space in json.loads(done.stdout)}
        if words == ["df"]:
            assert told["soft"]["gentle"] is True and told["hard"]["gentle"] is False
        assert {"soft", "hard"} <= set(told)
    table = subprocess.run([STEAD, "df"], env=env, capture_output=True, text=True, check=True, timeout=60).stdout
    rows = {line.split()[0]: line for line in table.splitlines()[1:] if line.strip()}
    assert "gentle" in rows["soft"] and "gentle" not in rows["hard"]
    (spaces / "stead.toml").write_text(f"[dataspace.soft]\npath = '{spaces}'\ngentle = 'rather'\n")
    bad = subprocess.run([STEAD, "df"], env=env, capture_output=True, text=True, timeout=60)
    assert bad.returncode != 0 and "gentle" in bad.stderr and "neither yes nor no" in bad.stderr, bad.stderr


def test_administrators_say_so(daemon):  # noqa: F811
    daemon.begin()
    path = folder(daemon, "tier")
    path.chmod(0o777)
    (daemon.at / "f").write_bytes(os.urandom(8 * MIB))
    admin(daemon, "dataspace", "add", "tier", f"path={path}", "gentle=yes")
    until(lambda: df(daemon).get("tier", {}).get("gentle") is True)
    listed = {space["name"]: space["set"] for space in admin(daemon, "dataspace", "list", json_=True)}
    assert listed["tier"]["gentle"] == "yes"

    def idle(name: str) -> bool:
        taken = daemon.taken(daemon.at / "f", f"tier://{name}", "--limit", "1MiB")
        under_way(daemon, taken)
        found = any(any(idle_threads(pid) for pid in daemon.workers()) or time.sleep(0.01) for _ in range(100))
        # It has been under way all the time.
        assert json.loads(daemon.stage("--cancel", taken).stdout)["state"] == "cancelled"
        return found

    assert idle("a")
    admin(daemon, "dataspace", "update", "tier", "gentle=")
    until(lambda: df(daemon)["tier"]["gentle"] is False)
    assert not idle("b")
