"""Constructors of kernels: `stead.mean("x")` is the text `mean:x`.

There is one for each kernel of the library, made from the library's own list; `_kernels.pyi` says what options
each takes.
"""

from __future__ import annotations

import os

from ._stead import kernel_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Spec(str):
    """A kernel specification: the text that `stead run -k` takes, and the key of its result."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Spec({str.__repr__(self)})"


class KernelInfo:
    """What a kernel computes, from the library itself."""

    __slots__ = {
        "name": "Name in specifications.",
        "summary": "One line.",
        "usage": "How a specification is written.",
        "definition": "What is computed, exactly, with missing values, NaN and empty input.",
        "error": "How far from the true answer it can be.",
        "cost": "Time and memory.",
        "source": "Paper or standard.",
        "examples": "Specifications that work.",
    }

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.name: str = row[0]
        self.summary: str = row[1]
        self.usage: str = row[2]
        self.definition: str = row[3]
        self.error: str = row[4]
        self.cost: str = row[5]
        self.source: str = row[6]
        self.examples: list[str] = row[7]

    def __repr__(self) -> str:
        return f"<kernel {self.name}: {self.summary}>"


def kernels() -> list[KernelInfo]:
    """All kernels, with definition, error, cost, source and examples."""
    return [KernelInfo(row) for row in kernel_list()]


def written(value: object) -> str:
    """An argument or a value of an option as a specification has it."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, os.PathLike):
        text = os.fspath(value)
        if isinstance(text, bytes):
            text = os.fsdecode(text)
    elif isinstance(value, float):
        # A float of NumPy prints its type, too.
        text = float.__repr__(value)
    elif hasattr(value, "tolist"):
        return written(value.tolist())
    elif isinstance(value, (list, tuple)):
        # Pairs, as of the opacity of `render`, have a colon between them.
        return quoted(";".join(":".join(map(written, v)) if isinstance(v, (list, tuple)) else written(v) for v in value))
    else:
        text = str(value)
    return quoted(text)


def quoted(text: str) -> str:
    """`text` in quotes, if a specification needs them."""
    if text and not any(c in text for c in ",='\""):
        return text
    return "'" + text.replace("'", "''") + "'"


def spec(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Spec:
    """The specification of kernel `name`."""
    parts = []
    for a in arguments:
        several = isinstance(a, (list, tuple)) or (hasattr(a, "tolist") and not isinstance(a, str))
        parts += [written(c) for c in (list(a) if several else [a])]
    for key, value in options.items():
        if value is True:
            parts.append(key)
        elif value is not None and value is not False:
            parts.append(f"{key}={written(value)}")
    return Spec(f"{name}:{','.join(parts)}" if parts else name)


#: What the results are, in NumPy's words, with shapes and units. One column gives such a result, several a dict of these by name
#: where the columns are looked at one by one.
RESULTS = {
    "lines": "an int",
    "rows": "an int",
    "digits": 'a dict from `"0"` to `"9"` to int',
    "entropy": "a float, in bits a byte",
    "grep": "an int; with `lines` a dict of count (int) and lines (a list of dicts of source, offset in bytes, text)",
    "render": (
        "a dict of out (the file), width, height (ints, pixels), min, max (floats, the values that the ends of the "
        "colours stand for)"
    ),
    "kmeans": (
        "a dict of centroids (float64 array (k, columns)), columns (their names), sizes (int64 array (k,)), "
        "inertia (float), rounds (int), converged (bool), dropped (int, rows with missing values)"
    ),
    "normalize": "a dict of out (the file), rows (int), method, parameters (by column, what it was shifted and scaled by)",
    "count": "an int",
    "sum": "a float, in the unit of the column",
    "mean": "a float, in the unit of the column, or None of no values",
    "var": "a float, in the unit of the column, squared, or None of too few values",
    "std": "a float, in the unit of the column, or None of too few values",
    "min": "a float, in the unit of the column, or None of no values",
    "max": "a float, in the unit of the column, or None of no values",
    "hist": (
        "a dict of edges (float64 array (bins + 1,), in the unit of the column), counts (int64 array (bins,)), "
        "below, above, missing, nan (ints)"
    ),
    "quantile": (
        "a float, in the unit of the column, or None of no values; a dict of these, by the text of each `q`, of "
        "several"
    ),
    "gram": "a dict of columns (the names of n), rows, dropped (ints), matrix (float64 array (n, n))",
}
#: Kernels of which several columns give one result.
WHOLE = ("gram", "kmeans", "normalize")


def _constructor(info: KernelInfo) -> Callable[..., Spec]:
    kernel: Callable[..., Spec]
    if ":" not in info.usage:

        def kernel() -> Spec:
            return Spec(info.name)

    elif info.usage.startswith(f"{info.name}:OPTION"):

        def kernel(**options: object) -> Spec:
            return spec(info.name, (), options)

    else:

        def kernel(*arguments: object, **options: object) -> Spec:
            return spec(info.name, arguments, options)

    several = "\nOf several columns: a dict of these, by name." if f"{info.name}:*" in info.usage and info.name not in WHOLE else ""
    kernel.__name__ = kernel.__qualname__ = info.name
    kernel.__doc__ = (
        f"{info.summary[0].upper()}{info.summary[1:]}.\n\n"
        f"As a specification: `{info.usage}`.\n"
        "Columns and patterns are arguments, options are keywords; a list of values is given as a list,\n"
        "an option without a value as True.\n\n"
        f"{filled('Result: ' + RESULTS.get(info.name, 'see below'))}.{several}\n\n"
        f"{filled(info.definition)}\n\n{filled('Error: ' + info.error)}\n\n{filled('Cost: ' + info.cost)}\n\n"
        f"{filled('Source: ' + info.source)}\n\n"
        "Examples:\n" + "".join(f"    ds.run({e!r})\n" for e in info.examples)
    )
    return kernel


def filled(text: str, width: int = 100) -> str:
    """Paragraphs in lines that fit a terminal. (`textwrap` would take longer to import than to do this.)"""
    lines = []
    for paragraph in text.strip().splitlines():
        line = ""
        for word in paragraph.split():
            if line and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return "\n".join(lines)


_NAMES = []
for _info in kernels():
    globals()[_info.name] = _constructor(_info)
    _NAMES.append(_info.name)
del _info

__all__ = ["KernelInfo", "Spec", "kernels", *_NAMES]
