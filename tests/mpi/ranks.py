"""What a rank of the tests of Python does: reads a file together with the others and compares it with the file.

    ranks.py read FILE ENGINE   any ranges of several sessions, by all that Python has; prints the bytes that were fetched
    ranks.py lock FILE          a rank waits for another one while its threads run
    ranks.py split FILE         the halves of the job read the halves of the file
    ranks.py open FILE          sessions are still open when the program ends
    ranks.py end FILE           many sessions of many communicators are open, and MPI is ended by the program
    ranks.py wrong FILE         what is refused
    ranks.py tipsy FILE ENGINE  loads its shares of a snapshot, which together are the whole
    ranks.py full FILE          sessions are open when the program ends, in which many libraries want to hear of that
    ranks.py one FILE           begins a session, and prints what went wrong
"""

import asyncio
import atexit
import ctypes
import sys
import threading
import time
from functools import partial

import numpy as np
import stead
from mpi4py import MPI

comm = MPI.COMM_WORLD
what, path = sys.argv[1:3]


def refused(kind, **given):
    try:
        stead.read_session(path, **given)
    except kind as e:
        return str(e)
    raise AssertionError(f"{given} was not refused")


if what == "read":
    there = open(path, "rb").read()
    random = np.random.default_rng(comm.rank)

    def some(session, n=60):
        for _ in range(n):
            start = int(random.integers(session.start, session.stop))
            yield start, int(random.integers(0, min(session.stop - start, 300_000) + 1))

    def right(session):
        for start, length in some(session):
            assert bytes(session.pread(start, length)) == there[start : start + length]
        ranges = list(some(session))
        for (start, length), view in zip(ranges, session.read_many(ranges).results(), strict=True):
            assert bytes(view) == there[start : start + length]

    async def tasks(session):
        async def task(start, length):
            assert bytes(await session.read(start, length)) == there[start : start + length]

        await asyncio.gather(*(task(*r) for r in some(session)))

    given = {"engine": sys.argv[3], "block": "64KiB", "memory": "64MiB", "deadline": 60}
    with stead.read_session(path, 1001, 7_000_000, comm=comm, **given) as session:
        assert (session.start, session.stop, session.size) == (1001, 7_000_000, len(there))
        right(session)
        asyncio.run(tasks(session))
        # Collective, too.
        with session.session(0, 1001) as other, session.session(7_000_000) as last:
            assert bytes(other.pread(0, 1001)) == there[:1001]
            assert bytes(last.pread(7_000_000, len(last))) == there[7_000_000:]
        bytes(session.pread(1001, len(session)))
        comm.Barrier()
        fetched = comm.reduce(session.counts["bytes"])
    with stead.open_reader(path, comm=comm, engine=sys.argv[3]) as reader:
        assert reader.read() == there
    if comm.rank == 0:
        print(f"right, {fetched} bytes read")

elif what == "lock":
    # Rank 1 comes to a call of all ranks only after a thread of rank 0 has run, while rank 0 is in that call.
    def thread():
        time.sleep(0.2)
        comm.send("ran", 1)

    session = None
    for _ in range(2):
        if comm.rank == 0:
            threading.Thread(target=thread).start()
        elif comm.rank == 1:
            assert comm.recv(source=0) == "ran"
        session = session.session() if session else stead.read_session(path, comm=comm)
    print("right")

elif what == "split":
    there = open(path, "rb").read()
    half = comm.rank % 2
    group = comm.Split(half)
    middle = len(there) // 2
    start, stop = (middle, len(there)) if half else (0, middle)
    with stead.read_session(path, start, stop, comm=group) as session:
        group.Free()
        assert bytes(session.pread(start, stop - start)) == there[start:stop]
    print("right")

elif what == "open":
    session = stead.read_session(path, comm=comm, engine="pread")
    view = session.pread(session.size * comm.rank // comm.size, 10)
    print("right")

elif what == "end":
    sessions = [stead.read_session(path, comm=comm.Dup()) for _ in range(20)]
    print("right")
    MPI.Finalize()
    assert MPI.Is_finalized()

elif what == "wrong":
    assert "mpi4py, not int" in refused(TypeError, comm=5)
    assert "intercommunicator or a null one" in refused(stead.UsageError, comm=MPI.COMM_NULL)
    freed = comm.Dup()
    freed.Free()
    assert "intercommunicator or a null one" in refused(stead.UsageError, comm=freed)
    # What one rank gives, all hear of.
    def all_told(call, *bad, **named):
        """A call of all ranks with arguments that are rank 1's alone."""
        try:
            call(*(bad if comm.rank == 1 else ()), **(named if comm.rank == 1 else {}))
        except (stead.UsageError, ValueError, TypeError, OverflowError) as e:
            assert comm.rank == 1 or (isinstance(e, stead.UsageError) and "rank 1" in str(e)), e
        else:
            raise AssertionError(f"{bad or named} was not refused")

    for bad in (
        {"engine": "steam"}, {"block": -5}, {"start": -1}, {"deadline": "soon"}, {"readers": 1.5}, {"stop": "x"},
        {"stop": -1}, {"stop": 10**30}, {"start": None}, {"memory": "12 parsecs"}, {"depth": 0}, {"block": [1]},
    ):
        all_told(partial(stead.read_session, path, comm=comm), **bad)
    for bad in 5, None, b"a\0b":
        all_told(lambda given=path: stead.read_session(given, comm=comm), bad)
    with stead.read_session(path, comm=comm) as session:
        for bad in ("x",), (None,), (-1,), (1.5,), (10**30,), (5, 3), (0, "x"), (0, -1), (0, 10**12), (10**12,):
            try:
                session.session(*(bad if comm.rank == 1 else ()))
            except (stead.UsageError, TypeError, OverflowError) as e:
                assert comm.rank == 1 or "rank 1" in str(e), e
            else:
                raise AssertionError(f"{bad} of one rank alone was not refused")
            # It is of no matter for what is open, nor for what comes then.
            assert session.pread(0, 10) == session.session(0, 10).pread(0, 10)
    # Ranks differ.
    refused(stead.UsageError, start=comm.rank, comm=comm)
    refused(stead.UsageError, stop=10**12, comm=comm)
    path += ".not"
    assert path in refused(stead.NotFoundError, comm=comm)
    print("right")

elif what == "tipsy":
    engine = sys.argv[3]
    alone = stead.Tipsy(path)
    with stead.Tipsy(path, "32MiB", comm=comm, engine=engine, block="64KiB", deadline=60) as snapshot:
        assert (snapshot.counts, snapshot.time) == (alone.counts, alone.time)
        tasks = 3 * comm.size + 1
        for species, count in alone.counts.items():
            mine = {t: snapshot.load(species, t, tasks) for t in range(comm.rank, tasks, comm.size)}
            records = {t: snapshot.read(species, t, tasks).result().tobytes() for t in mine}
            parts = {t: p for part in comm.allgather(mine) for t, p in part.items()}
            for name, whole in alone.load(species).items():
                assert len(whole) == count
                assert np.array_equal(np.concatenate([parts[t][name] for t in range(tasks)]), whole)
            raw = {t: r for part in comm.allgather(records) for t, r in part.items()}
            whole = np.frombuffer(b"".join(raw[t] for t in range(tasks)), alone.dtype(species))
            assert np.array_equal(whole["z"], alone.load(species, columns="z")["z"])
        fetched = comm.reduce(snapshot.session.counts["bytes"])
    # What one rank gives, all hear of, and of what is no snapshot.
    for given in {"memory": -1}, {"engine": "steam"}:
        try:
            stead.Tipsy(path, comm=comm, **(given if comm.rank == comm.size - 1 else {}))
        except stead.UsageError as e:
            assert comm.rank == comm.size - 1 or f"rank {comm.size - 1}" in str(e), e
        else:
            raise AssertionError("it was opened")
    for wrong, kind in (path + ".not", stead.NotFoundError), (__file__, stead.FormatError):
        try:
            stead.Tipsy(wrong, comm=comm)
        except kind:
            pass
        else:
            raise AssertionError("it was opened")
    if comm.rank == 0:
        print(f"right, {fetched} bytes read")

elif what == "full":
    # As many as there are places for.
    while not ctypes.pythonapi.Py_AtExit(ctypes.pythonapi.Py_IsInitialized):
        pass
    registered = []
    register = atexit.register
    atexit.register = lambda call, *given: registered.append(call) or register(call, *given)
    sessions = [stead.read_session(path, comm=comm.Dup()) for _ in range(5)]
    # Once each, however many sessions there are.
    assert [call.__name__ for call in registered] == ["stead_mpi_end", "_close"], registered
    print("right")

elif what == "one":
    print(f"rank {comm.rank}:", refused(stead.Error, comm=comm).replace("\n", " "))
