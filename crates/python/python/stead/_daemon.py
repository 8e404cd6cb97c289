"""The daemon of a node: transfers that are done for programs that need not wait for them."""

from __future__ import annotations

import json
import os
import sys

from . import _progress, _stead
from ._admin import Admin
from ._dataset import size
from ._errors import PeerError, make
from ._handed_flow import HandedFlow
from ._stage import Staged, asked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import Any

    from ._flow import Flow
    from ._stage import Names, Paths

#: Seconds between two looks of `await`: from, to, and how much longer each time.
_LOOKS = (0.005, 0.2, 1.5)
#: Seconds that one thread of an event loop waits, for a daemon that comes back.
_TURN = 30.0


class Handed:
    """A transfer that the daemon does. `await` it, or `wait`; `eta` says how long it still takes.

    It goes on when the program ends.
    """

    __slots__ = {"_daemon": "Who does it.", "id": "Its number in the journal of the daemon."}
    id: int

    def __init__(self, daemon: Daemon, id: int) -> None:
        self._daemon, self.id = daemon, id

    def status(self) -> Staged:
        """How far it is."""
        return _staged(json.loads(self._daemon._open.status(self.id)))

    @property
    def done(self) -> bool:
        """True once it has ended, in whatever way."""
        return self.status().state not in ("pending", "running")

    @property
    def eta(self) -> float:
        """Seconds until it has ended, those counted that come before it. 0 once it has ended."""
        return self.eta_range[0]

    @property
    def eta_range(self) -> tuple[float, float, float]:
        """Seconds until it has ended: the likeliest, hardly less, hardly more."""
        return self._daemon._open.eta(self.id)

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> Staged:
        """Waits until it has ended, also over the end of a daemon that is started again within 20 seconds. Names that could not be done
        are in what it returns; so is what went well.

        Args:
            timeout: Seconds; None waits as long as it takes.
            progress: True shows a bar; unless it is said, a bar on a terminal.

        Raises:
            TimedOutError: It goes on, or the daemon does not answer. Wait again, or `cancel` it.
            CancelledError: It was cancelled, or one that was to come before it was not finished.
            PeerError: The daemon has ended. It goes on with the transfer when it is there again.
            Error: What it has failed with; an `IoError` also if a store has not answered, and if it was interrupted, and can be resumed.
        """
        bar = _progress.Bar(sys.stderr) if (_progress.wanted() if progress is None else progress) else None

        def show(files_done: int, files: int, bytes_done: int, bytes: int, seconds: float) -> None:
            if bar is not None and bytes:
                bar(_progress.Snapshot(1, bytes_done, bytes, files_done, seconds))

        try:
            told = self._daemon._open.wait(self.id, timeout, None if bar is None else show)
        finally:
            if bar is not None:
                bar.close()
        if told is None:
            raise make("timeout", f"transfer {self.id} goes on", hint="wait again, or cancel it")
        return _staged(json.loads(told))

    def cancel(self) -> Staged:
        """Stops it and gives it up, and what waits for it. What is whole stays, everything else of it is removed.

        Raises:
            UsageError: It is over.
        """
        return Staged(json.loads(self._daemon._open.cancel(self.id)))

    def __await__(self) -> Generator[Any, Any, Staged]:
        return self._ended().__await__()

    async def _ended(self) -> Staged:
        import asyncio

        loop, daemon = asyncio.get_running_loop(), self._daemon._open
        pause, longest, grows = _LOOKS
        while True:
            try:
                said = json.loads(await loop.run_in_executor(None, daemon.status, self.id))
                goes_on = said["status"]["state"] in ("pending", "running")
            except PeerError:
                # It may come back: whoever waits sees to that.
                goes_on = False
            if not goes_on:
                told = await loop.run_in_executor(None, daemon.wait, self.id, _TURN, None)
                if told is not None:
                    return _staged(json.loads(told))
            await asyncio.sleep(pause)
            pause = min(pause * grows, longest)

    def __repr__(self) -> str:
        return f"Handed({self.id})"


class Daemon:
    """The daemon of this node, which does transfers with the rights of this user. Several threads may ask it.

    As a context manager it is closed at the end; what it was given goes on.
    """

    __slots__ = ("_daemon",)

    def __init__(self, daemon: _stead.Daemon) -> None:
        self._daemon: _stead.Daemon | None = daemon

    @property
    def _open(self) -> _stead.Daemon:
        if self._daemon is None:
            raise make("usage", "the connection to the daemon was closed", hint="call stead.daemon() again")
        return self._daemon

    @property
    def path(self) -> str:
        """Its socket."""
        return os.fspath(self._open.path)

    @property
    def nodes(self) -> list[str]:
        """The nodes of the pool that it belongs to; its own one if there is no pool."""
        return self._open.nodes()

    def submit(
        self,
        source: Paths,
        target: str | os.PathLike[str] | None = None,
        *,
        action: str = "copy",
        after: Iterable[Handed | int] = (),
        priority: int = 0,
        exists: str = "refuse",
        delete: bool = False,
        max_delete: int | None = None,
        checksum: bool = False,
        verify: bool = False,
        skip_special: bool = False,
        exclude: Names = (),
        include: Names = (),
        min_size: int | str | None = None,
        max_size: int | str | None = None,
        min_age: int | str | None = None,
        max_age: int | str | None = None,
        files: Paths | None = None,
        durable: bool = True,
        gentle: bool = False,
        limit: int | str | None = None,
        retries: int = 3,
    ) -> Handed:
        """Gives the daemon a transfer. It is in its journal when this returns, and is done whether or not the program waits.

            >>> d = stead.daemon()
            >>> back = d.submit("nvme0://run1/", "lustre://run1/", action="sync")
            >>> d.submit("nvme0://run1", action="remove", after=[back])

        Dataspaces are those that the daemon finds configured for this user.

        Args:
            source: As for `stage`.
            target: As for `stage`.
            action: As for `stage`.
            after: Transfers of this daemon that are to be finished first. If one of them is not, this one is cancelled.
            priority: Who waits with a larger number goes first.
            exists: As for `stage`.
            delete: As for `stage`.
            max_delete: As for `stage`.
            checksum: As for `stage`.
            verify: As for `stage`.
            skip_special: As for `stage`.
            exclude: As for `stage`.
            include: As for `stage`.
            min_size: As for `stage`.
            max_size: As for `stage`.
            min_age: As for `stage`.
            max_age: As for `stage`.
            files: As for `stage`.
            durable: As for `stage`.
            gentle: As for `stage`.
            limit: As for `stage`.
            retries: As for `stage`.

        Raises:
            UsageError: What is asked for makes no sense; one of `after` is not there, or will never be finished.
            LimitError: Too many wait already.
            PeerError: The daemon has ended.
        """
        said = {name: value for name, value in locals().items() if name not in ("self", "after")}
        return Handed(self, self._open.submit(asked(**said), [_number(one) for one in after]))

    def preview(
        self,
        source: Paths,
        target: str | os.PathLike[str] | None = None,
        *,
        action: str = "copy",
        exists: str = "refuse",
        delete: bool = False,
        max_delete: int | None = None,
        checksum: bool = False,
        skip_special: bool = False,
        exclude: Names = (),
        include: Names = (),
        min_size: int | str | None = None,
        max_size: int | str | None = None,
        min_age: int | str | None = None,
        max_age: int | str | None = None,
        files: Paths | None = None,
    ) -> dict[str, Any]:
        """What `submit` would have done, as `preview_stage` says it.

        Args:
            source: As for `stage`.
            target: As for `stage`.
            action: As for `stage`.
            exists: As for `stage`.
            delete: As for `stage`.
            max_delete: As for `stage`.
            checksum: As for `stage`.
            skip_special: As for `stage`.
            exclude: As for `stage`.
            include: As for `stage`.
            min_size: As for `stage`.
            max_size: As for `stage`.
            min_age: As for `stage`.
            max_age: As for `stage`.
            files: As for `stage`.

        Raises:
            UsageError: What is asked for makes no sense, or a name is taken.
            NotFoundError: A source is not there.
            NoSpaceError: The target has too little room.
        """
        said = {name: value for name, value in locals().items() if name != "self"}
        found: dict[str, Any] = json.loads(self._open.preview(asked(**said)))
        return found

    def check(
        self,
        source: Paths,
        target: str | os.PathLike[str],
        *,
        skip_special: bool = False,
        exclude: Names = (),
        include: Names = (),
        min_size: int | str | None = None,
        max_size: int | str | None = None,
        min_age: int | str | None = None,
        max_age: int | str | None = None,
        files: Paths | None = None,
        gentle: bool = False,
        limit: int | str | None = None,
    ) -> dict[str, Any]:
        """How `target` differs from a source, as `check_stage` says it. The daemon reads what is compared.

        Args:
            source: As for `check_stage`.
            target: As for `check_stage`.
            skip_special: As for `check_stage`.
            exclude: As for `check_stage`.
            include: As for `check_stage`.
            min_size: As for `check_stage`.
            max_size: As for `check_stage`.
            min_age: As for `check_stage`.
            max_age: As for `check_stage`.
            files: As for `check_stage`.
            gentle: As for `check_stage`.
            limit: As for `check_stage`.

        Raises:
            UsageError: What is asked for makes no sense.
            NotFoundError: A source is not there.
            TimedOutError: It takes longer than a day.
            Error: Something else failed.
        """
        said = {"action": "sync", **{name: value for name, value in locals().items() if name != "self"}}
        found: dict[str, Any] = json.loads(self._open.check(asked(**said)))
        return found

    def transfer(self, id: int) -> Handed:
        """A transfer that the daemon has.

        Args:
            id: Its number.

        Raises:
            UsageError: There is none of this number.
        """
        self._open.status(id)
        return Handed(self, id)

    def transfers(self, all: bool = False, *, most: int = 1000) -> list[Staged]:
        """Transfers of this user, the latest first. Of those with many sources the first ones.

        Args:
            all: Those that are over, too.
            most: No more of them than this.
        """
        return [_staged(said) for said in json.loads(self._open.statuses(bool(all), most))]

    def resume(self, id: int) -> Handed:
        """Has a transfer done again that was interrupted or has failed.

        Args:
            id: Its number.

        Raises:
            UsageError: There is none of this number, or it is finished or cancelled.
        """
        self._open.resume(id)
        return Handed(self, id)

    def resume_all(self) -> list[Handed]:
        """Has all transfers done again that were interrupted."""
        return [Handed(self, id) for id in self._open.resume(None)]

    def run_flow(
        self,
        flow: Flow,
        *,
        threads: int = 0,
        memory: int | str | None = None,
        steps: int | None = None,
        timeout: float = 600,
    ) -> HandedFlow:
        """Has the daemon run a flow, with the rights of this user, whether or not the program goes on. It reads streams that are written on any
        node of the pool, and writes them on the node of the daemon. Recorded steps are in folders of that node, and dataspaces are those that the
        daemon finds configured. It ends with the daemon, and with the job of this program, if that is of one on that node.

            >>> flow = stead.flow()
            >>> flow.write("small", mean=flow.read("sim")["T"].mean(over="y"))
            >>> stead.daemon(node="node7").run_flow(flow)
            HandedFlow(3)

        Args:
            flow: What `stead.flow` gives. A daemon runs no functions of programs.
            threads: As for `Flow.run`.
            memory: As for `Flow.run`.
            steps: As for `Flow.run`.
            timeout: As for `Flow.run`.

        Raises:
            UsageError: It makes no sense, or has functions.
            PermissionDeniedError: It names a dataspace of jobs, and this program is of none that has it.
            LimitError: Too many of this user run; or the node is drained.
            PeerError: The daemon has ended.
        """
        told = json.loads(self._open.begin_flow(flow._json(), threads, size(memory), steps, float(timeout)))
        return HandedFlow(self, told["flow"])

    def flow(self, id: int) -> HandedFlow:
        """A flow that the daemon runs, or has run within the last hour.

        Args:
            id: Its number.

        Raises:
            UsageError: There is none of this number.
        """
        self._open.wait_flow(id, 0.0)
        return HandedFlow(self, id)

    def flows(self, all: bool = False) -> list[dict[str, Any]]:
        """Flows of this user that the daemon runs, the latest first, each as `HandedFlow.status` says it.

        Args:
            all: Those that are over, too: 64 of them, for an hour.
        """
        found: list[dict[str, Any]] = json.loads(self._open.flows(bool(all)))
        return found

    def spaces(self) -> list[dict[str, Any]]:
        """Dataspaces of the daemon, as `dataspaces` says them."""
        found: list[dict[str, Any]] = json.loads(self._open.usage())
        return found

    @property
    def admin(self) -> Admin:
        """What administrators say to it."""
        return Admin(self)

    def metrics(self) -> str:
        """Numbers about this user's transfers, in the text form of Prometheus."""
        return self._open.metrics()

    def close(self) -> None:
        """Ends the connections, once nobody waits on them any more. What the daemon was given goes on."""
        self._daemon = None

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "Daemon(closed)" if self._daemon is None else f"Daemon({self.path!r})"


def daemon(path: str | os.PathLike[str] | None = None, *, node: str | None = None) -> Daemon | None:
    """Connects to the daemon of this node, which does transfers for programs that need not wait for them; None if there is none.

    It is the user's own one, or that of the system; `docs/steadd.md` says how one is begun.

    Args:
        path: Its socket; None is that of `$STEAD_SOCKET`, or where daemons listen unless they are told otherwise.
        node: Another node of the pool, whose daemon is reached by way of the one of this node. A transfer is asked of the node where
            its target is; names without a node are those of this one.

    Raises:
        PermissionDeniedError: Somebody else listens there, or the daemon of that node does not serve this user.
        NotFoundError: The pool has no such node.
        PeerError: The daemon of that node is gone.
        TimedOutError: It does not answer.
        FormatError: It is of another version.
    """
    found = _stead.Daemon.connect(None if path is None else os.fspath(path), node)
    return None if found is None else Daemon(found)


def _staged(standing: dict[str, Any]) -> Staged:
    """How far a transfer is: by what the journal has of it, and what the daemon knows while it is under way."""
    progress = standing["progress"] or {}
    newer = {name: progress[name] for name in ("files", "files_done", "bytes", "bytes_done") if name in progress}
    return Staged({**standing["status"], **newer})


def _number(transfer: Handed | int) -> int:
    return transfer.id if isinstance(transfer, Handed) else transfer
