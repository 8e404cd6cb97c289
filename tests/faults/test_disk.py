"""A real disk of which a sector is bad, does not answer, or gives little at a time, under a real file system: page cache,
huge pages, io_uring and direct reads."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from rigs import DIRECT, IO, ON_DEMAND, PREAD, URING, Disk
from support import repeats

#: One page; the huge page around it begins a MiB before.
BAD = 5 << 20
END = BAD + 4096
FLAGS = [0, ON_DEMAND, ON_DEMAND | URING, ON_DEMAND | PREAD, DIRECT]
NAMES = ["mapped", "mapped, on demand", "io_uring", "pread", "direct"]


@pytest.mark.parametrize("flags", FLAGS, ids=NAMES)
def test_a_bad_sector_is_an_error_of_those_who_ask_for_it(face, disk, flags):
    repeats(face.is_thin and flags != 0)
    disk.rule(bad=[(BAD, END)])
    reader = face(disk.file, flags)
    for _ in range(2):
        for way in face.ways:
            # In the same huge page, the same block, the same page of others.
            for offset, length in [(BAD - 4096, 4096), (END, 4096), (END + 3, 100_000), (BAD - 300_000, 300_000), (0, 100), (9 << 20, 5000)]:
                reader.gives(way, offset, length, disk.data)
            for offset, length in [(BAD, 4096), (BAD - 100_000, 300_000), (BAD + 100, 10), (END - 1, 2), (0, Disk.SIZE)]:
                reader.fails(way, offset, length, IO, max(BAD, offset))
        if face.strides:
            reader.strides(BAD, disk.data)
    # A sector that can be read again is read.
    disk.rule(bad=[])
    for way in face.ways:
        reader.gives(way, BAD - 5000, 10_000, disk.data)
    reader.end()


def test_a_bad_sector_is_asked_for_seldom_before_good_bytes_beside_it_are_there(face, disk):
    """A disk tries for many seconds each time."""
    disk.rule(bad=[(BAD, END)])
    for way in face.ways:
        disk.forget()
        reader = face(disk.file, ON_DEMAND)
        disk.rule()
        reader.gives(way, BAD - 4096, 4096, disk.data)
        tries = disk.rule().count(BAD)
        assert 1 <= tries <= 3, (way, tries)
        # Nor are others' bytes, and it is not tried again for each of them.
        for i in range(5):
            reader.gives(way, BAD - 4096 * i - 5000, 4096, disk.data)
            reader.gives(way, END + 4096 * i, 4096, disk.data)
        assert disk.rule().count(BAD) <= 1, way
        reader.end()


@pytest.mark.parametrize("engine", ["auto", "uring", "pread", "direct"])
def test_the_command_says_what_and_where(stead, disk, engine):
    disk.rule(bad=[(BAD, END)])
    how = ["--direct"] if engine == "direct" else ["--engine", engine]
    for args in [("read", disk.file), ("read", disk.file, "--buffers", "--tasks", 7), ("run", disk.file, "-k", "entropy", "--type", "lines")]:
        stead.fails(*args, *how, code=1, says=(str(disk.file), str(BAD), "input/output error"))
    for part in (f"0-{BAD}", f"{END}-"):
        stead("read", disk.file, *how, "--tasks", 1000, "--range", part)


@pytest.mark.parametrize("flags", [ON_DEMAND | URING, ON_DEMAND | DIRECT], ids=["io_uring", "direct"])
def test_a_disk_that_gives_little_at_a_time(face, disk, flags):
    repeats(face.is_thin and flags != ON_DEMAND | URING)
    disk.rule(short=4096)
    reader = face(disk.file, flags)
    for way in face.ways:
        reader.gives(way, 100_001, 300_000, disk.data)
    reader.end()


@pytest.mark.parametrize("flags", [ON_DEMAND, ON_DEMAND | URING, ON_DEMAND | DIRECT], ids=["mapped", "io_uring", "direct"])
def test_who_waits_no_more_for_a_sector_leaves_nothing_behind(face, disk, flags):
    repeats(face.is_thin and flags != ON_DEMAND)
    disk.rule(held=[(BAD, END)])
    reader = face(disk.file, flags)
    for _ in range(3):
        assert reader.ask("drop", BAD - 3000, 5000)[0] == "ok"
    disk.rule(held=[])
    reader.gives("view", BAD - 3000, 5000, disk.data)
    reader.gives("into", 1000, 5000, disk.data)
    # It ends, and C has no handles left.
    reader.end()


HANGS = """
import sys, stead
path, held, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
options = {"direct": {"direct": True}, "uring": {"engine": "uring"}, "pread": {"engine": "pread"}, "huge pages": {}}
mapped = {"mapped": {"block": 1 << 18}, "one reader": {"block": 1 << 18, "readers": 1, "depth": 1}}
s = stead.read_session(path, ahead=False, **(options | mapped)[way])
hangs = [s.read(held + 100, 50), s.read(held - 5000, 10_000)]
dropped, late = s.read(held + 200, 50), s.read(held + 300, 50, deadline=1)
# These are asked for after it, and answered before it.
others = [s.read(held + i * (2 << 20), 1000) for i in (-2, -1, 1, 2)]
data = [bytes(r.result(timeout=100)) for r in others]
assert not any(r.done() for r in hangs)
try:
    late.result(timeout=100)
    sys.exit("there is an answer")
except stead.TimedOutError:
    pass
# And one when all that there is waits.
data.append(bytes(s.read(0, 1000).result(timeout=100)))
del dropped
s.close()
print("others", flush=True)
if sys.stdin.readline() == "end\\n":
    sys.exit(0)
file = open(path, "rb").read()
for at, part in zip([held + i * (2 << 20) for i in (-2, -1, 1, 2)] + [0], data):
    assert part == file[at:][:1000]
assert hangs[0].result(timeout=100) == file[held + 100 :][:50]
assert hangs[1].result(timeout=100) == file[held - 5000 :][:10_000]
print("all", flush=True)
"""


class Hanging:
    """A program that has asked for a sector that does not answer, and for others."""

    def __init__(self, disk, way):
        self.disk, held = disk, (5 << 20) + (1 << 19)
        disk.forget()
        disk.rule(held=[(held, held + 4096)])
        command = [sys.executable, "-c", HANGS, str(disk.file), str(held), way]
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # Whatever fails, the disk answers at last.
        self.freed = threading.Timer(60, self.let_go)
        self.freed.start()

    def let_go(self):
        self.disk.rule(held=[])

    def __enter__(self):
        if self.program.stdout.readline() != "others\n":
            self.__exit__()
            raise AssertionError("others are not answered")
        return self

    def say(self, what: str) -> None:
        self.program.stdin.write(what + "\n")
        self.program.stdin.flush()

    def __exit__(self, *_):
        self.freed.cancel()
        self.freed.join()
        self.let_go()
        self.program.kill()
        self.program.wait(60)
        self.program.stdin.close()
        self.program.stdout.close()


@pytest.mark.parametrize("way", ["mapped", "one reader", "huge pages", "uring", "pread", "direct"])
def test_a_sector_that_does_not_answer_keeps_nobody_else_waiting(disk, way):
    with Hanging(disk, way) as hanging:
        hanging.let_go()
        hanging.say("go on")
        assert hanging.program.stdout.readline() == "all\n"
        assert hanging.program.wait(60) == 0


@pytest.mark.parametrize("way", ["mapped", "huge pages", "pread"])
def test_a_process_may_end_while_a_sector_does_not_answer(disk, way):
    with Hanging(disk, way) as hanging:
        hanging.say("end")
        assert hanging.program.wait(60) == 0
    with Hanging(disk, way) as hanging:
        hanging.program.kill()
        assert hanging.program.wait(60) == -9


READS = """
import sys, stead
s = stead.read_session(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    a, b = map(int, line.split())
    reads = [s.read(i, min(4096, b - i)) for i in range(a, b, 4096)]
    print(sum(sum(bytes(r.result())) for r in reads), flush=True)
"""


class Process:
    def __init__(self, path):
        self.program = subprocess.Popen([sys.executable, "-c", READS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.program.stdout.readline() == "open\n"

    def ask(self, a: int, b: int) -> None:
        self.program.stdin.write(f"{a} {b}\n")
        self.program.stdin.flush()

    def hear(self) -> int:
        return int(self.program.stdout.readline())


def test_processes_share_what_one_of_them_has_read(disk):
    half, total = Disk.SIZE // 2, sum(Disk.data)
    sums = [sum(Disk.data[:half]), sum(Disk.data[half:])]
    first, second = Process(disk.file), Process(disk.file)
    # Both at once, each one half first; then each what the other one has read.
    first.ask(0, half)
    second.ask(half, Disk.SIZE)
    assert [first.hear(), second.hear()] == sums
    first.ask(half, Disk.SIZE)
    second.ask(0, half)
    assert [first.hear(), second.hear()] == sums[::-1]
    assert sorted(disk.rule()) == list(range(0, Disk.SIZE, 4096))
    # A third one, after the first was killed in the middle.
    first.ask(0, Disk.SIZE)
    first.program.kill()
    third = Process(disk.file)
    for process in (second, third):
        process.ask(0, Disk.SIZE)
        assert process.hear() == total
    assert disk.rule() == []
    for process in (second, third):
        process.program.stdin.close()
        assert process.program.wait(60) == 0
    assert first.program.wait(60) == -9
