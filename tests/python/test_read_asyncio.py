"""Read sessions in asyncio: thousands of tasks await their bytes."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref

import numpy as np
import pytest
import stead
import uvloop

SIZE = 2_000_003


@pytest.fixture(scope="module")
def data() -> bytes:
    return np.random.default_rng(6).bytes(SIZE)


@pytest.fixture(scope="module")
def path(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("read") / "data.bin"
    path.write_bytes(data)
    return path


def blocks(path, **options):
    """A session whose reads are answered by readers' threads, never at once."""
    return stead.read_session(path, **({"engine": "pread", "ahead": False, "block": 65536} | options))


def stuck(path):
    """A session all of whose memory is held by views, so that reads wait; and the views."""
    # Files that are open share the budget, those of tests before as well.
    gc.collect()
    s = blocks(path, block=4096, memory=4 * 4096)
    return s, [s.pread(i * 4096, 10) for i in range(4)]


def uvloop_run(coroutine):
    """As asyncio.run, with another loop."""
    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    return uvloop_run if request.param == "uvloop" else asyncio.run


def test_await(run, path, data):
    async def main():
        async with stead.read_session(path) as s:
            assert await s.read(5, 10) == data[5:15]
        async with blocks(path) as s:
            view = await s.read(5, 10)
            assert view == data[5:15] and isinstance(view, stead.View)
            read = s.read(100_000, 300_000)
            assert await read == data[100_000:400_000] and await read is await read
            buffer = np.zeros(100, np.uint8)
            assert await s.read_into(buffer, 9) is buffer and buffer.tobytes() == data[9:109]
            assert await s.read_strided(0, 2, 10, 3) == data[0:2] + data[10:12] + data[20:22]
            many = await s.read_many([(0, 5), (1_000_000, 5)])
            assert many == [data[:5], data[1_000_000:1_000_005]]
            assert await asyncio.gather(s.read(0, 1), s.read(1, 1)) == [data[0:1], data[1:2]]
            with pytest.raises(stead.UsageError):
                await s.read(SIZE, 1)
        assert s.closed

    run(main())


@pytest.mark.parametrize("way", [{}, {"engine": "pread"}, {"engine": "pread", "block": 4096, "memory": 64 * 4096}])
def test_ten_thousand_tasks(run, path, data, way):
    rng = np.random.default_rng(2)
    ranges = [(int(a), int(n)) for a, n in zip(rng.integers(0, SIZE - 9000, 10_000), rng.integers(0, 9000, 10_000))]

    async def main():
        async with stead.read_session(path, **way) as s:

            async def one(offset, length):
                view = await s.read(offset, length)
                return view == data[offset : offset + length]

            assert all(await asyncio.gather(*(one(*r) for r in ranges)))
            assert s.counts["requests"] >= 9_990

    run(main())


def test_the_loop_goes_on_while_reads_wait(run, path, data):
    async def main():
        s, views = stuck(path)
        task = asyncio.ensure_future(s.read(9 * 4096, 10))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done()
        views.clear()
        assert await task == data[9 * 4096 :][:10]
        s.close()

    run(main())


def test_a_cancelled_task_cancels_its_read(run, path, data):
    async def main():
        s, views = stuck(path)
        read = s.read(9 * 4096, 10)
        task = asyncio.ensure_future(read)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert read.cancelled()
        with pytest.raises(stead.CancelledError):
            await read
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(s.read(9 * 4096, 10), 0.05)
        # If another task waits for it too, it goes on.
        read = s.read(9 * 4096, 10)

        async def wait():
            return await read

        first, second = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        assert first.cancelled() and not read.cancelled()
        views.clear()
        assert await second == data[9 * 4096 :][:10]
        s.close()

    run(main())


def stands(read):
    """A thread that waits for a read, and where its answer will be."""
    answers, begins = [], threading.Event()

    def wait():
        begins.set()
        answers.append(read.result(60))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert begins.wait(60)
    # It is about to wait: nothing tells when it does.
    time.sleep(0.3)
    return thread, answers


def test_a_cancelled_task_leaves_a_read_to_a_thread_that_waits_for_it(run, path, data):
    async def main():
        s, views = stuck(path)

        async def give_up(read):
            task = asyncio.ensure_future(read)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return read.cancelled()

        read = s.read(9 * 4096, 10)
        thread, answers = stands(read)
        assert not await give_up(read)
        # A thread whose time is over waits no longer.
        other = s.read(10 * 4096, 10)
        with pytest.raises(stead.TimedOutError):
            other.result(0.05)
        assert await give_up(other)
        views.clear()
        thread.join(60)
        assert answers == [data[9 * 4096 :][:10]]
        s.close()

    run(main())


def test_a_loop_that_is_closed_leaves_a_read_to_a_thread_that_waits_for_it(path, data):
    s, views = stuck(path)
    read = s.read(9 * 4096, 10)
    thread, answers = stands(read)

    async def one():
        await read

    async def main(loop):
        loop.create_task(one())
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main(loop))
    loop.close()
    del loop
    gc.collect()
    assert not read.cancelled()
    views.clear()
    thread.join(60)
    assert answers == [data[9 * 4096 :][:10]]
    s.close()


def test_a_read_that_another_thread_cancels(run, path):
    async def main():
        s, views = stuck(path)
        read = s.read(9 * 4096, 10)
        threading.Timer(0.05, read.cancel).start()
        with pytest.raises(stead.CancelledError):
            await read
        del views
        s.close()

    run(main())


def test_deadlines(run, path):
    async def main():
        s, views = stuck(path)
        with pytest.raises(stead.TimedOutError):
            await s.read(9 * 4096, 10, deadline=0.05)
        for read in (
            s.read_into(bytearray(10), 9 * 4096, deadline=0.05),
            s.read_strided(9 * 4096, 2, 10, 3, deadline=0.05),
            s.read_many([(9 * 4096, 10)], deadline=0.05),
        ):
            with pytest.raises(stead.TimedOutError):
                await read
        del views
        s.close()

    run(main())


def test_loops_in_several_threads_share_a_session(path, data):
    with blocks(path) as s:
        wrong = []

        async def main(seed):
            async def one(offset):
                return await s.read(offset, 1000) == data[offset : offset + 1000]

            offsets = np.random.default_rng(seed).integers(0, SIZE - 1000, 500).tolist()
            wrong.extend(r for r in await asyncio.gather(*map(one, offsets)) if not r)

        threads = [threading.Thread(target=asyncio.run, args=(main(i),)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert not wrong and not any(t.is_alive() for t in threads)
        # One read may be awaited in a loop and waited for in a thread.
        read = s.read(1_000_000, 10)

        async def both():
            return await asyncio.gather(asyncio.to_thread(read.result), read, asyncio.to_thread(read.result))

        assert asyncio.run(both()) == [data[1_000_000:1_000_010]] * 3


def test_a_loop_that_ends_with_reads_waiting(path, data):
    s, views = stuck(path)

    async def main():
        asyncio.ensure_future(s.read(9 * 4096, 10))
        await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    views.clear()
    assert s.pread(9 * 4096, 10) == data[9 * 4096 :][:10]
    s.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_loop_that_is_closed_keeps_nothing(path, data, new_loop):
    s, views = stuck(path)
    kept = []

    async def one():
        read = s.read(9 * 4096, 10)
        kept.append(weakref.ref(read))
        await read

    async def main(loop):
        # All tasks of asyncio.run are cancelled at its end; these are not.
        for _ in range(10):
            loop.create_task(one())
        await asyncio.sleep(0)

    loop = new_loop()
    loop.run_until_complete(main(loop))
    loop.close()
    kept.append(weakref.ref(loop))
    del loop
    gc.collect()
    assert [r() for r in kept] == [None] * 11
    views.clear()
    assert s.pread(9 * 4096, 10) == data[9 * 4096 :][:10]
    s.close()


def test_a_loop_in_a_callback(path, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(bytes(range(256)) * (1 << 15))
    array, called = np.zeros(8 << 20, np.uint8), threading.Event()

    async def main():
        with stead.read_session(large) as s:
            return await s.read_into(array, 0)

    def function(_):
        # In the thread that copies for other loops.
        asyncio.run(main())
        called.set()

    s, views = stuck(path)
    s.read(9 * 4096, 10).add_done_callback(function)
    views.clear()
    assert called.wait(60) and (array[-256:] == np.arange(256)).all()
    s.close()


def test_without_a_loop_it_says_so(path):
    s, views = stuck(path)
    with pytest.raises(RuntimeError, match="no running event loop"):
        s.read(9 * 4096, 10).__await__()
    del views
    s.close()


@pytest.mark.parametrize("engine", ["auto", "pread"])
def test_a_loop_goes_on_while_much_is_copied(tmp_path, engine):
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * (1 << 17))
    array = np.zeros(32 << 20, np.uint8)

    async def main():
        with stead.read_session(path, engine=engine) as s:
            reads = [s.read_into(array, 0), s.read_strided(0, 1 << 20, 2 << 20, 16)]
            # Asked for anew, when all is there, too.
            for _ in range(3):
                filled, strided = await asyncio.gather(*reads)
                assert filled is array and (array[:512] == np.tile(np.arange(256), 2)).all()
                assert len(strided) == 16 << 20 and bytes(strided[-256:]) == bytes(range(256))
                array[:] = 0
                reads = [s.read_into(array, 0), s.read_strided(0, 1 << 20, 2 << 20, 16)]
            for _ in range(100):
                buffer = bytearray(8 << 20)
                task = asyncio.ensure_future(asyncio.wait_for(s.read_into(buffer, 0), 60))
                await asyncio.sleep(0)
                task.cancel()
                try:
                    # The copy was faster than this thread.
                    assert await task is buffer
                except asyncio.CancelledError:
                    break
            else:
                pytest.fail("it cannot be cancelled")
            with pytest.raises(stead.UsageError):
                await s.read_into(array, 1)

    asyncio.run(main())
