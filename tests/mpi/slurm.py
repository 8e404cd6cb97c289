"""A Slurm of two nodes on this machine, without a database, for as long as a test wants it."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs import LIMIT, PATIENT

#: What each node is: one that has a name of its own, as hosts have, and what it has started is known by that. Its memory, and the sockets of its
#: daemons, are there for no other one.
NODE = 'hostname "$1" && mount -t tmpfs none /dev/shm && mount -t tmpfs none /run && exec slurmd -D -N "$1"'
NODES = ["sn1", "sn2"]
#: Seconds after which a job that somebody waits for hangs, and how it ends if nobody is there any more to end it.
WITHIN = 90
LIMITED = ["timeout", "--kill-after=10", "240"]
#: Programs of MPI find each other by what Slurm offers them.
PLUGIN = {"openmpi": "pmix", "mpich": "pmi2"}


def missing() -> str | None:
    """Why there can be no Slurm here."""
    found = os.environ["PATH"] + ":/usr/sbin:/sbin"
    for tool in ["srun", "sinfo", "slurmctld", "slurmd", "unshare", "setpriv"]:
        if not shutil.which(tool, path=found):
            return f"{tool} is not installed: scripts/setup.sh test installs Slurm"
    if os.geteuid():
        return "only root can give the nodes of a Slurm names of their own"
    if subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True).returncode:
        return "hosts cannot get names and memory of their own here"
    return None


def ports(n: int) -> list[int]:
    """Those of nobody, and none that the system gives to who wants any: a test beside might get one before Slurm has it."""
    any_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    free: list[int] = []
    for port in random.sample(range(1024, max(any_from, 10_000)), 8000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        free.append(port)
        if len(free) == n:
            break
    return free


def configuration(folder: Path) -> str:
    here, (control, *others) = socket.gethostname(), ports(1 + len(NODES))
    lines = [
        "ClusterName=stead", f"SlurmctldHost={here}(127.0.0.1)", f"SlurmctldPort={control}", "SlurmUser=root", "SlurmdUser=root",
        # Nobody else is to use it, and it has no daemon for keys.
        "AuthType=auth/none", "CredType=cred/none",
        f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/%n", f"TmpFS={folder}/%n/tmp",
        f"SlurmctldPidFile={folder}/slurmctld.pid", f"SlurmdPidFile={folder}/%n.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log", f"SlurmdLogFile={folder}/%n.log",
        "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "SwitchType=switch/none",
        # Jobs share nodes: by itself each takes all memory of those that it is on, and the next one waits for it.
        "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU",
        "MpiDefault=none", "SlurmdParameters=config_overrides", "ReturnToService=2", "KillWait=2",
        "SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1",
        *(f"NodeName={name} NodeHostname={here} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=4000" for name, port in zip(NODES, others)),
        f"PartitionName=all Nodes={','.join(NODES)} Default=YES State=UP",
    ]
    return "\n".join(lines) + "\n"


class Job:
    """A job that goes on beside the test: what it says is in files of its own. `srun` is there as long as it is, `sbatch` is not."""

    def __init__(self, slurm: Slurm, words: list[str], env: dict[str, str], cwd: Path | None = None) -> None:
        self.slurm, self.name = slurm, f"job{next(slurm.numbers)}"
        self.out, self.err = (slurm.folder / f"{self.name}.{what}" for what in ("out", "err"))
        command, *more = words
        self.is_script = command == "sbatch"
        if self.is_script:
            more = ["--quiet", f"--output={self.out}", f"--error={self.err}", "--open-mode=append", *more]
        how = {"env": env, "cwd": cwd, "stdin": subprocess.DEVNULL, "start_new_session": True}
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.command = subprocess.Popen([command, f"--job-name={self.name}", *more], stdout=out, stderr=err, **how)
        slurm.jobs.append(self)
        if self.is_script:
            assert self.command.wait(WITHIN) == 0, self.all()

    def said(self) -> str:
        return self.out.read_text()

    def all(self) -> str:
        return f"job {self.name}: {self.said()}\n{self.err.read_text()}"

    def until(self, ready: Callable[[], object], what: str) -> None:
        end = time.monotonic() + WITHIN
        while not ready():
            assert time.monotonic() < end, f"it was waited in vain until {what}: {self.all()}"
            time.sleep(0.02)

    def is_over(self) -> bool:
        return self.command.poll() is not None and not (self.is_script and self.is_known())

    def is_known(self) -> bool:
        """Slurm has it, or something of it, yet."""
        return self.slurm.ask("squeue", "-h", f"--name={self.name}") != ""

    def says(self, line: str, times: int = 1) -> None:
        """Waits until so many of its ranks have said it."""
        def ready() -> bool:
            is_over = self.is_over()
            there = self.said().splitlines().count(line) >= times
            assert there or not is_over, f"it has ended: {self.all()}"
            return there

        self.until(ready, f"it says '{line}'")

    def ends(self) -> str:
        """Waits until it is over, and well; what it has said."""
        self.until(self.is_over, "it ends")
        told = self.slurm.ask("scontrol", "show", "job", "--oneliner") if self.is_script else ""
        well = f"JobName={self.name} " not in told or re.search(rf"JobName={self.name} .* JobState=COMPLETED .* ExitCode=0:0 ", told)
        assert self.command.returncode == 0 and well, self.all()
        return self.said()

    def kill(self) -> None:
        """The command as it is, with what it has beside itself; Slurm goes on with the job."""
        if self.command.poll() is None:
            os.killpg(self.command.pid, signal.SIGKILL)
            self.command.wait()

    def cancel(self) -> None:
        """Waits until nothing of it is left."""
        assert self.slurm.ask("scancel", f"--name={self.name}") == "", self.all()
        self.until(lambda: not self.is_known(), "Slurm has ended it")
        self.until(self.is_over, "it ends")


class Slurm:
    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.numbers = itertools.count()
        self.folder = Path(tempfile.mkdtemp())
        for name in ["state", *(f"{node}/tmp" for node in NODES)]:
            (self.folder / name).mkdir(parents=True)
        (self.folder / "slurm.conf").write_text(configuration(self.folder))
        # Each job has a folder of its own.
        given = {key: value for key, value in os.environ.items() if not key.endswith("tmpdir_base")}
        self.env = given | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        # Whatever becomes of the tests, these end with them.
        tied = ["setpriv", "--pdeathsig=KILL", "--"]
        self.daemons = [self._start([*tied, "slurmctld", "-D", "-c"])]
        self.daemons += [self._start([*tied, "unshare", "--uts", "--mount", "sh", "-c", NODE, "sh", node]) for node in NODES]
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    def _start(self, words: list[str]) -> subprocess.Popen:
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.env, cwd=self.folder)

    def _wait(self) -> None:
        end, told = time.monotonic() + 180, ""
        while time.monotonic() < end:
            assert all(d.poll() is None for d in self.daemons), (self.folder / "said").read_text()
            told = subprocess.run(["sinfo", "-h", "-o", "%T %D"], capture_output=True, text=True, env=self.env).stdout
            if told.split() == ["idle", str(len(NODES))]:
                return
            time.sleep(0.1)
        raise AssertionError(f"Slurm has not begun: {told} {(self.folder / 'said').read_text()}")

    def ask(self, *words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, env=self.env, stdin=subprocess.DEVNULL, timeout=WITHIN)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def memories(self) -> list[Path]:
        """/dev/shm of each node."""
        return [Path(f"/proc/{d.pid}/root/dev/shm") for d in self.daemons[1:]]

    def _job(self, mpi: str, given: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """How `srun` begins it, and its environment. Waiting ranks let others run: there are fewer cores than ranks."""
        # What Slurm 22.05 chooses by itself lets a rank through a fence now and then that others have not come to, and `tree` more often: one
        # is then sent messages in the middle of MPI_Init, and crashes.
        env = self.env | PATIENT | {"OMPI_MCA_mpi_yield_when_idle": "1", "SLURM_PMIX_FENCE": "ring"}
        # Devices of a lab may come and go meanwhile.
        env |= {"OMPI_MCA_btl_tcp_if_include": "lo", "UCX_NET_DEVICES": "lo"} | given
        return ["srun", f"--mpi={PLUGIN.get(mpi, mpi)}"], env

    def start(self, mpi: str, ranks: int, *words, nodes: list[str] = NODES, how: Sequence[str] = (), **given) -> Job:
        """Begins a job on these nodes that goes on beside the test, until it ends or `free` ends it."""
        begin, env = self._job(mpi, given)
        where = ["-N", str(len(nodes)), "-n", str(ranks), "-w", ",".join(nodes), *how]
        return Job(self, [*begin, *where, *LIMITED, *map(str, words)], env)

    def submit(self, script: Path, **given) -> Job:
        """The same of a script of `sbatch`, in its folder."""
        _, env = self._job("none", given)
        return Job(self, ["sbatch", str(script)], env, script.parent)

    def free(self) -> None:
        """Ends all jobs that were started."""
        end = time.monotonic() + WITHIN
        if self.jobs and not all(job.is_over() for job in self.jobs):
            self.ask("scancel", "--quiet", "--user=root")
        while not all(job.is_over() for job in self.jobs) or self.ask("squeue", "-h"):
            assert time.monotonic() < end, self.ask("squeue")
            time.sleep(0.02)
        self.jobs.clear()

    def srun(self, mpi: str, ranks: int, *words, limit: int = LIMIT, **given) -> subprocess.CompletedProcess:
        begin, env = self._job(mpi, given)
        job = [*begin, "-N", str(len(NODES)), "-n", str(ranks), *map(str, words)]
        limited = ["timeout", "--kill-after=10", str(limit), *job]
        done = subprocess.run(limited, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
        assert done.returncode != 124, f"it hung: {done.stdout}\n{done.stderr}"
        return done

    def _named(self) -> list[int]:
        """Processes of the nodes: theirs are the names that the daemons have."""
        names = set()
        for d in self.daemons[1:]:
            try:
                names.add(os.readlink(f"/proc/{d.pid}/ns/uts"))
            except OSError:
                pass
        names.discard(os.readlink("/proc/self/ns/uts"))
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and os.readlink(process / "ns" / "uts") in names:
                    found.append(int(process.name))
            except OSError:
                pass
        return found

    def end(self) -> None:
        for job in self.jobs:
            job.kill()
        for pid in {*self._named(), *(d.pid for d in self.daemons if d.poll() is None)}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for d in self.daemons:
            d.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
