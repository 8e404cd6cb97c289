"""What people see on a terminal: the bar of a transfer, and `stead top`."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest
from test_daemon import STEAD, daemon  # noqa: F401

SIZE = 6 << 20
WIPED = "\x1b[H\x1b[2J"
TOLD = re.compile(r"(\d+) %, [\d.]+ \w+ of 6\.0 MiB, (?:[01]/1 names, )?[\d.]+ \w+/s, [^\r\n]*? \([^\r\n]* to [^\r\n]*\) left")


def is_set(fd: int) -> list:
    """How a terminal is set up. The input has the speed of the output, whether its bits of `c_cflag` (CIBAUD) say so or are 0."""
    iflag, oflag, cflag, *more = termios.tcgetattr(fd)
    return [iflag, oflag, cflag & 0xFFFF, *more]


class Terminal:
    """A terminal with a command on it, which has it alone."""

    def __init__(self, *words, env: dict, kind: str = "xterm"):
        self.ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        self.was = is_set(theirs)
        self.process = subprocess.Popen(
            list(map(str, words)), env=env | {"TERM": kind}, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            # Ctrl-C is for it.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def until(self, what) -> None:
        """Reads until the text is as it should be, or the command has ended."""
        deadline = time.monotonic() + 120
        while not what(self.text):
            assert time.monotonic() < deadline, self.text
            if not select.select([self.ours], [], [], 1)[0]:
                continue
            try:
                more = os.read(self.ours, 1 << 16)
            except OSError:
                # Nobody has the other end any more.
                more = b""
            if not more:
                return
            # A character may come in parts; of none of them it is asked here.
            self.text += more.decode(errors="replace")

    def end(self) -> int:
        self.until(lambda text: False)
        return self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        os.close(self.ours)


@pytest.fixture
def terminal():
    begun = []

    def begin(*words, **kwargs) -> Terminal:
        begun.append(Terminal(*words, **kwargs))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


@pytest.fixture
def apart(tmp_path):
    """A large file elsewhere: within a file system that shares blocks no copy takes its time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        path = Path(memory) / "large"
        path.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
        yield path


def seen(text: str) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines, row, column = {}, 0, 0
    for found in re.finditer(r"\x1b\[([0-9;?]*)([A-Za-z])|[^\x1b]", text):
        number = int(found[1]) if found[1] and found[1].isdigit() else None
        line = lines.setdefault(row, {})
        match found[2]:
            case None if found[0] == "\r":
                column = 0
            case None if found[0] == "\n":
                row += 1
            case None:
                line[column] = found[0]
                column += 1
            case "A" | "B":
                row = max(row + (number or 1) * (1 if found[2] == "B" else -1), 0)
            case "C" | "D":
                column = max(column + (number or 1) * (1 if found[2] == "C" else -1), 0)
            case "H":
                row = column = 0
            case "K":
                gone = line if number == 2 else [at for at in line if at >= column]
                for at in list(gone):
                    del line[at]
            case "J":
                lines = {} if number == 2 else {at: line for at, line in lines.items() if at < row}
            case "m" | "h" | "l":
                pass
            case other:
                raise AssertionError(f"what does {other} do? {found[0]!r}")
    texts = ("".join(line.get(at, " ") for at in range(max(line, default=-1) + 1)) for _, line in sorted(lines.items()))
    return [text.rstrip() for text in texts if text.strip()]


def leaves_a_cursor(text: str) -> bool:
    return text.rfind("\x1b[?25l") <= text.rfind("\x1b[?25h")


def alone(tmp_path: Path) -> dict:
    return os.environ | {"STEAD_STATE": str(tmp_path / "state"), "STEAD_SOCKET": "none"}


def test_a_bar_is_drawn_and_wiped_out(tmp_path, terminal, apart):
    shown = terminal(STEAD, "stage", apart, tmp_path / "to", "--limit", "2MiB", env=alone(tmp_path))
    assert shown.end() == 0, shown.text
    percents = [int(told[1]) for told in TOLD.finditer(re.sub(r"\x1b\[[0-9;]*m", "", shown.text))]
    assert percents == sorted(percents) and len(set(percents)) > 1 and percents[-1] <= 100, shown.text
    assert "\N{FULL BLOCK}" in shown.text and leaves_a_cursor(shown.text)
    # What is left is what came of it.
    left = seen(shown.text)
    assert any(re.match(r"state +finished", line) for line in left), left
    assert not any(" left" in line or "\N{FULL BLOCK}" in line for line in left), left
    assert (tmp_path / "to").read_bytes() == apart.read_bytes()


def test_lines_come_where_nothing_can_be_drawn(tmp_path, terminal, apart):
    slow = (STEAD, "stage", apart, tmp_path / "to", "--limit", "2MiB", "--progress", "always")
    shown = terminal(*slow, env=alone(tmp_path), kind="dumb")
    assert shown.end() == 0, shown.text
    assert "\x1b" not in shown.text and TOLD.search(shown.text), shown.text


def test_ctrl_c_ends_a_bar_too(tmp_path, terminal, apart):
    shown = terminal(STEAD, "stage", apart, tmp_path / "to", "--limit", "64KiB", env=alone(tmp_path))
    shown.until(lambda text: TOLD.search(re.sub(r"\x1b\[[0-9;]*m", "", text)))
    os.write(shown.ours, b"\x03")
    assert shown.end() == 130, shown.text
    left = seen(shown.text)
    assert not any("\N{FULL BLOCK}" in line for line in left) and leaves_a_cursor(shown.text), left


def test_top_is_drawn_again_until_it_is_ended(daemon, terminal, apart):  # noqa: F811
    daemon.begin()
    transfer = daemon.taken(apart, daemon.at / "to", "--limit", "100KiB")
    shown = terminal(STEAD, "top", env=daemon.env)

    def pages(text: str) -> list[str]:
        # The last one may not be whole.
        return text.split(WIPED)[1:-1]

    def moves(text: str) -> bool:
        told = [re.search(rf"^ *{transfer} +running .* (\S+ \S+) of 6\.0 MiB", page, re.MULTILINE) for page in pages(text)]
        return len({one[1] for one in told if one}) > 1

    shown.until(moves)
    assert moves(shown.text), shown.text
    last = seen(shown.text)
    assert "1 running, 0 waiting" in last[0] and last[0].startswith("steadd "), last
    os.write(shown.ours, b"\x03")
    assert shown.end() == 0 and leaves_a_cursor(shown.text), shown.text
    assert daemon.stage("--cancel", transfer).returncode == 0


class Top:
    """`stead top`, which has drawn twice, so that it has waited for keys."""

    def __init__(self, terminal, env: dict, *before):
        self.shown = terminal(*before, STEAD, "top", env=env)
        self.draws()
        assert not termios.tcgetattr(self.shown.ours)[3] & (termios.ECHO | termios.ICANON), self.shown.text

    def draws(self) -> None:
        """Until it has drawn twice more."""
        pages = self.shown.text.count(WIPED) + 2
        self.shown.until(lambda text: text.count(WIPED) >= pages)
        assert self.shown.text.count(WIPED) >= pages, self.shown.text

    def press(self, keys: bytes) -> None:
        os.write(self.shown.ours, keys)

    def ends(self) -> int:
        """How it has ended. The terminal is as it was found."""
        code = self.shown.end()
        assert is_set(self.shown.ours) == self.shown.was and leaves_a_cursor(self.shown.text), self.shown.text
        return code


@pytest.mark.parametrize("key", [b"q", b"\x1b", b"\x03"], ids=["q", "Esc", "Ctrl-C"])
def test_a_key_ends_top_and_the_terminal_is_what_it_was(daemon, terminal, key):  # noqa: F811
    daemon.begin()
    top = Top(terminal, daemon.env)
    # Keys that are none of these, an arrow among them, which begins as Esc does. They are not shown.
    top.press(b"x\x1b[A")
    top.draws()
    assert not any(line.startswith("x") for line in seen(top.shown.text)), top.shown.text
    begun = time.monotonic()
    top.press(key)
    assert top.ends() == 0, top.shown.text
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "Ctrl-\\", "error"])
def test_the_terminal_is_what_it_was_however_top_ends(daemon, terminal, how):  # noqa: F811
    daemon.begin()
    top = Top(terminal, daemon.env)
    match how:
        case "error":
            daemon.end(signal.SIGKILL)
            assert top.ends() == 1 and "stead: " in top.shown.text, top.shown.text
        case "Ctrl-\\":
            top.press(b"\x1c")
            assert top.ends() == -signal.SIGQUIT, top.shown.text
        case "SIGHUP":
            top.shown.process.send_signal(signal.SIGHUP)
            assert top.ends() == -signal.SIGHUP, top.shown.text
        case _:
            top.shown.process.send_signal(signal.SIGTERM)
            assert top.ends() == 0, top.shown.text


#: A shell that runs one job, and tells when it is stopped and ends, and whether the terminal is what it was.
SHELL = """
import os, signal, subprocess, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def is_set():
    iflag, oflag, cflag, *more = termios.tcgetattr(0)
    return iflag, oflag, cflag & 0xFFFF, more
was = is_set()
def foreground():
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
job = subprocess.Popen(sys.argv[1:], preexec_fn=foreground)
_, how = os.waitpid(job.pid, os.WUNTRACED)
assert os.WIFSTOPPED(how), how
print("stopped", is_set() == was, flush=True)
os.tcsetpgrp(0, job.pid)
os.kill(job.pid, signal.SIGCONT)
_, how = os.waitpid(job.pid, 0)
print("ended", how, is_set() == was, flush=True)
"""


def test_a_top_that_is_stopped_leaves_the_terminal_to_others_and_goes_on(daemon, terminal):  # noqa: F811
    daemon.begin()
    top = Top(terminal, daemon.env, sys.executable, "-c", SHELL)
    top.press(b"\x1a")
    top.shown.until(lambda text: re.search("stopped (True|False)", text))
    assert "stopped True" in top.shown.text, top.shown.text
    top.draws()
    assert not termios.tcgetattr(top.shown.ours)[3] & termios.ECHO
    top.press(b"q")
    assert top.ends() == 0 and "ended 0 True" in top.shown.text, top.shown.text
