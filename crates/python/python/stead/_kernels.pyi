"""Constructors of kernels. `help(stead.mean)` and docs/kernels.md define what each computes.

Columns are names, or positions from 0 as text; `"*"` means all numeric ones. One column gives a number, several a
dict by name, unless it says otherwise.
"""

import os
from collections.abc import Sequence
from typing import Any

class Spec(str):
    """A kernel specification: the text that `stead run -k` takes, and the key of its result."""

class KernelInfo:
    """What a kernel computes, from the library itself."""

    name: str
    """Name in specifications."""
    summary: str
    """One line."""
    usage: str
    """How a specification is written."""
    definition: str
    """What is computed, exactly, with missing values, NaN and empty input."""
    error: str
    """How far from the true answer it can be."""
    cost: str
    """Time and memory."""
    source: str
    """Paper or standard."""
    examples: list[str]
    """Specifications that work."""
    def __init__(self, row: tuple[Any, ...]) -> None: ...

def kernels() -> list[KernelInfo]:
    """All kernels, with definition, error, cost, source and examples."""

def lines() -> Spec:
    """Number of lines: an int."""

def rows() -> Spec:
    """Number of records: an int."""

def digits() -> Spec:
    """How often each of the digits stands in the bytes: a dict from `"0"` to `"9"` to int."""

def entropy() -> Spec:
    """Shannon entropy of the bytes: a float, in bits a byte."""

def grep(
    pattern: str,
    /,
    *,
    fixed: bool = ...,
    ignore_case: bool = ...,
    invert: bool = ...,
    lines: bool = ...,
    max: int = ...,
    out: str | os.PathLike[str] = ...,
) -> Spec:
    """Records that match: an int; with `lines` a dict of count (int) and lines (a list of dicts of source, offset in
    bytes, text)."""

def render(
    *,
    out: str | os.PathLike[str] = ...,
    width: int = ...,
    height: int = ...,
    azimuth: float = ...,
    elevation: float = ...,
    zoom: float = ...,
    projection: str = ...,
    min: float = ...,
    max: float = ...,
    colors: str = ...,
    opacity: str | Sequence[tuple[float, float]] = ...,
    background: str = ...,
    step: float = ...,
    shading: str = ...,
) -> Spec:
    """Picture of a 3-d array as PNG, written to `out`; angles in degrees, width and height in pixels, step in voxels:
    a dict of out (the file), width, height (ints, pixels), min, max (floats, the values that the ends of the colours
    stand for)."""

def kmeans(
    *columns: str | Sequence[str],
    k: int = ...,
    tol: float = ...,
    rounds: int = ...,
    seed: int = ...,
    init: str = ...,
    delta: float = ...,
) -> Spec:
    """Clusters: a dict of centroids (float64 array (k, columns)), columns (their names), sizes (int64 array (k,)),
    inertia (float), rounds (int), converged (bool), dropped (int, rows with missing values)."""

def normalize(
    *columns: str | Sequence[str],
    method: str = ...,
    ddof: int = ...,
    out: str | os.PathLike[str] = ...,
) -> Spec:
    """Writes columns shifted and scaled (`method`: minmax, zscore, l2) to `out`: a dict of out (the file), rows (int),
    method, parameters (by column, what it was shifted and scaled by)."""

def count(*columns: str | Sequence[str]) -> Spec:
    """Number of values that are not missing: an int."""

def sum(*columns: str | Sequence[str]) -> Spec:
    """Sum, correctly rounded: a float, in the unit of the column."""

def mean(*columns: str | Sequence[str]) -> Spec:
    """Arithmetic mean, correctly rounded: a float, in the unit of the column, or None of no values."""

def var(*columns: str | Sequence[str], ddof: int = ...) -> Spec:
    """Variance, correctly rounded; `ddof` is 1 if not given: a float, in the unit of the column, squared,
    or None of too few values."""

def std(*columns: str | Sequence[str], ddof: int = ...) -> Spec:
    """Standard deviation, correctly rounded; `ddof` is 1 if not given: a float, in the unit of the column, or None of
    too few values."""

def min(*columns: str | Sequence[str]) -> Spec:
    """Smallest value: a float, in the unit of the column, or None of no values."""

def max(*columns: str | Sequence[str]) -> Spec:
    """Largest value: a float, in the unit of the column, or None of no values."""

def hist(column: str, /, *, bins: int = ..., min: float = ..., max: float = ...) -> Spec:
    """Histogram: a dict of edges (float64 array (bins + 1,), in the unit of the column), counts (int64 array (bins,)),
    below, above, missing, nan (ints)."""

def quantile(column: str, /, *, q: float | Sequence[float] = ..., error: float = ..., exact: bool = ...) -> Spec:
    """Quantiles: a float, in the unit of the column, or None of no values; a dict of these, by the text of each `q`,
    of several."""

def gram(*columns: str | Sequence[str], exact: bool = ...) -> Spec:
    """Inner products of columns: a dict of columns (the names of n), rows, dropped (ints), matrix (float64 array (n,
    n))."""

__all__ = [
    "KernelInfo",
    "Spec",
    "kernels",
    "lines",
    "rows",
    "digits",
    "entropy",
    "grep",
    "render",
    "kmeans",
    "normalize",
    "count",
    "sum",
    "mean",
    "var",
    "std",
    "min",
    "max",
    "hist",
    "quantile",
    "gram",
]
