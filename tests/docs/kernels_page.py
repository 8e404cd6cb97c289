#!/usr/bin/env python3
"""docs/kernels.md out of what `stead kernels` says: one source for both.

    kernels_page.py --write    writes the page
    kernels_page.py --check    fails if the page is not what would be written
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "kernels.md"
STEAD = os.environ.get("STEAD") or str(ROOT / "target" / "debug" / "stead")

HEAD = """\
# Kernels

<!-- Written by `make docs` from the texts in crates/kernel; do not edit by hand. -->

A kernel is a computation that gives the same answer however the data is cut up: over threads, extents and
files, in any order. All kernels of one `stead run` share one scan. A kernel is asked for as

    NAME            NAME:ARGUMENT,ARGUMENT,KEY=VALUE            NAME:'ARGUMENT, with a comma'

Columns go by name or, where no column has that name, by position from 0. Values that are missing (see
[formats](formats.md)) are left out unless a kernel says otherwise. The same texts are shown by
`stead kernels NAME`.

Times are those of one core of an AMD EPYC server with the data in memory, as
`cargo run --release -p stead-kernel --example costs` measures them.
"""


def stead(*args: str) -> str:
    return subprocess.run([STEAD, *args], check=True, capture_output=True, text=True).stdout


def filled(text: str) -> str:
    """Paragraphs filled to the page's width, and kept from being taken for markup."""
    paragraphs = [" ".join(line.split()) for line in text.strip().splitlines()]
    out = []
    for p in paragraphs:
        for c in "\\*_<>|[]#":
            p = p.replace(c, "\\" + c)
        out.append(textwrap.fill(p, 110, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(out)


def page() -> str:
    kernels = json.loads(stead("kernels", "--format", "json"))
    parts = [HEAD, "| kernel | what it gives |\n|---|---|\n"]
    for k in kernels:
        parts.append(f"| [{k['name']}](#{k['name']}) | {k['summary'].replace('|', chr(92) + '|')} |\n")
    for k in kernels:
        parts.append(f"\n## {k['name']}\n\n{filled(k['summary'])}\n\n    {k['usage']}\n")
        for title, key in [("Definition", "definition"), ("Error", "error"), ("Cost", "cost"), ("Source", "source")]:
            parts.append(f"\n**{title}.** {filled(k[key])}\n")
        examples = "".join(f"    {e}\n" for e in k["examples"])
        parts.append(f"\n**Examples.**\n\n{examples}")
    return "".join(parts)


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    elif sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != page():
            sys.exit("docs/kernels.md is not what `stead kernels` says; run: make docs")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
