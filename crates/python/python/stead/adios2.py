"""Streams and ADIOS2: what a program writes with ADIOS2, to a BP file or over SST, goes into a stream, and a stream to a BP file or over SST.

So a program that uses ADIOS2 stays as it is and is one end of a stream. Names, types, shapes, blocks, attributes and steps are kept. It needs the
package `adios2`; nothing else of stead does.
"""

from __future__ import annotations

import sys
import time
import warnings
from importlib import import_module

from . import _streams
from ._errors import Error, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from ._stream_step import Step

__all__ = ["copy_in", "copy_out"]

#: The variable of a stream, a number, whose attributes are those that ADIOS2 has of no variable.
GLOBAL = "global_attributes"
#: The attribute of a variable of ADIOS2 in which its dimensions are named, with commas.
DIMS = "dimensions"
#: What is said to an engine unless something else is: SST keeps any number of steps for a reader that is late, by itself.
LIMITS = {"sst": {"QueueLimit": "2", "QueueFullPolicy": "Block"}}
#: Seconds for which ADIOS2 is left to wait: a program cannot be interrupted meanwhile.
PATIENCE = 1.0
#: Engines of which each process that reads is given the steps that come from when it has come: not the same ones as others.
PASSING = ("sst", "ssc", "dataman")
TYPES = {"float": "f4", "double": "f8", "char": "i1"} | {f"{u}int{bits}_t": f"{u or 'i'}{bits // 8}" for u in ("", "u") for bits in (8, 16, 32, 64)}


def _package() -> Any:
    try:
        return import_module("adios2")
    except ImportError as e:
        raise ImportError("stead.adios2 needs the package adios2: pip install adios2") from e


def _is_one_of_several(options: Mapping[str, Any], how_many: str) -> bool:
    """Whether options are those of one process among others."""
    comm = options.get("comm")
    return bool(options.get("rank")) or (options.get(how_many) or 1) > 1 or (comm is not None and comm.size > 1)


def copy_in(
    source: str | os.PathLike[str],
    stream: str,
    *,
    engine: str = "BP5",
    parameters: Mapping[str, object] | None = None,
    variables: Collection[str] | None = None,
    timeout: float = 600,
    **options: Any,
) -> int:
    """Copies what ADIOS2 has written, or writes meanwhile, into a stream, step by step. How many steps there were comes back.

        >>> stead.adios2.copy_in("sim.bp", "sim")
        >>> stead.adios2.copy_in("sim", "sim", engine="SST", readers=1)

    Each block is read into memory of the stream at once, and is a block there. Attributes of variables stay theirs, and others are those of the
    variable `global_attributes`. The attribute `dimensions` of a variable, as `"y,x"`, names its dimensions. A variable of int8 or uint8 of which
    ADIOS2 cannot tell the blocks is one.

    Args:
        source: What is opened: the file, or the name of a stream of SST.
        stream: The stream, which this is a writer of.
        engine: Of ADIOS2.
        parameters: Of the engine, such as `{"OpenTimeoutSecs": 60}`.
        variables: Those to copy; all, if it is not said.
        timeout: Seconds to wait for anybody: for the file, for a step of it, and for readers of the stream.
        options: As for `stead.writer`. With `rank` and `writers`, or `comm`, several processes share the blocks of a BP file. Over SST one
            process copies: each would be a reader of its own, and they would not begin with the same step.

    Raises:
        ImportError: There is no `adios2`.
        IoError: ADIOS2 cannot open or read it; it says why.
        TypeError: A variable is of a type that streams do not have, such as a text, or has no global shape: `variables` leaves it out. Or
            this is one of several processes, and the engine is SST.
        TimedOutError: No step came in time.
        Error: As of `stead.writer`.
    """
    if engine.lower() in PASSING and _is_one_of_several(options, "writers"):
        raise TypeError(f"one process copies what comes over {engine}: say neither rank nor writers, and no comm of several")
    adios, path = _package(), str(source)
    # What there is in ADIOS2 goes with these, as it is ended.
    library = adios.Adios()
    # Else it waits an hour for a file that is not there.
    parameters = {"OpenTimeoutSecs": timeout} | dict(parameters or {})
    io, found = _open(adios, library, path, engine, parameters, "Read")
    try:
        with _streams.writer(stream, timeout=timeout, **options) as w:
            rank, writers, steps = options.get("rank") or 0, options.get("writers") or 1, 0
            if comm := options.get("comm"):
                rank, writers = comm.rank, comm.size
            seen: set[str] = set()
            while _next(adios, found, path, timeout):
                with w.step():
                    _step_in(adios, io, found, w, variables, seen, rank, writers)
                found.end_step()
                steps += 1
            _never_there(variables, seen)
            return steps
    finally:
        found.close()


def _open(adios: Any, library: Any, path: str, engine: str, parameters: Mapping[str, object] | None, mode: str) -> tuple[Any, Any]:
    io = library.declare_io("stead")
    try:
        io.set_engine(engine)
        io.set_parameters(LIMITS.get(engine.lower(), {}) | {key: str(value) for key, value in (parameters or {}).items()})
        return io, io.open(path, getattr(adios.Mode, mode))
    except (RuntimeError, ValueError) as e:
        raise make("io", f"ADIOS2 cannot open '{path}' with its engine {engine}: {e}", path=path) from e


def _next(adios: Any, found: Any, path: str, timeout: float) -> bool:
    """Waits for the next step. False at the end."""
    until = time.monotonic() + timeout
    while True:
        left = max(until - time.monotonic(), 0)
        status = found.begin_step(adios.StepMode.Read, min(left, PATIENCE))
        if status == adios.StepStatus.OK:
            return True
        if status == adios.StepStatus.EndOfStream:
            return False
        if status != adios.StepStatus.NotReady:
            raise make("io", f"ADIOS2 cannot read the next step of '{path}'", "see what its writer has said", path=path)
        if left <= PATIENCE:
            raise make("timeout", f"the next step of '{path}' has not come in {timeout:g} s", "does its writer go on?", path=path)


def _never_there(variables: Collection[str] | None, seen: Collection[str]) -> None:
    """Tells of variables that were to be copied and that no step had: a name may be misspelt."""
    if never := sorted(set(variables or ()) - set(seen)):
        warnings.warn(f"no step has had {', '.join(repr(name) for name in never)}, which variables= names", stacklevel=3)


def _step_in(
    adios: Any,
    io: Any,
    found: Any,
    w: _streams.StreamWriter,
    variables: Collection[str] | None,
    seen: set[str],
    rank: int,
    writers: int,
) -> None:
    """Copies a step. What variables there were is noted."""
    import numpy as np

    say: dict[str, Any]
    seen.update(io.available_variables())
    there = [name for name in io.available_variables() if variables is None or name in variables]
    # Those of variables that are not copied, or not in this step, are not everybody's.
    of = _attributes(io, sorted(seen.union(variables or ())))
    for name in there:
        variable = io.inquire_variable(name)
        kind, local = variable.type(), variable.shape_id() not in (adios.ShapeID.GlobalValue, adios.ShapeID.GlobalArray)
        if local or kind not in TYPES:
            what = "has no global shape" if local else f"has elements of type {kind}"
            raise TypeError(f"variable '{name}' {what}, and a stream cannot have it; say which variables= are to be copied")
        told = of.get(name, {})
        shape = [] if variable.shape_id() == adios.ShapeID.GlobalValue else list(variable.shape())
        names = told.get(DIMS)
        dims = names.split(",") if isinstance(names, str) and shape and names.count(",") == len(shape) - 1 else None
        if dims is not None:
            told = {key: value for key, value in told.items() if key != DIMS}
        say = {"dims": dims, "attributes": told}
        if not shape:
            if rank == 0:
                number = np.empty(1, TYPES[kind])
                found.get(variable, number, adios.Mode.Sync)
                w.put(name, number.reshape(()), **say)
            continue
        for start, count in _blocks(found, name, shape)[rank::writers]:
            part = w.empty(name, shape, TYPES[kind], start=start, count=count, **say)
            if part.size:
                variable.set_selection([start, count])
                found.get(variable, part, adios.Mode.Sync)
            w.put(name, part)
    if rank == 0 and of.get(""):
        w.put(GLOBAL, np.uint8(0), attributes=of[""])


def _blocks(found: Any, name: str, shape: list[int]) -> list[list[list[int]]]:
    """Start and count of each block of a variable in this step."""
    try:
        said = found.blocks_info(name, found.current_step())
    except UnicodeDecodeError:
        # It takes the least and the greatest element of one byte for text. All of it is one block, then.
        return [[[0] * len(shape), shape]]
    return [[[int(n) for n in block[key].split(",")] for key in ("Start", "Count")] for block in said]


def _attributes(io: Any, variables: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What is said of each variable, and of none."""
    of: dict[str, dict[str, Any]] = {}
    for name in io.available_attributes():
        # That of `a/b` begins as one of `a`.
        owner = max((v for v in variables if name.startswith(f"{v}/")), key=len, default="")
        attribute = io.inquire_attribute(name)
        try:
            value = attribute.data_string() if attribute.type() == "string" else attribute.data()
            if attribute.single_value() and not isinstance(value, str):
                value = value[0] if isinstance(value, list) else value.item()
            of.setdefault(owner, {})[name[len(owner) + 1 :] if owner else name] = _streams.plain(name, value)
        except (TypeError, ValueError, RuntimeError) as e:
            warnings.warn(f"attribute '{name}' is left out: {e}", stacklevel=4)
    return of


def copy_out(
    stream: str,
    target: str | os.PathLike[str],
    *,
    engine: str = "BP5",
    parameters: Mapping[str, object] | None = None,
    variables: Collection[str] | None = None,
    timeout: float = 600,
    **options: Any,
) -> int:
    """Copies a stream to ADIOS2, step by step: into a file, or to programs that read it over SST. How many steps there were comes back.

        >>> stead.adios2.copy_out("sim", "sim.bp")
        >>> stead.adios2.copy_out("sim", "sim", engine="SST")

    Blocks are given to ADIOS2 where they lie. For SST two steps are kept at most for readers, and then they are waited for, unless `parameters`
    say `QueueLimit`. One process copies all: several would write the same target.

    Args:
        stream: The stream, which this is a reader of.
        target: What is opened: the file, or the name of a stream of SST.
        engine: Of ADIOS2.
        parameters: Of the engine, such as `{"RendezvousReaderCount": 2}`.
        variables: Those to copy; all, if it is not said.
        timeout: Seconds to wait for the stream, and for each step of it. ADIOS2 waits for readers over SST as long as it likes: by itself for the
            first one, unless `parameters` say `{"RendezvousReaderCount": 0}`, and then where they are behind.
        options: As for `stead.reader`, but for those that say which of several processes this is.

    Raises:
        ImportError: There is no `adios2`.
        IoError: ADIOS2 cannot open it; it says why.
        TypeError: This is one of several processes, as `rank`, `ranks` or `comm` say; or a variable has become one of another type, or of another
            number of dimensions, which ADIOS2 does not have.
        Error: As of `stead.reader`: what was complete is in ADIOS2 then.
    """
    if _is_one_of_several(options, "ranks"):
        raise TypeError(f"one process writes '{target}': say neither rank nor ranks, and no comm of several")
    adios, path = _package(), str(target)
    library = adios.Adios()
    with _streams.reader(stream, timeout=timeout, **options) as r:
        io, made = _open(adios, library, path, engine, parameters, "Write")
        try:
            said: dict[str, Any] = {}
            forms: dict[str, Any] = {}
            steps = 0
            for step in r:
                made.begin_step()
                for name in step:
                    if variables is None or name in variables or name == GLOBAL:
                        _variable_out(adios, io, made, step, name, said, forms, engine)
                made.end_step()
                steps += 1
            _never_there(variables, forms)
            return steps
        finally:
            made.close()


def _variable_out(
    adios: Any, io: Any, made: Any, step: Step, name: str, said: dict[str, Any], forms: dict[str, Any], engine: str
) -> None:
    """Copies a variable of a step."""
    import numpy as np

    known = step.variable(name)
    told = dict(known.attributes)
    if name != GLOBAL:
        parts = [([s.start for s in box], [s.stop - s.start for s in box]) for _, box in step.parts(name)]
        shape = list(known.shape)
        variable, form = io.inquire_variable(name), (known.dtype, len(shape))
        if variable is None:
            variable = io.define_variable(name, np.empty(1, known.dtype), shape, [0] * len(shape), shape)
        elif forms[name] != form:
            was, now = (f"{dtype} with {ndim} dimensions" for dtype, ndim in (forms[name], form))
            raise TypeError(f"variable '{name}' is {now} in step {step.number} and was {was}: ADIOS2 keeps what it was first; leave it out by variables=")
        elif shape:
            variable.set_shape(shape)
        forms[name] = form
        # Of an array without elements there are no parts, and it is there all the same.
        parts = parts or [([0] * len(shape), shape)]
        for start, count in parts if shape else parts[:1]:
            if 0 in count and 0 not in shape:
                continue
            if shape:
                variable.set_selection([start, count])
            part = np.ascontiguousarray(step.get(name, (start, count))) if 0 not in count else np.empty(1, known.dtype)
            # By its address: what is for reading only is refused as an array.
            made.impl.Put(variable.impl, part.ctypes.data, adios.Mode.Sync)
        if known.dims:
            told[DIMS] = ",".join(known.dims)
    for key, value in told.items():
        full = key if name == GLOBAL else f"{name}/{key}"
        if full in said and said[full] == value:
            continue
        if full in said:
            io.remove_attribute(full)
        said[full] = value
        texts = isinstance(value, list) and bool(value) and isinstance(value[0], str)
        if engine.lower() == "sst" and texts:
            warnings.warn(f"attribute '{full}' is left out: SST loses texts of lists", stacklevel=3)
        elif value != []:
            io.define_attribute(full, np.array(value) if isinstance(value, list) and not texts else value)


def main(words: Sequence[str] | None = None) -> int:
    """`python -m stead.adios2 in SOURCE STREAM` and `python -m stead.adios2 out STREAM TARGET`."""
    import argparse

    parse = argparse.ArgumentParser("python -m stead.adios2", description="Copies between ADIOS2 and streams of stead, step by step.")
    parse.add_argument("way", choices=("in", "out"), help="in: from ADIOS2 into a stream; out: from a stream to ADIOS2")
    parse.add_argument("source")
    parse.add_argument("target")
    parse.add_argument("--engine", default="BP5", help="of ADIOS2: BP5, SST")
    parse.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the engine; several times")
    parse.add_argument("--variables", help="those to copy, with commas")
    parse.add_argument("--readers", type=int, help="in: groups of readers that the first step waits for")
    parse.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="to wait for anybody")
    given = parse.parse_args(words)
    copy = copy_in if given.way == "in" else copy_out
    some = {"readers": given.readers} if given.way == "in" and given.readers is not None else {}
    if wrong := [one for one in given.set if "=" not in one]:
        parse.error(f"--set {wrong[0]}: KEY=VALUE is wanted")
    parameters = dict(one.split("=", 1) for one in given.set)
    variables = given.variables.split(",") if given.variables else None
    try:
        steps = copy(given.source, given.target, engine=given.engine, parameters=parameters, variables=variables, timeout=given.timeout, **some)
    except (Error, TypeError, ImportError) as e:
        print(e, file=sys.stderr)
        return 1
    print(f"{steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
