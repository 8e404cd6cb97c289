"""A pool of daemons under mpirun: transfers from node to node, by whoever asks for them, over ends of processes."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import stead
from jobs import BUILT, PATIENT, launch
from support import ROOT

sys.path.append(str(ROOT / "tests" / "c"))
from building import Installed, install  # noqa: E402

STEAD = BUILT / "openmpi" / "stead"
WITHIN = 180
pytestmark = pytest.mark.skipif(not STEAD.exists(), reason="there is no command with MPI")


class Pool:
    """Daemons `n0`, `n1`, ... of this machine. Each has a folder of its own, as a node has."""

    def __init__(self, at: Path, size: int, everybody: bool = False, more: dict[str, str] | None = None, mpi: str = "openmpi"):
        self.at, self.size, self.process = at, size, None
        self.mpi, self.stead = mpi, BUILT / mpi / "stead"
        # That of its user, also where this is root.
        self.own = [] if everybody or os.geteuid() else ["setpriv", "--bounding-set=-setuid,-setgid"]
        for rank in range(size):
            (at / f"n{rank}" / "config").mkdir(parents=True)
        # Dataspaces are those of a user, who is the same on all nodes of this machine.
        (at / "config" / "stead").mkdir(parents=True)
        (at / "config" / "stead" / "stead.toml").write_text(f'[dataspace.fast]\npath = "{at}/fast"\n')
        (at / "fast").mkdir()
        env = {key: value for key, value in os.environ.items() if not key.startswith(("STEAD_", "XDG_"))}
        self.env = env | PATIENT | {"HOME": str(at), "XDG_CONFIG_HOME": str(at / "config")} | (more or {})

    def begin(self) -> None:
        words = ["daemon", "--pool", "--name", "n%r", "--socket", f"{self.at}/n%r/s", "--state", f"{self.at}/n%r/state", "--threads", "4"]
        with open(self.at / "log", "a") as log:
            job = [*launch(self.mpi, self.size), *self.own, str(self.stead), *words]
            self.process = subprocess.Popen(job, env=self.env, stderr=log, stdout=log, stdin=subprocess.DEVNULL, start_new_session=True)
        until = time.monotonic() + WITHIN
        for rank in range(self.size):
            while not self.listens(rank):
                assert self.process.poll() is None and time.monotonic() < until, self.log()
                time.sleep(0.02)

    def listens(self, rank: int) -> bool:
        one = socket.socket(socket.AF_UNIX)
        try:
            one.settimeout(WITHIN)
            one.connect(f"{self.at}/n{rank}/s")
            head = one.recv(4, socket.MSG_WAITALL)
            return len(head) == 4 and len(one.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)) > 0
        except OSError:
            return False
        finally:
            one.close()

    def log(self) -> str:
        return (self.at / "log").read_text()

    def end(self, how=signal.SIGTERM) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(WITHIN)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise

    def processes(self, rank: int, worker: bool) -> list[int]:
        """The daemon of a rank, or its workers, which have no arguments that tell: their parent does."""
        def words(pid: str) -> list[str]:
            try:
                return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:
                return []

        def parent(pid: str) -> str:
            try:
                return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                return ""

        def of_rank(pid: str) -> bool:
            try:
                found = Path(f"/proc/{pid}/environ").read_text().split("\0")
            except OSError:
                return False
            return f"OMPI_COMM_WORLD_RANK={rank}" in found

        all = [path.name for path in Path("/proc").glob("[0-9]*")]
        daemons = [pid for pid in all if f"{self.at}/n%r/s" in words(pid) and "mpirun" not in words(pid)[0] and of_rank(pid)]
        if not worker:
            return [int(pid) for pid in daemons]
        return [int(pid) for pid in all if "--worker" in words(pid) and parent(pid) in daemons]

    def run(self, rank: int, *args, expect: int | None = 0, verb="stage", user=None) -> subprocess.CompletedProcess:
        env = self.env | {"STEAD_SOCKET": f"{self.at}/n{rank}/s"}
        who = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        done = subprocess.run([*who, self.stead, verb, *map(str, args)], env=env, text=True, capture_output=True, timeout=WITHIN)
        assert expect is None or done.returncode == expect, f"{done.stdout}\n{done.stderr}\n{self.log()}"
        return done

    def taken(self, rank: int, *args) -> int:
        return int(self.run(rank, "--background", *args).stdout)

    def status(self, rank: int, transfer: int, *args) -> dict:
        listed = json.loads(self.run(rank, "--list", "--all", "--format", "json", *args).stdout)
        return next(one for one in listed if one["id"] == transfer)

    def until(self, rank: int, transfer: int, ready, *args) -> dict:
        until = time.monotonic() + WITHIN
        while not ready(status := self.status(rank, transfer, *args)):
            assert time.monotonic() < until, f"{status}\n{self.log()}"
            time.sleep(0.05)
        return status


@pytest.fixture(scope="module")
def pool():
    at = Path(tempfile.mkdtemp(dir="/tmp"))
    one = Pool(at, 3)
    one.begin()
    yield one
    one.end()
    shutil.rmtree(at, ignore_errors=True)


@pytest.fixture(params=["openmpi", "mpich"])
def over(request):
    """The same, over each MPI that is installed."""
    if request.param == "openmpi":
        yield request.getfixturevalue("pool")
        return
    if not (BUILT / request.param / "stead").exists():
        pytest.skip(f"there is no command with {request.param}: COMMANDS=all scripts/mpi.sh builds it, as make test-all does")
    at = Path(tempfile.mkdtemp(dir="/tmp"))
    one = Pool(at, 3, mpi=request.param)
    try:
        one.begin()
        yield one
    finally:
        one.end()
        shutil.rmtree(at, ignore_errors=True)


def plant(root: Path, large: int = 20_000_003) -> None:
    (root / "deep" / "empty").mkdir(parents=True)
    (root / "small").write_bytes(b"hello")
    (root / "deep" / "large").write_bytes(os.urandom(large))
    (root / "deep" / "second").hardlink_to(root / "small")
    (root / "link").symlink_to("../nowhere")
    with open(root / "sparse", "wb") as file:
        file.seek(30_000_000)
        file.write(b"end")
    os.close(os.open(os.fsencode(root) + b"/no\xfftext", os.O_CREAT | os.O_WRONLY))
    for i in range(300):
        (root / f"f{i}").write_bytes(os.urandom(i * 7))
    (root / "small").chmod(0o640)
    (root / "deep").chmod(0o751)
    try:
        os.setxattr(root / "small", "user.note", b"a\0b")
    except OSError:
        pass
    for name in ("deep/large", "small", "deep", "."):
        os.utime(root / name, ns=(1, 1_500_000_000_123_456_789))


def tree(root: Path) -> dict:
    found = {}
    for path in [root, *root.rglob("*")]:
        meta = path.lstat()
        link = path.is_symlink()
        what = os.readlink(path) if link else None if path.is_dir() else path.read_bytes()
        notes = {} if link else {n: os.getxattr(path, n) for n in os.listxattr(path) if n.startswith("user.")}
        names = 0 if path.is_dir() else meta.st_nlink
        found[path.relative_to(root)] = (meta.st_mode, meta.st_mtime_ns, names, what, notes)
    return found


def test_trees_go_from_node_to_node(over):
    pool = over
    source = pool.at / "n0" / "a"
    plant(source)
    before = tree(source)
    # Asked for where the target is, where the source is, and elsewhere.
    pool.run(1, "n0:" + str(source), pool.at / "n1" / "b", "--verify")
    assert tree(pool.at / "n1" / "b") == before
    done = pool.run(0, source, f"n2:{pool.at}/n2/b")
    assert "of node n2" in done.stdout and tree(pool.at / "n2" / "b") == before
    done = pool.run(2, f"n0:{source}/", f"n1:{pool.at}/n1/c", "--sync", "--format", "json")
    assert tree(pool.at / "n1" / "c") == before and json.loads(done.stdout)["files"] > 300
    again = json.loads(pool.run(1, "--sync", f"n0:{source}/", pool.at / "n1" / "c", "--format", "json").stdout)
    assert again["bytes_done"] == 0
    # By patterns, to dataspaces, and from both at once.
    pool.run(1, f"n0:{source}/f1?", f"n2:{pool.at}/n2/b/small", "fast://some/")
    assert sorted(os.listdir(pool.at / "fast" / "some")) == sorted(["small", *(f"f{i}" for i in range(10, 20))])
    pool.run(0, "--remove", f"n1:{pool.at}/n1/c")
    assert not (pool.at / "n1" / "c").exists()
    # A move leaves nothing.
    pool.run(2, "--move", f"n1:{pool.at}/n1/b", pool.at / "n2" / "moved")
    assert tree(pool.at / "n2" / "moved") == before and not (pool.at / "n1" / "b").exists()


def test_all_nodes_send_to_each_other_at_once(pool):
    """Each fetches from all others and sends to all others, all of it at the same time."""
    nodes, mib = range(pool.size), 1 << 20
    of = {(a, b, way): np.random.default_rng([a, b, len(way)]).bytes(5 * mib + a * 7 + b) for a in nodes for b in nodes for way in ("get", "put") if a != b}
    at = Path(tempfile.mkdtemp(dir=pool.at))
    for (a, b, way), bytes in of.items():
        (at / f"{way}-{a}-{b}").write_bytes(bytes)
    taken = []
    for a, b, way in of:
        there, to = at / f"{way}-{a}-{b}", at / f"to-{way}-{a}-{b}"
        words = (f"n{b}:{there}", to) if way == "get" else (there, f"n{b}:{to}")
        # A limit, so that all are under way at once. Whose node the target is does it.
        taken.append((a, pool.taken(a, *words, "--limit", "4MB"), () if way == "get" else ("--on", f"n{b}")))
    ended = [pool.until(rank, one, lambda status: status["state"] not in ("pending", "running"), *on) for rank, one, on in taken]
    assert {status["state"] for status in ended} == {"finished"}, ended
    assert {(a, b, way): (at / f"to-{way}-{a}-{b}").read_bytes() for a, b, way in of} == of
    assert not [path for path in at.iterdir() if path.name.startswith(".stead")]


def test_daemons_of_other_nodes_are_asked(pool):
    assert pool.run(1, "--nodes", verb="daemon").stdout.split() == ["n0", "n1", "n2"]
    (pool.at / "n0" / "x").write_bytes(b"x" * 100)
    transfer = pool.taken(0, pool.at / "n0" / "x", f"n2:{pool.at}/n2/x")
    assert "finished" in pool.run(1, "--wait", transfer, "--on", "n2").stdout
    assert pool.status(0, transfer, "--on", "n2")["request"]["sources"] == [f"n0:{pool.at}/n0/x"]
    top = pool.run(0, "--once", "--on", "n2", verb="top").stdout
    assert " on n2, " in top and "a pool of 3 nodes: n0, n1, n2" in top
    assert "stead_pool_nodes 3" in pool.run(0, "--on", "n1", verb="metrics").stdout
    done = pool.run(0, f"n9:{pool.at}/x", pool.at / "n0" / "y", expect=1)
    assert "'n9'" in done.stderr and "n0, n1, n2" in done.stderr
    done = pool.run(0, "--list", "--on", "n9", expect=None)
    assert done.returncode != 0 and "'n9'" in done.stderr
    # Asked of one node, with a target on another.
    done = pool.run(0, "--on", "n1", pool.at / "n0" / "x", pool.at / "n0" / "y", expect=2)
    assert "'n0'" in done.stderr + (done.stdout or "")


#: What the programs in C and C++ do.
ON_NODE = """
import json, sys
import stead
at, node, source, target = sys.argv[1:]
with stead.daemon(at, node=node) as there:
    there.submit(source, target).wait()
    print(json.dumps(there.nodes))
"""


@pytest.mark.parametrize("face", ["c", "cpp", "python"])
def test_programs_ask_daemons_of_other_nodes(pool, face, tmp_path):
    if face == "python":
        program = [sys.executable, "-c", ON_NODE]
    else:
        install(tmp_path / "prefix")
        installed = Installed(tmp_path / "prefix")
        program = [installed.compile(Path(__file__).parent / f"on_node.{face}", tmp_path)]
    (pool.at / "n0" / "x").write_bytes(b"x" * 100)

    def ask(node: str, source: str, target: str) -> subprocess.CompletedProcess:
        env = os.environ | {"LD_LIBRARY_PATH": str(tmp_path / "prefix" / "lib")}
        words = [*map(str, program), f"{pool.at}/n0/s", node, source, target]
        return subprocess.run(words, env=env, text=True, capture_output=True, timeout=WITHIN)

    # Names without a node are of the node where the program runs.
    done = ask("n2", f"{pool.at}/n0/x", f"n2:{pool.at}/n2/{face}")
    assert done.returncode == 0 and json.loads(done.stdout) == ["n0", "n1", "n2"], done.stderr
    assert (pool.at / "n2" / face).read_bytes() == b"x" * 100
    listed = json.loads(pool.run(0, "--list", "--all", "--on", "n2", "--format", "json").stdout)
    assert listed[0]["request"]["sources"] == [f"n0:{pool.at}/n0/x"] and listed[0]["state"] == "finished"
    assert not [one for one in json.loads(pool.run(0, "--list", "--all", "--format", "json").stdout) if one["request"]["target"].endswith(f"/n2/{face}")]
    done = ask("n9", f"{pool.at}/n0/x", f"n9:{pool.at}/n2/y")
    assert done.returncode and "'n9'" in done.stderr


def test_other_nodes_are_listed(pool):
    source = pool.at / "n0" / "listed"
    plant(source, 1000)
    plain = lambda p: os.fsencode(p.relative_to(source)).replace(b"\xff", b"\\xff").decode() + ("/" if p.is_dir() and not p.is_symlink() else "")  # noqa: E731
    every = [plain(p) for p in sorted(source.rglob("*"), key=lambda p: [os.fsencode(step) for step in p.parts])]
    assert pool.run(1, f"n0:{source}", "-R", verb="ls").stdout.splitlines() == every and len(every) > 300
    assert pool.run(0, f"n0:{source}", "-R", verb="ls").stdout.splitlines() == every
    assert pool.run(2, f"n0:{source}/f1?", verb="ls").stdout.split() == [f"n0:{source}/f{i}" for i in range(10, 20)]
    (pool.at / "fast" / "here").write_bytes(b"x")
    assert "here" in pool.run(1, "n2:fast://", verb="ls").stdout.split()
    rows = json.loads(pool.run(1, f"n0:{source}/small", "--format", "json", verb="ls").stdout)
    assert rows == [{"name": f"n0:{source}/small", "kind": "file", "size": 5, "modified": pytest.approx(1_500_000_000.123457, abs=1e-6)}]
    for at, says in [(f"n0:{source}/none", "no such file"), (f"n9:{source}", "'n9'"), ("n0:nowhere://", "nowhere")]:
        done = pool.run(1, at, verb="ls", expect=None)
        assert done.returncode and says in done.stderr, done.stderr


def test_what_may_not_be_read_there_may_not_be_staged(pool):
    done = pool.run(1, f"n0:{pool.at}/n0/none", pool.at / "n1" / "none", expect=None)
    assert done.returncode == 1 and f"{pool.at}/n0/none" in done.stderr
    (pool.at / "fast" / "out").symlink_to(pool.at / "n0")
    done = pool.run(1, "n0:fast://out/x", pool.at / "n1" / "out", expect=None)
    assert done.returncode == 1 and "link" in done.stderr


def kill_workers(pool, rank: int) -> None:
    for worker in pool.processes(rank, worker=True):
        # One that has nothing to do may end by itself.
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def test_workers_that_are_killed_lose_nothing(pool):
    # It takes longer than who kills them is kept from that.
    size, slow = 280 << 20, ("--limit", "32MiB")
    source = pool.at / "n0" / "big"
    with open(source, "wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))
    target = pool.at / "n1" / "big"
    transfer = pool.taken(1, f"n0:{source}", target, *slow)
    pool.until(1, transfer, lambda s: s["bytes_done"] > 64 << 20 or any((pool.at / "n1").glob(".stead-*")))
    time.sleep(2.5)
    # That of the source, then that of the target: it goes on where it was.
    for rank in (0, 1):
        assert pool.processes(rank, worker=True)
        kill_workers(pool, rank)
        time.sleep(0.3)
    status = pool.until(1, transfer, lambda s: s["state"] in ("finished", "failed", "interrupted"))
    if status["state"] == "interrupted":
        pool.run(1, "--resume", transfer)
    assert pool.status(1, transfer)["state"] == "finished"
    assert subprocess.run(["cmp", source, target]).returncode == 0
    target.unlink()
    transfer = pool.taken(1, f"n0:{source}", target, "--limit", "10MiB")
    pool.until(1, transfer, lambda s: s["state"] == "running")
    pool.run(0, "--cancel", transfer, "--on", "n1")
    assert not target.exists() and not list((pool.at / "n1").glob(".stead-*"))
    # The pool as a whole: one that dies takes all along, and what was under way goes on.
    transfer = pool.taken(1, f"n0:{source}", target, *slow)
    pool.until(1, transfer, lambda s: s["state"] == "running")
    for daemon in pool.processes(0, worker=False):
        os.kill(daemon, signal.SIGKILL)
    pool.process.wait(WITHIN)
    pool.begin()
    status = pool.until(1, transfer, lambda s: s["state"] in ("finished", "interrupted"))
    if status["state"] == "interrupted":
        # Its node was still there when that of the source was gone for longer than it tries again.
        pool.run(1, "--resume", transfer)
        pool.until(1, transfer, lambda s: s["state"] == "finished")
    assert subprocess.run(["cmp", source, target]).returncode == 0
    source.unlink(), target.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="several users are there for root only")
def test_another_node_reads_with_the_rights_of_the_same_user():
    at = Path(tempfile.mkdtemp(dir="/tmp"))
    at.chmod(0o755)
    pool = Pool(at, 2, everybody=True)
    user = pwd.getpwnam("nobody").pw_uid
    try:
        pool.begin()
        for name, owner, mode in [("own", user, 0o600), ("of-root", 0, 0o600), ("open", 0, 0o644)]:
            (at / "n0" / name).write_bytes(name.encode())
            os.chown(at / "n0" / name, owner, owner)
            (at / "n0" / name).chmod(mode)
        (at / "n1" / "in").mkdir()
        os.chown(at / "n1" / "in", user, user)
        for name in ("own", "open"):
            pool.run(1, f"n0:{at}/n0/{name}", at / "n1" / "in", user=user)
            assert (at / "n1" / "in" / name).stat().st_uid == user
        done = pool.run(1, f"n0:{at}/n0/of-root", at / "n1" / "in", user=user, expect=None)
        assert done.returncode == 1 and "permission denied" in done.stderr.lower() + done.stdout.lower()
        done = pool.run(0, at / "n0" / "open", f"n1:{at}/n1/", user=user, expect=None)
        assert done.returncode == 1 and not (at / "n1" / "open").exists()
        # Transfers of others are nobody's business, on another node, too.
        pool.run(0, at / "n0" / "open", f"n1:{at}/n1/")
        assert json.loads(pool.run(0, "--list", "--all", "--on", "n1", "--format", "json").stdout)
        listed = json.loads(pool.run(0, "--list", "--all", "--on", "n1", "--format", "json", user=user).stdout)
        assert len(listed) == 4
    finally:
        pool.end()
        shutil.rmtree(at, ignore_errors=True)


@pytest.fixture
def beside_a_store():
    """Two daemons, and a store that speaks S3, whose credentials they have from their environment."""
    pytest.importorskip("moto")
    from stores import Store

    at, store = Path(tempfile.mkdtemp(dir="/tmp")), Store()
    store.anew("bkt")
    one = Pool(at, 2, more=store.env)
    with open(at / "config" / "stead" / "stead.toml", "a") as file:
        file.write('[dataspace.old]\npath = "s3://bkt/below"\n')
    one.begin()
    yield one, store
    one.end()
    store.end()
    shutil.rmtree(at, ignore_errors=True)


def test_what_lies_on_another_node_goes_into_a_bucket(beside_a_store):
    pool, store = beside_a_store
    source = pool.at / "n0" / "a"
    plant(source)
    done = pool.run(1, f"n0:{source}", "s3://bkt/odd", expect=2)
    assert f"n0:{source}/no" in done.stderr and "UTF-8" in done.stderr, done.stderr
    os.remove(os.fsencode(source) + b"/no\xfftext")
    files = {str(p.relative_to(source)): p.read_bytes() for p in source.rglob("*") if p.is_file() and not p.is_symlink()}
    # By its URL, which the command would do by itself if all of it were here, and by a dataspace.
    pool.run(1, f"n0:{source}", "s3://bkt/run", "--verify")
    assert store.objects("bkt", "run/") == files
    pool.run(1, "--sync", f"n0:{source}/", "old://run")
    assert store.objects("bkt", "below/run/") == files
    again = json.loads(pool.run(1, "--sync", f"n0:{source}/", "old://run", "--format", "json").stdout)
    assert again["bytes_done"] == 0
    pool.run(1, "--move", f"n0:{source}/deep/large", "old://moved")
    assert store.objects("bkt", "below/")["moved"] == files["deep/large"] and not (source / "deep" / "large").exists()
    assert store.uploads("bkt") == []


def test_an_upload_from_another_node_goes_on_with_its_parts(beside_a_store):
    pool, store = beside_a_store
    source, size = pool.at / "n0" / "big", 96 << 20
    source.write_bytes(os.urandom(1 << 20) * 95 + os.urandom(1 << 20))
    transfer = pool.taken(1, f"n0:{source}", "s3://bkt/big", "--limit", "8MiB")

    def parts(least: int) -> int:
        until = time.monotonic() + WITHIN
        while (sent := store.seen.count("part")) < least:
            assert time.monotonic() < until, pool.log()
            time.sleep(0.05)
        return sent

    parts(3)
    # The journal is told of the parts each two seconds.
    time.sleep(2.5)
    sent = parts(3)
    for rank in (0, 1):
        kill_workers(pool, rank)
        time.sleep(0.3)
    status = pool.until(1, transfer, lambda s: s["state"] in ("finished", "failed", "interrupted"))
    if status["state"] == "interrupted":
        pool.run(1, "--resume", transfer)
    assert pool.status(1, transfer)["state"] == "finished"
    # It is the upload that was begun first, of which not all parts went again.
    assert store.seen.count("create") == 1 and store.seen.count("complete") == 1
    assert store.seen.count("part") < sent + (size >> 23)
    assert store.objects("bkt")["big"] == source.read_bytes()
    # Given up, nothing of it is left.
    transfer = pool.taken(1, f"n0:{source}", "s3://bkt/other", "--limit", "8MiB")
    parts(store.seen.count("part") + 1)
    pool.run(0, "--cancel", transfer, "--on", "n1")
    assert store.uploads("bkt") == [] and list(store.objects("bkt")) == ["big"]


def test_one_name_is_of_one_node(tmp_path):
    words = ["daemon", "--pool", "--name", "same", "--socket", f"{tmp_path}/%r", "--state", f"{tmp_path}/state%r"]
    job = ["timeout", str(WITHIN), *launch("openmpi", 2), str(STEAD), *words]
    done = subprocess.run(job, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode != 0 and "'same' is the name of two daemons" in done.stderr


@pytest.fixture
def memories(pool):
    """A memory for each node."""
    made = [tempfile.mkdtemp(dir="/dev/shm") for rank in range(pool.size)]
    for rank, path in enumerate(made):
        pool.run(rank, "dataspace", "add", "memory", f"path={path}", verb="admin")
    yield made
    for rank, path in enumerate(made):
        pool.run(rank, "dataspace", "remove", "memory", verb="admin")
        shutil.rmtree(path, ignore_errors=True)


def test_memory_of_another_node_is_an_end_as_any_other(pool, memories):
    mine = [{"memory": path} for path in memories]
    region = stead.region("run/x", (300, 1000), "u2", dataspaces=mine[2])
    region.array[:] = (np.arange(300_000) % 65_521).reshape(300, 1000)
    region.touch()
    pool.run(1, "n2:memory://run/x", pool.at / "n1" / "field", "--verify")
    assert (pool.at / "n1" / "field").read_bytes() == region.array.tobytes()
    # From memory to memory, asked for at a third node; what comes there is one, too.
    pool.run(0, "n2:memory://run/x", "n1:memory://y")
    assert list(stead.regions(dataspaces=mine[1])) == ["y"] and stead.regions(dataspaces=mine[0]) == {}
    other = stead.region("y", dtype="u2", dataspaces=mine[1])
    assert np.array_equal(other.array, region.array.ravel())
    pool.run(0, "--remove", "n1:memory://y")
    assert stead.regions(dataspaces=mine[1]) == {}
    region.remove()


def pooled(pool, rank: int, what: str, memory: str, *numbers: int | str | Path) -> subprocess.Popen:
    env = os.environ | {"STEAD_SOCKET": f"{pool.at}/n{rank}/s"}
    words = [sys.executable, Path(__file__).parent / "pooled.py", what, memory, *map(str, numbers)]
    return subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def says(program: subprocess.Popen, word: str) -> None:
    line = program.stdout.readline()
    assert line == f"{word}\n", line + "".join(program.communicate())


def go_on(program: subprocess.Popen) -> None:
    program.stdin.write("go on\n")
    program.stdin.flush()


def ends(program: subprocess.Popen) -> str:
    out, err = program.communicate(timeout=WITHIN)
    assert program.returncode == 0, err
    return out


@pytest.mark.parametrize("first", ["writer", "reader"])
def test_streams_are_read_on_other_nodes(pool, memories, first, tmp_path):
    begin = {"writer": lambda: pooled(pool, 0, "write", memories[0], 6), "reader": lambda: pooled(pool, 2, "read", memories[2], 6)}
    programs = {first: begin[first]()}
    time.sleep(0.5)
    programs |= {name: function() for name, function in begin.items() if name != first}
    ends(programs["writer"])
    assert ends(programs["reader"]).splitlines() == ["begun", f"{list(range(6))} 0"]
    # The command follows it, too, however long there is nothing.
    writer = pooled(pool, 1, "write", memories[1], 4, 700)
    (tmp_path / "stead.toml").write_text(f'[dataspace.memory]\npath = "{memories[0]}"\n')
    env = pool.env | {"STEAD_SOCKET": f"{pool.at}/n0/s", "STEAD_CONFIG": str(tmp_path / "stead.toml")}
    words = [str(STEAD), "stream", "watch", "pooled", "--steps", "3", "--timeout", "60s", "--format", "json"]
    watch = subprocess.run(words, env=env, text=True, capture_output=True, timeout=WITHIN)
    assert watch.returncode == 0 and watch.stdout.count('"step"') == 3, watch.stderr
    writer.kill()
    writer.communicate()


def test_a_node_that_does_not_answer_is_told_and_found_again(pool, memories):
    writer, reader = pooled(pool, 0, "write", memories[0], 200_000), pooled(pool, 2, "read", memories[2], 400, 1)
    try:
        assert reader.stdout.readline() == "begun\n", reader.communicate()
        kill_workers(pool, 0)
        out = ends(reader)
        had, again = json.loads(out.split("]")[0] + "]"), int(out.split("]")[1])
        assert len(had) >= 400 and had == sorted(had) and again >= 1
        # It has written on meanwhile, and nobody is waited for.
        assert writer.poll() is None
    finally:
        for one in (writer, reader):
            one.kill()
            one.communicate()
