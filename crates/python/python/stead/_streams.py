"""Streams: arrays that programs of one node hand to each other in memory, step by step."""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
import time

from . import _stage, _stead
from ._coupling import Coupling
from ._dataset import size
from ._errors import Error, make
from ._masked import is_masked
from ._stream_step import Step, Variable, natural, over, whole
from ._subscription import Subscription

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor
    from datetime import datetime
    from types import TracebackType
    from typing import Any, TypeAlias

    import numpy as np

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    Attributes: TypeAlias = Mapping[str, Any]

# Kind and size of an element, as streams call it. They have no bool: it is a number of one byte.
DTYPES = {"b1": "u8"} | {f"{kind}{bits // 8}": f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64)} | {"f4": "f32", "f8": "f64"}


def said(attributes: Attributes | None, units: str | None) -> list[tuple[str, Any]] | None:
    """Attributes, as streams have them; None if nothing was said."""
    if attributes is None and units is None:
        return None
    told = {str(name): plain(str(name), value) for name, value in (attributes or {}).items()}
    if units is not None:
        told["units"] = units
    return list(told.items())


def plain(name: str, value: Any) -> Any:
    """An attribute without NumPy: text, a number, or several of a kind."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        several = [plain(name, one) for one in value]
        kinds = {type(one) for one in several}
        if kinds == {int, float}:
            several, kinds = [float(one) for one in several], {float}
        if len(kinds) < 2 and kinds <= {str, int, float}:
            return several
    elif isinstance(value, str):
        return str(value)
    elif isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return int(value)
        raise make("usage", f"attribute '{name}' is beyond what 64 bits can count")
    elif isinstance(value, float):
        return float(value)
    raise TypeError(f"attribute '{name}' is a {type(value).__name__}; it can be text, a number, or a list of texts or of numbers")


def element(what: str, dtype: Any) -> str:
    """What a stream calls the type of elements."""
    found = DTYPES.get(f"{dtype.kind}{dtype.itemsize}") if dtype.kind in "biuf" else None
    if found is None:
        known = "float32 float64 int8..int64 uint8..uint64 bool"
        raise TypeError(f"{what} cannot have elements of {dtype}; a stream has one of {known}")
    return found


def made(array: Array) -> _stead.Bytes | None:
    """The memory of `empty` of which an array is all; None if it is a part of it, or lies elsewhere."""
    owner: Any = array.base
    while isinstance(owner, type(array)):
        owner = owner.base
    return owner if type(owner) is _stead.Bytes and _stead.is_made(owner, array) else None


class Writing:
    """A step that is being written: it is ended with the block of `with`. If the block ends by an error, the stream is abandoned."""

    __slots__ = ("_writer", "number")

    def __init__(self, writer: StreamWriter) -> None:
        self._writer, self.number = writer, -1

    def __enter__(self) -> Writing:
        self.number = self._writer.begin_step()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._writer.abandon()
        elif not self._writer.closed:
            self._writer.end_step()


class StreamWriter:
    """The writing end of a stream, as `stead.writer` gives it.

    With `with` it is closed at the end of the block. If the block ends by an error it is abandoned: readers are told that the stream has failed.
    """

    __slots__ = {"name": "The name of the stream.", "rank": "Which of the writers this is.", "_writer": ""}
    name: str
    rank: int

    def __init__(self, name: str, rank: int, writer: _stead.StreamWriter) -> None:
        self.name, self.rank, self._writer = name, rank, writer

    @property
    def number(self) -> int:
        """The number of the step that is open, or comes next."""
        return self._writer.step

    @property
    def closed(self) -> bool:
        """It was closed or abandoned."""
        return self._writer.closed

    def step(self) -> Writing:
        """A step, for `with`: begun at the beginning of the block, and ended at its end."""
        return Writing(self)

    def events(self) -> list[dict[str, Any]]:
        """What has become of readers since this was asked last: for each that has come (`presence` is `"here"`), has closed the stream (`"left"`)
        or has ended without a word (`"died"`) a dict with its `group`, `rank` and `process`, how many steps it `had`, which these are
        (`had_ranges`, lists of a first and a last one; of a reader that has missed steps often the newest ones, after `had_before` others),
        how many were `dropped` before it, and which `step` comes next for it. Those of other nodes have their `node` and `rank_of_job`, too."""
        events: list[dict[str, Any]] = json.loads(self._writer.events())
        return events

    def report(self) -> dict[str, Any]:
        """What this writer has done so far: how many `steps` it has ended, bytes that it has `put`, and those of them that were `copied` (others were
        made in their place, by `empty` or `stead.empty`), `copy_cpu_s`, seconds of processors that its copies have taken (those of 64 KiB or more), `waited_s`,
        seconds that it has waited for others, and `waits`, for whom, as dicts with `who`, `times` and `waited_s`. `last` is the same of the last
        step. `memory` is that of the stream on this node: bytes that it may take (`most`), takes now (`used`) and has taken at most (`peak`), those
        of a `step` on average, and `peak_steps`, the peak as a multiple of that."""
        told: dict[str, Any] = json.loads(self._writer.report())
        return told

    def begin_step(self) -> int:
        """Begins a step, when there is room for it: readers that are waited for are not too far behind. Its number comes back.

        Raises:
            UsageError: A step is open, or the stream is closed.
            TimedOutError: There was no room in time; it says who was waited for. It can be tried again.
            PeerError: Another writer has ended, or somebody has removed the stream.
        """
        return self._writer.begin()

    def end_step(self) -> None:
        """Ends the step. Readers see it when all writers have.

        Raises:
            UsageError: No step is open.
            PeerError: Another writer has ended, or somebody has removed the stream.
            NoSpaceError: There is no memory for what is said of the step.
        """
        self._writer.end()

    def put(
        self,
        name: str,
        data: Any,
        *,
        shape: int | Sequence[int] | None = None,
        start: int | Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
        units: str | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        """Puts an array, or a part of one, into the step that is open. It is copied once, into memory that readers look at, and can be changed when
        this returns; an array of `empty` or of `stead.empty` is not copied, and is for reading only from then on.

            >>> w.put("T", T)
            >>> w.put("T", mine, shape=(1000, 800), start=(250 * rank, 0), dims=("y", "x"), units="K")

        Args:
            name: The variable. Different parts of it may be put in one step, by this writer and others.
            data: An array of NumPy, or anything that NumPy makes one of: with the buffer protocol, with `__array__`, a number. Its elements
                are numbers of up to 64 bits; bools become uint8.
            shape: The shape of the whole variable; that of the data, if `start` is not said either. Later steps may say another one.
            start: Where in it the data begin. Without `shape` the variable is the one that it was before.
            dims: The names of its dimensions. What was said of a variable holds until something else is: for a shape of another number of
                dimensions, names are said anew.
            units: What its numbers count: the attribute `units`.
            attributes: What else is to be known of it: text, numbers, and lists of these, by their names. They take the place of those that it had.

        Raises:
            TypeError: Its elements are of a type that streams do not have: objects, text, times, complex numbers, records.
            UsageError: No step is open, the data are not within the shape, or the variable is another one than in what was put before.
            LimitError: The step does not fit the memory of the stream.
            TimedOutError: Memory did not become free in time.
            NoSpaceError: The node has no memory left.
        """
        import numpy as np

        if isinstance(data, np.ndarray) and type(data.base) is _stead.Bytes:
            told = shape, start, dims, units, attributes
            if self._commit(name, data, told):
                return
        memory = made(data) if type(data) is np.ndarray and data.base is not None else None
        told_nothing = shape is None and start is None and dims is None and units is None and attributes is None
        if told_nothing and type(data) is np.ndarray and memory is None and self._writer.put_again(name, data):
            return
        if is_masked(data):
            raise TypeError(f"variable '{name}' cannot have masked elements; fill them")
        array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.asarray(data)
        count = list(array.shape)
        known = self._definition(name) if shape is None and start is not None else None
        if known is not None:
            shape = known.shape
        number, start = self._define(name, array.dtype, count, shape, start, dims, said(attributes, units))
        if memory is not None:
            self._writer.put_made(number, start, count, memory)
            while isinstance(data, np.ndarray):
                data.flags.writeable = False
                data = data.base
            return
        if array.dtype.kind == "b" and array.flags.c_contiguous:
            array = array.view(np.uint8)
        if array.flags.c_contiguous and array.dtype.isnative:
            # A subclass may have said something else of its elements.
            self._writer.put(number, start, count, array if type(array) is np.ndarray else array.view(np.ndarray))
        else:
            room = self._writer.empty(number, start, count)
            kind = np.dtype(np.uint8) if array.dtype.kind == "b" else array.dtype.newbyteorder("=")
            begun = time.thread_time_ns()
            np.copyto(over(room, count, kind), array)
            self._writer.put_room(room, time.thread_time_ns() - begun)

    def empty(
        self,
        name: str,
        shape: int | Sequence[int],
        dtype: Any = "f8",
        *,
        start: int | Sequence[int] | None = None,
        count: int | Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
        units: str | None = None,
        attributes: Attributes | None = None,
    ) -> Array:
        """An array in the memory of the stream, for a part of a variable: it is filled, and then put without a copy. What is in it at first is
        anything.

            >>> u = w.empty("U", (1000, 800), "f8", start=(250 * rank, 0), count=(250, 800))
            >>> compute(out=u)
            >>> w.put("U", u)

        It can be put once, by this writer, as this very array; others that look at it are copied, as any. Its memory counts as used until it was put
        and all readers have had it, and nobody has the array any more.

        Args:
            name: The variable.
            shape: The shape of the whole variable.
            dtype: The type of its elements.
            start: Where in it the part begins.
            count: The shape of the part: that of the whole, if `start` is not said either.
            dims: As for `put`.
            units: As for `put`.
            attributes: As for `put`.

        Raises:
            TypeError: As of `put`.
            UsageError: As of `put`, but that no step needs to be open.
            LimitError: As of `put`.
            TimedOutError: As of `put`.
            NoSpaceError: As of `put`.
        """
        import numpy as np

        whole = sides(shape)
        if start is not None and count is None:
            raise make("usage", f"a part of variable '{name}' has a start and no count")
        part = whole if count is None else sides(count)
        kind = np.dtype(dtype)
        number, start = self._define(name, kind, part, whole, start, dims, said(attributes, units))
        room = self._writer.empty(number, start, part)
        return over(room, part, np.dtype(np.uint8) if kind.kind == "b" else kind.newbyteorder("="))

    def _definition(self, name: str) -> Variable | None:
        found = self._writer.definition(name)
        return None if found is None else Variable(name, found[1])

    def _define(
        self,
        name: str,
        dtype: Any,
        count: list[int],
        shape: int | Sequence[int] | None,
        start: int | Sequence[int] | None,
        dims: Sequence[str] | None,
        attributes: list[tuple[str, Any]] | None,
    ) -> tuple[int, list[int]]:
        """Says what a variable is; its number, and where a part of this shape begins."""
        kind = element(f"variable '{name}'", dtype)
        if isinstance(dims, str):
            dims = (dims,)
        if shape is None:
            if start is not None:
                raise make("usage", f"variable '{name}' is put as a part, and its shape was never said", hint="say shape=, too")
            shape = count

        def wrong() -> Error:
            return make("usage", f"shape and start of variable '{name}' are whole numbers, not {shape!r} and {start!r}")

        whole = [natural(n, wrong) for n in sides(shape)]
        if start is None:
            if whole != count:
                hint = "say where it begins, with start="
                raise make("usage", f"variable '{name}' of shape {tuple(whole)} is put as a part of shape {tuple(count)}", hint=hint)
            first = [0] * len(whole)
        else:
            first = [natural(n, wrong) for n in sides(start)]
        return self._writer.define(name, kind, whole, None if dims is None else list(dims), attributes), first

    def _commit(self, name: str, array: Array, told: tuple[Any, ...]) -> bool:
        """Puts memory of `empty`. False if this is something else, which is copied as any array."""
        room = self._writer.room(array.base)  # type: ignore[arg-type]
        if room is None:
            return False
        number, start, count = room
        known = self._writer.definition(name)
        if known is None or known[0] != number or list(array.shape) != count or not array.flags.c_contiguous:
            return False
        variable = Variable(name, known[1])
        if array.dtype != variable.dtype:
            return False
        shape, first, dims, units, attributes = told
        if first is not None and sides(first) != start:
            return False
        if shape is not None and tuple(sides(shape)) != variable.shape:
            return False
        if dims is not None or units is not None or attributes is not None:
            self._define(name, variable.dtype, count, variable.shape, start, dims, said(attributes, units))
        self._writer.put_room(array.base)  # type: ignore[arg-type]
        array.flags.writeable = False
        return True

    def close(self) -> None:
        """Closes the stream: when all writers have, readers come to its end. What is complete stays for them, also when this process ends.

        Raises:
            UsageError: A step is open: nobody will see it, and readers are told that the stream has failed.
        """
        self._writer.close()

    def abandon(self) -> None:
        """Gives the stream up: readers get an error, after what is complete."""
        self._writer.abandon()

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def __repr__(self) -> str:
        return f"StreamWriter({self.name!r}, rank={self.rank}{', closed' if self.closed else ''})"


class StreamReader:
    """The reading end of a stream, as `stead.reader` gives it: an iterator of steps, for `for` and for `async for`.

    With `with` it is closed at the end of the block. Steps and arrays that were had go on as they are.
    """

    __slots__ = {
        "name": "The name of the stream.",
        "group": "The name of its group.",
        "rank": "Which rank of it this is.",
        "_reader": "",
        "_thread": "",
        "_given_up": "",
        "_subscribed": "",
    }
    name: str
    group: str
    rank: int
    _thread: ThreadPoolExecutor | None
    _given_up: list[Future[_stead.StreamStep | None]]
    _subscribed: bool

    def __init__(self, name: str, group: str, rank: int, reader: _stead.StreamReader) -> None:
        self.name, self.group, self.rank, self._reader = name, group, rank, reader
        # Waits of tasks of asyncio: one at a time, in a thread of the reader's own, and those that were cancelled and have not ended yet.
        self._thread, self._given_up, self._subscribed = None, [], False

    def next(self, timeout: float | None = None) -> Step | None:
        """The next step, as soon as all writers have ended it; None when they have closed the stream. Writers do not wait any more for
        the one before to be read.

        Args:
            timeout: Seconds to wait for it; 0 does not wait. As for `stead.reader` if it is not said.

        Raises:
            TimedOutError: It did not come in time; it says who was waited for. It can be tried again.
            PeerError: A writer has ended in the middle, or the stream was removed: after all steps that are complete.
        """
        return self._wait(timeout, None)

    def _wait(self, timeout: float | None, cancel: _stead.Cancel | None) -> Step | None:
        """As `next`, until somebody cancels it."""
        while self._given_up:
            if step := outcome(self._given_up.pop(0)):
                return Step(step)
        step = self._reader.next(timeout, cancel)
        return None if step is None else Step(step)

    async def _next(self) -> _stead.StreamStep | None:
        """As `next`, for a task of asyncio. A step that comes when the task is cancelled is that of the next one."""
        import asyncio

        while self._given_up:
            if not self._given_up[0].done():
                # It ends soon.
                await asyncio.sleep(0.01)
            elif step := outcome(self._given_up.pop(0)):
                return step
        try:
            return self._reader.next(0)
        except TimeoutError:
            pass
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(1, "stead-stream")
        cancel = _stead.Cancel()
        future = self._thread.submit(self._reader.next, None, cancel)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            cancel.cancel()
            self._given_up.append(future)
            raise

    def at(self, number: int) -> Step:
        """A step that is still there, whether it was given or not.

        Raises:
            NotFoundError: It is not there any more, or not complete yet; the error says which ones are.
        """
        return Step(self._reader.at(number))

    def wait_for(self, variable: str, step: int, timeout: float | None = None) -> Step:
        """This very step, as soon as it is complete, with this variable in it. The reader is done with those before it.

        Args:
            variable: The name of a variable.
            step: The number of the step.
            timeout: Seconds to wait; those that the reader was opened with, if it is not said.

        Raises:
            NotFoundError: The step has gone, the stream has ended before it, or it has no such variable.
            TimedOutError: It was not complete in time; the error says who was waited for.
        """
        found = self._reader.wait_for(variable, step, timeout)
        assert found is not None
        return Step(found)

    def subscribe(self, call: Callable[[Step], object]) -> Subscription:
        """Has a thread call a function with each step that comes, one after the other. The reader is the subscription's from then on. It ends with
        the stream, or when no step comes within the `timeout` that the reader was opened with.

            >>> with stead.reader("sim").subscribe(lambda step: print(step.number, step["T"].mean())):
            ...     do_something_else()

        Args:
            call: The function. Steps wait for it as for any reader.

        Raises:
            UsageError: There is a subscription of this reader already.
        """
        if self._subscribed:
            raise make("usage", f"the reader of stream '{self.name}' is that of a subscription already", hint="open another one, of a group of its own")
        self._subscribed = True
        return Subscription(self, call)

    def report(self) -> dict[str, Any]:
        """What this reader has done so far: how many `steps` it was given and how many were `dropped` before them, how many `copies` of boxes it has
        made, bytes that were `copied`, that were `looked` at where they lie, and `fetched` from other nodes, `copy_cpu_s`, seconds of processors that
        its copies have taken (those of 64 KiB or more), and `waited_s`, seconds that it has waited for steps. `memory` is as in
        `StreamWriter.report`; None without writers on this node."""
        told: dict[str, Any] = json.loads(self._reader.report())
        return told

    @property
    def steps(self) -> list[int]:
        """The steps that are there now."""
        return self._reader.steps

    @property
    def is_over(self) -> bool:
        """The last step was given, and none will come."""
        return self._reader.is_over

    def close(self) -> None:
        """Lets go of the stream: nobody waits for this reader any more. What it was given goes on."""
        self._reader.close()
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    def __iter__(self) -> StreamReader:
        return self

    def __next__(self) -> Step:
        step = self.next()
        if step is None:
            raise StopIteration
        return step

    def __aiter__(self) -> StreamReader:
        return self

    async def __anext__(self) -> Step:
        step = await self._next()
        if step is None:
            raise StopAsyncIteration
        return Step(step)

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"StreamReader({self.name!r}, group={self.group!r}, rank={self.rank})"


def sides(given: int | Sequence[int]) -> list[int]:
    """A number for each dimension: one alone is that of an array of one."""
    return [given] if hasattr(given, "__index__") and not hasattr(given, "__len__") else list(given)  # type: ignore[arg-type]


@atexit.register
def _end() -> None:
    """A program that ends by an exception has not come to the end of what it writes."""
    if getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1"):
        _stead.fail_writers()


def outcome(wait: Future[_stead.StreamStep | None]) -> _stead.StreamStep | None:
    """The step that a wait had, if it had one."""
    from concurrent.futures import CancelledError

    try:
        return wait.result()
    except (CancelledError, Error):
        # What has failed fails again.
        return None


def seat(comm: Any, rank: int | None, count: int | None, what: str) -> tuple[int, int]:
    """Which rank this is, and of how many."""
    if comm is None:
        return 0 if rank is None else rank, 1 if count is None else count
    if rank is not None or count is not None:
        raise make("usage", f"rank= and {what}= are those of comm=", hint=f"give either comm=, or rank= and {what}=")
    try:
        rank, count = int(comm.rank), int(comm.size)
    except (AttributeError, TypeError):
        raise TypeError(f"comm must be a communicator of mpi4py or a stead.Coupling, not {type(comm).__name__}") from None
    if count > 1 and not isinstance(comm, Coupling):
        one_node(comm, count)
    return rank, count


def one_node(comm: Any, count: int) -> None:
    """Refuses a communicator of several nodes, each of which would wait for ranks that are on others. All of its ranks do so."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not hasattr(comm, "Split_type"):
        return
    near = comm.Split_type(mpi.COMM_TYPE_SHARED)
    here = int(near.size)
    near.Free()
    if here < count:
        hint = 'give comm=stead.couple(comm, "PART") with the name of the part of the job that this program is'
        raise make("usage", f"{here} of {count} ranks of comm= are on this node, and a stream without a coupling is of one node", hint=hint)


def empty(shape: int | Sequence[int], dtype: Any = float, *, dataspaces: _stage.Spaces = None) -> Array:
    """An array that any writer of a stream puts without a copy, made before there is one: in C order, in memory where readers look at it then. What
    is in it at first is anything.

        >>> T = stead.empty((1000, 800))
        >>> with stead.writer("sim") as w:
        ...     for n in range(100):
        ...         compute(out=T)
        ...         with w.step():
        ...             w.put("T", T)
        ...         T = stead.empty(T.shape)

    Once it is put it is the readers': it may still be read, put again, also by other writers, and not be written to. The next one has the memory of
    one that was dropped and whose steps have gone, so that a program which makes one for each step has no new pages after the first few; a new one
    costs about as much as a copy. An array over all of it, such as `T.reshape(-1)`, is put as it is, too; a slice is copied, as any array.

    It counts for the `memory` of a stream, and for what all streams of a user may have, from when it is put until its step has gone, each time
    that it is put. Before that it counts for none; it goes with the process. Less than 64 KiB is plain memory and copied, which is
    less work; so is what is beyond a quarter of the files that the process may have open (`ulimit -n`), each array having one, what a process that
    was forked has of its parent, and all of it if the file system has no files without a name. `report()` of the writer tells what was copied.

    Args:
        shape: The shape of the array.
        dtype: The type of its elements.
        dataspaces: As for `writer`: arrays of another dataspace `memory` than that of the stream are copied.

    Raises:
        TypeError: Streams have no elements of this type.
        UsageError: It is no shape.
        NoSpaceError: The node has no memory left.
        LimitError: The process may have no more files or mappings, or none as long.
        PermissionDeniedError: The folder of streams is not private to this user.
    """
    import numpy as np

    def wrong() -> Error:
        return make("usage", f"a shape is whole numbers, not {shape!r}")

    lengths = [natural(n, wrong) for n in ([shape] if hasattr(shape, "__index__") else shape)]
    kind = np.dtype(dtype).newbyteorder("=")
    element("an array for streams", kind)
    memory = _stead.make_array(_stage.given(dataspaces), min(math.prod(lengths) * kind.itemsize, 2**64 - 1))
    return over(memory, lengths, kind)


def coupling(comm: Any, dataspaces: _stage.Spaces) -> _stead.Coupling | None:
    """What reaches other nodes."""
    if not isinstance(comm, Coupling):
        return None
    if dataspaces is not None:
        hint = "give them to the coupling when it is made, and none beside it"
        raise make("usage", "dataspaces are those of the coupling", hint=hint)
    return comm._coupling


def writer(
    name: str,
    *,
    rank: int | None = None,
    writers: int | None = None,
    keep: int = 1,
    queue: int = 2,
    memory: int | str | None = None,
    readers: int = 0,
    timeout: float = 600,
    comm: Any = None,
    persist: str | os.PathLike[str] | None = None,
    spill: str | os.PathLike[str] | None = None,
    spill_limit: int | str | None = None,
    dataspaces: _stage.Spaces = None,
) -> StreamWriter:
    """Writes a stream: arrays that other programs of this user on this node read from memory, step by step, while this one goes on.

        >>> with stead.writer("sim") as w:
        ...     for n in range(100):
        ...         with w.step():
        ...             w.put("T", T, dims=("y", "x"), units="K")

    A stream has as many writers as it says. Readers see a step when all of them have ended it, or never. Who reads need not be there yet. A
    stream that has ended stays for those who come late: until its last reader has gone, or for ten minutes if there is none. A writer that
    ends without a word is noticed, and readers are told.

    Args:
        name: Of the stream: letters, digits, `.`, `-` and `_`.
        rank: Which of the writers this is, from 0 on.
        writers: How many there are.
        keep: Complete steps that stay when all readers have had them.
        queue: Complete steps that a group of readers may be behind before writers wait for it.
        memory: Bytes of the arrays of all writers, such as `"4GiB"`, which it is if it is not said.
        readers: Groups of readers that are to be there before the first step begins.
        timeout: Seconds to wait for anybody.
        comm: A communicator of mpi4py, all ranks of which are on this node and call this, or what `couple` gives: `rank` and `writers` are its own.
        persist: Where all steps are recorded, too, as they are written: a folder, by its path or in a dataspace, such as `"nvme0://runs/sim"`. It is
            made if it is not there, and has no steps of another run. `reader` of it has them while this stream goes on, and after that. A step's
            memory is taken until it is recorded; an error of the disk is raised by the next call of the writer, and so is that a quota of the
            dataspace leaves no room.
        spill: Where steps are recorded that readers with `behind="spill"` have not had when there is no room for them in memory: a folder, which
            goes with the stream; or `"auto"`, the first dataspace that has room for `spill_limit` bytes, or else for as many as `memory`: those of
            this node go before those of all nodes, and then it goes by names. `persist` serves these readers, too.
        spill_limit: Bytes that the files of `spill` may take on this node, such as `"100GiB"`: beyond that the writer waits for these readers, too.
            As many as the disk has, and a quota of the dataspace leaves, if it is not said.
        dataspaces: A folder of the dataspace `memory`, where streams lie, before the one that is configured. Readers say the same. Those of a
            coupling are said to `couple`.

    Raises:
        UsageError: Other writers say something else of the stream, somebody is this one already, steps of another stream were recorded in the folder,
            there is no dataspace to choose for `spill`, or `comm` has ranks on several nodes and is no coupling.
        NoSpaceError: No dataspace has room for what is to spill.
        PermissionDeniedError: The folder of streams is not private to this user.
        LimitError: This program may have no more files open, of which each end of a stream takes some.
    """
    rank, writers = seat(comm, rank, writers, "writers")
    given = _stage.given(dataspaces)
    places = place(persist), place(spill)
    more = (*places, size(spill_limit))
    made = _stead.StreamWriter(name, given, rank, writers, keep, queue, size(memory), readers, timeout, coupling(comm, dataspaces), *more)
    return StreamWriter(name, rank, made)


def place(at: str | os.PathLike[str] | None) -> str | None:
    """A folder, as text. A path is one whatever it is called, and a text may be a word that stands for something else."""
    return at if at is None or isinstance(at, str) else called(at)


def called(name: str | os.PathLike[str]) -> str:
    """The name of a stream, or the folder that it is recorded in, which has a `/` in it."""
    if isinstance(name, str):
        return name
    path = os.fspath(name)
    return path if "/" in path else f"./{path}"


def named(nodes: Sequence[str] | None) -> list[str] | None:
    """Other nodes that are asked; None for all."""
    return None if nodes is None else list(nodes)


def reader(
    name: str | os.PathLike[str],
    *,
    group: str = "readers",
    rank: int | None = None,
    ranks: int | None = None,
    start: str = "oldest",
    behind: str = "block",
    queue: int | None = None,
    keep: int | None = None,
    timeout: float = 600,
    comm: Any = None,
    threads: int = 0,
    dataspaces: _stage.Spaces = None,
    nodes: Sequence[str] | None = None,
) -> StreamReader:
    """Reads a stream that programs of this user write, or have written, on this node or another one of the pool of its daemon.

        >>> for step in stead.reader("sim"):
        ...     print(step.number, step["T"].mean())

    All groups of readers get all steps. The ranks of a group go through them together: each is given each step, and takes the part of it
    that it likes. A stream that nobody writes yet is waited for.

    Steps that were recorded (`persist` of `writer`) are read as those of a stream, by the folder that they are in:

        >>> for step in stead.reader("nvme0://runs/sim"):
        ...     print(step.number, step["T"].mean())

    What is had of them is read from files and checked; nobody waits for who does so.

    Args:
        name: Of the stream; or a folder with recorded steps, as a path or in a dataspace: all text with a `/`.
        group: The name of the group.
        rank: Which rank of the group this is, from 0 on.
        ranks: How many it has.
        start: `"oldest"` begins with the oldest step that is there, also of a stream that has ended; `"next"` with the next one that becomes complete;
            `"first"` with the first of all, if the stream is recorded (`persist` of `writer`): steps that have gone from memory are read from files.
        behind: What happens when the group is behind by its `queue`, or that of the stream: with `"block"` writers wait, with `"drop"` they go on, and
            `Step.dropped` says how many steps the reader has missed: all ranks of a group are given the same ones, and none is ahead of the others
            by more than that `queue`. With `"spill"` writers go on and nothing is missed: steps for which there is no room in memory are read from
            files (`spill` or `persist` of `writer`).
        queue: Complete steps that the group may be behind; the stream's number if it is not said. With `behind="drop"` older ones are passed over, so that
            with `queue=1` it is given the newest step each time. With `behind="spill"` older ones are read from files.
        keep: Complete steps that the group has had which stay for it, for `at(n)`, whatever the stream keeps. With `behind="block"` writers wait if memory
            is full of them; with `"spill"` they may go to files, and with `"drop"` they go where there is no room. Folders have all steps.
        timeout: Seconds to wait for anybody: for the stream, then for each step.
        comm: A communicator of mpi4py, all ranks of which are on this node and call this, or what `couple` gives: `rank` and `ranks` are its own.
            With the latter writers may be on any node of the job, whoever has begun them, and else on those of the pool.
        threads: How many copy what lies in several blocks; as many as are of use, if it is 0.
        dataspaces: As for `writer`.
        nodes: Other nodes of the pool that writers may be on. Usually all are asked, unless all of the stream is written here, or in the job.

    Raises:
        TimedOutError: Nobody writes the stream.
        NotFoundError: The pool has no such node, or no steps were recorded in the folder.
        UsageError: The stream is not recorded, and `start` or `behind` need it. Others say something else of the group, it keeps and queues more
            steps than the stream has places for, somebody is this rank already, or `comm` has ranks on several nodes and is no coupling.
        LimitError: This program may have no more files open, of which each end of a stream takes some.
    """
    name = called(name)
    rank, ranks = seat(comm, rank, ranks, "ranks")
    given = _stage.given(dataspaces)
    of = coupling(comm, dataspaces)
    made = _stead.StreamReader(name, given, group, rank, ranks, start, behind, queue, keep, timeout, threads, of, named(nodes))
    return StreamReader(name, group, rank, made)
