"""Read sessions: any thread asks for any bytes, against the plain contents of the file."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import numpy as np
import pytest
import stead
from hypothesis import given, settings
from hypothesis import strategies as st

SIZE = 3_000_017
#: Bytes in the page cache, and bytes in blocks of memory.
WAYS = [
    pytest.param({}, id="mapped"),
    pytest.param({"ahead": False}, id="mapped, on demand"),
    pytest.param({"engine": "pread"}, id="blocks"),
    pytest.param({"engine": "pread", "block": 4096, "memory": 16 * 4096, "ahead": False}, id="few small blocks"),
]


@pytest.fixture(scope="module")
def data() -> bytes:
    return np.random.default_rng(5).bytes(SIZE)


@pytest.fixture(scope="module")
def path(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("read") / "data.bin"
    path.write_bytes(data)
    return path


@pytest.fixture(params=WAYS)
def session(request, path):
    with stead.read_session(path, **request.param) as s:
        yield s


def stuck(path):
    """A session all of whose memory is held by views, so that reads wait; and the views."""
    # Files that are open share the budget, those of tests before as well.
    gc.collect()
    s = stead.read_session(path, engine="pread", block=4096, memory=4 * 4096, ahead=False)
    views = [s.pread(i * 4096, 10) for i in range(4)]
    return s, views


def test_any_bytes(session, data):
    assert len(session) == session.size == SIZE and session.range == range(SIZE) and bool(session)
    rng = np.random.default_rng(1)
    for n in [0, 1, 7, 4096, 100_000]:
        for offset in [0, 1, 4095, 4096, SIZE - n, *rng.integers(0, SIZE - n, 20).tolist()]:
            view = session.read(offset, n).result()
            assert view == data[offset : offset + n] and len(view) == view.nbytes == n
            assert session.pread(offset, n) == data[offset : offset + n]


def test_offsets_are_those_of_the_file(path, data):
    with stead.read_session(path, 1000, 5000) as s:
        assert (s.start, s.stop, len(s), s.size) == (1000, 5000, 4000, SIZE)
        assert s.pread(1000, 10) == data[1000:1010] and s.pread(4990, 10) == data[4990:5000]
        assert s.path == str(path) and repr(s) == f"<stead.Session {path}: bytes 1000 to 5000>"
        inner = s.session(0, 20)
        assert inner.pread(0, 20) == data[:20] and isinstance(inner, stead.Session)
        inner.close()
        assert s.pread(1000, 1) == data[1000:1001]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 40_000)), min_size=1, max_size=60),
    st.sampled_from([p.values[0] for p in WAYS]),
    st.booleans(),
)
def test_any_order_and_overlaps(path, data, ranges, way, backwards):
    ranges = [(a, min(n, SIZE - a)) for a, n in ranges]
    with stead.read_session(path, **way) as s:
        reads = s.read_many(ranges)
        for (a, n), read in sorted(zip(ranges, reads), key=lambda r: r[0][0], reverse=backwards):
            assert read.result() == data[a : a + n]


def test_many_at_once(session, data):
    ranges = np.array([[10, 5], [SIZE - 3, 3], [10, 5]])
    reads = session.read_many(ranges)
    assert [bytes(v) for v in reads.results()] == [data[10:15], data[-3:], data[10:15]]
    assert isinstance(reads, stead.Reads) and all(r.done() for r in reads)
    with pytest.raises(TypeError):
        session.read_many([(1, 2), 3])
    with pytest.raises(stead.UsageError):
        session.read_many([(1, 2), (-3, 1)])


def test_strided(session, data):
    view = session.read_strided(100, 12, 1000, 50).result()
    assert view == b"".join(data[100 + 1000 * i :][:12] for i in range(50))
    with pytest.raises(stead.UsageError, match="overlap"):
        session.read_strided(0, 12, 10, 2).result()
    with pytest.raises(stead.UsageError):
        session.read_strided(0, 12, SIZE, 2).result()
    assert session.read_strided(0, 12, 1000, 0).result() == b""


def test_buffers(session, data):
    for n in [1, 5000, 200_000]:
        array = np.zeros(n, np.uint8)
        assert session.read_into(array, 77).result() is array and array.tobytes() == data[77 : 77 + n]
        plain = bytearray(n)
        assert session.pread_into(plain, 77) == n and plain == data[77 : 77 + n]
    matrix = np.zeros((30, 4))
    session.read_into(matrix, 8).result()
    assert matrix.tobytes() == data[8 : 8 + matrix.nbytes]
    # At the end there are fewer.
    short = bytearray(b"x" * 10)
    assert session.pread_into(short, SIZE - 4) == 4 and short == data[-4:] + b"xxxxxx"
    assert session.pread_into(short, SIZE) == session.pread_into(short, SIZE + 9) == 0
    assert session.read_into(bytearray(), 0).result() == b""
    with pytest.raises(stead.UsageError):
        session.read_into(short, SIZE - 4).result()
    # Nothing of it is held any more, also after what failed.
    short.append(1)
    with pytest.raises(BufferError):
        session.read_into(b"for reading only", 0)
    with pytest.raises(ValueError):
        session.read_into(matrix[:, 1], 0)
    with pytest.raises(TypeError):
        session.read_into("text", 0)


def test_a_buffer_is_held_until_the_answer(path, data):
    s, views = stuck(path)
    buffer = bytearray(100)
    read = s.read_into(buffer, 6 * 4096)
    with pytest.raises(BufferError):
        buffer.clear()
    assert not read.done()
    views.clear()
    assert read.result() is buffer and buffer == data[6 * 4096 :][:100]
    buffer.clear()
    # As long as it is not cancelled.
    views = [s.pread(i * 4096, 10) for i in range(4)]
    buffer = bytearray(100)
    read = s.read_into(buffer, 6 * 4096)
    assert read.cancel() and read.cancelled() and read.done()
    buffer.clear()
    with pytest.raises(stead.CancelledError):
        read.result()
    del read, views
    s.close()


def test_views_are_buffers_without_copies(session, data):
    view = session.pread(8, 4000)
    array = np.frombuffer(view, "<u4")
    assert array.tobytes() == data[8:4008] and not array.flags.writeable
    assert np.asarray(view).dtype == np.uint8 and np.asarray(view).shape == (4000,)
    assert np.shares_memory(array, np.asarray(view))
    assert (view.array("<u4", (-1, 10)) == array.reshape(-1, 10)).all() and view.array().size == 4000
    assert view[3] == data[11] and view[2:5] == data[10:13] and list(view[:3]) == list(data[8:11])
    assert bytes(view) == view.tobytes() == data[8:4008] and bytearray(view) == data[8:4008]
    assert view == session.pread(8, 4000) and view != data[:4000] and view != 3
    memory = memoryview(view)
    assert memory.readonly and memory.nbytes == 4000 and memory.format == "B" and memory.contiguous
    with pytest.raises(TypeError):
        memory[0] = 1
    with pytest.raises(ValueError):
        view.array("f8", 3)
    view.check()
    assert repr(view) == "<stead.View of 4000 bytes>"
    with pytest.raises(TypeError):
        hash(view)
    with pytest.raises(TypeError):
        stead.View()
    empty = session.pread(5, 0)
    assert bytes(empty) == b"" and empty.array("f8").shape == (0,) and len(memoryview(empty)) == 0


def test_arrays_keep_their_bytes_alive(path, data):
    for way in ({}, {"engine": "pread"}):
        s = stead.read_session(path, **way)
        array = np.frombuffer(s.pread(0, 2_000_000), np.uint8)
        s.close()
        del s
        gc.collect()
        assert array.tobytes() == data[:2_000_000]


def test_a_read_can_be_asked_again(session, data):
    read = session.read(3, 5)
    assert read.result() is read.result() and read.done() and not read.cancelled() and not read.cancel()
    assert read.exception() is None and repr(read) == "<stead.Read done>"
    bad = session.read(SIZE, 1)
    first = bad.exception()
    assert isinstance(first, stead.UsageError) and isinstance(first, ValueError)
    for _ in range(2):
        with pytest.raises(stead.UsageError, match="do not lie within the session"):
            bad.result()


def test_threads_share_a_session(session, data):
    def one(i):
        offset = i * 7919 % (SIZE - 5000)
        return session.pread(offset, 5000) == data[offset : offset + 5000]

    before = session.counts
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(3000)))
    counts = session.counts
    assert counts["requests"] - before["requests"] == 3000
    assert 0 <= counts["at_once"] - before["at_once"] <= 3000


def test_dask_delayed(path, data):
    with stead.read_session(path) as s:
        parts = [dask.delayed(lambda a: int(s.pread(a, 1000).array().sum()))(a) for a in range(0, 100_000, 1000)]
        total = dask.delayed(sum)(parts).compute(scheduler="threads")
    assert total == sum(data[:100_000])


def test_callbacks(path, data):
    came, seen = threading.Event(), []

    def note(read):
        seen.append((read, threading.current_thread() is threading.main_thread()))
        if len(seen) == 2:
            came.set()

    s, views = stuck(path)
    read = s.read(5 * 4096, 10)
    read.add_done_callback(note)
    # Nobody has this one but its function.
    s.read(5 * 4096 + 1, 1).add_done_callback(note)
    views.clear()
    assert came.wait(60)
    assert {r.result().tobytes() for r, _ in seen} == {data[5 * 4096 :][:10], data[5 * 4096 + 1 :][:1]}
    assert any(r is read for r, _ in seen) and not any(main for _, main in seen)
    seen.clear()
    read.add_done_callback(note)
    assert seen == [(read, True)]
    s.close()


def test_what_a_callback_raises_is_told(path, monkeypatch):
    told, came = [], threading.Event()
    monkeypatch.setattr(sys, "unraisablehook", lambda e: (told.append(e.exc_type), came.set()))
    s, views = stuck(path)
    s.read(5 * 4096, 10).add_done_callback(lambda read: 1 / 0)
    views.clear()
    assert came.wait(60) and told == [ZeroDivisionError]
    s.close()


def test_deadlines_and_timeouts(path, data):
    s, views = stuck(path)
    with pytest.raises(stead.TimedOutError, match="views hold all") as e:
        s.pread(7 * 4096, 10, deadline=0.05)
    assert isinstance(e.value, TimeoutError) and e.value.kind == "timeout" and e.value.offset == 7 * 4096
    read = s.read(7 * 4096, 10)
    with pytest.raises(stead.TimedOutError):
        read.result(timeout=0.05)
    with pytest.raises(stead.TimedOutError):
        read.exception(timeout=0)
    with pytest.raises(ValueError):
        read.result(timeout=float("nan"))
    assert not read.done() and repr(read) == "<stead.Read waiting>"
    views.clear()
    assert read.result(timeout=60) == data[7 * 4096 :][:10]
    s.close()


def test_reads_of_any_kind_have_a_deadline_of_their_own(path, data):
    s, views = stuck(path)
    at, soon = 7 * 4096, {"deadline": 0.05}
    late = [s.read_into(bytearray(10), at, **soon), s.read_strided(at, 2, 10, 3, **soon)]
    for read in [*late, *s.read_many([(at, 10), (at + 1, 10)], **soon)]:
        with pytest.raises(stead.TimedOutError):
            read.result(timeout=60)
    with pytest.raises(stead.TimedOutError):
        s.pread_into(bytearray(10), at, **soon)
    for wrong in (float("nan"), "soon"):
        for ask in [lambda: s.read_into(bytearray(1), 0, deadline=wrong), lambda: s.pread_into(bytearray(1), 0, deadline=wrong),
                    lambda: s.read_strided(0, 1, 1, 1, deadline=wrong)]:  # fmt: skip
            with pytest.raises((ValueError, TypeError)):
                ask()
    assert s.counts["held"] >= 4 * 4096
    buffer = bytearray(10)
    waiting = s.read_into(buffer, at)
    assert not waiting.done()
    views.clear()
    assert waiting.result(timeout=60) is buffer and buffer == data[at:][:10]
    assert s.pread_into(buffer, at + 4096, deadline=60) == 10 and buffer == data[at + 4096 :][:10]
    s.close()


def test_reads_that_nobody_has_are_cancelled(path, data):
    s, views = stuck(path)
    before = s.counts["blocks"]
    reads = [s.read(i * 4096, 10) for i in range(5, 300)]
    del reads
    views.clear()
    assert s.pread(400 * 4096, 10) == data[400 * 4096 :][:10]
    # Of these, at most what was begun at once.
    assert s.counts["blocks"] - before < 20
    s.close()


def test_options_and_what_was_chosen(path):
    with stead.read_session(path, engine="pread", readers=3, block="8KiB", depth=2, memory="1MiB", deadline=5) as s:
        told = s.explain()
    assert told["readers"].startswith("3") and told["block"].startswith("8") and told["queue depth"].startswith("2")
    numbers = [{"readers": 0}, {"readers": -1}, {"depth": 0}, {"block": 0}, {"memory": -1}, {"block": "0"}, {"readers": 1 << 70}]
    for bad in numbers:
        (name, value), = bad.items()
        with pytest.raises(stead.UsageError, match=f"{name}= is a number of .*, not {value}$"):
            stead.read_session(path, **bad)
    for bad in {"engine": "telepathy"}, {"memory": "much"}:
        with pytest.raises(stead.UsageError):
            stead.read_session(path, **bad)
    for bad in {"readers": "3"}, {"block": 1.5}, {"deadline": "soon"}, {"ahead": 1}, {"share": "no"}, {"engine": 3}:
        with pytest.raises(TypeError, match=f"{next(iter(bad))}= cannot be a"):
            stead.read_session(path, **bad)
    with pytest.raises(TypeError):
        stead.read_session(path, reader=3)


def test_blocks_are_shared_with_other_processes_or_not(tmp_path, data):
    file = tmp_path / "old"
    file.write_bytes(data)
    os.utime(file, (1.7e9, 1.7e9))
    with stead.read_session(file, engine="pread") as s:
        assert "have blocks and memory together" in s.explain()["shared"]
    with stead.read_session(file, engine="pread", share=False) as s:
        assert s.explain()["shared"] == "with no other process: as asked for"
    with stead.open_reader(file, engine="pread", share=False) as f:
        assert "as asked for" in f.session.explain()["shared"] and f.read(10) == data[:10]


def test_closed(path, data):
    s = stead.read_session(path)
    view, read = s.pread(0, 10), s.read(10, 10)
    s.close()
    s.close()
    assert s.closed and "closed" in repr(s) and len(s) == SIZE
    assert view == data[:10] and read.result() == data[10:20]
    for ask in (lambda: s.read(0, 1), lambda: s.pread(0, 1), lambda: s.read_into(bytearray(1), 0), s.explain,
                lambda: s.session(), lambda: s.read_many([(0, 1)]), lambda: s.counts):  # fmt: skip
        with pytest.raises(stead.UsageError, match="closed"):
            ask()
    buffer = bytearray(9)
    for ask in (s.read_into, s.pread_into):
        with pytest.raises(stead.UsageError, match="closed"):
            ask(buffer, 0)
        buffer.append(1)


def test_what_cannot_be_opened(path, tmp_path):
    with pytest.raises(FileNotFoundError) as e:
        stead.read_session(tmp_path / "nope")
    assert isinstance(e.value, stead.NotFoundError) and not (tmp_path / "nope").exists()
    with pytest.raises(stead.UsageError, match="directory"):
        stead.read_session(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(stead.UsageError):
        stead.read_session(tmp_path / "pipe")
    for start, stop in [(0, SIZE + 1), (SIZE + 1, None), (5, 4), (-1, None), (0, -1), (0, 2**70)]:
        with pytest.raises(stead.UsageError):
            stead.read_session(path, start, stop)
    with pytest.raises(TypeError):
        stead.read_session(path, 0.5)


def few_pages(size: int) -> ctypes.Array:
    """A writable buffer of so many bytes that are a few pages, which lie beside each other many times.

    The last ones are there once: parts of a read are written by several threads, and whichever is the last one writes what
    is seen in the others.
    """
    piece, fd = 8 << 20, os.memfd_create("pages")
    os.truncate(fd, 2 * piece)
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    nothing, read_and_write, shared, private, fixed, anonymous, not_counted = 0, 3, 1, 2, 0x10, 0x20, 0x4000
    start = mmap(None, size, nothing, private | anonymous | not_counted, -1, 0)
    for at in range(0, size, piece):
        own = piece if at + piece >= size else 0
        assert mmap(start + at, piece, read_and_write, shared | fixed, fd, own) == start + at
    os.close(fd)
    return (ctypes.c_char * size).from_address(start)


@pytest.fixture
def sparse(tmp_path):
    """A name on a file system in memory, where holes take none."""
    path = Path(f"/dev/shm/stead-test-{os.getpid()}")
    yield path
    path.unlink()


def test_more_than_two_gib_at_once(sparse):
    size, before = 9 << 28, 3 << 30
    with open(sparse, "wb") as f:
        f.seek(before - 1)
        f.write(b"<")
        f.seek(before + size - 1)
        f.write(b">")
    buffer = few_pages(size)
    with stead.read_session(sparse, ahead=False, engine="pread") as s:
        with s.reader() as f:
            assert f.seek(before) == before and f.readinto(buffer) == size and f.tell() == before + size
        assert buffer[size - 2 :] == b"\0>"
        # As pieces.
        view = s.read_strided(before + 1, 1, size - 2, 2).result()
        assert view == b"\0>"


def test_views_of_more_than_two_gib(tmp_path):
    size, before = 9 << 28, 3 << 30
    with open(tmp_path / "sparse", "wb") as f:
        f.seek(before - 1)
        f.write(b"<")
        f.seek(before + size - 1)
        f.write(b">")
    with stead.read_session(tmp_path / "sparse", ahead=False) as s:
        view = s.pread(before - 1, size + 1)
        array = np.frombuffer(view, np.uint8)
        assert len(view) == view.nbytes == array.size == memoryview(view).nbytes == size + 1
        assert (array[0], array[1], array[-2], array[-1]) == (ord("<"), 0, 0, ord(">"))
    os.unlink(tmp_path / "sparse")


def test_empty(tmp_path):
    (tmp_path / "empty").touch()
    with stead.read_session(tmp_path / "empty") as s:
        assert len(s) == 0 and s and s.pread(0, 0) == b""
        with pytest.raises(stead.UsageError):
            s.pread(0, 1)


@pytest.mark.parametrize("arguments", [(-1, 1), (0, -1), (2**64, 1), (0, 2**64), (2**63, 2**63), (SIZE, 1), (1, SIZE)])
def test_bytes_that_no_session_has(session, arguments):
    with pytest.raises(stead.UsageError):
        session.read(*arguments).result()


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_becomes_shorter(tmp_path, way):
    path = tmp_path / "f"
    path.write_bytes(bytes(1_000_000))
    s = stead.read_session(path, **(way | {"ahead": False}))
    view = s.pread(0, 100)
    os.truncate(path, 500)
    assert bytes(view) == bytes(100)
    with pytest.raises(stead.ChangedError):
        late = s.pread(900_000, 1000)
        late.tobytes()
        late.check()
    with pytest.raises(stead.ChangedError):
        s.pread_into(bytearray(1000), 900_000)
    with pytest.raises(stead.ChangedError):
        s.close()
    # What went wrong inside is not hidden by it.
    with pytest.raises(ZeroDivisionError), stead.read_session(path) as s:
        os.truncate(path, 100)
        1 / 0


def run(code: str, *args, timeout=60, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=timeout, **options
    )


STUCK = """
import os, sys, threading, stead
s = stead.read_session(sys.argv[1], engine="pread", block=4096, memory=4 * 4096, ahead=False)
views = [s.pread(i * 4096, 10) for i in range(4)]
"""


@pytest.mark.parametrize("background", [False, True])
def test_ctrl_c_ends_the_waiting(path, background):
    code = STUCK + """
import signal
# Background jobs of a shell ignore it, and children of theirs do too: the read would wait until its deadline.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    s.pread(9 * 4096, 10)
except KeyboardInterrupt:
    print("^C")
views.clear()
print(len(s.pread(9 * 4096, 10)))
"""

    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    done = run(code, path, preexec_fn=ignore if background else None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "^C\n10\n", "")


@pytest.mark.parametrize(
    "last",
    [
        "",
        "read = s.read(9 * 4096, 10)",
        "s.read(9 * 4096, 10).add_done_callback(print)",
        "s.read(9 * 4096, 10).add_done_callback(print); views.clear(); s.pread(10 * 4096, 1)",
        "threading.Thread(target=s.pread, args=(9 * 4096, 10), daemon=True).start()",
        "s.read(9 * 4096, 10).cancel(); sys.exit()",
    ],
)
def test_programs_end_with_sessions_open(path, last):
    done = run(STUCK + last, path)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_forked_children_get_an_error_and_may_begin_anew(path):
    code = STUCK + """
read = s.read(9 * 4096, 10)
there = s.read(0, 10)
while not there.done():
    pass
child = os.fork()
if child == 0:
    errors = 0
    for ask in (lambda: s.pread(0, 1), read.result, read.done, read.cancel, lambda: s.read(0, 1)):
        try:
            ask()
        except stead.UsageError as e:
            errors += "before a fork" in str(e)
    s.close()
    del s, read, there, views
    with stead.read_session(sys.argv[1], engine="pread") as mine:
        same = bytes(mine.pread(0, 10)) == open(sys.argv[1], "rb").read(10)
    os._exit(7 if errors == 5 and same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
views.clear()
assert len(read.result()) == len(there.result()) == 10
"""
    done = run(code, path)
    assert done.returncode == 0, done.stderr


def test_what_a_forked_child_looks_at_stays(tmp_path):
    """Blocks in memory are shared with other processes, and used again by the parent when it looks at them no more."""
    path = tmp_path / "blocks"
    size, block = 96 << 20, 1 << 20
    with open(path, "wb") as f:
        for i in range(size // block):
            f.write(bytes([i]) * block)
    # What was changed a moment ago is shared with nobody.
    os.utime(path, (1, 1))
    code = f"""
import os, sys, stead
s = stead.read_session(sys.argv[1], engine="pread", block={block}, memory={32 << 20}, ahead=False)
assert "with no other process" in dict(s.explain())["shared"], s.explain()
view = s.pread(3 * {block}, {block})
r, w = os.pipe()
child = os.fork()
if child == 0:
    os.read(r, 1)
    os._exit(7 if bytes(view) == bytes([3]) * {block} else 1)
del view
for i in range(4, {size // block}):
    s.pread(i * {block}, {block})
os.write(w, b"x")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    done = run(code, path)
    assert done.returncode == 0, done.stderr


def test_names_of_any_bytes(data, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.bin")
    with open(path, "wb") as f:
        f.write(data[:1000])
    for name in (path, os.fsdecode(path)):
        with stead.read_session(name) as s:
            assert os.fsencode(s.path) == path and bytes(s.pread(990, 10)) == data[990:1000]
    with pytest.raises(stead.NotFoundError):
        stead.read_session(os.fsdecode(path + b"\xff"))


def test_sessions_leave_nothing_behind(path):
    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def many(n):
        for i in range(n):
            with stead.read_session(path, ahead=False) as s:
                s.pread(i, 100)

    many(500)
    gc.collect()
    files, before = len(os.listdir("/proc/self/fd")), resident()
    many(3000)
    gc.collect()
    # What threads of a session hold goes with them, a moment after it is closed.
    until = time.monotonic() + 60
    while len(os.listdir("/proc/self/fd")) > files and time.monotonic() < until:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) <= files and resident() < before + (8 << 20)
