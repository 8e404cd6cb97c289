"""What there is to know of streams, for programs and people who look after them: on this node, and on others of a pool."""

from __future__ import annotations

import json
import warnings

from . import _stage, _stead
from ._streams import called, named

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any


def streams(*, dataspaces: _stage.Spaces = None, nodes: Sequence[str] | None = None, timeout: float = 10) -> list[str]:
    """The names of the streams of this user on this node, and on the other ones of the pool of its daemon.

    Args:
        dataspaces: As for `writer`.
        nodes: Other nodes of the pool that are asked: usually all, and none for an empty list.
        timeout: Seconds to wait for other nodes. Of one that has not answered by then there is a warning (`UserWarning`).
    """
    names, missed = _stead.list_streams(_stage.given(dataspaces), named(nodes), timeout)
    for one in missed:
        warnings.warn(one, stacklevel=2)
    return names


def stream_info(
    name: str | os.PathLike[str],
    *,
    dataspaces: _stage.Spaces = None,
    nodes: Sequence[str] | None = None,
    timeout: float = 10,
) -> dict[str, Any]:
    """What there is to know of a stream: its `state` (`"live"`, `"ended"`, `"removed"`, or `{"failed": {"writer": RANK}}`), how many steps are
    `complete` and which `steps` are still there, `memory` that it may take, what is `used` and what was at most (`peak`), the
    `variables` of the last complete step (dicts with `name`, `dtype`, `shape`, `dims` and `attributes`,
    such as `{"units": "K"}`), and each of its
    `writers` and `readers` with how far it is, how long it has waited (`waited_s`) and what its copies have taken of processors (`copy_cpu_s`). A
    reader on another node has that `node` and its `rank_of_job`, too. `created` is in nanoseconds since 1970.
    Where not all of recorded steps can be read, `damage` says why.

    All of it is what one `node` knows: this one, or the first other one of the pool that has writers of the stream. How many writers there are on
    all nodes is `all_writers`; what the other nodes know of theirs is in `others`, a list of such dicts, and nodes that have not answered are
    in `missed`, with an `error` each. None are asked where all of the stream is written here.

    Args:
        name: The stream, or a folder with recorded steps.
        dataspaces: As for `writer`.
        nodes: Other nodes of the pool that are asked: usually all, and none for an empty list.
        timeout: Seconds to wait for other nodes.

    Raises:
        NotFoundError: There is none, or the pool has no such node.
    """
    told = _stead.describe_stream(called(name), _stage.given(dataspaces), named(nodes), timeout)
    info: dict[str, Any] = json.loads(told)
    return info


def recordings(location: str | os.PathLike[str], *, dataspaces: _stage.Spaces = None) -> list[dict[str, Any]]:
    """The streams that were recorded in a folder (`persist` of `writer`), and in the folders in it, by their locations: dicts with the `location` that
    `reader` takes, the `name` of the stream, how many `writers` it has, `steps` that all of them have recorded, `bytes` of the files, its
    `state` as in `stream_info`, and whether it `is_whole`: closed, with all of its steps. `damage` says why it cannot be read, or not
    all of it, as far as the ends of its files tell: arrays are compared with their checksums when they are read.

        >>> for told in stead.recordings("nvme0://runs"):
        ...     print(told["location"], told["name"], told["steps"])

    Args:
        location: The folder, as a path or in a dataspace.
        dataspaces: As for `writer`.

    Raises:
        NotFoundError: There is no such folder.
    """
    told: list[dict[str, Any]] = json.loads(_stead.list_recordings(called(location), _stage.given(dataspaces)))
    return told


def explain_stream(
    name: str,
    *,
    readers: int = 0,
    dataspaces: _stage.Spaces = None,
    nodes: Sequence[str] | None = None,
    timeout: float = 10,
) -> dict[str, Any]:
    """Who will get what from whom of a step of a stream, on all nodes that have its writers: this one, and the others of the pool, unless all of it is
    written here. `elsewhere` is how many writers there are on nodes that were not reached. It goes by the blocks of the last complete
    `step` (None if none is there), and by the boxes that each reader has got last. Rows of all variables are assumed for one that has had no step
    yet, evenly divided among the ranks of its group: its `basis` is `"rows"` then, `{"step": N}` if it was seen what it gets, and `"nothing"` if
    it has had steps and got nothing of them.

        >>> for pull in stead.explain_stream("sim")["pulls"]:
        ...     print(pull["group"], pull["rank"], "from writer", pull["writer"], pull["copied"], pull["looked"])

    `readers` and `writers` have the sums of each, `pulls` what each reader gets from each writer: bytes that are `copied`, in how many `runs`, those
    that are `looked` at where they lie, and whether they go to another node (`is_sent`). `copied` and `looked` are the sums of all, `steps` the steps
    in memory at a time, and `multiple` what these and the copies are as a multiple of the `bytes` of a step. `warnings` tell what may be slow, each
    with a `kind`, a `message` and a `hint`, and `missed` the nodes that have not answered, each with an `error`. Nobody waits for this, and it reads
    no array.

    Args:
        name: The stream.
        readers: As many readers are assumed beside those that are there, as a group `assumed`.
        dataspaces: As for `writer`.
        nodes: Other nodes of the pool that are asked: usually all, and none for an empty list.
        timeout: Seconds to wait for other nodes.

    Raises:
        NotFoundError: There is none, or the pool has no such node.
    """
    said = _stead.explain_stream(name, readers, _stage.given(dataspaces), named(nodes), timeout)
    told: dict[str, Any] = json.loads(said)
    return told


def remove_stream(
    name: str | os.PathLike[str],
    *,
    force: bool = False,
    dataspaces: _stage.Spaces = None,
    nodes: Sequence[str] | None = (),
    timeout: float = 10,
) -> list[dict[str, Any]]:
    """Removes a stream of this node, and of others of the pool if they are named. Tells where: a list of dicts with the `name` and, where there is a
    pool, the `node` of each that was removed, which is empty if there was none. At its end is each node that has not removed its own, as somebody
    writes or reads it there, or that has not answered, as a dict with the `node` and an `error`: of the latter it is not known whether it has.

        >>> kept = [told for told in stead.remove_stream("sim", nodes=None) if "error" in told]

    Args:
        name: The stream, or a folder with recorded steps, which are removed: that is one of this node alone.
        force: Also while somebody writes or reads it: who does is told. Arrays that readers have stay as they are.
        dataspaces: As for `writer`.
        nodes: Other nodes of the pool that remove theirs, too: none unless some are named, and all for None.
        timeout: Seconds to wait for other nodes.

    Raises:
        UsageError: Somebody writes or reads it, and `force` is not set; nothing was removed on any node.
        NotFoundError: The pool has no such node; or nothing was removed, and not all nodes have answered.
    """
    said = _stead.remove_stream(called(name), force, _stage.given(dataspaces), named(nodes), timeout)
    told: list[dict[str, Any]] = json.loads(said)
    return told
