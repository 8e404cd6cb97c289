"""The programs that bench/streams.py has hand arrays to each other: one end of one way, with what it is to do as JSON.

    python bench/streams_ends.py WAY END JSON

It says "ready" when it is connected, begins with the steps that are not counted when it is told to, says "warm", and tells when it began
and ended with those that are counted. Readers look at a few elements of each step, whatever else they do with it.
"""

import contextlib
import json
import mmap
import os
import sys
import time
from types import SimpleNamespace

import numpy as np


def stamp(array, n):
    """A few elements of an array of one dimension tell which step it is."""
    array[0], array[len(array) // 3], array[-1] = n, 2 * n + 1, 3 * n + 2


def check(array, n):
    found = float(array[0]), float(array[len(array) // 3]), float(array[-1])
    assert found == (n, 2 * n + 1, 3 * n + 2), f"step {n} has {found}"


class Taker:
    """What a reader does with an array: looks at it where it lies, copies it into memory of its own, or adds up all of it."""

    def __init__(self, o):
        self.how = o.take
        self.mine = touched(o) if self.how == "copy" else None

    def __call__(self, array, n):
        if self.how == "copy":
            np.copyto(self.mine, array)
            array = self.mine
        elif self.how == "sum":
            array.sum()
        check(array, n)


def touched(o):
    """An array with all of its memory."""
    array = np.empty(o.bytes // 8)
    array.fill(1.5)
    return array


# --- Shared memory, by hand ---------------------------------------------------------------------------

SLOTS = 3


class Plain:
    """Three places in shared memory, and a pipe in each direction. Both copies are memcpy's."""

    def __init__(self, o, end):
        self.o, writes = o, end == "writer"
        fd = os.open(f"{o.folder}/plain", os.O_RDWR)
        self.memory = mmap.mmap(fd, SLOTS * o.bytes)
        self.slots = [np.frombuffer(self.memory, np.float64, o.bytes // 8, i * o.bytes) for i in range(SLOTS)]
        full = os.open(f"{o.folder}/full", os.O_WRONLY if writes else os.O_RDONLY)
        empty = os.open(f"{o.folder}/empty", os.O_RDONLY if writes else os.O_WRONLY)
        self.ask, self.tell = (empty, full) if writes else (full, empty)
        if writes:
            self.mine = None if o.put == "place" else touched(o)
        else:
            self.take = Taker(o)
            os.write(self.tell, b"." * SLOTS)

    def write(self, n):
        slot = self.slots[n % SLOTS]
        if self.mine is None:
            os.read(self.ask, 1)
            stamp(slot, n)
        else:
            stamp(self.mine, n)
            os.read(self.ask, 1)
            np.copyto(slot, self.mine)
        os.write(self.tell, b".")

    def read(self, n):
        os.read(self.ask, 1)
        self.take(self.slots[n % SLOTS], n)
        os.write(self.tell, b".")

    def close(self):
        pass


# --- stead --------------------------------------------------------------------------------------------


class Stead:
    def __init__(self, o, end):
        import stead

        self.o, spaces = o, {"memory": o.folder}
        if end == "writer":
            options = {"keep": o.keep, "queue": o.queue}
            self.stream = stead.writer("handover", readers=1, dataspaces=spaces, **options)
            self.mine = touched(o) if o.put == "copy" else None
        else:
            self.stream = stead.reader("handover", dataspaces=spaces)
            self.take = Taker(SimpleNamespace(take="look")) if o.take == "copy" else Taker(o)
            self.mine = touched(o) if o.take == "copy" else None

    def write(self, n):
        with self.stream.step():
            array = self.mine if self.mine is not None else self.stream.empty("T", self.o.bytes // 8)
            stamp(array, n)
            self.stream.put("T", array)

    def read(self, n):
        step = next(self.stream)
        if self.mine is None:
            self.take(step["T"], n)
        else:
            self.take(step.get_into("T", None, self.mine), n)

    def close(self):
        self.stream.close()


# --- ADIOS2 -------------------------------------------------------------------------------------------


class Adios:
    """Its engine SST, or a BP5 file that is read while it is written."""

    def __init__(self, o, end):
        from adios2 import bindings as b

        self.b, self.o, writes = b, o, end == "writer"
        self.adios = b.ADIOS()
        self.io = self.adios.DeclareIO("handover")
        self.io.SetEngine(o.engine)
        # BP5 waits for nobody.
        if o.engine == "SST":
            self.io.SetParameters({"DataTransport": o.plane, "RendezvousReaderCount": "1", "QueueLimit": str(o.queue),
                                   "QueueFullPolicy": "Block", "OpenTimeoutSecs": "60", "StepDistributionMode": "AllToAll"})
        else:
            # A reader looks whether there is a step once a second unless it is told otherwise.
            self.io.SetParameters({"OpenTimeoutSecs": "60", "BeginStepPollingFrequencySecs": "0.001"})
        count = o.bytes // 8
        if writes:
            self.mine = touched(o)
            self.variable = self.io.DefineVariable("T", self.mine, [count], [0], [count], True)
        else:
            # What is got is a copy in memory of the reader.
            self.mine, self.take = touched(o), Taker(SimpleNamespace(take="look"))
        self.engine = self.io.Open(f"{o.folder}/handover.bp", b.Mode.Write if writes else b.Mode.Read)

    def write(self, n):
        stamp(self.mine, n)
        self.engine.BeginStep()
        self.engine.Put(self.variable, self.mine, self.b.Mode.Sync if self.o.engine == "SST" else self.b.Mode.Deferred)
        self.engine.EndStep()

    def read(self, n):
        status = self.engine.BeginStep(self.b.StepMode.Read, 60.0)
        assert status == self.b.StepStatus.OK, status
        assert self.engine.CurrentStep() == n, "SST has left out a step"
        variable = self.io.InquireVariable("T")
        variable.SetSelection([[0], [self.o.bytes // 8]])
        self.engine.Get(variable, self.mine, self.b.Mode.Sync)
        self.engine.EndStep()
        self.take(self.mine, n)

    def close(self):
        with contextlib.suppress(RuntimeError):
            self.engine.Close()


# --- Redis --------------------------------------------------------------------------------------------


class Redis:
    """A value for each step, and a list in each direction that who waits pops."""

    def __init__(self, o, end):
        import redis

        self.redis = redis.Redis(unix_socket_path=f"{o.folder}/redis.sock")
        if end == "writer":
            self.mine = touched(o)
        else:
            self.take = Taker(SimpleNamespace(take="look"))
            self.redis.rpush("empty", *["."] * o.queue)

    def write(self, n):
        stamp(self.mine, n)
        self.redis.blpop("empty")
        self.redis.set(f"T{n}", memoryview(self.mine).cast("B"))
        self.redis.rpush("full", n)

    def read(self, n):
        self.redis.blpop("full")
        found = np.frombuffer(self.redis.get(f"T{n}"))
        self.redis.delete(f"T{n}")
        self.take(found, n)
        self.redis.rpush("empty", ".")

    def close(self):
        pass


# --- Ray ----------------------------------------------------------------------------------------------


class Ray:
    """Two actors: what one returns lies in the object store, and the other one looks at it there. This process tells them what to do."""

    def __init__(self, o, end):
        import logging

        import ray

        # Nothing of it is to leave this machine, nor to be printed.
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
        store = max((o.queue + 3) * o.bytes, 80 << 20)
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=store, log_to_driver=False, logging_level=logging.ERROR,
                 _temp_dir=f"{o.scratch}/ray", _plasma_directory=o.folder)

        @ray.remote(num_cpus=1)
        class Producer:
            def __init__(self):
                self.mine = touched(o)

            def make(self, n):
                stamp(self.mine, n)
                return self.mine

        @ray.remote(num_cpus=1)
        class Consumer:
            def __init__(self):
                self.take = Taker(o)

            def look(self, array, n):
                self.take(array, n)

        self.ray, self.o = ray, o
        self.producer, self.consumer = Producer.remote(), Consumer.remote()
        self.wait = []

    def both(self, n):
        while len(self.wait) >= self.o.queue:
            self.ray.get(self.wait.pop(0))
        self.wait.append(self.consumer.look.remote(self.producer.make.remote(n), n))

    def settle(self):
        while self.wait:
            self.ray.get(self.wait.pop(0))

    def close(self):
        self.ray.shutdown()


# --- Decompositions -----------------------------------------------------------------------------------


class Layout:
    """Writers and readers of a field in two dimensions, of which each has a box that begins and ends at a multiple of UNIT. Element (i, j) is
    i * columns + j, and more by n + 1 in step n where both i and j are multiples of UNIT: readers look at all of these and at their neighbours."""

    UNIT = 64

    def __init__(self, o, end):
        import stead

        spaces = {"memory": o.folder}
        self.o, self.shape, (self.start, self.count) = o, tuple(o.shape), o.box
        if end == "writer":
            self.stream = stead.writer("layout", rank=o.rank, writers=o.ranks, readers=1, dataspaces=spaces)
            self.mine = self.values(0, 1).astype(np.float64)
        else:
            self.stream = stead.reader("layout", rank=o.rank, ranks=o.ranks, dataspaces=spaces)
            self.mine = np.full(self.count, 1.5)

    def values(self, first, by):
        i, j = (np.arange(start + first, start + count, by) for start, count in zip(self.start, self.count))
        return i[:, None] * self.shape[1] + j[None, :]

    def write(self, n):
        self.mine[:: self.UNIT, :: self.UNIT] += 1
        with self.stream.step():
            self.stream.put("T", self.mine, shape=self.shape, start=self.start)

    def read(self, n):
        step = next(self.stream)
        box = self.start, self.count
        found = step.get("T", box) if self.o.take == "look" else step.get_into("T", box, self.mine)
        unit = self.UNIT
        assert (found[::unit, ::unit] == self.values(0, unit) + n + 1).all(), f"step {n} has other elements"
        assert (found[1::unit, 1::unit] == self.values(1, unit)).all(), f"step {n} has other elements"

    def close(self):
        self.stream.close()


# --- Steps of a few bytes -----------------------------------------------------------------------------


def percentiles(values):
    return {"median": float(np.median(values)), "p99": float(np.percentile(values, 99)), "least": float(np.min(values))}


class Small:
    """Ends of their own: what is measured is each step. Seconds."""

    def __init__(self, o, end):
        import stead

        self.o, self.stead, self.spaces = o, stead, {"memory": o.folder}
        self.end = end

    def first(self):
        """A writer and a reader that begin at once: when the reader has the first step."""
        one = np.arange(128.0)
        if self.end == "writer":
            with self.stead.writer("first", dataspaces=self.spaces) as w, w.step():
                w.put("T", one)
            return {}
        with self.stead.reader("first", dataspaces=self.spaces) as r:
            assert next(r)["T"][5] == 5
            return {"at": time.monotonic()}

    def pingpong(self):
        """Half of the time from a step to its answer."""
        mine, array, took = self.end == "writer", np.zeros(128), []
        names = ("ping", "pong") if mine else ("pong", "ping")
        with self.stead.writer(names[0], dataspaces=self.spaces) as w, self.stead.reader(names[1], dataspaces=self.spaces) as r:
            for n in range(self.o.steps):
                begun = time.monotonic_ns()
                if mine:
                    with w.step():
                        array[0] = n
                        w.put("T", array)
                assert next(r)["T"][0] == n
                if not mine:
                    with w.step():
                        array[0] = n
                        w.put("T", array)
                took.append((time.monotonic_ns() - begun) / 2e9)
        return percentiles(took[len(took) // 10:])

    def oneway(self):
        """From before a step is begun to when the reader has its array, with a pause after each."""
        if self.end == "writer":
            array = np.zeros(128, np.int64)
            with self.stead.writer("oneway", readers=1, dataspaces=self.spaces) as w:
                for _ in range(self.o.steps):
                    time.sleep(0.0005)
                    array[7] = time.monotonic_ns()
                    with w.step():
                        w.put("T", array)
            return {}
        took = []
        for step in self.stead.reader("oneway", dataspaces=self.spaces):
            took.append((time.monotonic_ns() - int(step["T"][7])) / 1e9)
        return percentiles(took[len(took) // 10:])

    def many(self):
        """Steps of many variables of a number each: the writer first, and then the reader, so that neither waits."""
        names, steps, took = [f"variable{i:06}" for i in range(self.o.variables)], self.o.steps, []
        if self.end == "writer":
            with self.stead.writer("many", keep=steps, dataspaces=self.spaces) as w:
                for n in range(steps):
                    values = [np.array(float(n + i)) for i in range(len(names))]
                    begun = time.monotonic()
                    with w.step():
                        for name, value in zip(names, values):
                            w.put(name, value)
                    took.append(time.monotonic() - begun)
            return {"first": took[0], "all": took[1:], **percentiles(took[1:])}
        with self.stead.reader("many", dataspaces=self.spaces) as r:
            for n in range(steps):
                begun = time.monotonic()
                step = next(r)
                got = [step[name] for name in names]
                took.append(time.monotonic() - begun)
                assert all(float(value) == n + i for i, value in enumerate(got))
        return {"first": took[0], "all": took[1:], **percentiles(took[1:])}


WAYS = {"plain": Plain, "stead": Stead, "adios": Adios, "redis": Redis, "ray": Ray, "layout": Layout}


def say(out, what):
    out.write(what + "\n")
    out.flush()


def told():
    if not sys.stdin.readline():
        raise SystemExit("nobody tells this end what to do any more")


def main():
    way, end, o = sys.argv[1], sys.argv[2], SimpleNamespace(**json.loads(sys.argv[3]))
    # What libraries print is not for who has started this.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if way == "small":
        work = getattr(Small(o, end), o.what)
        say(out, "ready")
        told()
        found = work()
        say(out, json.dumps(found))
        return
    one = WAYS[way](o, end)
    work = {"writer": getattr(one, "write", None), "reader": getattr(one, "read", None), "both": getattr(one, "both", None)}[end]
    settle = getattr(one, "settle", lambda: None)
    say(out, "ready")
    told()
    for n in range(o.warm):
        work(n)
    settle()
    say(out, "warm")
    told()
    begun = time.monotonic()
    for n in range(o.warm, o.warm + o.steps):
        work(n)
    settle()
    say(out, json.dumps({"begun": begun, "ended": time.monotonic()}))
    told()
    one.close()


if __name__ == "__main__":
    main()
