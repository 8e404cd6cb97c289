"""Transfers: files and trees from one tier of storage to another."""

from __future__ import annotations

import atexit
import json
import os
import sys

from . import _progress, _stead
from ._dataset import size
from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from typing import Any

    Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
    Names = str | Iterable[str]
    Spaces = Mapping[str, str | os.PathLike[str]] | None

#: Transfers under way: a program that forgets one does not stop it.
_under_way: set[Transfer] = set()


class Staged:
    """How far a transfer is, or what came of it."""

    __slots__ = {
        "id": "Its number in the journal.",
        "state": "`pending`, `running`, `interrupted`, `finished`, `failed` or `cancelled`.",
        "action": "`copy`, `move`, `sync` or `remove`.",
        "sources": "What it moves.",
        "target": "Where to; None if it removes.",
        "files": "Files, folders and links that it is about.",
        "files_done": "Of these, done.",
        "bytes": "Bytes of files that it moves.",
        "bytes_done": "Of these, moved.",
        "skipped": "Names that were left as they were.",
        "failed": "Names that could not be done.",
        "failures": "The first ones of these: pairs of a path and what went wrong.",
        "error": "Why all of it could not be done, or None.",
        "waits": "What it waits for, if it waits in the queue of a daemon; otherwise None.",
        "seconds": "Wall time; None before it has ended.",
    }
    id: int
    state: str
    action: str
    sources: list[str]
    target: str | None
    files: int
    files_done: int
    bytes: int
    bytes_done: int
    skipped: int
    failed: int
    failures: list[tuple[str, str]]
    error: str | None
    waits: str | None
    seconds: float | None

    def __init__(self, said: dict[str, Any]) -> None:
        request = said["request"]
        for name in ("id", "state", "files", "files_done", "bytes", "bytes_done", "skipped", "failed", "error", "waits"):
            setattr(self, name, said[name])
        self.action, self.sources, self.target = request["action"], request["sources"], request["target"]
        self.failures = [(f["path"], f["error"]) for f in said["failures"]]
        began = said["started"] if said["started"] is not None else said["submitted"]
        by_clock = None if said["ended"] is None else max(said["ended"] - began, 0.0)
        # Without the times when nobody was at it, where that was written down.
        self.seconds = by_clock if by_clock is None else said.get("active") or by_clock

    def __repr__(self) -> str:
        moved = f"{_progress.size(self.bytes_done)} of {_progress.size(self.bytes)}"
        return f"Staged({self.id}, {self.action}, {self.state}, {self.files_done} of {self.files} name(s), {moved})"


class Transfer:
    """A transfer that a thread of this process does. `await` it, or `wait`; `eta` says how long it still takes.

    It goes on if the program forgets it, and is waited for when the interpreter ends.
    """

    __slots__ = ("_transfer",)

    def __init__(self, transfer: _stead.Transfer) -> None:
        self._transfer = transfer
        _under_way.add(self)
        transfer.then(lambda: _under_way.discard(self))

    @property
    def id(self) -> int:
        """Its number in the journal."""
        return self._transfer.id

    @property
    def done(self) -> bool:
        """True once it has ended, in whatever way."""
        return self._transfer.done()

    @property
    def eta(self) -> float | None:
        """Seconds that it still needs; None before it has begun to move. 0 once it has ended."""
        told = self.eta_range
        return None if told is None else told[0]

    @property
    def eta_range(self) -> tuple[float, float, float] | None:
        """Seconds that it still needs: the likeliest, hardly less, hardly more. None before it has begun to move."""
        if self.done:
            return (0.0, 0.0, 0.0)
        told = self._transfer.progress()
        return None if told is None else told[5]

    @property
    def progress(self) -> tuple[int, int, int, int] | None:
        """Files done, files, bytes done, bytes; None before it has begun to move. With `checksum` first those that are compared."""
        told = self._transfer.progress()
        return None if told is None else told[0:4]

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> Staged:
        """Waits until it has ended. Names that could not be done are in what it returns; so is what went well.

        Args:
            timeout: Seconds; None waits as long as it takes.
            progress: True shows a bar; unless it is said, a bar on a terminal.

        Raises:
            TimedOutError: It goes on. Wait again, or `stop` it.
            CancelledError: It was stopped, and can be resumed; or somebody has given it up.
            NoSpaceError: The target is full.
            UsageError: What is asked for makes no sense, or a name is taken.
            NotFoundError: A source is not there.
            IoError: A device has failed, or a store has not answered.
            Error: Something else failed.
        """
        bar = _progress.Bar(sys.stderr) if (_progress.wanted() if progress is None else progress) else None
        left = timeout
        try:
            while True:
                turn = 0.1 if left is None else min(left, 0.1)
                told = self._transfer.wait(turn)
                if told is not None:
                    return Staged(json.loads(told))
                if left is not None:
                    left -= turn
                    if left <= 0:
                        raise make("timeout", f"transfer {self.id} goes on", hint="wait again, or stop it")
                moved = self._transfer.progress()
                if bar is not None and moved is not None and moved[3]:
                    bar(_progress.Snapshot(1, moved[2], moved[3], moved[0], moved[4]))
        finally:
            if bar is not None:
                bar.close()

    def stop(self) -> None:
        """Asks it to stop, such that it can be resumed. It has stopped when `wait` returns."""
        self._transfer.stop()

    def cancel(self) -> Staged:
        """Stops it and gives it up: what there is of files that are not whole is removed, and what is whole stays.

        Raises:
            UsageError: It is over.
            TimedOutError: It does not stop within a minute, as its device hangs.
        """
        return Staged(json.loads(self._transfer.cancel()))

    def __await__(self) -> Generator[Any, Any, Staged]:
        import asyncio

        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def tell() -> None:
            if not ended.done():
                ended.set_result(None)

        def ring() -> None:
            try:
                loop.call_soon_threadsafe(tell)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                pass

        self._transfer.then(ring)
        yield from ended.__await__()
        told = self._transfer.wait(None)
        assert told is not None
        return Staged(json.loads(told))

    def __repr__(self) -> str:
        if self.done:
            return f"Transfer({self.id}, ended)"
        told, eta = self.progress, self.eta
        left = "" if eta is None else f", {eta:.1f} s left"
        return f"Transfer({self.id})" if told is None else f"Transfer({self.id}, {told[0]} of {told[1]} name(s){left})"


def stage(
    source: Paths,
    target: str | os.PathLike[str] | None = None,
    *,
    action: str = "copy",
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
    dataspaces: Spaces = None,
    threads: int = 0,
    state: str | os.PathLike[str] | None = None,
) -> Transfer:
    """Begins to move files and trees between tiers of storage, in a thread of this process; `docs/staging.md` says what a copy has.

        >>> t = stead.stage("lustre://run1/", "nvme0://run1/")
        >>> t.eta
        >>> t.wait()

    A transfer that would do the same and has not come to its end is gone on with.

    Args:
        source: A file, a folder or a pattern, in a dataspace, by its path or by the URL of a bucket (`s3://bucket/run7/`), or several of them. A `/` at its end means what lies in it.
        target: Where to; None to remove. A `/` at its end says that sources go into it.
        action: `copy`, `move`, `sync` (makes the target equal) or `remove`.
        exists: What becomes of names that the target has: `refuse`, `replace`, `skip` or `newer`.
        delete: With `sync`, remove what the source has not.
        max_delete: With `delete`, if more names would be removed, files and folders, nothing is done, and a `LimitError` is raised.
        checksum: With `sync`, compare files of the same size by what is in them, which is read on both sides, and not by their time.
        verify: Read each file back and compare, before it gets its name.
        skip_special: Leave out pipes, sockets and devices, in place of failing.
        exclude: Patterns of names below the sources that are left out, and of folders with all that lies in them. Without a `/` a pattern is
            about the last part of a name, with one about the way from the source, with one at its end about folders. What is left out
            stays as it is on the target, too. For all but removals.
        include: If there are some, only files that match one of these patterns are taken, and folders that have some.
        min_size: Take only files and links of at least so many bytes, or of a text such as `1MiB`, and folders that have some. What is left out
            stays as it is on the target, too. For all but removals.
        max_size: Take only those of at most so many.
        min_age: Take only those that were changed at least so many seconds before the transfer begins, or so long as a text such as `30min` or `2d` says.
        max_age: Take only those that were changed at most so long before.
        files: Names below `source`, one folder, that alone are taken, each by its way from there: files, and folders with all that lies in them.
            They come with the folders that they lie in, and nothing else of the source is looked at. For copies, and syncs without `delete`.
        durable: Files are on their device before they get their names.
        gentle: Give way to everybody else on this machine.
        limit: Bytes a second at most.
        retries: How often a file is tried again that fails for a reason that may pass.
        dataspaces: Folders of dataspaces, or URLs of buckets, before those that are configured in `stead.toml`.
        threads: Threads that copy; 0 is as many as are of use.
        state: The folder of the journal, in place of that of the user.

    Raises:
        UsageError: What is asked for makes no sense.
        Error: The journal cannot be opened. What goes wrong later is raised by `Transfer.wait`.
    """
    return Transfer(opened(dataspaces, threads, state).submit(asked(**options(locals()))))


def preview_stage(
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
    dataspaces: Spaces = None,
    state: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """What `stage` would do, without doing it: `files`, `bytes`, `room` and `free` (bytes on the target), `others` (folders and links),
    `removed`, `skipped`, `renamed`, `takes` (`seconds`, `low`, `high`), and `changes`: the first 500 names of each kind, with what it `does`
    (`copy`, `replace`, `attributes`, `link`, `folder`, `rename`, `remove`) and its `path`.

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
        dataspaces: As for `stage`.
        state: As for `stage`.

    Raises:
        UsageError: What is asked for makes no sense, or a name is taken.
        NotFoundError: A source is not there.
        NoSpaceError: The target has too little room.
    """
    found: dict[str, Any] = json.loads(opened(dataspaces, 0, state).preview(asked(**options(locals()))))
    return found


def check_stage(
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
    dataspaces: Spaces = None,
    threads: int = 0,
    state: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """How `target` differs from what `stage` with the action `sync` would make it equal to. Nothing is changed; files of the same size are
    compared by what is in them, which is read on both sides.

    It has how many names are the `same`, `differ`, are `missing` on the target, and are there `only`; and `names`, the first 500 of each kind,
    with what each `is` (`differ`, `missing`, `only`) and its `path` on the target.

        >>> found = stead.check_stage("nvme0://run1/", "lustre://run1/")
        >>> assert not found["differ"] and not found["missing"]

    Args:
        source: As for `stage`.
        target: As for `stage`.
        skip_special: As for `stage`.
        exclude: As for `stage`.
        include: As for `stage`.
        min_size: As for `stage`.
        max_size: As for `stage`.
        min_age: As for `stage`.
        max_age: As for `stage`.
        files: As for `stage`; what only the target has is not looked for then.
        gentle: As for `stage`.
        limit: Bytes a second at most that are compared.
        dataspaces: As for `stage`.
        threads: Threads that read; 0 is as many as are of use.
        state: As for `stage`.

    Raises:
        UsageError: What is asked for makes no sense.
        NotFoundError: A source is not there.
        PermissionDeniedError: A file cannot be read.
        Error: Something else failed.
    """
    said = {"action": "sync", **options(locals())}
    found: dict[str, Any] = json.loads(opened(dataspaces, threads, state).check(asked(**said)))
    return found


def resume_transfer(
    id: int, *, dataspaces: Spaces = None, threads: int = 0, state: str | os.PathLike[str] | None = None
) -> Transfer:
    """Goes on with a transfer that was interrupted or has failed.

    Args:
        id: Its number, as `transfers` has it.
        dataspaces: As for `stage`.
        threads: As for `stage`.
        state: As for `stage`.

    Raises:
        UsageError: There is none of this number. That it is over, or under way elsewhere, is raised by `Transfer.wait`.
    """
    return Transfer(opened(dataspaces, threads, state).resume(id))


def cancel_transfer(id: int, *, dataspaces: Spaces = None, state: str | os.PathLike[str] | None = None) -> Staged:
    """Gives up a transfer, whichever process does it, and removes what there is of files that are not whole. What is whole stays.

    Args:
        id: Its number, as `transfers` has it.
        dataspaces: As for `stage`.
        state: As for `stage`.

    Raises:
        UsageError: There is none of this number, it is over, or is so before it can be stopped.
        TimedOutError: Whoever does it does not stop within a minute, as its device hangs.
    """
    return Staged(json.loads(opened(dataspaces, 0, state).cancel(id)))


def wait_transfer(id: int, timeout: float | None = None, *, state: str | os.PathLike[str] | None = None) -> Staged:
    """Waits until nothing more happens with a transfer, whichever process does it, and says what came of it: its `state` is `finished`,
    `failed`, `cancelled` or `interrupted`.

    Args:
        id: Its number, as `transfers` has it.
        timeout: Seconds; None waits as long as it takes.
        state: As for `stage`.

    Raises:
        TimedOutError: It goes on.
        UsageError: There is none of this number, or it waits and no process does it.
    """
    told = opened(None, 0, state).wait(id, timeout)
    if told is None:
        raise make("timeout", f"transfer {id} goes on", hint="wait again")
    return Staged(json.loads(told))


def transfers(all: bool = False, *, most: int = 1000, state: str | os.PathLike[str] | None = None) -> list[Staged]:
    """Transfers of the journal, the latest first.

    Args:
        all: Those that are over, too.
        most: No more of them than this.
        state: As for `stage`.
    """
    return [Staged(said) for said in json.loads(opened(None, 0, state).statuses(bool(all), most))]


def dataspaces(given: Spaces = None, *, state: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Dataspaces of this node: `name`, `path`, `tier`, `size`, `used` and `free` in bytes, `read_rate` and `write_rate` as transfers
    had them in bytes a second (0 if there were none), `kind`, `quota`, `quota_used`, `user_quota`, `user_quota_used` and what else
    `stead df --format json` prints, and `error` for one that is not to be had.

    Args:
        given: Folders of dataspaces, before those that are configured in `stead.toml`.
        state: As for `stage`.
    """
    found: list[dict[str, Any]] = json.loads(opened(given, 0, state).usage())
    return found


def given(spaces: Spaces) -> list[str]:
    """Dataspaces as they are given on a command line."""
    return [f"{name}={os.fspath(path)}" for name, path in (spaces or {}).items()]


def opened(spaces: Spaces, threads: int, state: str | os.PathLike[str] | None) -> _stead.Stager:
    return _stead.Stager(given(spaces), threads, None if state is None else os.fspath(state))


def options(said: dict[str, Any]) -> dict[str, Any]:
    """What of the arguments of a function is for `asked`."""
    return {name: value for name, value in said.items() if name not in ("dataspaces", "threads", "state")}


def age(value: int | str | None) -> int | None:
    """Seconds that a number or a text such as `30min` means."""
    return _stead.parse_time(value) if isinstance(value, str) else value


def asked(
    source: Paths, target: str | os.PathLike[str] | None, action: str, limit: int | str | None = None, **said: Any
) -> tuple[str, list[str], str | None, str]:
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    for name in "exclude", "include":
        patterns = said.pop(name, ())
        if all_of_them := [patterns] if isinstance(patterns, str) else list(patterns):
            said[name] = all_of_them
    for name, meant in ("min_size", size), ("max_size", size), ("min_age", age), ("max_age", age):
        said[name] = meant(said.get(name))
    files = said.pop("files", None)
    if files is not None:
        said["files"] = [os.fspath(name) for name in ([files] if isinstance(files, (str, os.PathLike)) else files)]
        if not said["files"]:
            raise make("usage", "no name is listed", hint="files=None is for all that lies in the source")
    text = json.dumps({**said, "limit": size(limit)})
    return action, [os.fspath(s) for s in sources], None if target is None else os.fspath(target), text


@atexit.register
def _end() -> None:
    # As futures of a pool: what was begun is brought to its end.
    for transfer in list(_under_way):
        try:
            transfer._transfer.wait(None)
        except Exception:
            # It is in the journal.
            pass
