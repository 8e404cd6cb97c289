"""Results as data frames of pandas."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._report import Report


def scalar(value: Any) -> bool:
    """True for what fits a cell."""
    return not isinstance(value, (dict, list, np.ndarray))


def cells(spec: str, value: Any) -> dict[str, Any]:
    """The columns that one result takes."""
    if isinstance(value, dict) and value and all(scalar(v) for v in value.values()):
        return {f"{spec}.{k}": v for k, v in value.items()}
    return {spec: value}


def groups(report: Report, keys: list[str], by: list[str]) -> pd.Index:
    """The groups as an index: numbers where the column holds numbers, one level for each column."""
    # The texts of several columns come joined, and quoted where that is needed.
    rows = [next(csv.reader([k])) if len(by) > 1 else [k] for k in keys]
    columns = list(zip(*rows)) if rows else [()] * len(by)
    levels = [level(values, report._types.get(name) != "text") for name, values in zip(by, columns)]
    if len(by) == 1:
        return pd.Index(levels[0], name=by[0])
    return pd.MultiIndex.from_arrays(levels, names=by)


def level(values: tuple[str, ...], numbers: bool) -> list[Any]:
    if not numbers:
        return list(values)
    floats = [float("nan") if v == "NA" else float(v) for v in values]
    if all(f.is_integer() for f in floats):
        return [int(f) for f in floats]
    return floats


def frame(report: Report) -> pd.DataFrame:
    """All results: one row, or one row a group."""
    by = report.plan["by"]
    if not by:
        row: dict[str, Any] = {}
        for spec, value in report.results.items():
            row |= cells(spec, value)
        return pd.DataFrame({k: column([v]) for k, v in row.items()})
    keys: list[str] = []
    for value in report.results.values():
        keys = list(value)
        break
    table: dict[str, list[Any]] = {}
    for spec, value in report.results.items():
        rows = [cells(spec, value[k]) for k in keys]
        names = list(dict.fromkeys(n for r in rows for n in r))
        for n in names:
            table[n] = [r.get(n) for r in rows]
    return pd.DataFrame({n: column(v) for n, v in table.items()}, index=groups(report, keys, by))


def column(values: list[Any]) -> Any:
    """Numbers as numbers, with NaN where there is no answer; anything else as objects."""
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return np.array(values, dtype=np.int64 if all(v < 2**63 for v in values) else np.uint64)
    if all(v is None or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in values):
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def frame_of(report: Report, spec: str) -> pd.DataFrame:
    """One result in full."""
    value, by = report[spec], report.plan["by"]
    if not by:
        return full(spec, value)
    frames = [full(spec, v) for v in value.values()]
    if not frames:
        return pd.DataFrame(index=groups(report, [], by))
    index = groups(report, list(value), by)
    if len(by) == 1:
        return pd.concat(frames, keys=list(index), names=by)
    return pd.concat(frames, keys=list(index), names=by)


def full(spec: str, value: Any) -> pd.DataFrame:
    """One result, not grouped."""
    if isinstance(value, np.ndarray):
        return pd.DataFrame(value if value.ndim == 2 else {spec: value})
    if isinstance(value, list):
        return pd.DataFrame(value) if value and isinstance(value[0], dict) else pd.DataFrame({spec: value})
    if not isinstance(value, dict):
        return pd.DataFrame({spec: column([value])})
    if "matrix" in value and "columns" in value:
        return pd.DataFrame(value["matrix"], index=value["columns"], columns=value["columns"])
    if "centroids" in value and "columns" in value:
        centres = pd.DataFrame(value["centroids"], columns=value["columns"])
        centres["size"] = value["sizes"]
        return centres
    if "edges" in value and "counts" in value:
        edges = np.asarray(value["edges"], dtype=np.float64)
        return pd.DataFrame({"left": edges[:-1], "right": edges[1:], "count": value["counts"]})
    if "lines" in value and isinstance(value["lines"], list):
        return pd.DataFrame(value["lines"], columns=["source", "offset", "text"])
    return pd.DataFrame({spec: column(list(value.values()))}, index=list(value))
