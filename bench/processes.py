"""Processes that a benchmark has do something together: when they begin and end, what they take of processors and memory."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
# Nothing that is measured takes longer; what hangs ends.
DEADLINE = 300


class End:
    """A process that says what it has come to, and is told to go on."""

    def __init__(self, words):
        self.words = [str(w) for w in words]
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.timer = threading.Timer(DEADLINE, self.process.kill)
        self.timer.start()

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"ended with {self.process.wait()}: {' '.join(self.words)}")
        return line.strip()

    def tell(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def close(self, kill=False):
        if kill:
            self.process.kill()
        self.process.stdin.close()
        self.process.wait()
        self.timer.cancel()
        self.process.stdout.close()


def processes():
    """The parent of each process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        found[int(stat.parent.name)] = int(fields[1])
    return found


def tree(roots):
    """These processes and all that come from them."""
    parents, found = processes(), set(roots)
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def core_seconds(roots):
    total = 0
    for pid in tree(roots):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def memory(roots, folder):
    """Bytes of all processes, each page once: their own, those of files, and shared memory, mapped or only there as a file."""
    own = shared = 0
    for pid in tree(roots):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        kib = {line.split()[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
        own += (kib["Pss_Anon:"] + kib["Pss_File:"]) << 10
        shared += kib["Pss_Shmem:"] << 10
    files = 0
    # Folders come and go while this looks: a walk passes over those, where a glob ends with an error.
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                files += os.lstat(os.path.join(at, name)).st_blocks * 512
            except OSError:
                continue
    return own + max(shared, files)


class Peak(threading.Thread):
    """Looks at the memory of processes until it is told to stop."""

    def __init__(self, roots, folder):
        super().__init__(daemon=True)
        self.roots, self.folder, self.most, self.over = roots, folder, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.005):
            self.most = max(self.most, memory(self.roots, self.folder))

    def stop(self):
        self.over.set()
        self.join()
        return self.most


def ends(way, roles, o, python=None):
    return [End([python or sys.executable, HERE / "streams_ends.py", way, role, json.dumps(of)]) for role, of in zip(roles, o)]


def measured(a, way, roles, o, python=None, servers=(), look=False):
    """One run: seconds from when the first begins with what counts to when the last has it, and core-seconds of all; with `look` the peak
    of their memory."""
    peak = None
    before = memory(servers, a.folder) if look else 0
    these = ends(way, roles, o, python)
    roots = [end.process.pid for end in these] + list(servers)
    try:
        for end in these:
            assert end.line() == "ready"
        if look:
            peak = Peak(roots, a.folder)
        for end in these:
            end.tell()
        for end in these:
            assert end.line() == "warm"
        used = core_seconds(roots)
        for end in these:
            end.tell()
        found = [json.loads(end.line()) for end in these]
        used = core_seconds(roots) - used
        most = peak.stop() if look else None
        for end in these:
            end.tell()
    except BaseException:
        if peak:
            peak.over.set()
        for end in these:
            end.close(kill=True)
        raise
    for end in these:
        end.close()
    seconds = max(f["ended"] for f in found) - min(f["begun"] for f in found)
    return {"seconds": seconds, "core_seconds": used, "steps": o[0]["steps"], "memory": most and most - before}


def pair(these, one_after_the_other=False):
    """When these ends were told to begin, at once or one after the other, when the last one has said what it has found, and that."""
    found = []
    try:
        for end in these:
            assert end.line() == "ready"
        begun = time.monotonic()
        for end in these:
            end.tell()
            if one_after_the_other:
                found.append(json.loads(end.line()))
        found = found or [json.loads(end.line()) for end in these]
        ended = time.monotonic()
    finally:
        for end in these:
            end.close(kill=not found)
    return begun, ended, found


def fresh(a):
    """An empty folder in memory."""
    shutil.rmtree(a.folder, ignore_errors=True)
    a.folder.mkdir(parents=True, mode=0o700)
