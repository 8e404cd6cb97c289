"""A Slurm of two nodes on this machine, without a database, for as long as a test wants it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from jobs import LIMIT, PATIENT

#: What each node is: one that has a name of its own, as hosts have, and what it has started is known by that.
NODE = 'hostname "$1" && exec slurmd -D -N "$1"'
NODES = ["sn1", "sn2"]
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
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode:
        return "hosts cannot get names of their own here"
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
        "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "SelectType=select/cons_tres", "SwitchType=switch/none",
        "MpiDefault=none", "SlurmdParameters=config_overrides", "ReturnToService=2", "KillWait=2",
        "SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1",
        *(f"NodeName={name} NodeHostname={here} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=1000" for name, port in zip(NODES, others)),
        f"PartitionName=all Nodes={','.join(NODES)} Default=YES State=UP",
    ]
    return "\n".join(lines) + "\n"


class Slurm:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stead-slurm-"))
        for name in ["state", *(f"{node}/tmp" for node in NODES)]:
            (self.folder / name).mkdir(parents=True)
        (self.folder / "slurm.conf").write_text(configuration(self.folder))
        self.env = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        # Whatever becomes of the tests, these end with them.
        tied = ["setpriv", "--pdeathsig=KILL", "--"]
        self.daemons = [self._start([*tied, "slurmctld", "-D", "-c"])]
        self.daemons += [self._start([*tied, "unshare", "--uts", "sh", "-c", NODE, "sh", node]) for node in NODES]
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

    def srun(self, mpi: str, ranks: int, *words, limit: int = LIMIT, **given) -> subprocess.CompletedProcess:
        """Waiting ranks let others run: there are fewer cores than ranks."""
        # What Slurm 22.05 chooses by itself lets a rank through a fence now and then that others have not come to: one is then sent messages
        # in the middle of MPI_Init, and crashes.
        env = self.env | PATIENT | {"OMPI_MCA_mpi_yield_when_idle": "1", "SLURM_PMIX_FENCE": "tree"}
        # Devices of a lab may come and go meanwhile.
        env |= {"OMPI_MCA_btl_tcp_if_include": "lo", "UCX_NET_DEVICES": "lo"} | given
        job = ["srun", "-N", str(len(NODES)), "-n", str(ranks), f"--mpi={PLUGIN.get(mpi, mpi)}", *map(str, words)]
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
        for pid in {*self._named(), *(d.pid for d in self.daemons if d.poll() is None)}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for d in self.daemons:
            d.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
