"""A clock that is set by a day, forth and back, while transfers run and things are kept."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import time
from pathlib import Path

import pytest
from test_admin import admin, persist, until
from test_daemon import LARGE, SLOW, STEAD, Program, daemon, folder, large, under_way  # noqa: F401

HERE = Path(__file__).parent
DAY = 86_400
#: That of its user, also where this is root: workers have the environment of the daemon then.
OWN = () if os.geteuid() else ("setpriv", "--bounding-set=-setuid,-setgid")


class Clock:
    """What makes it, and what it is set to."""

    def __init__(self, at: Path):
        shim, self.path = at / "clock.so", at / "ahead"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", HERE / "clock.c", "-o", shim], check=True)
        self.path.write_bytes(bytes(8))
        self.env = {"LD_PRELOAD": str(shim), "CLOCK_SET": str(self.path)}

    def set(self, days: int) -> None:
        # In its place: programs have it mapped.
        with open(self.path, "r+b") as file:
            file.write(struct.pack("<q", days * DAY))


@pytest.fixture
def clock(tmp_path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def set_daemon(daemon, clock):  # noqa: F811
    """A daemon whose clock is set."""
    daemon.env |= clock.env
    daemon.begin(by=OWN)
    return daemon


def sane(left: dict) -> bool:
    return 0 <= left["low"] <= left["high"] < 3600 and 0 <= left["seconds"] < 3600


def test_the_shim_sets_the_clock_of_stead(clock, tmp_path):
    """It would be none if that asked the system by another way."""
    (tmp_path / "f").write_bytes(b"f")
    env = os.environ | clock.env | {"STEAD_STATE": str(tmp_path / "state")}

    def submitted(name: str) -> float:
        words = [STEAD, "stage", tmp_path / "f", tmp_path / name, "--format", "json"]
        return json.loads(subprocess.run(words, env=env, check=True, capture_output=True, timeout=120).stdout)["submitted"]

    for days in (0, 400, -400):
        clock.set(days)
        assert abs(submitted(f"to{days}") - time.time() - days * DAY) < 3600


def test_transfers_of_a_daemon_go_on(set_daemon, clock):
    at = set_daemon.at
    data = large(at / "big")
    first = set_daemon.taken(at / "big", at / "to", *SLOW)
    after = set_daemon.taken(at / "big", at / "after", "--after", first)
    under_way(set_daemon, first)
    program, seen = Program(set_daemon.path), 0
    for days in (1, -1, 0, 1):
        clock.set(days)
        # It moves on, and tells how long it will be, and so does who waits for it.
        end = time.monotonic() + 120
        while True:
            standing = program.ask({"wait": {"transfer": first, "seconds": 0}})["standing"]
            progress = standing["progress"]
            if standing["status"]["state"] == "finished":
                break
            if progress is not None:
                assert sane(progress["left"]) and progress["seconds"] < 3600, standing
                if progress["bytes_done"] > seen:
                    seen = progress["bytes_done"]
                    break
            assert time.monotonic() < end, standing
            time.sleep(0.05)
        for transfer in (first, after):
            assert sane(program.ask({"eta": {"transfer": transfer}})["eta"])
    # A time that is over is over by no clock that is set.
    begun = time.monotonic()
    program.ask({"wait": {"transfer": after, "seconds": 0.2}})
    assert time.monotonic() - begun < 100
    for transfer, to in ((first, "to"), (after, "after")):
        status = set_daemon.status(transfer)
        assert status["state"] == "finished" and status["bytes_done"] == LARGE and 0 < status["active"] < 3600, status
        assert (at / to).read_bytes() == data
    clock.set(0)
    # How long others will take is guessed by how long these took.
    last = set_daemon.taken(at / "big", at / "last", *SLOW)
    waits = set_daemon.taken(at / "big", at / "waits", "--after", last)
    assert sane(program.ask({"eta": {"transfer": waits}})["eta"])
    assert set_daemon.stage("--cancel", last).returncode == 0


def test_a_command_goes_on(clock, tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(1 << 20) * 12)
    env = os.environ | clock.env | {"STEAD_STATE": str(tmp_path / "state")}
    words = [STEAD, "stage", tmp_path / "big", tmp_path / "to", "--limit", "2MiB", "--progress", "always", "--format", "json"]
    command = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told = []
    for days in (1, -1, 0):
        told.append(command.stderr.readline())
        clock.set(days)
    out, rest = command.communicate(timeout=120)
    status, told = json.loads(out), "".join(told) + rest
    assert (status["state"], status["failed"], command.returncode) == ("finished", 0, 0), told
    assert 0 < status["active"] < 3600 and (tmp_path / "to").read_bytes() == (tmp_path / "big").read_bytes()
    # No rate is none, and nobody waits for a day.
    assert len(told.splitlines()) > 3 and not re.search(r"nan|inf|\b[hd]\b|-\d", told, re.IGNORECASE), told


def believed(d) -> float:
    """The time by which things expire."""
    path = d.at / "state" / "calendar.json"
    return json.loads(path.read_text())["time"] if path.exists() else 0.0


def test_nothing_expires_early(set_daemon, clock):
    d = set_daemon
    # They are looked through in the order of their paths.
    scratch, quick, later = (folder(d, name) for name in ("a-scratch", "b-quick", "c-later"))
    (scratch / "mine").write_bytes(b"mine")
    for name in ("kept", "old"):
        (quick / name).write_bytes(b"old")
    persist(d, "store", quick / "kept", "--expires", "2h")
    (one,) = persist(d, "list", "--format", "json")
    assert 7000 < one["left"] <= 7200
    admin(d, "dataspace", "add", "scratch", f"path={scratch}", "expires=12h")
    until(lambda: believed(d) > 0)
    time.sleep(1.1)
    # What is a second old goes when it is looked at next; by then the clock is a day ahead.
    clock.set(1)
    admin(d, "dataspace", "add", "quick", f"path={quick}", "expires=1s")
    until(lambda: not (quick / "old").exists())
    assert "clock was set forward" in (d.at / "log").read_text()
    assert (scratch / "mine").exists() and (quick / "kept").exists() and abs(believed(d) - time.time()) < 3600
    # Set back all is younger, and stays.
    clock.set(-1)
    admin(d, "dataspace", "add", "later", f"path={later}", "expires=1s")
    until(lambda: believed(d) < time.time() - DAY / 2)
    assert (scratch / "mine").exists() and (quick / "kept").exists()
    # A forward step to what is right is believed no sooner than one to what is wrong: until then things stay, and for no shorter time.
    clock.set(0)
    (later / "f").write_bytes(b"f")
    admin(d, "dataspace", "update", "later", "expires=2s")
    until(lambda: (d.at / "log").read_text().count("clock was set forward") >= 2)
    assert (scratch / "mine").exists() and (quick / "kept").exists() and (later / "f").exists()
    # What is kept is so by its own word yet.
    persist(d, "delete", quick / "kept")
    assert persist(d, "list", "--format", "json") == []
