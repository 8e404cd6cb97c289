"""The `stead` command."""

from __future__ import annotations

import os
import signal
import sys

from ._stead import main as run


def main() -> None:
    """Runs the command with the arguments of this process, and ends it with the command's exit code."""
    # The command has its own way with Ctrl-C: Python must not raise KeyboardInterrupt on top of it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The daemon starts its workers by it.
    os.environ["STEAD_PYTHON"] = sys.executable
    sys.exit(run(["stead", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
