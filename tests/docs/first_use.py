#!/usr/bin/env python3
"""Goes the way of README.md from a fresh clone to a result in Python, with all that it builds and fetches: `make test-all`.

    first_use.py FOLDER    where the clone is made, and removed when all went well
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from documents import BLOCKS  # noqa: E402
from support import ROOT  # noqa: E402

# What the reader would type into Python are the snippets of the page.
PYTHON = 'python() { command python "$DOCS_ROOT/tests/docs/snippets.py" "$DOCS_ROOT/README.md"; }\n'


def main() -> None:
    clone = Path(sys.argv[1])
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    block = next(b for b in BLOCKS if b.page == "README.md" and "python3 -m venv" in b.text)
    print(block.text)
    # Crates that were built before are used again; all else is as for anybody.
    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"} | {"DOCS_ROOT": str(ROOT)}
    env["CARGO_TARGET_DIR"] = os.environ.get("CARGO_TARGET_DIR") or str(ROOT / "target")
    subprocess.run(["bash", "-e", "-c", PYTHON + block.text], cwd=clone, env=env, check=True)
    shutil.rmtree(clone)


if __name__ == "__main__":
    main()
