"""Flows: operators between streams, run where the arrays are."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import os
import sys
import threading
import time

from . import _stage, _stead
from ._dataset import size
from ._errors import make
from ._streams import coupling, element, place, seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, TypeAlias

    Dims: TypeAlias = str | int | Sequence[str | int]
    Function: TypeAlias = Callable[..., object]


class Made:
    """A node, or a stream that is read, whose name may still change."""

    __slots__ = ("name", "of", "said")

    def __init__(self, name: str | None, said: dict[str, Any], of: Sequence[FlowArray] | None = None) -> None:
        self.name, self.said, self.of = name, said, of


def cut(key: Any) -> int | str:
    """What is taken of a dimension, as flows have it."""
    if key is Ellipsis:
        return "..."
    if isinstance(key, slice):
        ends = ("" if end is None else str(int(end)) for end in (key.start, key.stop))
        step = "" if key.step is None else f":{int(key.step)}"
        return ":".join(ends) + step
    if hasattr(key, "__index__"):
        return int(key.__index__())
    raise TypeError(f"a flow slices with numbers, slices and ..., not with a {type(key).__name__}")


def several(dims: Dims) -> list[str | int]:
    """One dimension or several, as a list."""
    return [dims] if isinstance(dims, (str, int)) else list(dims)


def typed(dtype: Any) -> str:
    """What streams call a type of NumPy, or their own name of it."""
    if isinstance(dtype, str) and dtype in ("f32", "f64"):
        return dtype
    import numpy as np

    return element("a variable of a flow", np.dtype(dtype))


class FlowArray:
    """An array that a flow has at each step: a variable of a stream that it reads, or what an operator makes. It has no elements here.

    Its methods make operators of the flow, and give what those make.
    """

    __slots__ = ("_flow", "_made", "_part")

    def __init__(self, flow: Flow, made: Made, part: str | None) -> None:
        self._flow, self._made, self._part = flow, made, part

    def _reference(self) -> str:
        name = self._made.name or "?"
        return name if self._part is None else f"{name}.{self._part}"

    def _then(self, op: str, *others: FlowArray, **said: Any) -> FlowArray:
        return self._flow._node(op, [self, *others], one=not others, **said)

    def __repr__(self) -> str:
        self._flow._name_all()
        return f"<stead.FlowArray '{self._reference()}'>"

    def __getitem__(self, key: Any) -> FlowArray:
        """A slice, as NumPy's: numbers, `start:stop:step` with steps of 1 or more, and `...`. Nothing is copied for it.

        >>> sim["T"][::4, 0]
        """
        keys = key if isinstance(key, tuple) else (key,)
        return self._then("select", slice=[cut(one) for one in keys])

    def isel(self, **dims: Any) -> FlowArray:
        """A slice by names of dimensions, as that of xarray.

        >>> sim["T"].isel(x=slice(None, None, 4), y=0)
        """
        return self._then("select", slice={name: cut(key) for name, key in dims.items()})

    def cast(self, dtype: Any) -> FlowArray:
        """The same numbers as elements of another type: what does not fit becomes the nearest that does, fractions of whole numbers go, and what is
        no number becomes 0 there.

        Args:
            dtype: As NumPy has it: `"f4"`, `np.int32`.
        """
        return self._then("cast", to=typed(dtype))

    def scale(self, factor: float = 1.0, offset: float = 0.0, units: str | None = None) -> FlowArray:
        """`factor * x + offset`, in another unit: of float32 it is float32, of all others float64.

        Args:
            factor: By which elements are multiplied.
            offset: What is then added.
            units: The attribute `units` of what comes out. What was said of the unit before does not hold.
        """
        return self._then("scale", factor=float(factor), offset=float(offset), units=units)

    def split(self, along: str | int, parts: int | Sequence[str], at: Sequence[int] | None = None) -> tuple[FlowArray, ...]:
        """Parts along a dimension, one after the other. Nothing is copied for it.

        Args:
            along: The dimension: its name, or its place.
            parts: Their names, or how many.
            at: Where the second part and those after it begin. Without it they are equally long, as those of `np.array_split`.
        """
        names = [f"part{n}" for n in range(parts)] if isinstance(parts, int) else list(parts)
        whole = self._then("split", along=along, parts=names, at=None if at is None else list(at))
        return tuple(FlowArray(self._flow, whole._made, name) for name in names)

    def reduce(self, how: str, over: Dims | None = None) -> FlowArray:
        """One number of many. Sums are exact until they are rounded: blocks, ranks and threads change no bit.

        Args:
            how: `"sum"`, `"mean"`, `"min"`, `"max"`, or `"moments"`: the mean and the second, third and fourth central moment, along a new
                first dimension `moment`.
            over: The dimension that goes, or several, by name or place; all of them if it is not said.
        """
        return self._then("reduce", how=how, over=None if over is None else several(over))

    def sum(self, over: Dims | None = None) -> FlowArray:
        """`reduce("sum", over)`: of whole numbers a whole number."""
        return self.reduce("sum", over)

    def mean(self, over: Dims | None = None) -> FlowArray:
        """`reduce("mean", over)`."""
        return self.reduce("mean", over)

    def min(self, over: Dims | None = None) -> FlowArray:
        """`reduce("min", over)`: NaN if there is one."""
        return self.reduce("min", over)

    def max(self, over: Dims | None = None) -> FlowArray:
        """`reduce("max", over)`: NaN if there is one."""
        return self.reduce("max", over)

    def moments(self, over: Dims | None = None) -> FlowArray:
        """`reduce("moments", over)`."""
        return self.reduce("moments", over)

    def window(self, steps: int, how: str = "stack", every: int = 1) -> FlowArray:
        """The last steps together, as soon as there are so many. They are copied, so that writers do not wait for it.

        Args:
            steps: How many.
            how: `"stack"`: along a new first dimension `window`, the oldest first; or `"sum"`, `"mean"`, `"min"`, `"max"` of each element.
            every: After how many steps there is the next window.
        """
        return self._then("window", steps=int(steps), how=how, every=int(every))

    def sample(self, *, every: int | None = None, elements: int | None = None, seed: int = 0) -> FlowArray:
        """Some of the steps, or some of the elements.

        Args:
            every: The first step, and every so many after it.
            elements: So many elements, drawn at random, the same ones in each step; all of them if there are no more.
            seed: Which ones are drawn.
        """
        return self._then("sample", every=every, elements=elements, seed=int(seed))

    def map(
        self,
        function: Function,
        *others: FlowArray,
        dtype: Any = None,
        shape: Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
        elementwise: bool = False,
    ) -> FlowArray:
        """What a function makes of the array, and of others: it is given arrays of NumPy, and gives one.

            >>> sim["T"].map(np.fft.rfft2, dtype="f8", shape=(64, 33))

        Args:
            function: Called at each step by the thread that runs the flow. In TOML it is a name, or says where it is: `load` of `flow`.
            others: Arrays that it is given after this one.
            dtype: The type of what it gives; that of this array, if it is not said.
            shape: The shape of what it gives; that of this array, if it is not said.
            dims: The names of its dimensions, if a shape is said.
            elementwise: Each element follows from those at the same place alone: several ranks share the work, and each gives its part.
        """
        name = self._flow._function(function)
        said = {"dtype": None if dtype is None else typed(dtype), "shape": None if shape is None else [int(n) for n in shape]}
        more = {"dims": None if dims is None else list(dims), "elementwise": bool(elementwise)}
        return self._then("map", *others, function=name, **said, **more)

    def kernel(
        self, kernel: str, *others: FlowArray, member: str | None = None, shape: Sequence[int] | None = None, rows: bool = False
    ) -> FlowArray:
        """The answer of a kernel of `stead run` over the elements; of `render` the pixels of a picture, `[height, width, 3]` bytes; of `normalize` an
        array of the shape of this one.

            >>> sim["T"].kernel("quantile:T,q=0.9")

        Args:
            kernel: What is computed. The column has the name of the variable, or of the node.
            others: Further columns, as long as this one.
            member: Of an answer with several members, the one that is wanted.
            shape: The shape of the answer; one number, if it is not said.
            rows: It works on the rows of this 2-d array, whose columns are called `0`, `1` and so on: `sim["X"].kernel("gram:*", rows=True, ...)`.
        """
        wanted = None if shape is None else [int(n) for n in shape]
        return self._then("kernel", *others, kernel=kernel, member=member, shape=wanted, rows=rows or None)


class FlowSource:
    """A stream that a flow reads: `sim["T"]` is its variable `T`."""

    __slots__ = ("_flow", "_made")

    def __init__(self, flow: Flow, made: Made) -> None:
        self._flow, self._made = flow, made

    def __getitem__(self, variable: str) -> FlowArray:
        return FlowArray(self._flow, self._made, str(variable))

    def __repr__(self) -> str:
        return f"<stead.FlowSource '{self._made.name}'>"


class FlowPicture(str):
    """An SVG, which notebooks draw."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


#: Flows that run: each is ended before the interpreter is.
_running: set[RunningFlow] = set()
#: Seconds that they have for it, all together.
_PATIENCE = 60.0


class RunningFlow:
    """A flow that runs in a thread of its own, as `Flow.start` gives it. With `with` the block waits for its end. One that still runs when the
    program ends is stopped.
    """

    __slots__ = ("_cancel", "_error", "_report", "_thread")

    def __init__(self, run: Callable[[_stead.Cancel], dict[str, Any]], name: str) -> None:
        self._cancel = _stead.Cancel()
        self._error: BaseException | None = None
        self._report: dict[str, Any] = {}

        def work() -> None:
            try:
                self._report = run(self._cancel)
            except BaseException as e:
                self._error = e
            finally:
                _running.discard(self)

        _running.add(self)
        self._thread = threading.Thread(target=work, name=f"stead-flow-{name}", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """It has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Has it end soon: readers of what it writes are told that it was given up."""
        self._cancel.cancel()

    def join(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits until it has ended, and gives what `Flow.run` gives.

        Args:
            timeout: Seconds to wait; as long as it takes, if it is not said.

        Raises:
            TimedOutError: It has not ended in time.
            Error: What has ended it.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise make("timeout", f"the flow has not ended within {timeout} s")
        if self._error is not None:
            raise self._error
        return self._report

    def __enter__(self) -> RunningFlow:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.stop()
            self._thread.join()
        else:
            self.join()


@atexit.register
def _end() -> None:
    # Who reads what they write is told that they were given up.
    until = time.monotonic() + _PATIENCE
    left = list(_running)
    for running in left:
        running.stop()
    for running in left:
        if running._thread.is_alive():
            running._thread.join(max(until - time.monotonic(), 0.0))


class Flow:
    """A graph of operators between streams, as `stead.flow` gives it."""

    __slots__ = ("_folder", "_functions", "_graph", "_nodes", "_reads", "_writes")

    def __init__(self, graph: dict[str, Any], functions: Mapping[str, Function], folder: str | None = None) -> None:
        self._graph, self._functions = graph, dict(functions)
        # That to which paths of libraries are relative, if these are to be loaded.
        self._folder = folder
        self._nodes: list[Made] = []
        self._reads: list[Made] = []
        self._writes: dict[str, tuple[dict[str, FlowArray], dict[str, Any]]] = {}

    @property
    def name(self) -> str:
        """The name of the flow: of the group by which it reads."""
        name: str = self._graph["name"]
        return name

    def read(
        self,
        stream: str,
        *,
        start: str = "oldest",
        behind: str = "block",
        queue: int | None = None,
        keep: int | None = None,
        nodes: Sequence[str] | None = None,
        variables: Mapping[str, tuple[Any, Sequence[int]] | tuple[Any, Sequence[int], Sequence[str]]] | None = None,
    ) -> FlowSource:
        """Reads a stream: `sim = flow.read("sim")`, and `sim["T"]` is its variable.

        Args:
            stream: Its name, or the folder in which it was recorded, such as `"nvme0://runs/sim"` (`persist` of `writer`).
            start: `"oldest"`; `"next"`: the next step that becomes complete; or `"first"`: the first of all, of a stream that is recorded.
            behind: `"block"`: its writers wait for the flow; `"drop"`: they do not, and the flow misses steps; or `"spill"`: they do not, and
                the flow reads from files what has no room in memory (`spill` or `persist` of `writer`).
            queue: Complete steps that the flow may be behind, if it is another number than the stream's, as for `reader`.
            keep: Complete steps that the flow has had which stay for it, beside those that the stream keeps.
            nodes: As for `reader`: the nodes of a pool of daemons on which it is looked for; all of them if it is not said.
            variables: What is known of variables before they are there, so that types and shapes are checked before anything runs: for each name
                the type, the shape, and perhaps the names of dimensions.
        """
        alias = "".join(c if c.isalnum() or c in "_-" else "_" for c in stream)
        said: dict[str, Any] = {"start": start, "behind": behind}
        if alias != stream:
            said["stream"] = stream
        if queue is not None:
            said["queue"] = queue
        if keep is not None:
            said["keep"] = keep
        if nodes is not None:
            said["nodes"] = [str(node) for node in nodes]
        if variables:
            known = {}
            for name, (dtype, shape, *dims) in variables.items():
                known[name] = {"dtype": typed(dtype), "shape": [int(n) for n in shape], "dims": list(dims[0]) if dims else []}
            said["variables"] = known
        made = Made(alias, said)
        self._reads.append(made)
        return FlowSource(self, made)

    def write(
        self,
        stream: str,
        variables: Mapping[str, FlowArray] | None = None,
        *,
        keep: int | None = None,
        queue: int | None = None,
        readers: int | None = None,
        memory: int | str | None = None,
        persist: str | os.PathLike[str] | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: int | str | None = None,
        **named: FlowArray,
    ) -> None:
        """Writes a stream: `flow.write("small", mean=sim["T"].mean())`. It has a step whenever its variables are there.

        Args:
            stream: Its name.
            variables: Its variables; those whose names are words of Python can be said as `name=...`.
            keep: As for `writer`.
            queue: As for `writer`.
            readers: As for `writer`.
            memory: As for `writer`.
            persist: As for `writer`: a folder in which all steps are recorded.
            spill: As for `writer`.
            spill_limit: As for `writer`.
            named: Further variables.
        """
        all_of_them = {**(variables or {}), **named}
        for name, array in all_of_them.items():
            if not isinstance(array, FlowArray) or array._flow is not self:
                raise TypeError(f"variable '{name}' is no array of this flow")
            # A node that has no name yet is called as what it is written as.
            free = all(name != made.name for made in self._nodes + self._reads) and name not in {**self._graph["node"], **self._graph["read"]}
            if array._made.name is None and array._part is None and free and all(c.isalnum() or c in "_-" for c in name):
                array._made.name = name
        sizes = {"memory": memory, "spill_limit": spill_limit}
        folders = {"persist": persist, "spill": spill}
        said: dict[str, Any] = {"keep": keep, "queue": queue, "readers": readers}
        said |= {key: None if size is None else str(size) for key, size in sizes.items()}
        said |= {key: None if folder is None else place(folder) for key, folder in folders.items()}
        self._writes[stream] = (all_of_them, {key: value for key, value in said.items() if value is not None})

    def magnitude(self, arrays: Sequence[FlowArray]) -> FlowArray:
        """The root of the sum of the squares of several arrays: `flow.magnitude([sim["u"], sim["v"]])`."""
        return self._node("magnitude", list(arrays))

    def merge(self, arrays: Sequence[FlowArray], *, along: str | int | None = None, new: str | None = None) -> FlowArray:
        """One array of several. Nothing is copied for it.

        Args:
            arrays: Of one type.
            along: The dimension along which they lie one after the other; all others are the same.
            new: Or the name of a new first dimension, along which they lie side by side.
        """
        return self._node("merge", list(arrays), along=along, new=new)

    def _node(self, op: str, of: list[FlowArray], *, one: bool = False, **said: Any) -> FlowArray:
        for array in of:
            if not isinstance(array, FlowArray) or array._flow is not self:
                raise TypeError(f"'{op}' works on arrays of this flow")
        made = Made(None, {"op": op, "one": one, **{key: value for key, value in said.items() if value is not None}}, of)
        self._nodes.append(made)
        return FlowArray(self, made, None)

    def _function(self, function: Function) -> str:
        for name, known in self._functions.items():
            if known is function:
                return name
        own = getattr(function, "__name__", "")
        wanted = own if own.isidentifier() else "function"
        name, n = wanted, 1
        while name in self._functions:
            n += 1
            name = f"{wanted}{n}"
        self._functions[name] = function
        return name

    def _name_all(self) -> None:
        """Gives those a name that have none."""
        taken = {made.name for made in self._nodes + self._reads} | set(self._graph["node"]) | set(self._graph["read"])
        for made in self._nodes:
            n = 1
            while made.name is None:
                name = f"{made.said['op']}{n}"
                made.name, n = (None if name in taken else name), n + 1
            taken.add(made.name)

    def _json(self) -> str:
        """The graph, as the library reads it."""
        self._name_all()
        graph: dict[str, Any] = {"name": self.name, **{key: dict(self._graph[key]) for key in ("read", "node", "write")}}
        for made in self._reads:
            graph["read"][made.name] = made.said
        for made in self._nodes:
            said = dict(made.said)
            of = [array._reference() for array in made.of or ()]
            graph["node"][made.name] = {"of": of[0] if said.pop("one") else of, **said}
        for stream, (variables, said) in self._writes.items():
            graph["write"][stream] = {"variables": {name: array._reference() for name, array in variables.items()}, **said}
        return json.dumps(graph)

    def to_toml(self) -> str:
        """The flow as TOML, which `stead flow` and `stead.flow` read. Functions are names there."""
        return _stead.flow_toml(self._json())

    def check(self, *, live: bool = False, dataspaces: _stage.Spaces = None) -> dict[str, Any]:
        """Checks all that can be known before anything runs, and tells what the flow is: `reads`, `nodes` in their order, `writes`.

            >>> flow.check(live=True)["nodes"][0]["makes"]
            ['f64 [32] (x)']

        Args:
            live: Look at the streams that it reads, too, which are there now on this node or were recorded: their variables are to be what the flow
                needs. `run` does so by itself where a stream is there.
            dataspaces: As for `writer`.

        Raises:
            UsageError: It makes no sense: the message names the node, or the stream and the variable, and says why.
            NotFoundError: With `live`, a stream is not there, has no step yet, or not the variable.
        """
        told: dict[str, Any] = json.loads(_stead.describe_flow(self._json(), _stage.given(dataspaces) if live else None))
        return told

    def show(self, file: str | os.PathLike[str] | None = None) -> FlowPicture:
        """A picture of it: an SVG, which notebooks draw.

        Args:
            file: Where it is written, too: `.svg` or `.png`.

        Raises:
            UsageError: It makes no sense, or the file has another ending.
        """
        given = self._json()
        picture = FlowPicture(_stead.flow_svg(given))
        if file is not None:
            ending = os.path.splitext(os.fspath(file))[1].lower()
            if ending not in (".svg", ".png"):
                raise make("usage", f"'{os.fspath(file)}' is no picture", hint="name a file that ends with .svg or .png")
            data = picture.encode() if ending == ".svg" else bytes(_stead.flow_png(given))
            with open(file, "wb") as to:
                to.write(data)
        return picture

    def _repr_svg_(self) -> str:
        return _stead.flow_svg(self._json())

    def __repr__(self) -> str:
        reads, nodes, writes = (len({*self._graph[key], *(m.name or id(m) for m in own)}) for key, own in self._parts())
        return f"<stead.Flow '{self.name}': reads {reads}, nodes {nodes}, writes {writes}>"

    def _parts(self) -> Sequence[tuple[str, Sequence[Made]]]:
        return (("read", self._reads), ("node", self._nodes), ("write", [Made(name, {}) for name in self._writes]))

    def run(
        self,
        *,
        rank: int | None = None,
        ranks: int | None = None,
        steps: int | None = None,
        threads: int = 0,
        memory: int | str | None = None,
        timeout: float = 600,
        comm: Any = None,
        dataspaces: _stage.Spaces = None,
        cancel: _stead.Cancel | None = None,
    ) -> dict[str, Any]:
        """Runs it until one of the streams that it reads has ended. What it writes ends, then, too; if it fails, readers of that are told.
        Steps of several streams go together by their numbers; those that another stream has not are passed over, and counted as `unpaired`.

            >>> flow.run()
            {'steps': 100, 'dropped': 0, 'unpaired': 0, 'fetched': 0, 'streams': [{'stream': 'small', 'steps': 100, 'bytes': 80000}]}

        Args:
            rank: Which of several processes that share the work this is, from 0 on: each has a part of every array.
            ranks: How many there are.
            steps: Stop after so many.
            threads: Of this process; 0 is as many as there are processors.
            memory: Bytes of arrays that are made or copied here, such as `"1GiB"`, which it is if it is not said.
            timeout: Seconds to wait for anybody.
            comm: A communicator of mpi4py, all ranks of which are on this node, or what `couple` gives: `rank` and `ranks` are its own.
            dataspaces: As for `writer`.
            cancel: Ends it when it is cancelled.

        Raises:
            UsageError: It makes no sense, or does not fit what the streams have: the message names the node.
            PeerError: A writer of a stream has ended in the middle.
            TimedOutError: Somebody was waited for in vain; it says who.
            LimitError: It would take more memory.
            CancelledError: It was cancelled.
        """
        rank, ranks = seat(comm, rank, ranks, "ranks")
        functions = [(name, wrapped(name, function)) for name, function in self._functions.items()]
        given, coupled = _stage.given(dataspaces), coupling(comm, dataspaces)
        token = _stead.Cancel() if cancel is None else cancel
        folder = self._folder
        report = _stead.run_flow(self._json(), functions, folder, given, rank, ranks, threads, size(memory), steps, timeout, coupled, token)
        told: dict[str, Any] = json.loads(report)
        return told

    def start(self, **options: Any) -> RunningFlow:
        """Runs it in a thread of its own, in the program that writes the streams or in any other. Options are those of `run`.

        >>> with flow.start(), stead.writer("sim", readers=1) as w:
        ...     ...
        """
        self._name_all()
        return RunningFlow(lambda cancel: self.run(cancel=cancel, **options), self.name)


def wrapped(name: str, function: Function) -> Callable[[Any, str, list[int]], Any]:
    """A function of arrays as the library calls it."""

    def call(given: Any, dtype: str, shape: list[int]) -> Any:
        import numpy as np

        kinds = {"f32": "f4", "f64": "f8"}
        of = {known: kinds.get(known) or f"{known[0]}{int(known[1:]) // 8}" for known in {dtype, *(one[1] for one in given)}}
        arrays = [np.frombuffer(held, dtype=of[kind]).reshape(lengths) for held, kind, lengths in given]
        made = np.asarray(function(*arrays))
        wanted = np.dtype(of[dtype])
        if made.shape != tuple(shape):
            hint = "say what it gives: map(function, shape=...)"
            raise make("usage", f"function '{name}' gave an array of shape {made.shape}, and {tuple(shape)} was said", hint=hint)
        if not np.can_cast(made.dtype, wanted, "same_kind"):
            hint = "say what it gives: map(function, dtype=...)"
            raise make("usage", f"function '{name}' gave elements of {made.dtype}, and {wanted} was said", hint=hint)
        # NumPy sums whole numbers in 64 bits, and takes what is left of these for fewer ones.
        if wanted.kind in "iu" and made.size and not np.can_cast(made.dtype, wanted, "safe"):
            most = np.iinfo(wanted)
            for number in (int(made.min()), int(made.max())):
                if not most.min <= number <= most.max:
                    hint = "say what it gives: map(function, dtype=...)"
                    raise make("usage", f"function '{name}' gave {number}, which {wanted} has not", hint=hint)
        return np.array(made, dtype=wanted, order="C")

    return call


def in_library(path: str) -> bool:
    """Whether a path is that of a library, as the flows of all languages have it."""
    file = path.rpartition("/")[2]
    return file.endswith((".so", ".dylib")) or ".so." in file


def loaded(function: str, folder: str, modules: dict[str, Any]) -> Any:
    """The function of Python that `file.py:name` or `module:name` names. Each file is run once for a flow."""
    where, _, name = function.rpartition(":")
    if where not in modules:
        modules[where] = of_file(os.path.abspath(os.path.join(folder, where))) if where.endswith(".py") else importlib.import_module(where)
    found: Any = modules[where]
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise make("not_found", f"'{where}' has no function '{name}'")
    return found


def of_file(path: str) -> Any:
    """A file of Python as a module."""
    # Two files may be called alike.
    name = f"stead_flow_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise make("not_found", f"there is no file '{path}' of Python, of which the flow has a function", path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        # Half of it is none.
        sys.modules.pop(name, None)
        raise
    return module


def flow(
    file: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    functions: Mapping[str, Function] | None = None,
    load: bool = False,
) -> Flow:
    """A flow: operators between streams, run where the arrays are. Nothing runs until it is told to.

        >>> flow = stead.flow()
        >>> sim = flow.read("sim")
        >>> flow.write("small", mean=sim["T"].mean(over="y"), hot=sim["T"][::4, ::4].cast("f4"))
        >>> flow.run()

    Args:
        file: TOML of a flow: the path of a file, or, with more than one line, the text.
        name: The name of the flow: of the group by which it reads; that of the file, or `flow`.
        functions: Functions by the names that the file has for them.
        load: Functions that the file names in files (`"file.py:name"`) and modules (`"module:name"`) of Python and in libraries of C
            (`"lib.so:name"`) are loaded, but for those that are given. Paths are relative to the folder of the file, or of text to the current
            one. Their code is run: for flows that are trusted.

    Raises:
        UsageError: The file is no flow; the message has the line.
        NotFoundError: There is no such file, or not the function.
        ImportError: There is no such module.
    """
    folder = ""
    if file is None:
        graph: dict[str, Any] = {"name": "flow"}
    elif isinstance(file, str) and "\n" in file:
        graph = json.loads(_stead.parse_flow(file))
    else:
        graph = json.loads(_stead.load_flow(os.fspath(file)))
        folder = os.path.dirname(os.fspath(file))
    for key in ("read", "node", "write"):
        graph.setdefault(key, {})
    if name is not None:
        graph["name"] = name
    given = dict(functions or {})
    if not load:
        return Flow(graph, given)
    named = {node["function"] for node in graph["node"].values() if node["op"] == "map"}
    modules: dict[str, Any] = {}
    for function in sorted(named - set(given)):
        where, _, called = function.rpartition(":")
        # What lacks a half is told by the check of the flow.
        if where and called and not in_library(where):
            given[function] = loaded(function, folder, modules)
    return Flow(graph, given, os.path.abspath(folder))
