"""Files of `stead://`: open for reading, or written such that they appear as a whole or not at all."""

from __future__ import annotations

import io
import sys
import warnings

from fsspec.spec import AbstractBufferedFile

from . import _stead
from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, TypeVar

    from ._fsspec import FileSystem

    T = TypeVar("T")


def attempt(what: Callable[..., T], *args: Any) -> T | Exception:
    """What a function gives, or what went wrong."""
    try:
        return what(*args)
    except Exception as e:
        return e


def in_vain(since: BaseException | None) -> bool:
    """True within the `__exit__` of a `with` whose block ended by an error that came after `since`.

    What wraps a file (`fsspec.open`, pandas) closes it then as it always does, and does not say why.
    """
    error = sys.exc_info()[1]
    if error is None or error is since:
        return False
    frame: FrameType | None = sys._getframe(2)
    for _ in range(16):
        if frame is None:
            return False
        if frame.f_code.co_name == "__exit__":
            return True
        frame = frame.f_back
    return False


def drop(file: Any, path: str) -> None:
    """Leaves nothing of a file that nobody has closed, and says so."""
    warnings.warn(f"stead://{path} was not closed: nothing is written", ResourceWarning, stacklevel=3)
    file.discard()


class Reading(io.BufferedReader):
    """A file of a folder, open for reading."""

    def __init__(self, path: str, size: int, descriptor: int) -> None:
        super().__init__(io.FileIO(descriptor, "rb"))
        self.path, self.size = path, size


class Counted(io.FileIO):
    """A file of a dataspace with a quota, which it does not outgrow."""

    def __init__(self, descriptor: int, writing: _stead.Writing) -> None:
        super().__init__(descriptor, "wb")
        self._writing = writing

    def write(self, data: Any) -> int:
        """Writes bytes, if the quota leaves room for them."""
        self._writing.grow_to(self.tell() + memoryview(data).nbytes)
        return super().write(data)


class Writing(io.BufferedWriter):
    """A file of a folder that appears when it is closed."""

    def __init__(self, path: str, writing: _stead.Writing, descriptor: int, autocommit: bool, durable: bool) -> None:
        super().__init__(Counted(descriptor, writing) if writing.is_bound else io.FileIO(descriptor, "wb"))
        self.path, self.autocommit = path, autocommit
        self._writing, self._durable, self._since, self._broken, self._gone = writing, durable, sys.exc_info()[1], False, False

    def write(self, data: Any) -> int:
        """Writes bytes behind what was written."""
        try:
            return super().write(data)
        except BaseException:
            self._broken = True
            raise

    def close(self) -> None:
        """Gives it its name, with `autocommit`."""
        if self.closed:
            return
        since, self._since = self._since, None
        if in_vain(since):
            self.discard()
            return
        try:
            self._writing.check()
        except BaseException:
            self.discard()
            raise
        if self._broken:
            self.discard()
            raise make("io", "nothing was written: an earlier write has failed", path=self.path)
        try:
            super().close()
            if self.autocommit:
                self.commit()
        except BaseException:
            self.discard()
            raise

    def commit(self) -> None:
        """Gives it its name; nothing to do for one that was discarded, which a transaction still knows."""
        if not self._gone:
            self._writing.commit(self._durable)

    def discard(self) -> None:
        """Leaves nothing of it."""
        self._gone = True
        self._writing.discard()
        try:
            # What was not written is not wanted: in a child that was forked it would come into the file of the parent.
            self.raw.close()
        except OSError:
            pass

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.discard()
            return
        # Its block has ended well, whatever error is being handled around it.
        self._since = sys.exc_info()[1]
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            drop(self, self.path)


class ObjectFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of a bucket: read ahead in blocks, or written in parts, and there when it is closed."""

    def __init__(
        self, fs: FileSystem, path: str, mode: str, opened: _stead.Opened | None = None, writing: _stead.Writing | None = None, **options: Any
    ) -> None:
        self._opened, self._writing, self._since, self._gone = opened, writing, sys.exc_info()[1], False
        super().__init__(fs, path, mode, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        assert self._opened is not None
        return self._opened.read(start, end)

    def _initiate_upload(self) -> None:
        pass

    def _upload_chunk(self, final: bool = False) -> bool:
        assert self._writing is not None
        self._writing.write(self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Has the store make it an object; nothing to do for one that was discarded, which a transaction still knows."""
        assert self._writing is not None
        if not self._gone:
            self._writing.commit(True)

    def discard(self) -> None:
        """Leaves nothing of it."""
        self._gone = True
        if self._writing is not None:
            self._writing.discard()
        self.closed = True

    def close(self) -> None:
        """Makes it an object, with `autocommit`."""
        if self.closed:
            return
        since, self._since = self._since, None
        if self._writing is None or not in_vain(since):
            super().close()
        else:
            self.discard()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.discard()
            return
        # Its block has ended well, whatever error is being handled around it.
        self._since = sys.exc_info()[1]
        self.close()

    def __del__(self) -> None:
        # Also of one that was not made.
        if not self.closed and self._writing is not None:
            drop(self, self.path)


class Compressed(io.BufferedIOBase):
    """What is written into one of these files by way of a compressor, which would leave it open."""

    def __init__(self, compressor: Any, file: Any) -> None:
        self._compressor, self._file, self.path = compressor, file, file.path

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Writes bytes behind what was written."""
        return int(self._compressor.write(data))

    def close(self) -> None:
        """Gives the file its name, as it does."""
        if self.closed:
            return
        try:
            self._compressor.close()
            self._file.close()
        except BaseException:
            self._file.discard()
            raise
        finally:
            super().close()

    def discard(self) -> None:
        """Leaves nothing of it."""
        self._file.discard()
        # What it still has goes nowhere.
        attempt(self._compressor.close)
        super().close()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.discard()
            return
        # Its block has ended well, whatever error is being handled around it.
        self._file._since = sys.exc_info()[1]
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            drop(self, self.path)


class Text(io.TextIOWrapper):
    """Text over one of these files."""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self.writable():
            if kind is not None:
                self.buffer.discard()  # type: ignore[attr-defined]
            else:
                self.buffer._since = sys.exc_info()[1]  # type: ignore[attr-defined]
        self.close()

    def __del__(self) -> None:
        if not self.closed and self.writable():
            drop(self.buffer, self.buffer.path)  # type: ignore[attr-defined]
