"""What a rank of the tests of offload does. The first so many ranks are storage ranks, and the others ask them.

    offload.py answers RANKS CSV BINARY   all that compute ranks ask for is what they get alone
    offload.py wrong RANKS CSV BINARY     what is refused, and by whom
    offload.py open RANKS CSV BINARY      a site is still open when the program ends
    offload.py end RANKS CSV BINARY       a site is still open when the program ends MPI
    offload.py forked RANKS CSV BINARY    children of compute ranks have the site that these made
    offload.py fails RANKS CSV BINARY     a compute rank ends while others ask
"""

import os
import signal
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import stead
from mpi4py import MPI

comm = MPI.COMM_WORLD
what, storage, table, binary = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]


@stead.kernel("x", name="evens")
def evens(x):
    return int((x % 2 == 0).sum())


@stead.kernel("x", name="broken")
def broken(x):
    raise ValueError("as it was told to")


@stead.kernel("x")
def unknown(x):
    return 0


@stead.kernel("x", name="evens")
def others(x):
    return int((x % 2 != 0).sum())


class Sums:
    def init(self):
        return 0

    def merge(self, state, other):
        return state + other

    def finish(self, state):
        return state


@stead.kernel("x")
class Above(Sums):
    def __init__(self, least):
        self.least = least

    def update(self, state, x):
        return state + int((x > self.least).sum())


@stead.kernel("x")
class Odds(Sums):
    def update(self, state, x):
        return state + int((x % 2 != 0).sum())


above = Above(5)


def refused(kind, call, *given, **named):
    try:
        call(*given, **named)
    except kind as e:
        return str(e)
    raise AssertionError(f"{given} {named} was not refused")


def same(a, b):
    assert list(a) == list(b), (list(a), list(b))
    for name in a:
        np.testing.assert_equal(a[name], b[name])


def serve():
    site = stead.offload(comm, storage=comm.rank < storage, kernels=[evens, broken, above, Odds])
    assert (site is None) == (comm.rank < storage)
    return site


if what == "answers":
    site = serve()
    if site is not None:
        with site:
            assert [rank for rank, _ in site.storage] == list(range(storage))
            assert [rank for rank, _ in site.compute] == list(range(storage, comm.size))
            assert socket.gethostname() in repr(site)
            kernels = ["rows", "mean:*", stead.std("x"), "hist:x,bins=5", "quantile:x,q=0.1;0.9", "grep:'7',lines,max=5"]
            same(site.run(table, *kernels), stead.run(table, *kernels))
            some = {"where": "x > 10", "by": "g"}
            same(site.run(table, "rows", "sum:x", **some), stead.run(table, "rows", "sum:x", **some))
            # Both of few bytes, which one rank runs over, and of many.
            doubles = np.fromfile(binary)
            assert site.run(binary, "rows", dtype="f64")["rows"] == len(doubles)
            for count in (1, 1000, 700_000):
                view = stead.FileView(8 * count, [(8, 8)], 16, displacement=8, skip=8)
                seen = doubles[1:][1::2][1 : 1 + count]
                r = site.run(binary, "rows", "max:value", "sum:value", dtype="f64", view=view)
                assert r["rows"] == count and r["max:value"] == seen.max()
                assert r["sum:value"] == stead.run(seen, "sum:value")["sum:value"]
            own = [evens, "rows", [above, Odds]]
            same(site.run(table, *own), stead.run(table, *own))
            picture = Path(f"{binary}.{comm.rank}.png")
            shape = (100, 100, len(doubles) // 10_000)
            site.run(binary, f"render:width=32,height=32,out={picture}", dtype="f64", shape=shape)
            assert picture.read_bytes().startswith(b"\x89PNG")
            def ask(n, found):
                found.append((n, site.run(table, "rows", where=f"x < {n}")["rows"]))

            found = []
            threads = [threading.Thread(target=ask, args=(n, found)) for n in range(40)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert sorted(found) == [(n, n) for n in range(40)]
        assert "closed" in refused(stead.UsageError, site.run, table, "rows")
    print("right")

elif what == "wrong":
    # What one rank gives, all hear of.
    def all_told(**bad):
        given = {"storage": comm.rank < storage}
        try:
            stead.offload(comm, **(bad if comm.rank == 1 else given))
        except (stead.UsageError, TypeError, OverflowError) as e:
            assert comm.rank == 1 or (isinstance(e, stead.UsageError) and "rank 1" in str(e)), e
        else:
            raise AssertionError(f"{bad} was not refused")

    all_told(storage=5)
    all_told(storage=True, kernels=[evens, evens])
    all_told(storage=True, kernels=[7])
    all_told(storage=True, memory="12 parsecs")
    all_told(storage=True, memory=-1)
    for hosts, says in ("layout", "none is named"), ("layout:/etc/hosts", "is none"):
        assert says in refused(stead.UsageError, stead.offload, comm, storage=hosts)
    for hosts, says in ("nowhere", "nowhere was named"), ("n[", "bracket"), (socket.gethostname(), "all ranks are storage"):
        assert says in refused(stead.UsageError, stead.offload, comm, storage=hosts)
    for role in False, True:
        assert "storage rank" in refused(stead.UsageError, stead.offload, comm, storage=role)
    site = serve()
    if site is not None:
        assert "no such file" in refused(stead.NotFoundError, site.run, table + ".not", "rows")
        assert "no column" in refused(stead.UsageError, site.run, table, "mean:nothing").lower()
        said = refused(stead.UsageError, site.run, table, "normalize:x,out=/tmp/never.npy")
        assert "not sent to another node" in said and "mpirun --host STORAGE" in said, said
        assert "do not know the kernel 'unknown'" in refused(stead.UsageError, site.run, table, unknown)
        for another in others, Above(10), Above(5), Odds():
            assert "know another kernel called" in refused(stead.UsageError, site.run, table, "rows", [another])
        assert "as it was told to" in refused(stead.DataError, site.run, table, broken)
        assert "of this process" in refused(stead.UsageError, site.run, np.zeros(4), "rows")
        assert "frobnicate" in refused(TypeError, site.run, table, "rows", frobnicate=1)
        beyond = stead.FileView(1 << 40, [(0, 1)], 1)
        assert "a view reaches" in refused(stead.UsageError, site.run, binary, "rows", dtype="u8", view=beyond)
        backwards = stead.FileView(1, [(4, 1), (0, 1)], 8)
        assert "descend" in refused(stead.UsageError, site.run, binary, "rows", dtype="u8", view=backwards)
        assert "-1 is no number of bytes" in refused(stead.UsageError, stead.FileView, -1, [(0, 1)], 1)
        assert "integer" in refused(TypeError, stead.FileView, 8.7, [(0, 1)], 1)
        stop = stead.Cancel()
        stop.cancel()
        refused(stead.CancelledError, site.run, binary, "std:value", dtype="f64", cancel=stop)
        # It is of no matter for what is asked then.
        assert site.run(table, "rows")["rows"] == stead.run(table, "rows")["rows"]
        site.close()
        site.close()
    print("right")

elif what == "open":
    site = serve()
    if site is not None:
        site.run(table, "rows")
    print("right")

elif what == "end":
    site = serve()
    if site is not None:
        site.run(table, "rows")
    MPI.Finalize()
    print("right")

elif what == "forked":
    site = serve()
    if site is not None:
        site.run(table, "rows")
        child = os.fork()
        if child == 0:
            # A child that waits for ever ends by this, and fails.
            signal.alarm(60)
            told = refused(stead.UsageError, site.run, table, "rows")
            site.close()
            del site
            os._exit(7 if "made in another process, before a fork" in told else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        # It has said goodbye for nobody.
        assert site.run(table, "rows")["rows"] == stead.run(table, "rows")["rows"]
        site.close()
    print("right")

elif what == "fails":
    site = serve()
    print("right", flush=True)
    if comm.rank == comm.size - 1:
        raise SystemExit(0)
    if site is not None:
        with site:
            for _ in range(20):
                site.run(table, "rows")
