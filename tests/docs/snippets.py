#!/usr/bin/env python3
"""Runs the ```python blocks of a page in order and in one namespace, as a reader would type them.

    snippets.py PAGE

Blocks with `>>>` must print what they show (spaces at line ends aside, `...` for any text).
"""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str):
    """Line and text of each block."""
    for m in re.finditer(r"^```python\n(.*?)^```$", text, flags=re.S | re.M):
        yield text.count("\n", 0, m.start(1)), m[1]


def main() -> None:
    page = Path(sys.argv[1])
    names: dict[str, object] = {}
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=FLAGS)
    for line, text in blocks(page.read_text(encoding="utf-8")):
        if ">>>" in text:
            test = parser.get_doctest(text, names, page.name, str(page), line)
            runner.run(test, clear_globs=False)
            names = test.globs
        else:
            exec(compile("\n" * line + text, str(page), "exec"), names)
    tried = runner.summarize(verbose=False)
    sys.exit(1 if tried.failed else 0)


if __name__ == "__main__":
    main()
