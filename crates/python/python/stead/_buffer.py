"""A fast place for data as long as somebody works on them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from . import _stage, _stead
from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@contextlib.contextmanager
def buffer(
    source: _stage.Paths,
    target: str | os.PathLike[str],
    *,
    back: bool = True,
    delete: bool = False,
    keep: bool = False,
    verify: bool = False,
    durable: bool = True,
    threads: int = 0,
    dataspaces: _stage.Spaces = None,
    state: str | os.PathLike[str] | None = None,
) -> Iterator[Path]:
    """Data in a fast place as long as a block lasts: loaded before it, and what it has changed is written back after it.

        >>> with stead.buffer("lustre://run1/", "nvme0://run1/") as folder:
        ...     work(folder / "grid.h5")

    It is three transfers of `stage`: `sync` to the fast place, `sync` back, by which only files go whose size or time of change is another one,
    and `remove`. If the block ends by an error nothing is written back and nothing removed: what it has changed is still in the fast place, and
    the error says where.

    Args:
        source: A file or a folder, or several of them, which come into the target by their names. No patterns.
        target: Where they are meanwhile: a folder that is not there yet, in a dataspace that is no bucket or by its path. Of several sources it is
            the folder that they come into.
        back: Write back what was changed; without it all that was done there is lost.
        delete: Remove from the source what was removed there.
        keep: Leave the data there.
        verify: As for `stage`, in both directions.
        durable: What is written back is on its device at the end.
        threads: As for `stage`.
        dataspaces: As for `stage`.
        state: As for `stage`.

    Returns:
        A context, whose value is the path of the target: of a single source that is a file, of that file.

    Raises:
        UsageError: The target is there already, such as of a block that failed, or is a bucket; a pattern.
        Error: As of `Transfer.wait`.
    """
    single = isinstance(source, (str, os.PathLike))
    homes = [plain(os.fspath(one)) for one in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    fast = plain(os.fspath(target))
    here = folder(fast, dataspaces)
    if wild := [home for home in homes if set("*?[") & set(home)]:
        raise make("usage", f"'{wild[0]}' is a pattern, and what goes back needs one name", hint="name a folder, or each file")
    places = [fast] if single else [f"{fast}{'' if fast.endswith('/') else '/'}{home.rpartition('/')[2]}" for home in homes]
    if len(set(places)) < len(places):
        raise make("usage", "two sources would get one name", path=fast)
    for place in places:
        if os.path.lexists(there := folder(place, dataspaces)):
            hint = "stage back or remove what an earlier run has left there, or name another place"
            raise make("usage", "there is something of this name already", hint=hint, path=os.fspath(there))

    def stage(source: str | list[str], target: str | None, action: str, **options: Any) -> None:
        options |= {"threads": threads, "dataspaces": dataspaces, "state": state}
        done = _stage.stage(source, target, action=action, **options).wait()
        if done.failed:
            at, why = done.failures[0]
            raise make("io", f"{done.failed} of {done.files} names could not be done, the first: {why}", path=at)

    for home, place in zip(homes, places):
        # It is gone after the next failure of power anyway, or loaded again.
        stage(home, place, "sync", verify=verify, durable=False)
    try:
        yield here
    except BaseException as e:
        if hasattr(e, "add_note"):
            e.add_note(f"nothing was written back: what was changed is in {here}")
        raise
    if back:
        for home, place in zip(homes, places):
            stage(place, home, "sync", delete=delete, verify=verify, durable=durable)
    if not keep:
        stage(places, None, "remove", durable=False)
        with contextlib.suppress(OSError):
            os.rmdir(here)


def plain(name: str) -> str:
    """A name without `/` at its end, but that of a root."""
    short = name.rstrip("/")
    return short if short and not short.endswith(":") else name


def folder(name: str, dataspaces: _stage.Spaces) -> Path:
    """Where a name is on this node."""
    space, mark, below = name.partition("://")
    if not mark or "/" in space:
        return Path(os.path.abspath(name))
    return Path(_stead.Tree(_stage.given(dataspaces)).folder(space)) / below
