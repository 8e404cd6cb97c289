"""Files over nodes: cut into stripes that lie in dataspaces of several nodes, and brought back."""

from __future__ import annotations

import json
import os
import sys

from . import _progress, _stead
from ._dataset import size, telling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class Copied:
    """What was copied, and what it took."""

    __slots__ = {
        "file": "The file on the shared file system.",
        "layout": "Its layout.",
        "bytes": "Bytes.",
        "parts": "Number of parts.",
        "nodes": "Number of nodes that have them.",
        "ranks": "Number of ranks.",
        "seconds": "Wall time, with that for the devices to have all of it.",
        "bytes_per_second": "Bytes a second.",
    }
    file: str
    layout: str
    bytes: int
    parts: int
    nodes: int
    ranks: int
    seconds: float
    bytes_per_second: float

    def __init__(self, **said: Any) -> None:
        for name, value in said.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        said = f"{_progress.size(self.bytes)} in {self.parts} part(s) on {self.nodes} node(s)"
        return f"Copied({self.file!r}, {said}, {self.seconds:.3f} s)"


def put(
    file: str | os.PathLike[str],
    over: str,
    *,
    stripe: int | str = "4MiB",
    align: bool = False,
    parts: int | None = None,
    name: str | None = None,
    layout: str | os.PathLike[str] | None = None,
    force: bool = False,
    dataspaces: Mapping[str, str | os.PathLike[str]] | None = None,
    threads: int = 0,
    progress: bool | Callable[[_progress.Snapshot], object] | None = None,
    comm: Any = None,
) -> Copied:
    """Puts a file over nodes: cuts it into stripes that lie in their dataspaces. A layout is written when all are there.

    Args:
        file: The file, which all ranks see.
        over: The dataspaces: `nvme@node[1-4]`, or `nvme` for those of all nodes that have a rank.
        stripe: Bytes of a stripe.
        align: End stripes where records end, so that none lies on two nodes.
        parts: Parts to cut it into, in place of one for each dataspace.
        name: What to call it in the dataspaces, and its layout, in place of the name of the file.
        layout: Where to write the layout, in place of beside the file.
        force: Replace a layout that is there, and remove its parts.
        dataspaces: Folders of dataspaces of this node, before those that are configured in `stead.toml`.
        threads: Threads of each rank that copy; 0 is as many as are of use.
        progress: True shows a bar, a function is called with a `Snapshot`; unless it is said, a bar on a terminal.
        comm: A communicator of mpi4py, all ranks of which make this call.

    Raises:
        UsageError: A node has no rank, a dataspace is not configured, or there is a layout already.
        NotFoundError: The file, or the folder of a dataspace, is not there.
        NoSpaceError: A device is full.
        ChangedError: Somebody writes to the file.
        PeerError: Another rank is gone.
        Error: Something else failed. In any case no part and no layout is left.
    """
    said = {"path": os.fspath(file), "target": fspath(layout), "over": over, "align": bool(align), "parts": parts, "name": name}
    return copy(_stead.put, said, stripe, force, dataspaces, threads, progress, comm)


def get(
    layout: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    dataspaces: Mapping[str, str | os.PathLike[str]] | None = None,
    threads: int = 0,
    progress: bool | Callable[[_progress.Snapshot], object] | None = None,
    comm: Any = None,
) -> Copied:
    """Brings a file back that lies over nodes. Checksums are compared; the file appears when all of it is there.

    Args:
        layout: The layout.
        output: Where to, on a file system that all ranks see; beside the layout unless it is said.
        force: Replace a file that is there.
        dataspaces: As for `put`.
        threads: As for `put`.
        progress: As for `put`.
        comm: As for `put`.

    Raises:
        UsageError: A node has no rank, or there is a file of this name already.
        NotFoundError: A part is not there.
        FormatError: A part has another length or another checksum; or this is no layout.
        NoSpaceError: The device is full.
        PeerError: Another rank is gone.
        Error: Something else failed. In any case no file is left.
    """
    said = {"path": os.fspath(layout), "target": fspath(output), "over": "", "align": False, "parts": None, "name": None}
    return copy(_stead.get, said, 0, force, dataspaces, threads, progress, comm)


def describe_layout(layout: str | os.PathLike[str]) -> dict[str, Any]:
    """What a layout is: `name`, `bytes`, `stripe`, `stripes`, `nodes` and `parts`, as `stead describe --format json` has it."""
    described: dict[str, Any] = json.loads(_stead.describe_layout(os.fspath(layout)))
    return described


def fspath(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def copy(
    work: Callable[[dict[str, Any]], str],
    said: dict[str, Any],
    stripe: int | str,
    force: bool,
    dataspaces: Mapping[str, str | os.PathLike[str]] | None,
    threads: int,
    progress: bool | Callable[[_progress.Snapshot], object] | None,
    comm: Any,
) -> Copied:
    ranks = None
    if comm is not None:
        from . import _mpi

        ranks = _mpi.source(comm)
    bar = None
    with telling(ranks):
        if progress is True or (progress is None and _progress.wanted()):
            progress = bar = _progress.Bar(sys.stderr) if comm is None or comm.Get_rank() == 0 else None
        tell = progress if callable(progress) else None
        said |= {
            "stripe": size(stripe),
            "force": bool(force),
            "dataspaces": [f"{name}={os.fspath(path)}" for name, path in (dataspaces or {}).items()],
            "threads": threads,
            "progress": None if tell is None else lambda *now: tell(_progress.Snapshot(*now)),
            "comm": ranks,
        }
    try:
        return Copied(**json.loads(work(said)))
    finally:
        if bar is not None:
            bar.close()
