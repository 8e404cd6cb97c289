"""Data that stay on a node for later, and that other users may read: by the daemon of the node, or by this process if there is none."""

from __future__ import annotations

import json
import math
import os

from . import _stead
from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Seconds: longer than whatever it is asked of lasts.
_LONGEST = 1e12

__all__ = ["delete", "share", "store", "stored", "unshare"]


def store(location: str | os.PathLike[str], expires: float | None = None) -> None:
    """Keeps a file or a folder with all that lies in it: neither the end of a job nor that of its time removes it.

    Args:
        location: A path, or a name in a dataspace such as `nvme0://run1`.
        expires: For so many seconds from now on; None is for ever.

    Raises:
        NotFoundError: It is not there.
        UsageError: It lies in a bucket; or for a time that is none.
    """
    if expires is not None and not 0 < expires < _LONGEST:
        raise make("usage", f"nothing is kept for {expires} seconds", hint="None keeps it for ever")
    _stead.persist("store", os.fspath(location), None, None if expires is None else math.ceil(expires))


def delete(location: str | os.PathLike[str]) -> None:
    """Keeps something no longer: it stays until its time or that of its job is over.

    Args:
        location: As for `store`.

    Raises:
        UsageError: It is not kept.
    """
    _stead.persist("delete", os.fspath(location), None, None)


def share(location: str | os.PathLike[str], user: str | int) -> None:
    """Lets another user read something with all that lies in it and will, by access lists of the file system.

    Args:
        location: As for `store`.
        user: A name or a number.

    Raises:
        PermissionDeniedError: It is another user's.
        UsageError: There is no such user, or the file system has no access lists.
    """
    _stead.persist("share", os.fspath(location), str(user), None)


def unshare(location: str | os.PathLike[str], user: str | int) -> None:
    """Lets that user read it no longer.

    Args:
        location: As for `store`.
        user: A name or a number.

    Raises:
        UsageError: It is not shared with that user.
    """
    _stead.persist("unshare", os.fspath(location), str(user), None)


def stored() -> list[dict[str, Any]]:
    """What is kept and shared: `location`, `path`, `kept`, `until` (seconds since 1970, None for ever), `left` (seconds), `shared` (numbers of users)."""
    found: list[dict[str, Any]] = json.loads(_stead.persist("list", None, None, None))
    return found
