"""The extension module. Private: `stead` is what programs use."""

from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

from typing_extensions import Buffer, disjoint_base

from ._read import View

__all__ = [
    "Bell",
    "Bytes",
    "Cancel",
    "Daemon",
    "Dataset",
    "Elements",
    "MISSING",
    "Opened",
    "Read",
    "Region",
    "Report",
    "Session",
    "Site",
    "Stager",
    "Tipsy",
    "Transfer",
    "Tree",
    "Writing",
    "__version__",
    "calibrate",
    "check_view",
    "describe_layout",
    "end_callbacks",
    "filter_help",
    "forked",
    "get",
    "kernel_list",
    "list_regions",
    "main",
    "offload",
    "open_array",
    "open_bytes",
    "open_files",
    "open_table",
    "parse_size",
    "persist",
    "put",
    "refuse_ranks",
    "refuse_run",
    "remove_region",
]

__version__: str
MISSING: float
"""A missing value: a NaN with the payload of R's `NA_real_`."""

@final
class Dataset:
    @property
    def format(self) -> str: ...
    @property
    def columns(self) -> list[tuple[str, str]]: ...
    @property
    def files(self) -> list[str]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> list[int] | None: ...
    def describe(self, rows: int) -> tuple[str, str]: ...
    def run(self, arguments: dict[str, Any]) -> Report: ...

@final
class Report:
    def results(self) -> dict[str, Any]: ...
    def specs(self) -> list[str]: ...
    def json(self) -> str: ...
    def plan(self) -> str: ...
    def metrics(self) -> str: ...
    def text(self) -> str: ...
    def explain(self) -> str: ...
    def svg(self) -> str | None: ...

@final
class Site:
    def roles(self) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]: ...
    def run(self, arguments: dict[str, Any], options: dict[str, Any]) -> Report: ...
    def close(self) -> None: ...

@final
class Daemon:
    @staticmethod
    def connect(path: str | None, node: str | None) -> Daemon | None: ...
    @property
    def path(self) -> Path: ...
    def submit(self, asked: tuple[str, list[str], str | None, str], after: list[int]) -> int: ...
    def preview(self, asked: tuple[str, list[str], str | None, str]) -> str: ...
    def status(self, id: int) -> str: ...
    def wait(self, id: int, timeout: float | None, told: Callable[[int, int, int, int, float], object] | None) -> str | None: ...
    def eta(self, id: int) -> tuple[float, float, float]: ...
    def cancel(self, id: int) -> str: ...
    def resume(self, id: int | None) -> list[int]: ...
    def statuses(self, all: bool, most: int) -> str: ...
    def usage(self) -> str: ...
    def admin(self, asked: str) -> str: ...
    def nodes(self) -> list[str]: ...
    def metrics(self) -> str: ...

@final
class Stager:
    def __new__(cls, given: list[str], threads: int, state: str | None) -> Stager: ...
    def submit(self, asked: tuple[str, list[str], str | None, str]) -> Transfer: ...
    def resume(self, id: int) -> Transfer: ...
    def cancel(self, id: int) -> str: ...
    def preview(self, asked: tuple[str, list[str], str | None, str]) -> str: ...
    def status(self, id: int) -> str: ...
    def statuses(self, all: bool, most: int) -> str: ...
    def usage(self) -> str: ...

@final
class Transfer:
    @property
    def id(self) -> int: ...
    def done(self) -> bool: ...
    def progress(self) -> tuple[int, int, int, int, float, float, float, float] | None: ...
    def wait(self, timeout: float | None) -> str | None: ...
    def stop(self) -> None: ...
    def then(self, call: Callable[[], object]) -> None: ...

@final
class Region:
    def __new__(cls, name: str, size: int | None, given: list[str]) -> Region: ...
    @property
    def location(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def size(self) -> int: ...
    def descriptor(self) -> int: ...
    def touch(self) -> None: ...
    def close(self) -> None: ...

# Name, what it is, bytes, times of change (of its bytes, of anything), rights, number on the device, names, user, group.
_Told: TypeAlias = tuple[str, str, int, float, float, int, int, int, int, int]
_Tolds: TypeAlias = list[_Told]

@final
class Tree:
    def __new__(cls, given: list[str]) -> Tree: ...
    def spaces(self) -> list[str]: ...
    def is_bucket(self, space: str) -> bool: ...
    def folder(self, space: str) -> str: ...
    def info(self, space: str, path: str) -> _Told: ...
    def list(self, space: str, path: str) -> tuple[bool, _Tolds]: ...
    def open(self, space: str, path: str) -> Opened: ...
    def create(self, space: str, path: str, how: str, size: int | None = None) -> Writing: ...
    def remove_file(self, space: str, path: str, durable: bool) -> bool: ...
    def make_folder(self, space: str, path: str, parents: bool) -> bool: ...
    def remove_folder(self, space: str, path: str) -> bool: ...

@final
class Opened:
    @property
    def size(self) -> int: ...
    @property
    def is_object(self) -> bool: ...
    def take(self) -> int | None: ...
    def read(self, start: int, end: int) -> bytes: ...

@final
class Writing:
    def descriptor(self) -> int | None: ...
    def check(self) -> None: ...
    @property
    def is_bound(self) -> bool: ...
    def grow_to(self, bytes: int) -> None: ...
    def write(self, bytes: bytes) -> None: ...
    def commit(self, durable: bool) -> None: ...
    def discard(self) -> None: ...

@final
class Elements:
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class Tipsy:
    def __new__(cls, source: str | tuple[int, int, str], options: dict[str, Any]) -> Tipsy: ...
    @property
    def time(self) -> float: ...
    @property
    def byte_order(self) -> str: ...
    @property
    def counts(self) -> list[tuple[str, int]]: ...
    def fields(self, species: str) -> list[tuple[str, str, int]]: ...
    def part(self, species: str, task: int, tasks: int) -> tuple[int, int, int, int]: ...
    def load(self, species: str, task: int, tasks: int, columns: list[str]) -> list[tuple[str, Elements]]: ...
    def close(self) -> None: ...

@final
class Cancel:
    """Stops runs from another thread: give it to `run` and call `cancel`."""

    def __new__(cls) -> Cancel: ...
    @property
    def cancelled(self) -> bool:
        """True after `cancel`."""

    def cancel(self) -> None:
        """Asks the runs that were given this to stop soon."""

@disjoint_base
class Bytes:
    """Bytes that somebody holds, for the buffer protocol."""

    def __len__(self) -> int: ...

@final
class Read:
    """A read that was asked for: made by `Session.read` and its kin.

    `await` it in a task of asyncio (any loop that has `add_reader`, also uvloop), or take its `result` in any thread.
    When nobody has it any more, it is cancelled. If a task that awaits it is cancelled, so is it, unless others wait
    for it too.
    """

    def result(self, timeout: float | None = None) -> Any:
        """The answer: a `View`, or the buffer that was filled. Waits for it, without the interpreter's lock; Ctrl-C
        is heard.

        Args:
            timeout: Seconds; None is as long as it takes, no longer than the deadline of the read.

        Raises:
            ChangedError: The file became shorter.
            IoError: The device failed; `offset` says where.
            TimedOutError: The deadline, or the timeout, was reached. After a timeout the read goes on.
            UsageError: The bytes do not lie within the session.
            CancelledError: It was cancelled.
        """

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception that `result` would raise, or None. Waits as `result` does."""

    def done(self) -> bool:
        """True if there is an answer, or it was cancelled."""

    def cancelled(self) -> bool:
        """True after `cancel`."""

    def cancel(self) -> bool:
        """Wants it no more: who waits for it gets a `CancelledError`, and no buffer is written to any more. False if it
        is answered already."""

    def add_done_callback(self, function: Callable[[Read], object]) -> None:
        """Calls `function(read)` once there is an answer: at once if there is, else in a thread that is for such calls
        only and must not be kept. What it raises goes to `sys.unraisablehook`."""

    def __await__(self) -> Generator[Any, Any, Any]: ...

@disjoint_base
class Session:
    """The part of `stead.Session` that is not written in Python."""

    def __new__(
        cls,
        source: str | tuple[int, int, str] | Session | Tipsy,
        start: int,
        stop: int | None,
        options: dict[str, Any],
    ) -> Session: ...
    @property
    def path(self) -> str:
        """The file, as it was named."""

    @property
    def start(self) -> int:
        """First byte of the session."""

    @property
    def stop(self) -> int:
        """The byte after the last one of the session."""

    @property
    def size(self) -> int:
        """Bytes of the file, fixed when it was opened."""

    @property
    def closed(self) -> bool:
        """True after `close`."""

    def read(self, offset: int, length: int, *, deadline: float | None = None) -> Read:
        """Asks for bytes. Costs about two microseconds if they are there, and returns at once in any case.

        Args:
            offset: First byte, counted in the file.
            length: Number of bytes.
            deadline: Seconds after which it fails; None is that of the session.

        Returns:
            A read whose result is a `View`: no copy but where the bytes lie in several blocks of memory. It fails
            with UsageError if they do not all lie within the session.
        """

    def pread(self, offset: int, length: int, *, deadline: float | None = None) -> View:
        """Waits for bytes and returns a `View`: `read(offset, length).result()`."""

    def read_into(self, buffer: Buffer, offset: int, *, deadline: float | None = None) -> Read:
        """Fills a writable buffer, such as an array, from its start with the bytes from `offset` on.

        The buffer is held, and cannot be resized, until the read is answered or cancelled. Bytes that are there are
        copied before this returns; those that come later, when the answer is taken. Copying many of them would stop a
        loop of asyncio for that while: `await asyncio.to_thread(s.pread_into, buffer, offset)`, or take a view.

        Args:
            buffer: What to fill.
            offset: First byte, counted in the file.
            deadline: As for `read`.

        Returns:
            A read whose result is the buffer.

        Raises:
            TypeError: It has no buffer.
            BufferError: It is for reading only.
            ValueError: Its elements do not lie one after the other (NumPy's word for it).
        """

    def pread_into(self, buffer: Buffer, offset: int, *, deadline: float | None = None) -> int:
        """Fills a writable buffer as far as the session goes; waits, and returns the number of bytes."""

    def read_strided(
        self, offset: int, length: int, stride: int, count: int, *, deadline: float | None = None
    ) -> Read:
        """Asks for `count` pieces of `length` bytes, whose starts are `stride` bytes apart; `deadline` is as for `read`.

        Returns:
            A read whose result is a `View` of `count * length` bytes, one piece after the other. It fails with
            UsageError if the pieces overlap or do not all lie within the session.
        """

    def close(self) -> None:
        """Ends the session; a second time does nothing. Reads that wait are answered, views stay valid, and asking for
        more is an error.

        Raises:
            ChangedError: Somebody wrote to the file since it was opened.
        """

    def _ranges(self, ranges: Iterable[Any], deadline: float | None) -> list[Read]: ...
    def _choices(self) -> list[tuple[str, str]]: ...
    def _counted(self) -> tuple[int, int, int, int, int]: ...

@final
class Bell:
    """Wakes a loop of asyncio: `answer` is called when its socket can be read."""

    def __new__(cls) -> Bell: ...
    def answer(self) -> None: ...
    def fileno(self) -> int: ...

def check_view(view: Bytes) -> None: ...
def end_callbacks() -> None: ...
def persist(what: str, at: str | None, user: str | None, seconds: int | None) -> str: ...
def forked() -> None: ...
def main(args: Sequence[str]) -> int: ...
def kernel_list() -> list[tuple[str, str, str, str, str, str, str, list[str]]]: ...
def filter_help() -> str: ...
def parse_size(text: str) -> int: ...
def refuse_ranks(maker: int, data: int, why: str) -> None: ...
def calibrate(
    tiers: list[str], seconds: float | None, output: str | None, comm: tuple[int, int] | None
) -> tuple[str, str]: ...
def put(arguments: dict[str, Any]) -> str: ...
def get(arguments: dict[str, Any]) -> str: ...
def describe_layout(path: str) -> str: ...
def offload(arguments: dict[str, Any]) -> Site | None: ...
def list_regions(given: list[str]) -> list[tuple[str, int]]: ...
def remove_region(name: str, given: list[str]) -> bool: ...
def refuse_run(maker: int, data: int, why: str) -> None: ...
def open_files(paths: Sequence[str], options: dict[str, Any], comm: tuple[int, int] | None = None) -> Dataset: ...
def open_bytes(name: str, bytes: Any, options: dict[str, Any]) -> Dataset: ...
def open_array(name: str, array: Any, names: Sequence[str] | None) -> Dataset: ...
def open_table(columns: Sequence[tuple[str, Any]]) -> Dataset: ...
