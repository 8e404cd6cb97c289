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


class Spec(str):
    """A kernel specification: the text that `stead run -k` takes, and the key of its result."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Spec({str.__repr__(self)})"


class KernelInfo:
    """What a kernel computes, from the library itself."""

    __slots__ = ("name", "summary", "usage", "definition", "error", "cost", "source", "examples")

    def __init__(self, row: tuple) -> None:
        self.name: str = row[0]
        """Name in specifications."""
        self.summary: str = row[1]
        """One line."""
        self.usage: str = row[2]
        """How a specification is written."""
        self.definition: str = row[3]
        """What is computed, exactly, with missing values, NaN and empty input."""
        self.error: str = row[4]
        """How far from the true answer it can be."""
        self.cost: str = row[5]
        """Time and memory."""
        self.source: str = row[6]
        """Paper or standard."""
        self.examples: list[str] = row[7]
        """Specifications that work."""

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
        return quoted(";".join(written(v) for v in value))
    else:
        text = str(value)
    return quoted(text)


def quoted(text: str) -> str:
    """`text` in quotes, if a specification needs them."""
    if text and not any(c in text for c in ",='\""):
        return text
    return "'" + text.replace("'", "''") + "'"


def spec(name: str, arguments: tuple, options: dict) -> Spec:
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


def _constructor(info: KernelInfo) -> Callable[..., Spec]:
    def kernel(*arguments: object, **options: object) -> Spec:
        return spec(info.name, arguments, options)

    kernel.__name__ = kernel.__qualname__ = info.name
    kernel.__doc__ = (
        f"{info.summary[0].upper()}{info.summary[1:]}.\n\n"
        f"As a specification: `{info.usage}`. Columns and patterns are arguments, options are keywords:\n"
        f"a list is joined with `;`, `True` is an option that has no value.\n\n"
        f"{info.definition}\n\nError: {info.error}\n\nCost: {info.cost}\n\nSource: {info.source}\n\n"
        "Examples:\n" + "".join(f"    ds.run({e!r})\n" for e in info.examples)
    )
    return kernel


_NAMES = []
for _info in kernels():
    globals()[_info.name] = _constructor(_info)
    _NAMES.append(_info.name)
del _info

__all__ = ["KernelInfo", "Spec", "kernels", *_NAMES]
