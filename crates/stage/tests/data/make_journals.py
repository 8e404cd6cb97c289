#!/usr/bin/env python3
"""Makes the journals of older versions that lie here: their tables are in `journal/forms.rs`, and what they have is that of `form-2.db`, which
the version wrote that had that form first. Whoever raises the form adds a journal of the form before, and keeps those that are there."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

DATA = Path(__file__).resolve().parent
FORMS = (DATA.parents[1] / "src" / "journal" / "forms.rs").read_text()
APPLICATION = 0x53746561

#: What had come to form 1 in the end, as the last version that had it says.
CAME = """
ALTER TABLE transfer ADD COLUMN touches TEXT NOT NULL DEFAULT '';
CREATE INDEX IF NOT EXISTS ready_by ON transfer (touches, priority DESC, id)
  WHERE state = 'pending' AND queued = 1 AND held = 0;
CREATE TABLE IF NOT EXISTS job (transfer INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS kept (path TEXT PRIMARY KEY, location TEXT NOT NULL, until REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shared (
  path TEXT NOT NULL, user INTEGER NOT NULL, location TEXT NOT NULL, PRIMARY KEY (path, user)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stray (n INTEGER PRIMARY KEY AUTOINCREMENT, url TEXT NOT NULL, key TEXT NOT NULL, asked REAL NOT NULL);
"""
#: And what came to form 2.
TIMES = """
ALTER TABLE transfer ADD COLUMN active REAL NOT NULL DEFAULT 0;
ALTER TABLE transfer ADD COLUMN resumed REAL;
"""


def said(name: str) -> str:
    """The tables that are written down by this name."""
    return re.search(rf'const {name}: &str = "\n(.*?)";', FORMS, re.DOTALL)[1]


def columns(c: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in c.execute(f"PRAGMA table_info({table})")]


def make(name: str, form: int, tables: str) -> None:
    path = DATA / f"{name}.db"
    path.unlink(missing_ok=True)
    rows, c = sqlite3.connect(f"file:{DATA / 'form-2.db'}?mode=ro", uri=True), sqlite3.connect(path)
    c.execute("PRAGMA page_size = 512")
    c.executescript(tables)
    for table in ("transfer", "item", "needs", "pair", "job", "kept", "shared", "stray"):
        both = [column for column in columns(rows, table) if column in columns(c, table)]
        if both:
            for row in rows.execute(f"SELECT {', '.join(both)} FROM {table}"):
                c.execute(f"INSERT INTO {table} ({', '.join(both)}) VALUES ({', '.join('?' * len(both))})", row)
    if columns(c, "total"):
        # As it was counted while they came to where they are.
        for state, transfers, files, bytes_ in rows.execute("SELECT state, transfers, files, bytes FROM total"):
            waiting = 1 if form == 1 and state == "pending" else transfers
            c.execute("UPDATE total SET transfers = ?, files = ?, bytes = ? WHERE state = ?", (waiting, files, bytes_, state))
    if "active" in columns(c, "transfer"):
        c.execute("UPDATE transfer SET resumed = started, active = ended - started WHERE ended IS NOT NULL")
    c.execute(f"PRAGMA application_id = {APPLICATION}")
    c.execute(f"PRAGMA user_version = {form}")
    c.commit()
    c.execute("VACUUM")
    c.close()


def main() -> None:
    assert "const FORM: i64 = 2;" in FORMS, "what is written down as SCHEMA is another form by now"
    make("form-1-first", 1, said("FIRST"))
    make("form-1-last", 1, said("LAST") + CAME)
    make("form-2-times", 2, said("SCHEMA") + TIMES)


if __name__ == "__main__":
    main()
