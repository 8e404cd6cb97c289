"""Read sessions: many tasks read a file, few readers fetch it."""

from __future__ import annotations

import io
import os
import weakref

from . import _stead
from ._errors import make
from ._stead import Bell, Read

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator, Iterable
    from typing import Any, NoReturn, TypedDict

    import numpy as np
    from typing_extensions import Buffer, Self, Unpack

    class Means(TypedDict, total=False):
        """How to read: see `read_session`."""

        readers: int | None
        block: int | str | None
        depth: int | None
        deadline: float | None
        direct: bool
        ahead: bool
        share: bool
        engine: str

    class AllMeans(Means, total=False):
        """All that `read_session` takes by name."""

        memory: int | str | None
        comm: Any

# A child that was forked has none of the threads that read.
os.register_at_fork(after_in_child=_stead.forked)


class View(_stead.Bytes):
    """Bytes of a file, for reading only: `memoryview`, `numpy.frombuffer`, `numpy.asarray` and all else that knows the
    buffer protocol look at them where they lie, without a copy, and keep them alive.

    Where the file is in the page cache, they are those that the file has at the moment of looking; see `check`. Elsewhere
    a view keeps a block of the session's memory; drop it when it is not needed any more.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        # Python knows it without being told.
        def __buffer__(self, flags: int, /) -> memoryview: ...

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("views are the results of reads")

    @property
    def nbytes(self) -> int:
        """Number of bytes, as `len`."""
        return len(self)

    def array(self, dtype: Any = "u1", shape: int | tuple[int, ...] = -1) -> np.ndarray[Any, Any]:
        """The bytes as an array of NumPy that shares them: `view.array("<f8", (-1, 3))`.

        Args:
            dtype: The type of the elements.
            shape: Lengths of the dimensions; one may be -1.

        Raises:
            ValueError: They are not a whole number of elements, or not as many as the shape says.
        """
        import numpy as np

        return np.frombuffer(memoryview(self), dtype).reshape(shape) if len(self) else np.empty(0, dtype).reshape(shape)

    def tobytes(self) -> bytes:
        """A copy of the bytes."""
        return bytes(memoryview(self))

    def check(self) -> None:
        """Says whether all bytes that were looked at were there.

        Raises:
            ChangedError: The file became shorter meanwhile, and what was seen beyond its end was zeros.
            IoError: The device could not give them.
        """
        _stead.check_view(self)

    def __getitem__(self, key: Any) -> Any:
        return memoryview(self)[key]

    def __eq__(self, other: object) -> bool:
        try:
            return memoryview(self) == memoryview(other)  # type: ignore[arg-type]
        except TypeError:
            return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<stead.View of {len(self)} bytes>"


class Reads(list[Read]):
    """Reads that were asked for together: `await` them for a list of their answers, or take `results`."""

    def results(self, timeout: float | None = None) -> list[Any]:
        """The answers, in order. Waits for them, no longer than `timeout` seconds for each.

        Raises:
            Error: What the first read raises that failed.
        """
        return [read.result(timeout) for read in self]

    def cancel(self) -> None:
        """Wants those no more that are not answered."""
        for read in self:
            read.cancel()

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        answers = []
        for read in self:
            answers.append((yield from read.__await__()))
        return answers


class Session(_stead.Session):
    """A part of a file that many read: made by `read_session`.

    Its methods may be called from any thread and task. Offsets are those of the file.
    """

    @property
    def range(self) -> range:
        """The bytes of the session: `range(start, stop)`."""
        return range(self.start, self.stop)

    def __len__(self) -> int:
        return self.stop - self.start

    def __bool__(self) -> bool:
        return True

    def read_many(self, ranges: Iterable[tuple[int, int]], *, deadline: float | None = None) -> Reads:
        """Asks for several ranges at once.

        Args:
            ranges: Pairs of offset and length, or an array of two columns.
            deadline: As for `read`.

        Returns:
            Their reads, in order: a list, which can be awaited as a whole.
        """
        tolist = getattr(ranges, "tolist", None)
        return Reads(self._ranges(ranges if tolist is None else tolist(), deadline))

    def session(self, start: int = 0, stop: int | None = None) -> Session:
        """Another session over the same file, with what it has read already.

        Raises:
            UsageError: The range goes past the end of the file.
        """
        return Session(self, start, stop, {})

    def reader(self) -> Reader:
        """A file-like object over the session; positions are those of the file, the first one is `start`."""
        return Reader(self)

    def explain(self) -> dict[str, str]:
        """What was chosen to read with, and why."""
        return dict(self._choices())

    @property
    def counts(self) -> dict[str, int]:
        """What was done for all sessions that share the buffers of this file: `requests`; those that were answered
        `at_once`; `blocks` that readers fetched, and their `bytes`; bytes that are `held` in memory now, in blocks and in
        answers that nobody has taken."""
        return dict(zip(("requests", "at_once", "blocks", "bytes", "held"), self._counted()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except OSError:
            # What went wrong inside says more.
            pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<stead.Session {self.path}: bytes {self.start} to {self.stop}{closed}>"


def read_session(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    start: int = 0,
    stop: int | None = None,
    *,
    readers: int | None = None,
    block: int | str | None = None,
    depth: int | None = None,
    memory: int | str | None = None,
    deadline: float | None = None,
    direct: bool = False,
    ahead: bool = True,
    share: bool = True,
    engine: str = "auto",
    comm: Any = None,
) -> Session:
    """Opens a file and begins a session, from which any number of tasks and threads read it.

    Tasks ask for the bytes they want, in any order and as small or large as they like; a few readers fetch blocks,
    ahead of the tasks, and each request is answered as soon as its own bytes are there. It is a context manager for
    `with` and for `async with`.

        >>> async with stead.read_session("snapshot.bin") as s:
        ...     view = await s.read(offset, length)
        >>> with stead.read_session("snapshot.bin") as s:
        ...     view = s.pread(offset, length)

    Opening takes some system calls and is done at once. What is not given is chosen from the file, the range and the
    machine; `Session.explain` says what and why.

    Args:
        path: The file. It is never created or written to.
        start: First byte of the session.
        stop: The byte after its last one; None is the end of the file.
        readers: Reader threads at most.
        block: Bytes of a block, or a size such as `"1MiB"`.
        depth: Blocks in flight for each reader.
        memory: Bytes for blocks, or a size. The default is 256 MiB; what is in the page cache does not count.
        deadline: Seconds after which a read that is not answered fails. The default is 600.
        direct: Pass by the page cache.
        ahead: Read the range ahead, before somebody asks.
        share: Have blocks in memory, and the memory for them, together with other processes of the user that read the
            file: `False` keeps them for this one.
        engine: How to read: `"auto"`, `"uring"` or `"pread"`.
        comm: A communicator of mpi4py, all ranks of which make this call: they read the file together, each byte by one of
            them. So do they begin further sessions of it; reads are of no concern to other ranks. Needs `libstead_mpi`,
            which the environment variable `STEAD_MPI_LIBRARY` may name.

    Raises:
        NotFoundError: There is no such file, or no `libstead_mpi`.
        PermissionDeniedError: It may not be read.
        UsageError: It is a directory or a pipe, or the range goes past its end. With `comm`: ranks ask for different
            ranges, or MPI has too few threads.
        ChangedError: Ranks see files of different lengths.
        IoError: It cannot be opened.
        PeerError: Another rank failed, or does not answer.
        TypeError: `comm` is no communicator of mpi4py.
    """
    options = {
        "readers": readers,
        "block": block,
        "depth": depth,
        "memory": memory,
        "deadline": deadline,
        "direct": direct,
        "ahead": ahead,
        "share": share,
        "engine": engine,
    }
    return Session(source(path, comm), start, stop, options)


def source(path: Any, comm: Any) -> str | tuple[int, int, str]:
    """What the extension opens: a path, for all ranks of a communicator if there is one."""
    if comm is None:
        return os.fsdecode(path)
    from . import _mpi

    ranks = _mpi.source(comm)
    try:
        return *ranks, os.fsdecode(path)
    except Exception as e:
        # Other ranks are in the same call: they hear of it, and do not wait.
        _stead.refuse_ranks(*ranks, str(e))
        raise


def open_reader(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    start: int = 0,
    stop: int | None = None,
    **options: Unpack[AllMeans],
) -> Reader:
    """Opens a file as a file-like object whose bytes come through a read session, which it closes with itself.

    NumPy, h5py, pyarrow, zipfile and others read from it. For many small reads put a buffer before it:
    `io.BufferedReader(stead.open_reader(path), 1 << 20)`.

    Args:
        path: The file.
        start: First byte; positions are those of the file.
        stop: The byte after the last one; None is the end of the file.
        options: As for `read_session`.

    Raises:
        Error: As `read_session`.
    """
    return Reader(read_session(path, start, stop, **options), owns=True)


class Reader(io.RawIOBase):
    """A file-like object over a read session, for reading only: made by `open_reader` and `Session.reader`.

    Positions are those of the file; the session's `start` and `stop` are where it begins and ends. It is for one thread
    at a time, as other file objects are; make one for each, over one session.
    """

    def __init__(self, session: Session, *, owns: bool = False) -> None:
        self.session: Session = session
        """The session that it reads from."""
        self._owns = owns
        self._at = session.start
        self._stop = session.stop
        self._fill = session.pread_into

    @property
    def name(self) -> str:
        """The file, as it was named."""
        return self.session.path

    @property
    def mode(self) -> str:
        """`rb`."""
        return "rb"

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def size(self) -> int:
        """The position after the last byte."""
        return self._stop

    def tell(self) -> int:
        """The position."""
        self._open()
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Goes to a position, counted from 0, from here, or from the end, and returns it. It may lie beyond the end,
        where nothing is read.

        Raises:
            UsageError: It would lie before the first byte.
        """
        self._open()
        to = offset + (0, self._at, self._stop)[whence] if whence in (0, 1, 2) else None
        if to is None:
            raise ValueError(f"whence is 0, 1 or 2, not {whence}")
        if to < self.session.start:
            raise make("usage", f"position {to} lies before the first byte, {self.session.start}", path=self.name)
        self._at = to
        return to

    def readinto(self, buffer: Buffer, /) -> int:
        """Fills a buffer and returns the number of bytes: fewer than it has only at the end, 0 there."""
        self._open()
        got = self._fill(buffer, self._at)
        self._at += got
        return got

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes, fewer at the end; all that are left if it is None or negative."""
        self._open()
        left = max(self._stop - self._at, 0)
        take = left if size is None or size < 0 else min(size, left)
        if not take:
            return b""
        view = self.session.pread(self._at, take)
        self._at += take
        copy = bytes(memoryview(view))
        view.check()
        return copy

    def readall(self) -> bytes:
        """All bytes that are left."""
        return self.read()

    def write(self, data: Buffer, /) -> NoReturn:
        """Raises io.UnsupportedOperation: it is for reading only."""
        raise io.UnsupportedOperation("write")

    def close(self) -> None:
        """Closes it, and the session if `open_reader` began it."""
        if not self.closed:
            super().close()
            if self._owns:
                self.session.close()

    def _open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


# A loop has its bell as what it calls, and nobody else has it: it goes when the loop is closed.
_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Bell]] = weakref.WeakKeyDictionary()


def bell_of_the_loop() -> tuple[asyncio.AbstractEventLoop, Bell]:
    """The loop that runs in this thread, and what wakes it when reads are answered."""
    import asyncio

    loop = asyncio.get_running_loop()
    found = _bells.get(loop)
    bell = found() if found is not None else None
    if bell is None:
        bell = Bell()
        loop.add_reader(bell.fileno(), bell.answer)
        _bells[loop] = weakref.ref(bell)
    return loop, bell
