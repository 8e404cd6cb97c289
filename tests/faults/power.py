"""A disk that keeps what it is given in a cache of its own until it is told to flush it, and may lose power or fail to write: as disk.py,
but one that is written to.

    python power.py IMAGE DIRECTORY MOUNTED

Each line on the standard input is a JSON object. "cut" is a file that becomes what would be left of the disk if its power failed at this
moment: what it had been told to flush, and of all that came later the part, page by page, that "seed" draws, in any order. "poison" is a
text, and writes of what has it in it fail with EIO, "times" times (always without it). "flushes" is how many flushes fail from now on. The
answer is a JSON object of what has happened since the last line.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import struct

from disk import Disk, run

WRITE, FSYNC, FALLOCATE = 16, 20, 43
PAGE = 4096
ALWAYS = 1 << 30


class Volatile(Disk):
    def __init__(self, image: str, directory: str):
        with open(image, "rb") as file:
            self.now = bytearray(file.read())
        self.durable = bytearray(self.now)
        #: Written since the last flush, in order: page, and what it has since.
        self.pending: list[tuple[int, bytes]] = []
        self.poison, self.times, self.flushes = b"", 0, 0
        self.count = {"writes": 0, "flushes": 0, "failed": 0}
        super().__init__(image, directory)

    def read(self, unique: int, offset: int, size: int) -> None:
        self.answer(unique, bytes(self.now[offset : offset + size]))

    def write(self, unique: int, offset: int, data: bytes) -> None:
        self.count["writes"] += 1
        if self.poison and self.times > 0 and self.poison in data:
            self.times -= 1
            self.count["failed"] += 1
            self.answer(unique, error=errno.EIO)
            return
        self.now[offset : offset + len(data)] = data
        for page in range(offset // PAGE, -(-(offset + len(data)) // PAGE)):
            self.pending.append((page, bytes(self.now[page * PAGE : (page + 1) * PAGE])))
        self.answer(unique, struct.pack("<2I", len(data), 0))

    def flush(self, unique: int) -> None:
        self.count["flushes"] += 1
        if self.flushes > 0:
            self.flushes -= 1
            self.count["failed"] += 1
            self.answer(unique, error=errno.EIO)
            return
        self.keep(self.pending, self.durable)
        self.pending = []
        self.answer(unique)

    @staticmethod
    def keep(pages: list[tuple[int, bytes]], image: bytearray) -> None:
        for page, data in pages:
            image[page * PAGE : (page + 1) * PAGE] = data

    def request(self, message: bytes) -> bool:
        _, code, unique, _ = struct.unpack_from("<IIQQ", message)
        if code == WRITE:
            _, offset, size = struct.unpack_from("<QQI", message, 40)
            self.write(unique, offset, message[80 : 80 + size])
        elif code == FSYNC:
            self.flush(unique)
        elif code == FALLOCATE:
            self.answer(unique, error=errno.EOPNOTSUPP)
        else:
            return super().request(message)
        return True

    def cut(self, path: str, seed: str) -> None:
        rng = random.Random(seed)
        share = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        left = [one for one in self.pending if rng.random() < share]
        if rng.random() < 0.5:
            rng.shuffle(left)
        image = bytearray(self.durable)
        self.keep(left, image)
        # A new file: what was mounted of the last one may still be on its way out, and write to that.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "wb") as file:
            file.write(image)

    def told(self, rules: dict) -> dict:
        if "poison" in rules:
            self.poison, self.times = rules["poison"].encode(), rules.get("times", ALWAYS)
        self.flushes = rules.get("flushes", self.flushes)
        if "cut" in rules:
            self.cut(rules["cut"], rules["seed"])
        count = self.count | {"pending": len(self.pending), "size": len(self.now), "pid": os.getpid()}
        self.count = dict.fromkeys(self.count, 0)
        return count


if __name__ == "__main__":
    run(Volatile)
