"""As reads.c, in the ways of Python: results, tasks and a file-like object."""

from __future__ import annotations

import asyncio
import gc
import sys
import zlib

import stead

KINDS = {"changed": 6, "io": 9, "timeout": 13, "usage": 1}


async def awaited(session, offset, length):
    return await session.read(offset, length)


async def vanish(session, offset, length):
    """A read that nobody has, and a task that is cancelled."""
    session.read(offset, length)
    task = asyncio.ensure_future(awaited(session, offset, length))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


def read(session, way, offset, length) -> int:
    if way == "into":
        return zlib.adler32(session.read_into(bytearray(length), offset).result())
    if way == "stream":
        file, got = session.reader(), b""
        file.seek(offset)
        while len(got) < length:
            got += file.read(min(length - len(got), 100_000))
        return zlib.adler32(got)
    if way == "drop":
        asyncio.run(vanish(session, offset, length))
        gc.collect()
        return 0
    view = asyncio.run(awaited(session, offset, length)) if way == "await" else session.pread(offset, length)
    found = zlib.adler32(view)
    view.check()
    return found


def main(path, flags):
    engine = {0: {}, 2: {"direct": True}, 4: {"engine": "uring"}, 8: {"engine": "pread"}}[int(flags) & ~1]
    try:
        session = stead.read_session(path, ahead=not int(flags) & 1, deadline=60, **engine)
    except stead.Error as e:
        print("error", KINDS[e.kind], "-", e.path, flush=True)
        sys.exit(1)
    print("ready", flush=True)
    for line in sys.stdin:
        way, offset, length = line.split()
        try:
            print("ok", read(session, way, int(offset), int(length)), flush=True)
        except stead.Error as e:
            print("error", KINDS[e.kind], "-" if e.offset is None else e.offset, e.path, flush=True)


main(*sys.argv[1:])
