"""Datasets and runs."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

from . import _own, _progress, _stead
from ._errors import UsageError, make
from ._report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    Path = str | os.PathLike[str]


class Description(dict):  # type: ignore[type-arg]
    """What a dataset is: `format`, `details`, `records`, `columns`, `shape`, `files`, `bytes`, `extents`,
    `compression`, and `rows`, the first records as text. Prints as `stead describe` does."""

    def __init__(self, members: dict[str, Any], text: str) -> None:
        super().__init__(members)
        self._text = text

    def __repr__(self) -> str:
        return self._text.rstrip("\n")

    def _repr_html_(self) -> str:
        from ._display import description

        return description(self)


class Dataset:
    """Files, an array or a table that are read as one. Made by `stead.open`."""

    def __init__(self, native: _stead.Dataset, left_out: dict[str, str] | None = None) -> None:
        self._native = native
        self.left_out: dict[str, str] = left_out or {}
        """Columns of a data frame that hold no numbers and are not there, with their types."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns. Lines of text and opaque records have none; arrays of other than two
        dimensions have one, `value`."""
        return [name for name, _ in self._native.columns]

    @property
    def types(self) -> dict[str, str]:
        """Type of each column: `number` (written as text), `text`, or an element type such as `f64`."""
        return dict(self._native.columns)

    @property
    def format(self) -> str:
        """`csv`, `tsv`, `lines`, `records`, `npy`, `raw` (arrays), `tipsy` or `table`."""
        return self._native.format

    @property
    def files(self) -> list[str]:
        """The files, in order. For what lies in memory: its name, or those of its columns."""
        return self._native.files

    @property
    def nbytes(self) -> int:
        """Bytes of all files, as they lie there."""
        return self._native.nbytes

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Lengths of the dimensions of an array; None for everything else."""
        shape = self._native.shape
        return None if shape is None else tuple(shape)

    def describe(self, rows: int = 5) -> Description:
        """What the dataset is, with its first `rows` records. Reads the beginning only."""
        import json

        members, text = self._native.describe(rows)
        return Description(json.loads(members), text)

    def __repr__(self) -> str:
        what = self.files[0] if len(self.files) == 1 else f"{len(self.files)} files"
        if self.format == "table":
            what = "in memory"
        shape = f", shape {self.shape}" if self.shape is not None else ""
        columns = ", ".join(self.columns[:8]) + (", ..." if len(self.columns) > 8 else "")
        columns = f", columns {columns}" if columns and len(self.shape or (0, 0)) == 2 else ""
        return f"<stead.Dataset {what}: {self.format}, {_progress.size(self.nbytes)}{shape}{columns}>"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()

    def run(
        self,
        *kernels: Any,
        where: str | None = None,
        by: str | Iterable[str] | None = None,
        threads: int = 0,
        memory: int | str | None = None,
        chunk: int | str | None = None,
        lenient: bool = False,
        direct: bool = False,
        engine: str = "auto",
        queue_depth: int | None = None,
        place: str = "auto",
        progress: bool | Callable[[_progress.Snapshot], object] | None = None,
        cancel: _stead.Cancel | None = None,
        comm: Any = None,
    ) -> Report:
        """Runs kernels over the dataset, all of them in one scan.

        The interpreter's lock is free during the run, but for kernels written in Python. Ctrl-C stops it with
        KeyboardInterrupt. What kernels of your own and callbacks raise is raised here.

        Args:
            kernels: Such as `stead.mean("x")`, texts such as `"mean:x"`, kernels of your own (`stead.kernel`), or lists
                of these.
            where: Only rows for which this holds, such as `"delay > 0 and carrier in ('UA', 'AA')"`;
                `stead.where_help()` tells the language.
            by: Answers for each value of these columns.
            threads: Workers; 0 is one for each processor, which ranks of a node share. Never changes an answer.
            memory: Bytes for buffers and states, or a size such as `"512MiB"`. The default is 1 GiB. Ranks of a node
                share it.
            chunk: Bytes that are read at once, or a size. Never changes an answer.
            lenient: Count and skip records that cannot be read, in place of failing.
            direct: Pass by the page cache.
            engine: How to read: `"auto"`, `"uring"` or `"pread"`.
            queue_depth: Reads in flight for each worker.
            place: Where to compute, for data that were opened with `storage_hosts=`: `"pull"` moves the bytes, `"push"` the
                kernels, `"vector"` the columns, which the storage hosts parse, `"split"` has both sides compute, `"auto"` takes
                what is predicted to be faster. Never changes an answer.
            progress: None shows a bar on a terminal and in a notebook, for runs longer than half a second; True shows
                it always, False never. A function is called with a `stead.Snapshot` about ten times a second.
            cancel: A `stead.Cancel` with which another thread can stop the run. A run that Ctrl-C or an exception of a
                callback ends has used it, too.
            comm: A communicator of mpi4py, all ranks of which make this call: they share out the bytes of files that all
                of them see, and get the same results, those that one rank alone would get. Needs `libstead_mpi`, which the
                environment variable `STEAD_MPI_LIBRARY` may name.

        Returns:
            The results by specification, the plan, and what it took.

        Raises:
            UsageError: The request makes no sense: no such kernel or column, a bad filter or option.
            DataError: A record cannot be read.
            LimitError: The memory does not suffice.
            CancelledError: `cancel` was used.
            ChangedError: With `comm`: ranks see files of different lengths or times.
            PeerError: Another rank is gone.
            Error: Something else failed; see its subclasses.
        """
        ranks = None
        if comm is not None:
            from . import _mpi

            ranks = _mpi.source(comm)
        bar = None
        with telling(ranks):
            specs, own = chosen(kernels)
            if progress is True or (progress is None and _progress.wanted()):
                # Of several ranks the first one shows how far all are.
                progress = bar = _progress.Bar(sys.stderr) if comm is None or comm.Get_rank() == 0 else None
            tell = progress if callable(progress) else None
            arguments = {
                "kernels": specs,
                "own": own,
                "filter": where,
                "by": [by] if isinstance(by, str) else list(by or ()),
                "threads": threads,
                "memory": size(memory),
                "chunk": size(chunk),
                "lenient": lenient,
                "direct": direct,
                "engine": engine,
                "queue_depth": queue_depth,
                "place": place,
                "progress": None if tell is None else lambda *now: tell(_progress.Snapshot(*now)),
                "cancel": cancel,
                "ranks": 1,
                "comm": ranks,
            }
        try:
            report = self._native.run(arguments)
        except UsageError as e:
            if self.left_out:
                from ._memory import explain_left_out

                raise explain_left_out(e, self.left_out) from None
            raise
        finally:
            if bar is not None:
                bar.close()
        return Report(report, dict(self._native.columns), [k.object for k in own])


@contextmanager
def telling(ranks: tuple[int, int] | None) -> Iterator[None]:
    """Other ranks are in the same call, or will be: they hear of what goes wrong here, and do not wait."""
    try:
        yield
    except Exception as e:
        if ranks is not None:
            _stead.refuse_run(*ranks, str(e))
        raise


def chosen(kernels: Iterable[Any]) -> tuple[list[str], list[Any]]:
    """Kernels by their specifications, and those written in Python."""
    specs, own = [], []
    for k in flat(kernels):
        if isinstance(k, str):
            # Only `str` itself: the text of a subclass is its key.
            specs.append(str(k))
        elif _own.is_kernel(k):
            own.append(_own.instance(k))
        else:
            raise TypeError(f"a {type(k).__name__} is no kernel: {k!r}; see stead.kernels() and stead.kernel")
    if not specs and not own:
        raise make("usage", "no kernel is asked for", hint="name at least one, such as stead.rows()")
    return specs, own


def flat(kernels: Iterable[Any]) -> Iterable[Any]:
    """Kernels out of lists of kernels."""
    for k in kernels:
        if isinstance(k, (list, tuple)):
            yield from flat(k)
        else:
            yield k


def size(value: int | str | None) -> int | None:
    """Bytes that a number or a text such as `512MiB` means."""
    return _stead.parse_size(value) if isinstance(value, str) else value


def open(
    source: Any,
    /,
    *,
    type: str | None = None,
    delimiter: str | None = None,
    quote: str | bool | None = None,
    header: bool | None = None,
    comment: str | None = None,
    missing: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    column_types: Mapping[str, str] | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    order: str | None = None,
    byte_order: str | None = None,
    skip: int | str | None = None,
    record_length: int | str | None = None,
    compression: str | None = None,
    species: str | None = None,
    dataspaces: Mapping[str, str | os.PathLike[str]] | None = None,
    nan: str | None = None,
    name: str | None = None,
    comm: Any = None,
    storage_hosts: str | None = None,
) -> Dataset:
    """Opens a dataset. What is not said is detected.

    Paths, globs and directories, or a list of these, are files that are read as one dataset.

    A NumPy array of float32, float64, int8 to int64, uint8 to uint64 or bool may have any shape: the rows of a 2-d
    array are records and its columns are columns, named by position or by `names`; the elements of any other array
    are records of one column, `value`. Arrays in C or Fortran order are not copied, others once.

    A dict of 1-d arrays of one length, a data frame of pandas or polars, a table of Arrow, and a structured array are
    tables. Columns that hold no numbers are left out (`Dataset.left_out`). Copied are only columns with gaps, in
    another byte order, or with missing values that are marked in another way than stead's.

    bytes, bytearray and memoryview are what a file would hold: text, `.npy` or raw elements. They are not copied.

    What lies in memory is kept alive by the dataset, and must not be changed while it runs.

    Args:
        source: What to open.
        type: `csv`, `tsv`, `lines`, `records`, `npy`, `raw` or `tipsy`.
        delimiter: Character between fields of delimited text.
        quote: Character around fields; False if there is none.
        header: Whether the first row names the columns.
        comment: Lines that begin with this character are no records.
        missing: Texts that mean "no value", in place of the default ones.
        names: Column names, in place of the header's or of positions.
        column_types: What columns hold, such as `{"zip": "text"}`; `number` or `text`.
        dtype: Element type of a raw file: `"f64"`, or whatever `numpy.dtype` takes.
        shape: Shape of a raw file.
        order: Index order of a raw file: `"C"` (last index fastest) or `"F"`.
        byte_order: Byte order of a raw file: `"little"` or `"big"`.
        skip: Bytes before the first element or fixed record, or a size such as `"1KiB"`.
        record_length: Bytes of one record, for `records`.
        compression: `none`, `gzip` or `zstd`.
        species: Only particles of this kind of a Tipsy file: `gas`, `dark` or `star`.
        dataspaces: Folders of dataspaces of this node, before those that are configured in `stead.toml`: for layouts.
        nan: What NaN means in arrays and tables in memory: `"value"`, which propagates as in NumPy, or `"missing"`,
            which is left out as in pandas. The default is that of the package the data come from.
        name: What stands for the file's name in messages about bytes and arrays.
        comm: A communicator of mpi4py, all ranks of which make this call, for data that lie on their nodes: layouts, and
            files that each rank has written (`out.%r.bin`). `run` is given it, too.
        storage_hosts: Hosts whose ranks have the data, such as `"node[1-4]"`, or `"layout"`, the nodes of the layouts that are
            opened, or `"layout:FILE"`, those of another one; ranks on other hosts ask for them. With `comm`.

    Returns:
        The dataset. Only the beginning of its files has been read.

    Raises:
        NotFoundError: There is no such file.
        FormatError: A file is empty, of no known format, or unlike the first one.
        UsageError: Options contradict each other or the data.
        TypeError: There is no way to open such an object, or elements of such a type.
    """
    ranks = None
    if comm is not None:
        from . import _mpi

        ranks = _mpi.source(comm)
    if storage_hosts is not None and comm is None:
        raise make("usage", "storage_hosts= tells ranks apart, and there is no comm=", hint="give it a communicator of mpi4py")
    with telling(ranks):
        found = understood(
            source,
            type=type,
            delimiter=delimiter,
            quote=quote,
            header=header,
            comment=comment,
            missing=missing,
            names=names,
            column_types=column_types,
            dtype=dtype,
            shape=shape,
            order=order,
            byte_order=byte_order,
            skip=skip,
            record_length=record_length,
            compression=compression,
            species=species,
            dataspaces=dataspaces,
            storage_hosts=storage_hosts,
            nan=nan,
            name=name,
        )
    if isinstance(found, Dataset):
        return found
    # All ranks get its errors.
    return Dataset(_stead.open_files(*found, ranks))


def understood(
    source: Any,
    /,
    *,
    type: Any,
    delimiter: Any,
    quote: Any,
    header: Any,
    comment: Any,
    missing: Any,
    names: Any,
    column_types: Any,
    dtype: Any,
    shape: Any,
    order: Any,
    byte_order: Any,
    skip: Any,
    record_length: Any,
    compression: Any,
    species: Any,
    dataspaces: Any,
    storage_hosts: Any,
    nan: Any,
    name: Any,
) -> Dataset | tuple[list[str], dict[str, Any]]:
    """What is in memory, or the paths and options of files."""
    if nan not in (None, "value", "missing"):
        raise make("usage", f"nan={nan!r}", hint='it is "value" or "missing"')
    if names is not None:
        names = [names] if isinstance(names, str) else [str(n) for n in names]
    options = {
        "type": type,
        "delimiter": delimiter,
        "quote": False if quote == "none" else quote,
        "header": header,
        "comment": comment,
        "missing": missing,
        "names": names,
        "column_types": None if column_types is None else dict(column_types),
        "dtype": None if dtype is None else dtype_name(dtype),
        "shape": None if shape is None else [int(n) for n in shape],
        "order": order,
        "byte_order": byte_order,
        "skip": size(skip),
        "record_length": size(record_length),
        "compression": compression,
        "species": species,
        "dataspaces": None if dataspaces is None else [f"{name}={os.fspath(path)}" for name, path in dataspaces.items()],
        "storage_hosts": storage_hosts,
    }
    if isinstance(source, (bytes, bytearray, memoryview)):
        from ._memory import open_bytes

        refuse(nan is not None, "nan")
        return Dataset(open_bytes(source, name or "memory", options))
    if isinstance(source, (str, os.PathLike)):
        paths = [source]
    elif isinstance(source, (list, tuple, set, frozenset)) and all(isinstance(p, (str, os.PathLike)) for p in source):
        paths = list(source)
    else:
        said = [k for k, v in options.items() if v is not None and k != "names"]
        refuse(bool(said), ", ".join(said))
        return in_memory(source, names, nan, name or "array")
    refuse(nan is not None, "nan")
    refuse(name is not None, "name")
    return [os.fsdecode(p) for p in paths], options


def refuse(given: bool, option: str) -> None:
    """An error if an option is given that means nothing for this source."""
    if given:
        raise make("usage", f"{option}= makes no sense for this source", hint="see help(stead.open)")


def dtype_name(dtype: Any) -> str:
    """stead's name of an element type: `f64`, `i32`, ..."""
    if isinstance(dtype, str) and dtype[:1] in "fiu" and dtype[1:] in ("8", "16", "32", "64"):
        return dtype
    import numpy as np

    found = np.dtype(dtype)
    return f"{found.kind.replace('b', 'u')}{found.itemsize * 8}"


def in_memory(source: Any, names: Sequence[str] | None, nan: str | None, name: str) -> Dataset:
    """Arrays and tables."""
    import numpy as np

    from . import _memory

    columns: list[tuple[str, Any]] | None = None
    frame = False
    if isinstance(source, np.ndarray) and source.dtype.names:
        columns = [(n, source[n]) for n in source.dtype.names]
    elif isinstance(source, dict):
        columns = [(str(k), v) for k, v in source.items()]
    elif not isinstance(source, np.ndarray) and hasattr(source, "columns") and hasattr(source, "__getitem__"):
        frame = True
        # Tables of Arrow have their columns themselves under `columns`.
        keys = list(getattr(source, "column_names", source.columns))
        by_position = getattr(source, "iloc", None)
        # By position: two columns of a frame of pandas may have one name.
        columns = [(str(k), source[k] if by_position is None else by_position[:, i]) for i, k in enumerate(keys)]
    if columns is not None:
        if names is not None:
            if len(names) != len(columns):
                raise make("usage", f"{len(names)} column names were given, and there are {len(columns)} columns")
            columns = [(n, v) for n, (_, v) in zip(names, columns)]
        native, left_out = _memory.open_table(columns, nan == "missing" or (frame and nan is None))
        return Dataset(native, left_out)
    if not isinstance(source, np.ndarray):
        if not (hasattr(source, "to_numpy") or hasattr(source, "__array__")):
            raise TypeError(
                f"a {source.__class__.__name__} cannot be opened; give a path, a NumPy array, a dict of arrays, a data "
                "frame or bytes"
            )
        series = hasattr(source, "to_numpy")
        if series:
            key = str(getattr(source, "name", None) or "value")
            native, left_out = _memory.open_table([(key, source)], nan != "value")
            return Dataset(native, left_out)
        source = np.asarray(source)
    if nan == "missing" and source.dtype.kind == "f":
        mask = np.isnan(source)
        source = _memory.with_missing(source, mask) if mask.any() else source
    return Dataset(_memory.open_array(source, name, None if names is None else list(names)))


def run(source: Any, /, *kernels: Any, **options: Any) -> Report:
    """`stead.open(source).run(*kernels)` in one call; keywords go to where they belong.

    >>> stead.run("flights.csv", "mean:arr_delay", where="dep_delay > 0")
    """
    to_run = {k: options.pop(k) for k in list(options) if k in RUN_OPTIONS}
    dataset = open(source, comm=to_run.get("comm"), **options)
    return dataset.run(*kernels, **to_run)


RUN_OPTIONS = frozenset(
    (
        "where",
        "by",
        "threads",
        "memory",
        "chunk",
        "lenient",
        "direct",
        "engine",
        "queue_depth",
        "place",
        "progress",
        "cancel",
        "comm",
    )
)
