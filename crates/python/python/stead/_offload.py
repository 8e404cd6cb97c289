"""Work that ranks of a job ask of others, which are where the data are."""

from __future__ import annotations

import operator
import sys

from . import _own, _progress, _stead
from ._dataset import Dataset, chosen, flat, size, telling, understood
from ._errors import make
from ._report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_code = understood.__code__
OPEN_OPTIONS = _code.co_varnames[_code.co_argcount : _code.co_argcount + _code.co_kwonlyargcount]
"""What `stead.open` takes, but for a communicator."""


def whole(number: Any) -> int:
    """A number of bytes."""
    found = operator.index(number)
    if not 0 <= found < 1 << 64:
        raise make("usage", f"{found} is no number of bytes of a view", hint="bytes are counted from 0, in 64 bits")
    return found


class FileView:
    """What is seen of a file: a pattern of stretches that repeats, as the file views of MPI-IO say it.

    >>> import stead
    >>> stead.FileView(800, [(8, 8)], 32)  # of 100 records of four doubles the second one
    FileView(800, [(8, 8)], 32, displacement=0, skip=0)

    Args:
        bytes: Bytes that are meant, of what is seen.
        runs: What is seen of one repetition: where each run begins in it, and its length; ascending, without overlaps.
        extent: Bytes after which the pattern repeats.
        displacement: Where in the file it begins.
        skip: Bytes that are left out before those that are meant, of what is seen.
    """

    __slots__ = {
        "bytes": "Bytes that are meant, of what is seen.",
        "runs": "Pairs of beginning and length of what is seen of one repetition, in bytes.",
        "extent": "Bytes after which the pattern repeats.",
        "displacement": "Where in the file it begins, in bytes.",
        "skip": "Bytes that are left out before those that are meant.",
    }

    def __init__(
        self, bytes: int, runs: Iterable[tuple[int, int]], extent: int, displacement: int = 0, skip: int = 0
    ) -> None:
        self.bytes, self.extent, self.displacement, self.skip = map(whole, (bytes, extent, displacement, skip))
        self.runs = [(whole(at), whole(length)) for at, length in runs]

    def __repr__(self) -> str:
        return f"FileView({self.bytes}, {self.runs}, {self.extent}, displacement={self.displacement}, skip={self.skip})"


class Site:
    """The storage ranks of a job, as a compute rank sees them. Made by `stead.offload`; a context manager, which says
    goodbye at its end. Any thread may ask; what more than 16 of them ask for waits. A child that was forked cannot."""

    def __init__(self, native: _stead.Site, known: dict[str, Any]) -> None:
        self._native = native
        self._known = known

    @property
    def storage(self) -> list[tuple[int, str]]:
        """The storage ranks, and the host of each."""
        return self._native.roles()[0]

    @property
    def compute(self) -> list[tuple[int, str]]:
        """The compute ranks, and the host of each."""
        return self._native.roles()[1]

    def run(
        self,
        source: Any,
        /,
        *kernels: Any,
        where: str | None = None,
        by: str | Iterable[str] | None = None,
        view: FileView | None = None,
        threads: int = 0,
        memory: int | str | None = None,
        chunk: int | str | None = None,
        lenient: bool = False,
        direct: bool = False,
        engine: str = "auto",
        queue_depth: int | None = None,
        progress: bool | Callable[[_progress.Snapshot], object] | None = False,
        cancel: _stead.Cancel | None = None,
        **options: Any,
    ) -> Report:
        """Has the storage ranks run kernels over a dataset, and waits for the report: that which `stead.run` has there.

        Every compute rank asks for itself, when it likes. Ctrl-C stops what was asked for.

        Args:
            source: A path, a glob, a directory or a layout, or a list of these, as the storage ranks see them.
            kernels: As for `Dataset.run`. Files that they write as a whole (`render`, with `out=`) are written by this rank;
                kernels that write what they make of each record are refused. Kernels of your own are among those that
                `stead.offload` was given on all ranks: the same class or object.
            where: Only rows for which this holds.
            by: Answers for each value of these columns.
            view: What is seen of the only file that is named.
            threads: Workers of each storage rank; 0 is one for each processor, which ranks of a node share.
            memory: Bytes for buffers and states on each storage node, or a size such as `"512MiB"`. The default is 1 GiB.
            chunk: Bytes that are read at once, or a size. Never changes an answer.
            lenient: Count and skip records that cannot be read, in place of failing.
            direct: Pass by the page cache.
            engine: How to read: `"auto"`, `"uring"` or `"pread"`.
            queue_depth: Reads in flight for each worker.
            progress: A function is called with a `stead.Snapshot` about twice a second; True shows a bar.
            cancel: A `stead.Cancel` with which another thread can stop it.
            options: What is known of the format, as for `stead.open`: `type`, `dtype`, `delimiter`, ...

        Raises:
            UsageError: The request makes no sense, the site is closed, or this process was forked from the one that has it.
            NotFoundError: The storage ranks do not see the data.
            PeerError: A storage rank is gone; the message says which, and on which host.
            CancelledError: `cancel` was used, or the storage ranks were stopped.
            Error: As `Dataset.run` on the storage ranks, with rank and host.
        """
        unknown = [name for name in options if name not in OPEN_OPTIONS]
        if unknown:
            raise TypeError(f"run() got an unexpected keyword argument '{unknown[0]}'")
        found = understood(source, **(dict.fromkeys(OPEN_OPTIONS) | options))
        if isinstance(found, Dataset):
            raise make("usage", "data in memory are those of this process", hint="run over them here: stead.run")
        specs, own = chosen(kernels)
        given = [k for k in flat(kernels) if not isinstance(k, str)]
        for what, k in zip(given, own):
            if k.name not in self._known:
                hint = "give it to stead.offload on all ranks: kernels=[...]"
                raise make("usage", f"the storage ranks do not know the kernel '{k.name}'", hint=hint)
            # They find it by its name: another one of that name would be run in its place.
            if self._known[k.name] is not what:
                hint = "ask for the one that stead.offload was given, or give it both, each with a name of its own: name="
                raise make("usage", f"the storage ranks know another kernel called '{k.name}'", hint=hint)
        bar = None
        if progress is True:
            progress = bar = _progress.Bar(sys.stderr)
        tell = progress if callable(progress) else None
        arguments = {
            "paths": found[0],
            "kernels": specs,
            "operations": [k.name for k in own],
            "filter": where,
            "by": [by] if isinstance(by, str) else list(by or ()),
            "view": None if view is None else (view.displacement, view.extent, view.runs, view.skip, view.bytes),
            "threads": threads,
            "memory": size(memory),
            "chunk": size(chunk),
            "lenient": lenient,
            "direct": direct,
            "engine": engine,
            "queue_depth": queue_depth,
            "progress": None if tell is None else lambda *now: tell(_progress.Snapshot(*now)),
            "cancel": cancel,
        }
        try:
            report = self._native.run(arguments, found[1])
        finally:
            if bar is not None:
                bar.close()
        return Report(report, {}, [k.object for k in own])

    def close(self) -> None:
        """Says goodbye: the storage ranks wait for this rank no longer. What other threads have asked for is cancelled."""
        self._native.close()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        hosts = sorted({host for _, host in self.storage})
        return f"<stead.Site: {len(self.storage)} storage rank(s) on {', '.join(hosts)}>"


def offload(
    comm: Any,
    *,
    storage: str | bool,
    kernels: Iterable[Any] = (),
    memory: int | str | None = None,
) -> Site | None:
    """Has some ranks of a job work for the others: those that are where the data are.

    All ranks of the communicator make this call. Compute ranks get a `Site`, by which they ask when they like. Storage ranks
    stay in the call, do what is asked for, and get None when all compute ranks have closed their site or ended.

        from mpi4py import MPI
        import stead

        site = stead.offload(MPI.COMM_WORLD, storage="node[1-2]")
        if site is not None:
            with site:
                r = site.run("/data/flights.csv", "mean:arr_delay", by="carrier")

    The first storage rank takes what is asked for, from one compute rank after the other, and all storage ranks run it
    together; data of at most 4 MiB it runs over alone.

    Args:
        comm: A communicator of mpi4py. Needs `libstead_mpi`, which the environment variable `STEAD_MPI_LIBRARY` may name.
        storage: The storage hosts, such as `"node[1-4]"` or `"a,b"`, or `"layout:FILE"`, the nodes of a layout that the first
            rank reads: the same on all ranks. Or whether this rank is a storage rank.
        kernels: Kernels written in Python (`stead.kernel`) that compute ranks may ask for: the same on all ranks.
        memory: The most bytes that a run may have on this node, whatever is asked for.

    Raises:
        UsageError: A host has no rank, no rank is a storage rank, or all are.
        PeerError: Another rank is gone.
        Error: On storage ranks: they were stopped, or their first one is gone.
    """
    from . import _mpi

    ranks = _mpi.source(comm)
    with telling(ranks):
        if not isinstance(storage, (str, bool)):
            raise TypeError(f"storage= is a list of hosts, or True or False, not a {type(storage).__name__}")
        given = list(flat(kernels))
        for k in given:
            if not _own.is_kernel(k):
                raise TypeError(f"a {type(k).__name__} is no kernel of your own: {k!r}; see stead.kernel")
        own = [_own.instance(k) for k in given]
        names = [k.name for k in own]
        if len(set(names)) < len(names):
            raise make("usage", "two kernels have one name", hint="give each kernel of your own another one: name=")
        arguments = {
            "comm": ranks,
            "hosts": storage if isinstance(storage, str) else None,
            "storage": storage is True,
            "kernels": own,
            "memory": size(memory),
        }
    native = _stead.offload(arguments)
    if native is None:
        return None
    site = Site(native, dict(zip(names, given)))
    _mpi.close_before_mpi(site)
    return site
