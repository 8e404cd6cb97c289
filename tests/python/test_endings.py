"""Programs that end while threads of theirs are in calls of the library: they end with the exit code of the program."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

PATIENCE = 120

#: What threads do when the program ends: each says so with `ready()`, and takes the interpreter's lock all the time.
CALLS = {
    "a wait for a transfer": """
        t = stead.stage(place / "big", place / "copy", exists="replace", limit="20MiB", state=place / "state")
        def call():
            ready()
            t.wait()
        def other():
            while True:
                t.wait(0)
    """,
    "looks at transfers": """
        stead.stage(place / "big", place / "copy", exists="replace", state=place / "state").wait()
        def call():
            ready()
            while True:
                stead.transfers(all=True, state=place / "state")
    """,
    "a wait for a step": """
        r = stead.reader("sim", dataspaces=space)
        def call():
            ready()
            while True:
                try:
                    r.next(timeout=0.001)
                except stead.TimedOutError:
                    pass
    """,
    "kernels": """
        (place / "table.csv").write_text("a,b\\n" + "1,2\\n" * 2000)
        def call():
            ready()
            while True:
                stead.run("mean:a", place / "table.csv")
    """,
    "regions": """
        def call():
            ready()
            while True:
                stead.regions(dataspaces=space)
    """,
}

HEAD = """
    import sys, threading, time
    from pathlib import Path
    import numpy as np
    import stead

    place, space = Path(sys.argv[1]), {"memory": sys.argv[2]}
    began = threading.Barrier(4)
    ready = began.wait
    writer = stead.writer("sim", dataspaces=space)
"""
TAIL = """
    for n in range(3):
        threading.Thread(target=call, daemon=True).start()
    ready()
    time.sleep(0.05)
    print("over")
"""


@pytest.fixture
def ends(tmp_path):
    """Runs a program to its end, and gives what it has said."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        own = Path(memory) / "own"
        own.mkdir(0o700)
        (tmp_path / "big").write_bytes(os.urandom(1 << 20) * 8)

        def run(code: str) -> str:
            words = [sys.executable, "-c", textwrap.dedent(HEAD) + textwrap.dedent(code), tmp_path, own]
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


@pytest.mark.parametrize("call", CALLS)
def test_threads_in_calls_do_not_abort_a_program_that_ends(ends, call):
    for _ in range(3):
        assert ends(textwrap.dedent(CALLS[call]) + textwrap.dedent(TAIL)) == "over\n"


def test_a_flow_that_runs_is_stopped_when_the_program_ends(ends):
    code = """
        # One that is not stopped is waited for longer than this program may take.
        stead._flow._PATIENCE = 3600.0
        flow = stead.flow(name="halves")
        flow.write("half", T=flow.read("sim")["T"].map(lambda x: x / 2))
        running = flow.start(dataspaces=space)
        def put():
            for n in range(10**6):
                with writer.step():
                    writer.put("T", np.arange(9.0))
        threading.Thread(target=put, daemon=True).start()
        reader = stead.reader("half", dataspaces=space)
        print(next(reader)["T"][3])
    """
    for _ in range(3):
        assert ends(code) == "1.5\n"
