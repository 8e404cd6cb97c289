"""Progress of runs that take longer than a moment."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

#: Runs shorter than this show nothing, in seconds.
PATIENCE = 0.5
#: Widest bar, in characters.
WIDTH = 40


class Snapshot:
    """What a run looks like now, about ten times a second and once at the end of each pass."""

    __slots__ = {
        "n_pass": "The pass, from 1.",
        "bytes": "Bytes read in this pass.",
        "total_bytes": "Bytes that this pass will read.",
        "rows": "Records read in this pass.",
        "seconds": "Seconds since this pass began.",
    }

    def __init__(self, n_pass: int, n_bytes: int, total_bytes: int, rows: int, seconds: float) -> None:
        self.n_pass = n_pass
        self.bytes = n_bytes
        self.total_bytes = total_bytes
        self.rows = rows
        self.seconds = seconds

    def __repr__(self) -> str:
        return (
            f"Snapshot(n_pass={self.n_pass}, bytes={self.bytes}, total_bytes={self.total_bytes}, "
            f"rows={self.rows}, seconds={self.seconds:.3f})"
        )


def size(n: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def clock(seconds: float) -> str:
    """Seconds for people."""
    s = int(seconds)
    return f"{s // 3600}:{s // 60 % 60:02}:{s % 60:02}" if s >= 3600 else f"{s // 60}:{s % 60:02}"


class Bar:
    """A bar on one line that is drawn over."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.shown = 0

    def __call__(self, s: Snapshot) -> None:
        if s.seconds < PATIENCE and s.n_pass == 1:
            return
        share = min(s.bytes / s.total_bytes, 1.0) if s.total_bytes else 1.0
        rate = s.bytes / max(s.seconds, 1e-9)
        left = clock((s.total_bytes - s.bytes) / rate) if rate else "?"
        head = f"pass {s.n_pass} " if s.n_pass > 1 else ""
        head += f"{share:4.0%} |"
        tail = f"| {size(s.bytes)}/{size(s.total_bytes)} {size(rate)}/s, {left} left"
        # A line that is wider than the terminal could not be drawn over.
        width = min(WIDTH, self.columns() - len(head) - len(tail) - 1)
        full = int(share * width)
        line = head + "█" * full + " " * (width - full) + tail
        self.write("\r" + line.ljust(self.shown))
        self.shown = len(line)

    @staticmethod
    def columns() -> int:
        """Width of the terminal, 80 if there is none."""
        import shutil

        return shutil.get_terminal_size((80, 24)).columns

    def close(self) -> None:
        """Wipes the bar away."""
        if self.shown:
            self.write("\r" + " " * self.shown + "\r")
            self.shown = 0

    def write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            # A stream that takes no text is no reason to stop.
            pass


def wanted() -> bool:
    """True where somebody sees a bar: on a terminal or in a notebook."""
    if "IPython" in sys.modules:
        shell = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
        if shell is not None and hasattr(shell, "kernel"):
            return True
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False
