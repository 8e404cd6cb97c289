"""A step of a stream, as its readers have it: arrays of NumPy where they lie, or copied together."""

from __future__ import annotations

from functools import cache

from . import _stead
from ._dataset import size
from ._errors import Error, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import Any, TypeAlias

    import numpy as np

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    Box: TypeAlias = "slice | int | tuple[slice | int, ...] | tuple[Sequence[int], Sequence[int]] | None"


@cache
def numpy_type(dtype: str) -> np.dtype[Any]:
    """What NumPy calls a type of elements."""
    import numpy as np

    return np.dtype(f"{dtype[0]}{int(dtype[1:]) // 8}")


class Variable:
    """What a variable of a step is: an array that writers have put parts of."""

    __slots__ = {
        "name": "Its name.",
        "dtype": "The type of its elements.",
        "shape": "The lengths of the whole array; none of a single number.",
        "dims": "The names of its dimensions; empty if they have none.",
        "attributes": "What else writers say of it: text, numbers, or lists of these, by their names.",
    }
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    attributes: dict[str, Any]

    def __init__(self, name: str, told: _stead._Definition) -> None:
        dtype, shape, dims, attributes = told
        self.name, self.dtype = name, numpy_type(dtype)
        self.shape, self.dims, self.attributes = tuple(shape), tuple(dims), dict(attributes)

    @property
    def units(self) -> str | None:
        """The attribute `units`, if there is one."""
        return self.attributes.get("units")

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        import math

        return math.prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.dtype}, {self.shape})"


class Step:
    """A step of a stream, complete: its variables by their names, `step["T"]`, or parts of them, `step.get("T", np.s_[0:5])`.

    It stays as it is as long as somebody has it, or an array of it, and takes memory of its writers meanwhile.
    """

    __slots__ = ("_step", "_facts")

    def __init__(self, step: _stead.StreamStep) -> None:
        self._step, self._facts = step, step.facts()

    @property
    def number(self) -> int:
        """Its number, from 0 on."""
        return self._facts[0]

    @property
    def dropped(self) -> int:
        """Steps before it that this reader was not given, as they had gone before it came to them."""
        return self._facts[1]

    @property
    def bytes(self) -> int:
        """Bytes of the arrays that writers have put into it."""
        return self._facts[2]

    @property
    def completed(self) -> datetime:
        """When its last writer ended it, in UTC."""
        from datetime import datetime, timedelta, timezone

        return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=self._facts[3] // 1000)

    def report(self) -> dict[str, Any]:
        """What the step has cost this reader so far: how many `copies` of boxes it has made, bytes that were `copied`, that were `looked` at where they
        lie, and `fetched` from other nodes, `copy_cpu_s`, seconds of processors that its copies have taken (those of 64 KiB or more), and `waited_s`,
        seconds that were waited for it. `peak_steps` is the most memory that the stream has taken on this node at a time, as a multiple of what
        writers here have put into the step; without writers on this node, that of the nodes which it comes from, and None of a folder."""
        import json

        told: dict[str, Any] = json.loads(self._step.report())
        return told

    @property
    def variables(self) -> dict[str, Variable]:
        """What there is in it."""
        return {name: self.variable(name) for name in self._step.names()}

    def variable(self, name: str) -> Variable:
        """What one variable is.

        Raises:
            NotFoundError: There is none of this name.
        """
        return Variable(name, self._step.variable(name))

    def parts(self, name: str) -> list[tuple[int, tuple[slice, ...]]]:
        """Which parts of a variable writers have put: the rank of each writer, and its box.

        Raises:
            NotFoundError: There is no such variable.
        """
        boxes = self._step.parts(name)
        return [(rank, tuple(slice(at, at + n) for at, n in zip(start, count))) for rank, start, count in boxes]

    def get(self, name: str, box: Box = None, *, fill: Any = None) -> Array:
        """A variable, or a box of it. Where that lies in one block of a writer, the array looks at the memory of the writer; what lies in
        several blocks is copied together, once. The array is for reading only.

        Args:
            name: The variable.
            box: As an index of NumPy, of slices and whole numbers: `np.s_[0:5, 10:20]`; or a pair of a start and a count of each dimension:
                `((0, 10), (5, 10))`. All of it if it is not said.
            fill: What stands where nobody has put anything. That is an error if it is not said.

        Raises:
            NotFoundError: There is no such variable, or nobody has put a part of the box.
            UsageError: The box is not within the shape.
            PeerError: The stream was removed.
        """
        if box is None and (found := self._step.whole(name)) is not None:
            memory, dtype, shape = found
            return over(memory, shape, numpy_type(dtype))
        variable = self.variable(name)
        start, count, index = bounds(variable, box)
        array = self._look(variable, start, count)
        if array is None:
            import numpy as np

            array = np.empty(count, variable.dtype) if fill is None else np.full(count, fill, variable.dtype)
            self._step.get_into(name, start, count, array, fill is not None)
            array.flags.writeable = False
        return array if index is None else array[index]

    def _look(self, variable: Variable, start: list[int], count: list[int]) -> Array | None:
        there = self._step.view(variable.name, start, count)
        return None if there is None else over(there[0], count, variable.dtype, there[1])

    def get_into(self, name: str, box: Box, out: Array) -> Array:
        """As `get`, into an array that is there: of the same type, and of the shape of the box. It comes back.

        Raises:
            TypeError: The array has elements of another type, or is for reading only.
            ValueError: It has another shape.
            Error: As of `get`.
        """
        import numpy as np

        variable = self.variable(name)
        start, count, index = bounds(variable, box)
        if not isinstance(out, np.ndarray) or out.dtype != variable.dtype:
            kind = out.dtype if isinstance(out, np.ndarray) else type(out).__name__
            raise TypeError(f"variable '{name}' needs an array of {variable.dtype}, not of {kind}")
        shape = tuple(count) if index is None else np.broadcast_to(np.uint8(0), count)[index].shape
        if out.shape != shape:
            raise ValueError(f"this part of variable '{name}' has the shape {shape}, and the array {out.shape}")
        if not out.flags.writeable:
            raise TypeError("the array is for reading only")
        if out.flags.c_contiguous and index is None:
            self._step.get_into(name, start, count, out, False)
        else:
            whole = self._look(variable, start, count)
            if whole is None:
                whole = np.empty(count, variable.dtype)
                self._step.get_into(name, start, count, whole, False)
            out[...] = whole if index is None else whole[index]
        return out

    def __getitem__(self, name: str) -> Array:
        """The whole variable, as by `get`."""
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._step.has(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._step.names())

    def __len__(self) -> int:
        return len(self._step.names())

    def __repr__(self) -> str:
        return f"Step({self.number}, {self.bytes} bytes)"


def over(memory: Any, shape: list[int], dtype: np.dtype[Any], strides: list[int] | None = None) -> Array:
    """An array whose elements are these bytes."""
    import numpy as np

    array: Array = np.ndarray(shape, dtype, memory, 0, strides)
    return array


def bounds(variable: Variable, box: Any) -> tuple[list[int], list[int], Any]:
    """Start and count of a box, and what picks from it what was asked for, if that is not all of it."""
    shape = variable.shape
    if box is None:
        return [0] * len(shape), list(shape), None

    def wrong() -> Error:
        return make(
            "usage",
            f"variable '{variable.name}' of shape {shape} has no box {box!r}",
            hint="use slices, as np.s_[0:5, 10:20], or a pair of a start and a count of each dimension",
        )

    if isinstance(box, tuple) and len(box) == 2 and all(hasattr(one, "__len__") for one in box):
        start, count = ([natural(n, wrong) for n in one] for one in box)
        if len(start) != len(shape) or len(count) != len(shape):
            raise wrong()
        return start, count, None
    index = list(box) if isinstance(box, tuple) else [box]
    dots = [at for at, one in enumerate(index) if one is ...]
    rest = len(shape) - len(index) + len(dots)
    if len(dots) > 1 or rest < 0:
        raise wrong()
    at = dots[0] if dots else len(index)
    index[at : at + len(dots)] = [slice(None)] * rest
    start, count = [], []
    picks: list[slice | int] = []
    for one, length in zip(index, shape):
        if isinstance(one, slice):
            try:
                along = range(length)[one]
            except (TypeError, ValueError):
                raise wrong() from None
            first, last = (min(along[0], along[-1]), max(along[0], along[-1])) if along else (0, -1)
            start.append(first)
            count.append(last + 1 - first)
            picks.append(slice(None, None, along.step if len(along) > 1 else None))
        else:
            n = whole(one, wrong)
            if not -length <= n < length:
                raise wrong()
            start.append(n % length)
            count.append(1)
            picks.append(0)
    plain = all(isinstance(pick, slice) and pick.step in (None, 1) for pick in picks)
    return start, count, None if plain else tuple(picks) + (...,)


def whole(n: Any, wrong: Callable[[], Error]) -> int:
    """A whole number."""
    try:
        if not isinstance(n, bool):
            return int(n.__index__())
    except (AttributeError, TypeError):
        pass
    raise wrong() from None


def natural(n: Any, wrong: Callable[[], Error]) -> int:
    """A whole number that is not negative."""
    n = whole(n, wrong)
    if n < 0:
        raise wrong()
    return int(n)
