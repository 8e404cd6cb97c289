"""Who waits for a stream takes no processor: next to no time of one, and does not wake up again and again to look."""

from __future__ import annotations

import time

import stead
from support import spent
from test_streams import programs, space

__all__ = ["programs", "space"]

#: What programs do that wait, when they have said so.
WAITS = {
    "a reader, for a step": """
        r = stead.reader("there", dataspaces=S)
        say("waits")
        r.next()
    """,
    "a reader, for a very step": """
        r = stead.reader("there", group="very", dataspaces=S)
        say("waits")
        r.wait_for("T", 7)
    """,
    "a reader, for a stream": """
        say("waits")
        stead.reader("none", dataspaces=S)
    """,
    "a subscription": """
        s = stead.reader("there", group="subscribes", dataspaces=S).subscribe(print)
        say("waits")
        s.join()
    """,
    "a task of asyncio": """
        import asyncio

        async def main():
            r = stead.reader("there", group="tasks", dataspaces=S)
            say("waits")
            await anext(r)

        asyncio.run(main())
    """,
    "a flow": """
        flow = stead.flow()
        flow.write("sums", sum=flow.read("there")["T"].sum())
        say("waits")
        flow.run(dataspaces=S)
    """,
    "a writer, for readers": """
        w = stead.writer("unread", readers=1, dataspaces=S)
        say("waits")
        w.begin_step()
    """,
    "a writer, for a reader that is behind": """
        w, r = stead.writer("full", queue=1, dataspaces=S), stead.reader("full", dataspaces=S)
        with w.step():
            w.put("T", np.zeros(9))
        say("waits")
        w.begin_step()
    """,
    "a writer, for memory": """
        w, r = stead.writer("small", memory="64KiB", dataspaces=S), stead.reader("small", dataspaces=S)
        for _ in range(2):
            with w.step():
                w.put("T", np.zeros(2048))
        held = r.next(), r.next()
        w.begin_step()
        for n in range(2):
            w.put("T", np.zeros(2048), shape=(4096,), start=(2048 * n,))
        say("waits")
        w.put("U", np.zeros(2048))
    """,
}


def test_who_waits_takes_no_processor(space, programs):
    with stead.writer("there", dataspaces=space):
        waiting = {name: programs.begin(code) for name, code in WAITS.items()}
        for name, one in waiting.items():
            assert one.stdout.readline() == "waits\n", (name, one.communicate())
        # Until all have come to it, and look for who is not there no more often than they ever will.
        time.sleep(1.5)
        before, begun = {name: spent(one.pid) for name, one in waiting.items()}, time.monotonic()
        time.sleep(2)
        seconds = time.monotonic() - begun
        for name, one in waiting.items():
            assert one.poll() is None, (name, one.communicate())
            (time_then, naps_then), (time_now, naps_now) = before[name], spent(one.pid)
            assert time_now - time_then < 0.05 * seconds, (name, time_now - time_then)
            assert naps_now - naps_then < 14 * seconds, (name, naps_now - naps_then)
        programs.end()
    for name in stead.streams(dataspaces=space):
        stead.remove_stream(name, force=True, dataspaces=space)
