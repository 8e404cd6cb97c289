"""Parts of bench/staging.py that ask the daemon: how soon it takes a transfer, what 100,000 of them need, how right it is about time, and
what tiers save a producer and a consumer of data. See there."""

import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

from run import command, evict

ASKS, WAITING = 2000, 100_000
BLOCK = 4 << 20


class Daemon:
    """One of this user's own, with a journal of its own."""

    def __init__(self, a, transfers=1):
        self.path, state = a.data / "steadd.sock", a.data / "steadd"
        shutil.rmtree(state, ignore_errors=True)
        words = [a.stead, "daemon", "--socket", self.path, "--state", state, "--transfers", transfers]
        self.child = subprocess.Popen([str(w) for w in words], stderr=subprocess.DEVNULL)
        while True:
            with contextlib.suppress(OSError):
                self.connection = socket.socket(socket.AF_UNIX)
                self.connection.connect(str(self.path))
                self.hear()
                break
            if self.child.poll() is not None:
                raise RuntimeError("the daemon has ended")
            time.sleep(0.01)

    def hear(self):
        def part(n):
            got = b""
            while len(got) < n:
                more = self.connection.recv(n - len(got))
                if not more:
                    raise ConnectionError("the daemon is gone")
                got += more
            return got

        return json.loads(part(struct.unpack("<I", part(4))[0]))

    def send(self, text):
        self.connection.sendall(struct.pack("<I", len(text)) + text)

    def ask(self, question):
        self.send(json.dumps(question).encode())
        answer = self.hear()
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer

    def submit(self, source, target, action="copy", after=(), **options):
        request = {"action": action, "sources": [str(source)], "target": str(target), "options": options}
        return self.ask({"submit": {"request": request, "after": list(after)}})["taken"]

    def standing(self, transfer, seconds=0.0):
        return self.ask({"wait": {"transfer": transfer, "seconds": seconds}})["standing"]

    def processes(self):
        """The daemon and its workers, by their memory in bytes."""
        here = str(self.child.pid)
        children = Path(f"/proc/{here}/task/{here}/children").read_text().split()
        page = os.sysconf("SC_PAGESIZE")
        return [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in [here, *children]]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()
        self.child.terminate()
        self.child.wait()


def latency(daemon, source, target, n):
    """Seconds from the first byte of a question to the last one of the answer."""
    took = []
    for i in range(n):
        request = {"action": "copy", "sources": [str(source)], "target": f"{target}{i}", "options": {}}
        text = json.dumps({"submit": {"request": request}}).encode()
        begin = time.perf_counter()
        daemon.send(text)
        answer = daemon.hear()
        took.append(time.perf_counter() - begin)
        assert "taken" in answer, answer
    took.sort()
    return {"asks": n, "median": statistics.median(took), "p99": took[int(n * 0.99)], "worst": took[-1]}


def served_section(a):
    small, folder = a.data / "served.txt", a.data / "served"
    small.write_bytes(os.urandom(4096))
    found = {"latency": [], "waiting": {}}
    waiting = max(int(WAITING * a.scale), 200)
    for turn in range(a.runs):
        with Daemon(a) as daemon:
            # The one before them is slow on purpose: what is measured is how soon they are taken.
            first = daemon.submit(a.big, folder / "first", limit=1)
            found["latency"].append(latency(daemon, small, f"{folder}/a", max(int(ASKS * min(a.scale, 1)), 100)))
            if turn == 0:
                begin = time.perf_counter()
                latency(daemon, small, f"{folder}/b", waiting)
                found["waiting"] = {"transfers": waiting, "seconds": time.perf_counter() - begin, "memory": daemon.processes(),
                                    "then": latency(daemon, small, f"{folder}/c", 200)}
            daemon.ask({"cancel": {"transfer": first}})
        shutil.rmtree(folder, ignore_errors=True)
    found["eta"] = eta(a)
    return found


def eta(a):
    """How right it is about the time that is left: of one file, with a limit and without one; of many small ones; of four files at once; and
    of one that waits for another. Where all is small, each has a limit, so that it lasts long enough to be asked about."""
    part, tree, runs = a.data / "part.bin", a.tree(a), []
    size = a.big.stat().st_size // 4
    with open(a.big, "rb") as big, open(part, "wb") as file:
        for at in range(0, size, BLOCK):
            file.write(big.read(min(BLOCK, size - at)))
    is_small = a.scale < 0.1
    seconds = 2 if is_small else 10
    one = [(a.big, a.data / "staged.bin")]
    four = [(part, a.data / f"staged{i}.bin") for i in range(4)]
    try:
        with laid(a.data / "aside") as aside:
            for turn in range(a.runs):
                if turn == 0:
                    runs.append(told_of(a, "one file, limited", one, seconds, aside))
                limit = seconds if is_small else None
                runs.append(told_of(a, "one file", one, limit, aside))
                runs.append(told_of(a, "small files", [(f"{tree}/", a.data / "staged")], limit, aside))
                runs.append(told_of(a, "four at once", four, limit, aside))
                runs.append(told_of(a, "one after another", four[:2], limit, aside, in_turn=True))
    finally:
        part.unlink(missing_ok=True)
    # All runs of a kind together.
    names = list(dict.fromkeys(name for name, _ in runs))
    return [judged(name, [one for other, told in runs if other == name for one in told]) for name in names]


def told_of(a, name, copies, seconds, aside, in_turn=False):
    """What was told of these while they were done: of each time that one was asked about how much of it was done, or of the time that it took
    where it waits; what was told; and how long it then was."""
    for source, _ in copies:
        files = [p for p in Path(source).rglob("*") if p.is_file()] if Path(source).is_dir() else [Path(source)]
        for file in files:
            evict(file)
    size = sum(f.stat().st_size for f in files)
    limit = {"limit": max(int(size / seconds), 1)} if seconds else {}
    for _, target in copies:
        lay(target, aside)
    with Daemon(a, transfers=len(copies)) as daemon:
        begun, ids, told, ended = time.perf_counter(), [], {}, {}
        for source, target in copies:
            ids.append(daemon.submit(source, target, after=ids[-1:] if in_turn else (), **limit))
        asked = ids[-1:] if in_turn else ids
        while len(ended) < len(asked):
            for one in asked:
                if one in ended:
                    continue
                standing = daemon.standing(one)
                now, progress = time.perf_counter(), standing["progress"]
                if standing["status"]["state"] not in ("pending", "running"):
                    assert standing["status"]["state"] == "finished", standing
                    ended[one] = now
                elif in_turn:
                    # What waits is looked at for it, which takes a moment.
                    left = daemon.ask({"eta": {"transfer": one}})["eta"]
                    told.setdefault(one, []).append((time.perf_counter(), None, left))
                elif progress and progress["planned"] and progress["bytes"]:
                    told.setdefault(one, []).append((now, progress["bytes_done"] / progress["bytes"], progress["left"]))
            time.sleep(0.02)
        found = []
        for one, all_told in told.items():
            for at, done, left in all_told:
                done = (at - begun) / (ended[one] - begun) if done is None else done
                found.append((done, left, ended[one] - at))
    for _, target in copies:
        lay(target, aside)
    return name, found


def judged(name, told):
    """Errors as parts of the time that was left, once a tenth is done and as long as a twentieth is left; and how often that lay in the range
    that was told."""
    counted = [(left, was) for done, left, was in told if 0.1 <= done <= 0.95 and was > 0]
    errors = sorted(abs(left["seconds"] - was) / was for left, was in counted)
    within = sum(left["low"] <= was <= left["high"] for left, was in counted)
    return {"transfer": name, "told": len(errors), "median": statistics.median(errors) if errors else None,
            "p90": errors[int(len(errors) * 0.9)] if errors else None, "within": within / len(errors) if errors else None}


@contextlib.contextmanager
def laid(aside):
    """A folder for what was written, until the end: ext4 looks at each inode that was removed within the last minutes when it wants a new
    one, so that a tree of small files that takes the place of another one is written several times slower at first."""
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
    finally:
        shutil.rmtree(aside)


def lay(path, aside):
    """Lays a folder aside, and removes a file, if it is there."""
    if path.is_dir():
        path.rename(aside / str(len(list(aside.iterdir()))))
    else:
        path.unlink(missing_ok=True)


def gone(path):
    """Removes a file, or a folder with all that lies in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_past(path, size, block):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT)
    try:
        for _ in range(size // len(block)):
            os.write(fd, block)
        os.fsync(fd)
    finally:
        os.close(fd)


def read_all(path):
    """Reads as whoever was not on the node when it was written."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(BLOCK):
            pass


def tiers_section(a):
    """A producer and a consumer of data on a shared store that gives 100 MB/s, and by way of memory with transfers to the store behind
    them. The store is a loop device that the kernel slows down (blkio of control groups, version 1)."""
    group = Path("/sys/fs/cgroup/blkio/stead-bench")
    size = max(int((2 << 30) * a.scale) // BLOCK, 2) * BLOCK
    image, store = a.data / "store.img", a.data / "store"
    found = {"bytes": size, "rate": 100e6, "shared": [], "tiers": [], "out": []}
    if os.geteuid() or not group.parent.is_dir():
        print("staging, tiers: LEFT OUT (root and control groups of version 1)", file=sys.stderr)
        return None
    loop = None
    try:
        with open(image, "wb") as file:
            file.truncate(size * 3 + (256 << 20))
        command(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image)])
        store.mkdir(exist_ok=True)
        loop = command(["losetup", "--find", "--show", "--direct-io=on", str(image)]).strip()
        command(["mount", loop, str(store)])
        group.mkdir(exist_ok=True)
        number = Path(f"/sys/block/{Path(loop).name}/dev").read_text().strip()
        for way in ("read", "write"):
            (group / f"blkio.throttle.{way}_bps_device").write_text(f"{number} {int(found['rate'])}")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        import mmap

        block = mmap.mmap(-1, BLOCK)
        block.write(random.Random(1).randbytes(BLOCK))
        for turn in range(a.runs):
            through, near = store / f"data{turn}", a.memory / "data"
            begin = time.perf_counter()
            write_past(through, size, block)
            made = time.perf_counter()
            read_all(through)
            found["shared"].append([made - begin, time.perf_counter() - made])
            through.unlink()
            with Daemon(a) as daemon:
                begin = time.perf_counter()
                with open(near, "wb") as file:
                    for _ in range(size // BLOCK):
                        file.write(block)
                transfer = daemon.submit(near, through)
                made = time.perf_counter()
                read_all(near)
                found["tiers"].append([made - begin, time.perf_counter() - made])
                while (standing := daemon.standing(transfer, 10))["status"]["state"] in ("pending", "running"):
                    pass
                assert standing["status"]["state"] == "finished", standing
                found["out"].append(time.perf_counter() - begin)
            assert subprocess.run(["cmp", "-s", near, through]).returncode == 0
            near.unlink()
            through.unlink()
    finally:
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))
        if loop:
            subprocess.run(["umount", str(store)], check=False)
            subprocess.run(["losetup", "--detach", loop], check=False)
        image.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            group.rmdir()
    return found


def report(found, table):
    """The lines of the page for these parts."""
    text = []
    if served := found.get("served"):
        rows = [[f"run {i + 1}", f"{r['median'] * 1e6:.0f}", f"{r['p99'] * 1e6:.0f}"] for i, r in enumerate(served["latency"])]
        waiting = served["waiting"]
        then = f"with {waiting['transfers']} waiting"
        rows.append([then, f"{waiting['then']['median'] * 1e6:.0f}", f"{waiting['then']['p99'] * 1e6:.0f}"])
        memory = " + ".join(f"{m / 1e6:.1f}" for m in waiting["memory"])
        text += ["## The daemon\n", "From a question to its answer at the socket, when the transfer is in the journal:\n",
                 table(["submit", "median, us", "99 %, us"], rows),
                 f"{waiting['transfers']} transfers were taken in {waiting['seconds']:.1f} s; then the daemon and its worker have {memory} MB.\n",
                 "What is told of the time left, once a tenth is done, is wrong by this part of it; and so often it lies within the range that is told:\n",
                 table(["transfer", "times asked", "median", "90 %", "within the range"],
                       [[r["transfer"], str(r["told"])] + ([f"{100 * r[k]:.1f} %" for k in ("median", "p90", "within")] if r["told"] else [""] * 3)
                        for r in served["eta"]])]
    if tiers := found.get("tiers"):
        shared, near = ([statistics.median(r[i] for r in tiers[k]) for i in (0, 1)] for k in ("shared", "tiers"))
        saved = 1 - sum(near) / sum(shared)
        text += [f"## A producer and a consumer of {tiers['bytes'] / 1e9:.2f} GB\n",
                 f"The shared store gives {tiers['rate'] / 1e6:.0f} MB/s. By way of memory, the data goes to the store behind them: it is there"
                 f" {statistics.median(tiers['out']):.1f} s after the producer began.\n",
                 table(["by way of", "producer, s", "consumer, s", "both, s", "saved"],
                       [["the shared store", f"{shared[0]:.2f}", f"{shared[1]:.2f}", f"{sum(shared):.2f}", ""],
                        ["memory, staged out", f"{near[0]:.2f}", f"{near[1]:.2f}", f"{sum(near):.2f}", f"{100 * saved:.1f} %"]])]
    return text
