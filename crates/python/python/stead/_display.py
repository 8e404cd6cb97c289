"""Reports and descriptions in notebooks, as HTML."""

from __future__ import annotations

import base64
import html

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ._report import Report

#: Rows of one table that are shown.
SHOWN = 60
#: Columns of one table that are shown.
WIDE = 16


def text(value: Any) -> str:
    """A value in a cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.10g}"
    if isinstance(value, (list, np.ndarray)):
        some = [text(v) for v in list(value)[:12]]
        return ", ".join(some + ["..."] if len(value) > 12 else some)
    if isinstance(value, dict):
        return ", ".join(f"{k}={text(v)}" for k, v in value.items())
    return str(value)


def number(value: Any) -> bool:
    return value is None or isinstance(value, (int, float, np.integer, np.floating))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> str:
    """A table of at most SHOWN rows and WIDE columns."""
    rows = list(rows)
    cut = len(header) > WIDE
    out = ["<table>"]
    if title:
        out.append(f"<caption style='text-align:left'><code>{html.escape(title)}</code></caption>")
    head = [*header[:WIDE], "..."] if cut else header
    if any(head):
        out.append("<thead><tr>" + "".join(f"<th>{html.escape(str(h))}</th>" for h in head) + "</tr></thead>")
    out.append("<tbody>")
    for row in rows[:SHOWN]:
        cells = []
        for value in row[:WIDE]:
            align = " style='text-align:right'" if number(value) else " style='text-align:left'"
            cells.append(f"<td{align}>{html.escape(text(value))}</td>")
        out.append("<tr>" + "".join(cells) + ("<td>...</td>" if cut else "") + "</tr>")
    if len(rows) > SHOWN:
        out.append(f"<tr><td>... {len(rows):,} in all</td></tr>")
    out.append("</tbody></table>")
    return "".join(out)


def scalar(value: Any) -> bool:
    return not isinstance(value, (dict, list, np.ndarray))


def section(title: str, value: Any, drawn: bool) -> str:
    """A structured result."""
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return table([str(i) for i in range(value.shape[1])], value.tolist(), title)
    if not isinstance(value, dict):
        return table(["", ""], [["", value]], title)
    hidden = ("edges", "counts") if drawn else ()
    flat = [[k, v] for k, v in value.items() if not matrix(v) and k not in hidden]
    out = [table(["", ""], flat, title)] if flat else []
    columns = [str(c) for c in value.get("columns", [])]
    for k, v in value.items():
        if isinstance(v, np.ndarray) and v.ndim == 2:
            out.append(table(columns or [str(i) for i in range(v.shape[1])], v.tolist(), k))
        elif matrix(v):
            out.append(table(list(v[0]), [list(row.values()) for row in v], k))
    return "".join(out)


def matrix(value: Any) -> bool:
    """True for what takes a table of its own."""
    if isinstance(value, np.ndarray):
        return value.ndim == 2
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def report(r: Report) -> str:
    """All results, a picture of those that can be drawn, and what it took."""
    svg = r.to_svg()
    by = r.plan["by"]
    out = []
    if by:
        wide = {s: v for s, v in r.results.items() if all(scalar(x) for x in v.values())}
        if wide:
            groups = list(next(iter(wide.values())))
            rows = [[g, *(v.get(g) for v in wide.values())] for g in groups]
            out.append(table([",".join(by), *wide], rows))
        for spec, v in r.results.items():
            if spec not in wide:
                out += [section(f"{spec} [{g}]", x, False) for g, x in list(v.items())[:SHOWN]]
    else:
        flat = [[s, v] for s, v in r.results.items() if scalar(v)]
        if flat:
            out.append(table(["kernel", "result"], flat))
        for spec, v in r.results.items():
            if not scalar(v):
                out.append(section(spec, v, svg is not None))
    if svg is not None:
        # As an image, nothing in it can run.
        data = base64.b64encode(svg.encode()).decode()
        out.append(f"<img alt='histograms and groups' style='max-width:100%' src='data:image/svg+xml;base64,{data}'>")
    m = r.metrics
    took = f"{m['seconds']:.3g} s, {m['bytes_read'] / 1e6:,.1f} MB read, {r.plan['threads']} thread(s)"
    out.append(f"<div style='opacity:0.6'>{html.escape(took)}</div>")
    return "<div>" + "".join(out) + "</div>"


def description(d: dict[str, Any]) -> str:
    """What a dataset is."""
    facts: list[list[Any]] = [["format", d["format"]], *([k, v] for k, v in d["details"].items())]
    facts += [["files", len(d["files"])], ["bytes", d["bytes"]]]
    if d["shape"] is not None:
        facts.append(["shape", " x ".join(str(n) for n in d["shape"])])
    out = [table(["", ""], facts)]
    names = [c["name"] for c in d["columns"]]
    if d["rows"]:
        out.append(table(names or [""], d["rows"], "first rows"))
    elif names:
        out.append(table(["column"], [[n] for n in names]))
    return "<div>" + "".join(out) + "</div>"
