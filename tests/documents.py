"""The documents and their blocks: what is fenced, and what is indented."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from support import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])

#: What lines of a shell begin with in blocks that are indented; also what sets variables for one of them.
COMMAND = re.compile(r"([A-Z][A-Z_]*=\S+ +)*(mpirun|srun|make|mpicc|mpifort|stead|python|cargo|pip|lab/lab|LAB=\S+) ")


@dataclass(frozen=True)
class Block:
    """A block of a document; `kind` is the language of a fence, or `indented`."""

    path: Path
    line: int
    kind: str
    text: str

    @property
    def page(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def first(self) -> str:
        """Its first line, by which lists name it: numbers of lines change."""
        return self.text.split("\n", 1)[0].strip()

    @property
    def shell(self) -> bool:
        """Whether a reader would type it into a shell."""
        return self.kind == "sh" or (self.kind == "indented" and COMMAND.match(self.first) is not None)

    @property
    def included(self) -> bool:
        """Whether it is a file of the clone, or a part of one."""
        return self.text.startswith('--8<-- "')

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """All blocks of a document, in order."""
    found, begun, kind, lines = [], 0, None, []
    before = ""
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        if kind not in (None, "indented"):
            if line.startswith("```"):
                found.append(Block(path, begun, kind, "".join(f"{text}\n" for text in lines)))
                kind = None
            else:
                lines.append(line)
            before = line
            continue
        # A line that goes on a list or an option of one is indented, too, and comes without an empty line before it.
        if line.startswith("    ") and (kind == "indented" or not before.strip()):
            if kind is None:
                begun, kind, lines = number, "indented", []
            lines.append(line[4:])
        elif kind == "indented":
            found.append(Block(path, begun, kind, "".join(f"{text}\n" for text in lines)))
            kind = None
        if line.startswith("```"):
            begun, kind, lines = number, line[3:].strip(), []
        else:
            assert not line.lstrip().startswith("```"), f"{path}:{number}: a fence that is indented is looked at by no test"
        before = line
    assert kind is None, f"{path}:{begun}: a fence without an end"
    return found


BLOCKS = [block for path in DOCUMENTS for block in blocks(path)]


def programs() -> list[Block]:
    """Whole programs in C and C++ that stand in the documents themselves."""
    return [b for b in BLOCKS if b.kind in ("c", "cpp") and not b.included and "main(" in b.text]
