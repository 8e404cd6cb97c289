"""Ranks that are processes: the fabric's suite, and files that all ranks read together.

With Open MPI and MPICH on this host, and with Open MPI on several hosts of the lab (lab/lab), which needs root: where it
cannot be raised those tests are skipped and say why. Everything runs under a time limit, so that nothing can hang.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import BUILT, HASTY, LENGTH, LIMIT, asleep, launch, run
from support import ROOT, in_all, repeats

LAB = ROOT / "lab" / "lab"


def read_bytes(out: str) -> list[int]:
    return [int(n) for n in re.findall(r"right, (\d+) bytes read", out)]


@pytest.fixture(scope="module")
def tool(mpi, tmp_path_factory):
    """A tool that makes a call of MPI fail on the last rank, from the so-manieth on, or the start of a thread by libstead_mpi, or
    MPI_Comm_free wait for ever, but in the program's own thread."""
    code = tmp_path_factory.mktemp("tool") / "tool.c"
    call = """
    int MPI_{name}({given}) {{
        static atomic_int calls;
        if (fails("{name}", &calls)) return MPI_ERR_OTHER;
        return PMPI_{name}({words});
    }}
    """
    common = "int n, MPI_Datatype t, int r, int tag, MPI_Comm c, MPI_Request *q"
    calls = [
        ("Isend", f"const void *b, {common}", "b, n, t, r, tag, c, q"),
        ("Irecv", f"void *b, {common}", "b, n, t, r, tag, c, q"),
        ("Comm_set_errhandler", "MPI_Comm c, MPI_Errhandler h", "c, h"),
    ]
    code.write_text("""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <mpi.h>
    #include <pthread.h>
    #include <stdatomic.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int MPI_Comm_free(MPI_Comm *c) {
        const char *call = getenv("FAIL_CALL");
        int hangs = call && !strcmp(call, "Comm_free") && syscall(SYS_gettid) != getpid();
        while (hangs) pause();
        return PMPI_Comm_free(c);
    }
    static int fails(const char *name, atomic_int *calls) {
        int rank, size;
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        PMPI_Comm_size(MPI_COMM_WORLD, &size);
        const char *call = getenv("FAIL_CALL");
        if (!call || strcmp(call, name) || rank != size - 1) return 0;
        return atomic_fetch_add(calls, 1) >= atoi(getenv("FAIL_AFTER"));
    }
    int MPI_Test(MPI_Request *q, int *flag, MPI_Status *s) {
        static atomic_int calls, over;
        if (fails("Test", &calls)) return MPI_ERR_OTHER;
        int code = PMPI_Test(q, flag, s);
        /* What is over with an error is no request any more. Heads that come are asked for their senders. */
        int done = !code && *flag && s == MPI_STATUS_IGNORE;
        return done && fails("Test_over", &over) ? MPI_ERR_OTHER : code;
    }
    int pthread_create(pthread_t *thread, const pthread_attr_t *with, void *(*run)(void *), void *given) {
        static atomic_int calls;
        int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        Dl_info by;
        if (dladdr(__builtin_return_address(0), &by) && strstr(by.dli_fname, "libstead_mpi") &&
            fails("pthread_create", &calls))
            return EAGAIN;
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
        return next(thread, with, run, given);
    }
    """ + "".join(call.format(name=name, given=given, words=words) for name, given, words in calls))
    mpicc = f"mpicc.{mpi}" if subprocess.run(["which", f"mpicc.{mpi}"], capture_output=True).returncode == 0 else "mpicc"
    run([mpicc, "-shared", "-fPIC", code, "-o", code.with_suffix(".so")])
    return code.with_suffix(".so")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_fabric_conforms(mpi, ranks):
    assert run([*launch(mpi, ranks), BUILT / mpi / "conform"]).count("conforms") == ranks


@pytest.mark.parametrize("flags", ["0", "8"], ids=["page cache", "blocks in memory"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_and_tasks_read_any_ranges(mpi, file, ranks, flags):
    repeats(mpi == "mpich" and ranks == 2)
    out = run([*launch(mpi, ranks), BUILT / mpi / "ranks", "read", file], {"RANKS_FLAGS": flags})
    assert len(read_bytes(out)) == ranks
    if flags == "8":
        # From the file system once for all, whoever asks.
        assert sum(read_bytes(out)) == LENGTH


@pytest.mark.parametrize("flags", ["0", "8"], ids=["page cache", "blocks in memory"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_load_their_shares_of_a_snapshot(mpi, snapshot, ranks, flags):
    out = run([*launch(mpi, ranks), BUILT / mpi / "tipsy", "load", snapshot], {"RANKS_FLAGS": flags})
    assert out.count("right") == ranks


def test_what_ranks_do_wrong_with_snapshots_is_told(mpi, snapshot):
    assert run([*launch(mpi, 3), BUILT / mpi / "tipsy", "wrong", snapshot]).count("told") == 3


@pytest.mark.parametrize("flags", ["0", "8"], ids=["page cache", "blocks in memory"])
def test_sanitizers_find_nothing(file, snapshot, flags):
    # Open MPI leaks on its own account.
    env = {"RANKS_FLAGS": flags, "ASAN_OPTIONS": "detect_leaks=0"}
    built = BUILT / "openmpi"
    assert len(read_bytes(run([*launch("openmpi", 2), built / "ranks-checked", "read", file], env))) == 2
    assert run([*launch("openmpi", 2), built / "tipsy-checked", "load", snapshot], env).count("right") == 2


def test_files_are_opened_and_closed_thousands_of_times(mpi, file):
    # MPICH has some two thousand communicators.
    run([*launch(mpi, 2), BUILT / mpi / "ranks", "many", file, 2200 if mpi == "mpich" else 400])


# With MPICH, one thread that is in MPI at that moment suffices to make MPI_Finalize fail; it takes luck to have one.
TURNS = {"openmpi": 2, "mpich": 8}


@pytest.mark.parametrize("ranks", [1, 2])
def test_mpi_may_end_while_files_are_open(mpi, file, ranks):
    for _ in range(TURNS[mpi] if ranks == 1 else 1):
        run([*launch(mpi, ranks), BUILT / mpi / "ranks", "end", file])


def test_mpi_may_end_by_the_name_that_tools_call(mpi, file, tmp_path):
    # As those that are loaded before everything, to look at what a program does with MPI.
    code = tmp_path / "tool.c"
    code.write_text("int PMPI_Finalize(void);\nint MPI_Finalize(void) { return PMPI_Finalize(); }\n")
    run(["cc", "-shared", "-fPIC", code, "-o", tmp_path / "tool.so"])
    words = [BUILT / mpi / "ranks", "end", file]
    for _ in range(TURNS[mpi]):
        run([*launch(mpi, 1), "env", f"LD_PRELOAD={tmp_path / 'tool.so'}", *words])


@pytest.mark.parametrize("program", ["read", "read++", "read-rust"])
def test_the_example_sums_a_file(mpi, file, program):
    if (mpi, program) == ("mpich", "read-rust"):
        # Built with one MPI, as the command is: what it calls is tested with both.
        mpi = "openmpi"
    out = run([*launch(mpi, 3), BUILT / mpi / program, file])
    assert LENGTH % 3 != 0, "the last bytes belong to somebody, too"
    assert out.strip() == f"sum of the bytes: {sum(file.read_bytes())}"


def test_a_rank_that_computes_stalls_nobody(mpi, file):
    out = run([*launch(mpi, 3), BUILT / mpi / "ranks", "busy", file])
    assert out.count("right") == 2 and "rank 0: computed" in out


@pytest.mark.parametrize("flags", ["0", "8"], ids=["page cache", "blocks in memory"])
def test_an_idle_session_takes_no_processor(mpi, file, flags):
    repeats(mpi == "mpich" and flags == "8")
    out = run([*launch(mpi, 2), BUILT / mpi / "ranks", "idle", file, 2], {"RANKS_FLAGS": flags})
    assert len(asleep(out)) == 2, out


@pytest.mark.parametrize("call, after", [
    ("Isend", 160), ("Irecv", 60), ("Test_over", 160), *(pytest.param(*more, marks=in_all) for more in (("Isend", 40), ("Test", 3000))),
])
def test_a_call_of_mpi_that_fails_is_an_error_for_all_and_nobody_hangs(mpi, file, tool, tmp_path, call, after):
    repeats(mpi == "mpich" and call == "Isend")
    given = ["env", f"LD_PRELOAD={tool}", f"FAIL_CALL={call}", f"FAIL_AFTER={after}"]
    out = run([*launch(mpi, 2), *given, BUILT / mpi / "ranks", "fail", file, tmp_path / "told"], expect=None)
    told = re.findall(r"rank \d: (\w+) after (\d+) s: (.*)", out)
    assert len(told) == 2 and all(kind == "peer" for kind, _, _ in told), out
    # As MPI says it, on the rank where it happened.
    assert any("MPI cannot" in text for _, _, text in told), out


@pytest.mark.parametrize("call", ["pthread_create", "Comm_set_errhandler"])
def test_a_rank_that_cannot_take_part_is_an_error_for_all_and_the_next_time_works(mpi, file, tool, call):
    repeats(mpi == "mpich" and call != "pthread_create")
    given = ["env", f"LD_PRELOAD={tool}", f"FAIL_CALL={call}", "FAIL_AFTER=0"]
    assert run([*launch(mpi, 3), *given, BUILT / mpi / "ranks", "thread", file]).count("told") == 3


@pytest.fixture(scope="module")
def holes():
    """A file of 5 GiB in memory, with a byte here and there."""
    path = Path(f"/dev/shm/stead-test-ranks-{os.getpid()}")
    with open(path, "wb") as to:
        for at in range(0, 5 << 30, 1 << 28):
            os.pwrite(to.fileno(), b"x", at)
        to.truncate(5 << 30)
    yield path
    path.unlink()


def test_more_than_2_gib_come_from_other_ranks(holes):
    out = run([*launch("openmpi", 2), BUILT / "openmpi" / "ranks", "large", holes])
    assert f"right, {(2 << 30) + (1 << 20)} bytes" in out


def test_who_frees_a_communicator_and_waits_for_ever_keeps_no_other_waiting(mpi, file, tool):
    given = ["env", f"LD_PRELOAD={tool}", "FAIL_CALL=Comm_free"]
    out = run([*launch(mpi, 2), *given, BUILT / mpi / "ranks", "freed", file])
    assert out.count("goes on") == 2, out


def test_what_ranks_do_wrong_is_told(mpi, file):
    assert run([*launch(mpi, 3), BUILT / mpi / "ranks", "differ", file]).count("told") == 3
    out = run([*launch(mpi, 2), BUILT / mpi / "ranks", "funneled", file])
    assert out.count("MPI_THREAD_MULTIPLE") == 0 and out.count("fewer threads") == 2


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_threads_of_ranks_open_files_at_the_same_time(mpi, file, tmp_path, ranks):
    repeats(mpi == "mpich" and ranks == 2)
    other = tmp_path / "other"
    other.write_bytes(bytes(255 - b for b in file.read_bytes()))
    out = run([*launch(mpi, ranks), BUILT / mpi / "ranks", "threads", file, other])
    opened = re.findall(r"opened (\d+) and (\d+)", out)
    assert len(opened) == ranks and len({*opened}) == 1
    if ranks == 1:
        # Nobody is there with whom it could be in another order.
        assert opened == [("40", "40")]


def test_children_that_were_forked_wait_for_no_thread(mpi, file):
    assert run([*launch(mpi, 2), BUILT / mpi / "ranks", "fork", file]).count("outlived") == 2


def survivors(out: str, ranks: int) -> None:
    told = re.findall(r"rank \d: peer after (\d+) s: .*rank (\d)", out)
    assert len(told) == ranks - 1, out
    assert all(int(rank) == ranks - 1 and int(seconds) < 30 for seconds, rank in told), out


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_rank_that_dies_is_an_error_for_the_others(file, how):
    # Unless told otherwise, mpirun of Open MPI ends all ranks with the first one that dies.
    command = launch("openmpi", 3, "--enable-recovery", "--mca", "btl", "vader,self")
    survivors(run([*command, BUILT / "openmpi" / "ranks", "die", file, how], expect=None), 3)


def watch(command, file) -> str:
    """What a job says of which a rank is stopped, and ended by its number when the others are through."""
    env = os.environ | HASTY
    with subprocess.Popen(
        ["timeout", "--kill-after=10", str(LIMIT), *map(str, command)],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env,
    ) as job:
        out = ""
        for line in job.stdout:
            out += line
            if out.count("peer after") == 2:
                break
        end_stopped(str(file))
        return out + job.stdout.read()


@pytest.mark.parametrize("words", [["die", "FILE", "stop"], ["stopped", "FILE"]], ids=["reading", "freed"])
def test_a_rank_that_gives_no_sign_of_life_is_an_error_for_the_others(file, words):
    """Or, where they wanted nothing of it, of no matter."""
    words = [file if word == "FILE" else word for word in words]
    command = [*launch("openmpi", 3, "--enable-recovery"), BUILT / "openmpi" / "ranks", *words]
    survivors(watch(command, file), 3)


def end_stopped(word: str) -> None:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = (status.parent / "cmdline").read_bytes().split(b"\0")
            state = status.read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if word.encode() in words and {b"die", b"stopped"} & {*words} and state == "T":
            os.kill(int(status.parent.name), signal.SIGKILL)


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_job_of_which_a_rank_dies_ends(mpi, file, how):
    run([*launch(mpi, 3), BUILT / mpi / "ranks", "die", file, how], expect=None)


@pytest.fixture(scope="module")
def lab():
    """Three hosts, joined by links of 1 Gb/s."""
    able = subprocess.run([LAB, "check"], capture_output=True, text=True)
    if able.returncode:
        pytest.skip(f"no lab can be raised here: {able.stderr.strip()}")
    up = subprocess.run([LAB, "up", "3"], capture_output=True, text=True, env=os.environ | {"LAB_OWNER": str(os.getpid())})
    assert up.returncode == 0, up.stderr
    name = up.stdout.strip()
    yield name
    subprocess.run([LAB, "drop", name], check=True)
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert name not in left


def over(lab: str, mpi: str) -> list[str]:
    """The lab's mpirun."""
    return [LAB, "run", lab, *(["--mpich"] if mpi == "mpich" else [])]


def test_the_fabric_conforms_over_hosts(lab, mpi):
    assert run([*over(lab, mpi), BUILT / mpi / "conform"]).count("conforms") == 3


@pytest.mark.parametrize("flags", ["0", "8"], ids=["page cache", "blocks in memory"])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_on_hosts_read_any_ranges(lab, mpi, file, ranks, flags):
    repeats(mpi == "mpich" and ranks == 3)
    # MPICH hands the environment on by itself.
    flagged = ["-x", "RANKS_FLAGS"] if mpi == "openmpi" else []
    command = [*over(lab, mpi), "-n", ranks, *flagged, BUILT / mpi / "ranks"]
    out = run([*command, "read", file], {"RANKS_FLAGS": flags})
    assert len(read_bytes(out)) == ranks
    if flags == "8":
        assert sum(read_bytes(out)) == LENGTH


def test_every_face_reads_over_hosts(lab, file, snapshot):
    built = BUILT / "openmpi"
    loaded = run([LAB, "run", lab, built / "tipsy", "load", snapshot])
    assert loaded.count("right") == 3
    env = {"MPI4PY_MPIABI": "openmpi", "STEAD_MPI_LIBRARY": str(built / "libstead_mpi.so")}
    given = [word for name in env for word in ("-x", name)]
    python = run([LAB, "run", lab, *given, sys.executable, ROOT / "tests" / "mpi" / "ranks.py", "read", file, "pread"], env)
    assert python.strip() == f"right, {LENGTH} bytes read"
    report = json.loads(run([LAB, "run", lab, built / "stead", "read", file, "--engine", "pread", "--format", "json"]))
    assert (report["ranks"], report["nodes"], report["bytes_fetched"]) == (3, 3, LENGTH)


def test_a_host_without_the_file_gets_it_from_the_others(lab, mpi, file):
    command = [*over(lab, mpi), BUILT / mpi / "ranks", "read", file, "few"]
    assert len(read_bytes(run(command))) == 3


def test_a_rank_on_another_host_that_computes_stalls_nobody(lab, mpi, file):
    out = run([*over(lab, mpi), BUILT / mpi / "ranks", "busy", file])
    assert out.count("right") == 2 and "rank 0: computed" in out


def test_a_rank_on_another_host_that_gives_no_sign_of_life_is_an_error_for_the_others(lab, file):
    command = [LAB, "run", lab, "--enable-recovery", "-x", "STEAD_PEER_SILENCE_S", BUILT / "openmpi" / "ranks"]
    survivors(watch([*command, "die", file, "stop"], file), 3)


def test_a_job_over_hosts_of_which_a_rank_dies_ends(lab, file):
    run([LAB, "run", lab, BUILT / "openmpi" / "ranks", "die", file, "kill"], expect=None)


def link_seconds(lab: str, to: int, size: int) -> float:
    """Seconds in which so many bytes come from one of two hosts to the other one."""
    addresses = subprocess.run([LAB, "addresses", lab], capture_output=True, text=True, check=True).stdout.split()
    take = f"""
import socket, time
there = socket.create_server(("{addresses[to - 1]}", 7000))
print("ready", flush=True)
one, _ = there.accept()
got, begun = len(one.recv(1)), time.monotonic()
while more := one.recv(1 << 20):
    got += len(more)
assert got == {size}, got
print(time.monotonic() - begun)
"""
    give = f"""
import socket
with socket.create_connection(("{addresses[to - 1]}", 7000)) as to:
    to.sendall(bytes({size}))
"""
    python = [sys.executable, "-c"]
    with subprocess.Popen([LAB, "exec", lab, str(to), *python, take], stdout=subprocess.PIPE, text=True) as taker:
        assert taker.stdout.readline() == "ready\n"
        subprocess.run([LAB, "exec", lab, str(3 - to), *python, give], check=True, timeout=LIMIT)
        return float(taker.stdout.read())


@pytest.mark.parametrize("rate, size", [("1gbit", 64_000_000), ("100mbit", 8_000_000)])
def test_links_of_a_lab_have_the_rate_asked_for(lab, rate, size):
    owner = os.environ | {"LAB_OWNER": str(os.getpid())}
    up = subprocess.run([LAB, "up", "2", rate], capture_output=True, text=True, env=owner)
    name = up.stdout.strip()
    try:
        # At the full rate 0.5 and 0.6 s, in each direction; nothing of it is stead.
        assert all(link_seconds(name, to, size) >= 0.4 for to in (1, 2))
    finally:
        subprocess.run([LAB, "drop", name], check=True)


def test_labs_are_dropped_after_a_crash(lab):
    with subprocess.Popen(["sleep", "100"]) as owner:
        up = subprocess.run(
            [LAB, "up", "2"], capture_output=True, text=True, env=os.environ | {"LAB_OWNER": str(owner.pid)}
        )
        name = up.stdout.strip()
        hosts = lambda: subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        assert name in hosts()
        subprocess.run([LAB, "sweep"], check=True)
        assert name in hosts()
        owner.kill()
    subprocess.run([LAB, "sweep"], check=True)
    assert name not in hosts()


def test_what_a_lab_leaves_that_was_killed_while_it_was_raised_is_swept(lab):
    with subprocess.Popen(["sleep", "100"]) as owner:
        name = f"steadlab98x{owner.pid}"
        probe = f"steadlabprobe{owner.pid}"
        # A bridge before its first host, the end of a link to a host without a name, and a trial.
        ip = lambda *words: subprocess.run(["ip", *words], check=True)
        ip("link", "add", "stl98", "type", "bridge")
        ip("link", "set", "stl98", "alias", name)
        ip("link", "add", "stl98v1", "type", "veth", "peer", "name", "stl98p1")
        ip("netns", "add", probe)
        left = lambda: [n for n in ("stl98", "stl98v1", "stl98p1") if Path("/sys/class/net", n).exists()]
        hosts = lambda: subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        subprocess.run([LAB, "sweep"], check=True)
        assert len(left()) == 3 and probe in hosts()
        owner.kill()
    subprocess.run([LAB, "sweep"], check=True)
    assert left() == [] and probe not in hosts()


def test_a_lab_is_dropped_while_its_hosts_fork(lab):
    up = subprocess.run([LAB, "up", "1"], capture_output=True, text=True, env=os.environ | {"LAB_OWNER": str(os.getpid())})
    name = up.stdout.strip()
    # Each process ends when it has made the next one.
    forks = 'f() { [ "$1" = 0 ] || { sleep 0.01; f $(($1 - 1)) & } }; f 500; sleep 0.2'
    with subprocess.Popen([LAB, "exec", name, "1", "bash", "-c", forks], stderr=subprocess.DEVNULL):
        subprocess.run(["sleep", "0.3"], check=True)
        subprocess.run([LAB, "drop", name], check=True)
    number = re.match(r"steadlab(\d+)x", name)[1]
    assert not [*Path("/sys/class/net").glob(f"stl{number}v*"), *Path("/sys/class/net").glob(f"stl{number}")]
