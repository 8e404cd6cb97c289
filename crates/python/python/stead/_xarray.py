"""Steps of streams as data sets of xarray."""

from __future__ import annotations

from functools import cache

from . import _stream_step, _streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any


@cache
def _lazy() -> Any:
    """The class of variables of steps. One for all: a class is garbage in a cycle, and would keep a step until somebody collects that."""
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class Lazy(BackendArray):
        """A variable of a step, of which boxes are read."""

        def __init__(self, step: _stream_step.Step, variable: _stream_step.Variable) -> None:
            self.step, self.name, self.shape, self.dtype = step, variable.name, variable.shape, variable.dtype

        def __getitem__(self, key: Any) -> Any:
            return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self.read)

        def read(self, key: tuple[Any, ...]) -> Any:
            """What an index of whole numbers and slices has."""
            return self.step.get(self.name, key)

    return Lazy


def dataset(step: _stream_step.Step) -> Any:
    """A step as an `xarray.Dataset` whose variables are read when they are looked at."""
    try:
        from xarray import Dataset, Variable
        from xarray.core import indexing

        lazy = _lazy()
    except ImportError as e:
        raise ImportError("steps are data sets with the package xarray: pip install xarray") from e
    made = {}
    for name, variable in step.variables.items():
        # Each dimension without a name has one of its own: others of that length are other dimensions.
        dims = variable.dims or tuple(f"{name}_{n}" for n in range(variable.ndim))
        made[name] = Variable(dims, indexing.LazilyIndexedArray(lazy(step, variable)), variable.attributes)
    return Dataset(made, attrs={"step": step.number})


class Datasets:
    """Steps of a stream as data sets of xarray, as `stead.open_stream` gives them: for `for`, for `async for`, and for `with`."""

    __slots__ = {"reader": "The reader that they come from."}
    reader: _streams.StreamReader

    def __init__(self, reader: _streams.StreamReader) -> None:
        self.reader = reader

    def at(self, number: int) -> Any:
        """The data set of a step that is still there, whether it was given or not.

        Raises:
            NotFoundError: It is not there any more, or not complete yet; the error says which ones are.
        """
        return dataset(self.reader.at(number))

    def close(self) -> None:
        """Closes the reader. Data sets that were had go on as they are."""
        self.reader.close()

    def __iter__(self) -> Datasets:
        return self

    def __next__(self) -> Any:
        return dataset(next(self.reader))

    def __aiter__(self) -> Datasets:
        return self

    async def __anext__(self) -> Any:
        return dataset(await self.reader.__anext__())

    def __enter__(self) -> Datasets:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Datasets({self.reader!r})"


def open_stream(name: str, **options: Any) -> Datasets:
    """Reads a stream as data sets of xarray, one for each step: with the names of dimensions, units and attributes that writers have said.

        >>> for ds in stead.open_stream("sim"):
        ...     print(ds.attrs["step"], float(ds["T"].sel(y=slice(0, 5)).mean()))

    `at(n)` of what comes back gives the data set of a step that is still there, and with `async for` tasks of asyncio wait for steps.

    Variables are read when they are looked at, and only what is looked at; where it lies in one block of a writer it is not copied, and is for
    reading only. A data set keeps the memory of its step as long as there is one of its variables. A variable with the name of its only
    dimension is its coordinate, and is read at once. Needs the package xarray.

    Args:
        name: The stream.
        options: As for `reader`.

    Raises:
        ImportError: There is no xarray.
        Error: As of `reader`.
    """
    try:
        import xarray  # noqa: F401
    except ImportError as e:
        raise ImportError("stead.open_stream needs the package xarray: pip install xarray") from e
    return Datasets(_streams.reader(name, **options))
