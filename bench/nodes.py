"""Streams between hosts of the lab: two that write and two that read, each reader its half of columns while writers have rows, so that each
link carries half of each writer's array. Either all are ranks of one job of MPI, or those that write are, and readers are begun by themselves
on nodes whose daemons are a pool. What readers get in a second is held against what TCP brings over the same links, all at once; how long it
takes from the beginning of all to the first step is measured with small ones, and the peak of memory is that of all processes of all hosts.

    python bench/nodes.py rank JSON
    python bench/nodes.py alone JSON HOST

are a rank of a job, through mpi4py, and a reader that is none.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import wire
from processes import DEADLINE, End, Peak, memory
from run import command

HERE = Path(__file__).parent
LAB = HERE.parent / "lab" / "lab"
BUILT = HERE.parent / ".build" / "mpi" / "openmpi"
LIBRARY = BUILT / "libstead_mpi.so"
# A daemon of a pool is the command with MPI.
STEAD = BUILT / "stead"
PAIRS = 2
# Bytes a second of the links, as they are shaped.
LINK = 125e6
STEPS, WARM = 8, 2
# Rows and columns of steps that take no time to speak of on their way, and how often the first of them is waited for in each turn.
SMALL, FIRSTS = 64, 3
# What ranks are told by the environment.
TOLD = {"MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": str(LIBRARY), "STEAD_PEER_SILENCE_S": "30"}


# --- The programs -------------------------------------------------------------------------------------


def told(o, what):
    """Waits until who has begun this program says so: when that is."""
    at, until = Path(o.at) / what, time.monotonic() + DEADLINE
    while not at.exists():
        if time.monotonic() > until:
            raise SystemExit(f"nobody tells this program to {what}")
        time.sleep(0.001)
    return time.monotonic()


def say(o, what, host, text):
    """Tells who has begun this program. What ranks print is torn now and then on its way through mpirun."""
    part = Path(o.at) / f"{what}{host}.part"
    part.write_text(text)
    os.rename(part, part.with_suffix(""))


def meet(o, host):
    """Says which process this is, and waits until all are told to begin: when that is."""
    say(o, "process", host, str(os.getpid()))
    return told(o, "begin")


def program(o, host, world=None):
    """What is done on a host, from 0: by a rank of a job, or by itself."""
    os.environ["STEAD_SOCKET"] = f"{o.work}/n{host}/s" if o.way == "pool" else "none"
    import numpy as np
    import stead

    part, half, spaces = host % PAIRS, o.side // PAIRS, {"memory": f"{o.memory}/n{host}"}
    found = {"begun": meet(o, host)}
    with contextlib.ExitStack() as stack:
        how = {"rank": part, "ranks": PAIRS, "dataspaces": spaces}
        if world is not None:
            how = {"comm": stack.enter_context(stead.couple(world, "write" if host < PAIRS else "read", timeout=120, dataspaces=spaces))}
        if host < PAIRS:
            with stead.writer(o.stream, readers=1, keep=o.keep, queue=o.queue, timeout=120, **how) as w:
                for n in range(o.steps):
                    with w.step():
                        rows = w.empty("T", (o.side, o.side), start=(part * half, 0), count=(half, o.side))
                        rows[:] = n + np.arange(o.side)
                        w.put("T", rows)
                    # Who has it keeps its memory.
                    del rows
        else:
            begun, took = 0.0, 0.0
            for step in stead.reader(o.stream, timeout=120, **how):
                n, got = step.number, step.get("T", np.s_[:, part * half : (part + 1) * half])
                if got[0, 0] != n + part * half or got[-1, -1] != n + (part + 1) * half - 1:
                    raise SystemExit(f"step {n} has something else")
                if n == 0:
                    found["first"] = time.monotonic()
                if n == o.warm - 1:
                    begun, took = time.perf_counter(), time.process_time()
                del step, got
            found |= {"seconds": time.perf_counter() - begun, "core_s": time.process_time() - took}
            found["bytes"] = (o.steps - o.warm) * o.side * half * 8
        say(o, "found", host, json.dumps(found))
        # What it has for messages in any case, it has now.
        told(o, "end")


def main():
    what, o = sys.argv[1], SimpleNamespace(**json.loads(sys.argv[2]))
    if what == "alone":
        program(o, int(sys.argv[3]))
        return
    from mpi4py import MPI

    # Ranks go around the hosts, from the first one on.
    program(o, MPI.COMM_WORLD.rank, MPI.COMM_WORLD)


# --- The hosts ----------------------------------------------------------------------------------------


class Hosts:
    """A lab. Its hosts have a memory each, all below one folder that is a file system of its own: each job has its own /dev/shm there, which
    neither programs of other jobs nor who measures would see."""

    def __init__(self, name, work):
        self.name, self.work, self.folder = name, work, work / "memory"
        self.runs, self.daemons = 0, []
        for host in range(2 * PAIRS):
            (self.folder / f"n{host}").mkdir(mode=0o700)
            (work / f"n{host}").mkdir()

    def job(self, ranks, *words):
        """The words that begin so many ranks, on the first hosts."""
        said = [f"{name}={value}" for name, value in TOLD.items()]
        given = [word for name in TOLD for word in ("-x", name)]
        # Jobs of a user have one folder otherwise, which the first of them that ends takes away.
        own = ["--mca", "orte_tmpdir_base", tempfile.mkdtemp(prefix="mpi", dir=self.work)]
        return ["env", *said, LAB, "run", self.name, "-n", ranks, "--map-by", "node", *own, *given, *words]

    def begin(self, way, o):
        """The ends of a run."""
        words = json.dumps(o)
        if way == "MPI":
            return [End(self.job(2 * PAIRS, sys.executable, __file__, "rank", words))]
        # The lab counts its hosts from 1.
        alone = [End([LAB, "exec", self.name, host + 1, sys.executable, __file__, "alone", words, host]) for host in range(PAIRS, 2 * PAIRS)]
        return [End(self.job(PAIRS, sys.executable, __file__, "rank", words)), *alone]

    def said(self, at, what, ends):
        """What the programs of all hosts have said, once they all have."""
        until, names = time.monotonic() + DEADLINE, [at / f"{what}{host}" for host in range(2 * PAIRS)]
        while not all(name.exists() for name in names):
            if time.monotonic() > until or any(end.process.poll() is not None for end in ends):
                missing = ", ".join(name.name for name in names if not name.exists())
                raise RuntimeError(f"not all hosts have said so: {missing}")
            time.sleep(0.005)
        return [json.loads(name.read_text()) for name in names]

    def run(self, way, side, steps=STEPS, keep=1, queue=2, look=False):
        """What readers have found; with `look` the peak of the memory of all processes, too."""
        self.runs += 1
        at = self.work / f"run{self.runs}"
        at.mkdir()
        # Nobody takes the stream of the run before for this one.
        o = {"way": way, "stream": f"field{self.runs}", "work": str(self.work), "memory": str(self.folder), "at": str(at), "side": side,
             "steps": steps, "warm": min(WARM, steps - 1), "keep": keep, "queue": queue}
        ends, peak, is_over = self.begin(way, o), None, False
        try:
            pids = self.said(at, "process", ends)
            if look:
                peak = Peak([*pids, *(self.daemons if way == "pool" else [])], self.folder)
            (at / "begin").touch()
            found = self.said(at, "found", ends)
            most = peak and max(memory(peak.roots, peak.folder), peak.stop())
            (at / "end").touch()
            is_over = True
        finally:
            if peak:
                peak.over.set()
            for end in ends:
                end.close(kill=not is_over)
        begun = min(one["begun"] for one in found)
        readers = [one | {"first": one["first"] - begun} for one in found if "first" in one]
        if len(readers) != PAIRS:
            raise RuntimeError(f"of {PAIRS} readers {len(readers)} have had steps")
        return readers, most


@contextlib.contextmanager
def raised():
    """The hosts, as long as they are wanted."""
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stead-bench-", ignore_cleanup_errors=True)))
        folder = work / "memory"
        folder.mkdir()
        command(["mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(folder)])
        stack.callback(command, ["umount", "--lazy", str(folder)])
        name = command([str(LAB), "up", str(2 * PAIRS)], env=os.environ | {"LAB_OWNER": str(os.getpid())}).strip()
        # Before its memory is taken away.
        stack.callback(command, [str(LAB), "drop", name])
        yield Hosts(name, work)


# Each daemon says which process it is.
BEGIN = 'echo $$ >"$0/n$OMPI_COMM_WORLD_RANK/pid"; exec "$@"'


@contextlib.contextmanager
def pooled(hosts):
    """Daemons of all hosts, of this user alone, which are a pool."""
    work = hosts.work
    own = ["env", f"HOME={work}", f"XDG_CONFIG_HOME={work}", "sh", "-c", BEGIN, work, "setpriv", "--bounding-set=-setuid,-setgid"]
    words = ["daemon", "--pool", "--name", "n%r", "--socket", f"{work}/n%r/s", "--state", f"{work}/n%r/state", "--threads", 2]
    job = [*map(str, hosts.job(2 * PAIRS, *own, STEAD, *words))]
    # They go by nothing that is said to programs here.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("STEAD_", "XDG_"))}
    with open(work / "log", "w") as log:
        process = subprocess.Popen(job, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until = time.monotonic() + DEADLINE
        for host in range(2 * PAIRS):
            add = [str(STEAD), "admin", "dataspace", "add", "memory", f"path={hosts.folder}/n{host}"]
            while (done := subprocess.run(add, env=os.environ | {"STEAD_SOCKET": f"{work}/n{host}/s"}, capture_output=True, text=True)).returncode:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"there is no pool of daemons: {done.stderr}\n{(work / 'log').read_text()}")
                time.sleep(0.05)
        hosts.daemons = [int((work / f"n{host}" / "pid").read_text()) for host in range(2 * PAIRS)]
        yield
    finally:
        for pid in hosts.daemons:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        hosts.daemons = []
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            # What it has begun goes with the lab.
            process.kill()
            process.wait()


# --- The section --------------------------------------------------------------------------------------


def one_way(a, hosts, way, side, found):
    """One turn of a way."""
    readers, _ = hosts.run(way, side)
    found["rate"] += [one["bytes"] / one["seconds"] for one in readers]
    found["core_s"] += [one["core_s"] / one["bytes"] * 1e9 for one in readers]
    for _ in range(1 if a.scale < 0.1 else FIRSTS):
        found["first"] += [one["first"] for one in hosts.run(way, SMALL, steps=1)[0]]


def held(hosts, way, side):
    """The peak of memory in steps, without what processes have in any case, where one step may be there that readers have not had."""
    most, least = (hosts.run(way, of, keep=0, queue=1, look=True)[1] for of in (side, SMALL))
    return (most - least) / (side * side * 8)


def nodes_section(a):
    able = subprocess.run([LAB, "check"], capture_output=True, text=True)
    if able.returncode or not LIBRARY.exists():
        print(f"streams, nodes: LEFT OUT, {able.stderr.strip() or f'there is no {LIBRARY.name}'}", file=sys.stderr, flush=True)
        return None
    side = max(int(4096 * a.scale**0.5) // 64, 1) * 64
    ways = {way: {"rate": [], "core_s": [], "first": []} for way in ("MPI", "pool")}
    if not STEAD.exists():
        print(f"streams, pool: LEFT OUT, there is no {STEAD.relative_to(HERE.parent)}", file=sys.stderr, flush=True)
        del ways["pool"]
    tcp = []
    with raised() as hosts, pooled(hosts) if "pool" in ways else contextlib.nullcontext():
        for _ in range(a.runs):
            count = max(side * side * 4, 1 << 20) * (STEPS - WARM)
            tcp.append(count / wire.tcp(hosts.name, PAIRS, count))
            for way, found in ways.items():
                one_way(a, hosts, way, side, found)
        for way, found in ways.items():
            found["memory"] = held(hosts, way, side)
    return {"bytes": side * side * 8, "link": LINK, "tcp": tcp, "ways": ways}


if __name__ == "__main__":
    if sys.argv[1:2] not in (["rank"], ["alone"]):
        raise SystemExit(__doc__)
    main()
