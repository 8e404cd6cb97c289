"""Exceptions. Each derives from `Error` and from the one of Python's own that fits."""

from __future__ import annotations

import errno


class Error(Exception):
    """Anything that stead says went wrong.

    `str(e)` is the message with the place and, on a second line, the hint.
    """

    kind: str = "internal"
    """What kind of failure it is: `usage`, `not_found`, `permission`, `format`, `data`, `changed`, `limit`,
    `no_space`, `io`, `cancelled`, `peer`, `timeout`, `internal`."""
    hint: str | None = None
    """What can be done about it."""
    path: str | None = None
    """The file."""
    line: int | None = None
    """The line in the (decompressed) file, from 1."""
    offset: int | None = None
    """The byte in the (decompressed) file, from 0."""
    column: str | None = None
    """The column."""

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        return f"{message}\n  hint: {self.hint}" if self.hint else message


class UsageError(Error, ValueError):
    """The request makes no sense: an unknown kernel, a bad option, no such column."""

    kind = "usage"


class NotFoundError(Error, FileNotFoundError):
    """A file, glob or directory is not there."""

    kind = "not_found"


class PermissionDeniedError(Error, PermissionError):
    """The operating system refused access."""

    kind = "permission"


class FormatError(Error, ValueError):
    """The bytes do not have the format that they were said or found to have."""

    kind = "format"


class DataError(Error, ValueError):
    """One record or value is bad; `path`, `line` and `column` say which."""

    kind = "data"


class ChangedError(Error, OSError):
    """A file changed or shrank while it was read."""

    kind = "changed"


class LimitError(Error, MemoryError):
    """A budget (memory, groups, length of a record) was reached."""

    kind = "limit"


class NoSpaceError(Error, OSError):
    """No space is left on the device."""

    kind = "no_space"


class IoError(Error, OSError):
    """The device or the operating system failed."""

    kind = "io"


class CancelledError(Error):
    """The run was stopped by a `stead.Cancel`. (Ctrl-C raises KeyboardInterrupt.)"""

    kind = "cancelled"


class PeerError(Error, ConnectionError):
    """Another rank failed or did not answer."""

    kind = "peer"


class TimedOutError(Error, TimeoutError):
    """There was no answer before the deadline."""

    kind = "timeout"


class InternalError(Error, RuntimeError):
    """A defect of stead."""

    kind = "internal"


CLASSES = {
    c.kind: c
    for c in (
        UsageError,
        NotFoundError,
        PermissionDeniedError,
        FormatError,
        DataError,
        ChangedError,
        LimitError,
        NoSpaceError,
        IoError,
        CancelledError,
        PeerError,
        TimedOutError,
        InternalError,
    )
}
NUMBERS = {"not_found": errno.ENOENT, "permission": errno.EACCES, "no_space": errno.ENOSPC, "io": errno.EIO}


def make(
    kind: str,
    message: str,
    hint: str | None = None,
    path: str | None = None,
    line: int | None = None,
    offset: int | None = None,
    column: str | None = None,
) -> Error:
    """The exception for an error of the library."""
    e = CLASSES.get(kind, InternalError)(message)
    e.hint, e.path, e.line, e.offset, e.column = hint, path, line, offset, column
    if isinstance(e, OSError):
        e.errno, e.filename = NUMBERS.get(kind), path
    return e
