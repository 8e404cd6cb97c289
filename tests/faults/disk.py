"""A disk of which sectors are bad or do not answer: a program that serves the image of one as a file (FUSE).

    python disk.py IMAGE DIRECTORY MOUNTED

mounts a file system with the one file `disk` on DIRECTORY. Over that file a loop device is made, and over it a file system
whose files are what is tested, on MOUNTED. Each line on the standard input is a JSON object of what holds from now on: "bad" and
"held" are lists of [from, to] in bytes; reads that touch the first fail with EIO, reads that touch the second wait until
they are held no more. "short" is the most bytes that a read gives. The answer is a JSON list of the reads since the last
line: [offset, size]. The end of the input, however it comes, takes all of it down.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29
INTERRUPT, BATCH_FORGET, DESTROY = 36, 42, 38
DIRECT_IO = 1
DETACH = 2
LIBC = ctypes.CDLL(None, use_errno=True)
LARGEST = 1 << 20


def attributes(node: int, size: int) -> bytes:
    mode, links = (0o040755, 2) if node == 1 else (0o100644, 1)
    return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)


class Disk:
    def __init__(self, image: str, directory: str):
        self.image = os.open(image, os.O_RDONLY)
        self.size = os.fstat(self.image).st_size
        self.fuse = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
        if LIBC.mount(b"disk", os.fsencode(directory), b"fuse.disk", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "cannot mount")
        self.rules = {"bad": [], "held": [], "short": LARGEST}
        self.waiting: list[tuple[int, int, int]] = []
        self.reads: list[tuple[int, int]] = []

    def answer(self, unique: int, body: bytes = b"", error: int = 0) -> None:
        try:
            os.write(self.fuse, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
        except OSError as e:
            # Whoever asked is gone.
            if e.errno != errno.ENOENT:
                raise

    def touches(self, rule: str, offset: int, size: int) -> bool:
        return any(a < offset + size and offset < b for a, b in self.rules[rule])

    def read(self, unique: int, offset: int, size: int) -> None:
        if self.touches("held", offset, size):
            self.waiting.append((unique, offset, size))
        elif self.touches("bad", offset, size):
            self.answer(unique, error=errno.EIO)
        else:
            self.answer(unique, os.pread(self.image, min(size, self.rules["short"]), offset))

    def request(self, message: bytes) -> bool:
        _, code, unique, node = struct.unpack_from("<IIQQ", message)
        body = message[40:]
        if code == INIT:
            _, _, ahead, offered = struct.unpack_from("<4I", body)
            # Reads that wait for no others, of up to 1 MiB.
            flags = offered & (1 | 1 << 15 | 1 << 22)
            self.answer(unique, struct.pack("<4I2H2I2H2IH22x", 7, 31, ahead, flags, 64, 48, LARGEST, 1, 256, 0, 0, 0, 0))
        elif code == LOOKUP and body.rstrip(b"\0") == b"disk":
            self.answer(unique, struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attributes(2, self.size))
        elif code == LOOKUP:
            self.answer(unique, error=errno.ENOENT)
        elif code == GETATTR:
            self.answer(unique, struct.pack("<Q2I", 3600, 0, 0) + attributes(node, self.size))
        elif code in (OPEN, OPENDIR):
            self.answer(unique, struct.pack("<QIi", 0, DIRECT_IO if code == OPEN else 0, 0))
        elif code == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            self.reads.append((offset, size))
            self.read(unique, offset, size)
        elif code == STATFS:
            self.answer(unique, struct.pack("<5Q4I24x", 0, 0, 0, 2, 0, 4096, 255, 4096, 0))
        elif code in (READDIR, RELEASE, RELEASEDIR, FLUSH):
            self.answer(unique)
        elif code == DESTROY:
            return False
        elif code not in (FORGET, BATCH_FORGET, INTERRUPT):
            self.answer(unique, error=errno.ENOSYS)
        return True

    def told(self, rules: dict) -> list:
        self.rules |= rules
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            self.read(*one)
        reads, self.reads = self.reads, []
        return reads

    def serve(self) -> None:
        said = b""
        while True:
            ready, _, _ = select.select([self.fuse, 0], [], [])
            if self.fuse in ready:
                try:
                    if not self.request(os.read(self.fuse, LARGEST + 4096)):
                        return
                except OSError as e:
                    # It was unmounted; or the request was given up meanwhile.
                    if e.errno == errno.ENODEV:
                        return
                    if e.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                        raise
            if 0 in ready:
                part = os.read(0, 65536)
                if not part:
                    return
                said += part
                while b"\n" in said:
                    line, said = said.split(b"\n", 1)
                    print(json.dumps(self.told(json.loads(line))), flush=True)


def run(kind: type[Disk]) -> None:
    # It ends with its input, which it outlives for long enough to take down what it has put up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    image, directory, mounted = sys.argv[1:]
    disk = kind(image, directory)
    print("ready", flush=True)
    try:
        disk.serve()
    finally:
        # Whoever still waits for something of it gets errors from now on.
        os.close(disk.fuse)
        LIBC.umount2(os.fsencode(mounted), DETACH)
        LIBC.umount2(os.fsencode(directory), DETACH)


if __name__ == "__main__":
    run(Disk)
