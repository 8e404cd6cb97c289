"""Kernels written in Python."""

from __future__ import annotations

import operator
from collections import namedtuple

from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

METHODS = ("init", "update", "merge", "finish")
TEXT = ("str", "bytes")

Described = namedtuple("Described", "name columns text records order object")
"""What the extension module gets of a kernel."""


class FunctionKernel:
    """A kernel made of a function of one block; see `stead.kernel`."""

    def __init__(
        self,
        function: Callable[..., Any],
        columns: Sequence[str],
        merge: Callable[[Any, Any], Any],
        finish: Callable[[Any], Any] | None,
        name: str,
        text: str,
        records: bool,
        order: bool,
    ) -> None:
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.columns, self.name, self.text, self.records, self.order = columns, name, text, records, order
        self._merge, self._finish = merge, finish

    def __call__(self, *columns: Any) -> Any:
        return self.__wrapped__(*columns)

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {', '.join(['records'] * self.records + list(self.columns))}>"

    # A state is a list of at most one part, so that a part may be anything, None too.
    def init(self) -> list[Any]:
        return []

    def update(self, state: list[Any], *columns: Any) -> list[Any]:
        part = self.__wrapped__(*columns)
        return [self._merge(state[0], part)] if state else [part]

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        return [self._merge(state[0], other[0])] if state and other else state or other

    def finish(self, state: list[Any]) -> Any:
        if not state:
            return None
        return self._finish(state[0]) if self._finish else state[0]


def kernel(
    columns: str | Sequence[str] = (),
    *,
    merge: Callable[[Any, Any], Any] = operator.add,
    finish: Callable[[Any], Any] | None = None,
    name: str | None = None,
    text: str = "str",
    records: bool = False,
    order: bool = False,
) -> Callable[[Any], Any]:
    """Makes a kernel of a class or a function.

    For each block of rows the function, or `update` of the class, gets one array for each column: float64 for
    numbers, with missing values as NaN (see `stead.is_missing`); object arrays of `str` (or `bytes`) and `None` for
    text. The arrays are its own: it may change and keep them. They have the rows that passed the filter, at least one,
    and some 10,000 to 100,000 in a large dataset.

    A **function** returns what it found in one block. `merge(a, b)` makes one of two of these, `finish(part)` makes
    the answer of the last one. Without rows the answer is None.

    A **class** has these methods. An instance of it is given to `run`, or the class itself if it takes no arguments;
    an instance may set `self.columns`, `self.name`, `self.text`, `self.records` and `self.order`.

        init() -> state             the state of no rows: any object
        update(state, *columns)     adds a block; returns the new state, or None if it changed the old one
        merge(state, other)         adds another state; returns as `update`
        finish(state) -> answer     numbers, text, None, lists, dicts (keys become text) or NumPy arrays; or the
                                    kernel with which the data are read once more

    For **several passes** `finish` returns a kernel, which knows what the passes so far have found: another instance, as
    a rule of the same class. Its answer stands under the name of the first one. With `by` each group goes on for itself.

    States travel between ranks as bytes, not by pickle, because bytes from elsewhere must not run code. States of
    numbers, text, bytes, None, lists, tuples, sets, dicts and NumPy arrays of numbers travel as they are. For others a
    class defines two more methods:

        to_bytes(state) -> bytes
        from_bytes(bytes) -> state

    Blocks come in any order, from any thread (one at a time), in sizes that depend on the machine: for one answer on
    all of them, merging must not depend on the order, unless `order` says that it does, and not on how parts are put in
    brackets, and `init()` must change nothing. Exceptions stop the run and
    are raised by it. States count towards the memory budget by `sys.getsizeof`.

    Args:
        columns: Names of the columns it looks at, or `"*"` for all numeric ones.
        merge: For a function: makes one part of two. The default adds them.
        finish: For a function: makes the answer. The default takes the last part as it is.
        name: The key of its result; the name of the class or function if not given.
        text: What text is: `"str"`, in which bytes that are no UTF-8 become U+FFFD, or `"bytes"`, as it stands in the
            data.
        records: Whether the first array holds the records as text, lines with their line ends. Works for lines and
            fixed-length records, which have no columns, too.
        order: Whether blocks, and states to merge, come in the order of the data, for merging that depends on it. Each rank
            then works with one thread, and ranks with parts that lie between those of others are refused (UsageError).

    Returns:
        A decorator.

    Raises:
        UsageError: There is no column, or `text` is something else.
        TypeError: A class lacks a method.
    """
    wanted = [columns] if isinstance(columns, str) else list(columns)
    if not wanted and not records:
        raise make(
            "usage",
            "a kernel needs at least one column, or the records",
            hint='name columns, say "*" for all numeric ones, or records=True',
        )
    refuse(text)

    def decorate(what: Any) -> Any:
        if not isinstance(what, type):
            return FunctionKernel(what, wanted, merge, finish, name or what.__name__, text, records, order)
        bytes_too = [m for m in ("to_bytes", "from_bytes") if hasattr(what, m)]
        needed = (*METHODS, *(("to_bytes", "from_bytes") if bytes_too else ()))
        missing = [m for m in needed if not callable(getattr(what, m, None))]
        if missing:
            raise TypeError(f"kernel {what.__name__} has no method {', '.join(missing)}")
        setattr(what, "columns", wanted)
        setattr(what, "name", name or what.__name__)
        setattr(what, "text", text)
        setattr(what, "records", records)
        setattr(what, "order", order)
        return what

    return decorate


def refuse(text: str) -> None:
    """An error if text cannot be handed over like this."""
    if text not in TEXT:
        raise make("usage", f"text={text!r}", hint='it is "str" or "bytes"')


def is_kernel(what: Any) -> bool:
    """True for what `run` takes as a kernel of the caller's own."""
    return not isinstance(what, str) and all(hasattr(what, a) for a in (*METHODS, "columns", "name"))


def instance(what: Any) -> Described:
    """A kernel as the extension module gets it."""
    made = what() if isinstance(what, type) else what
    columns = [made.columns] if isinstance(made.columns, str) else [str(c) for c in made.columns]
    text = getattr(made, "text", "str")
    refuse(text)
    records, order = (bool(getattr(made, a, False)) for a in ("records", "order"))
    return Described(str(made.name), columns, text, records, order, made)


def following(answer: Any) -> Described | None:
    """The kernel of the next pass, if `finish` returned one."""
    return instance(answer) if is_kernel(answer) else None
