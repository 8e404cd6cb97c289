"""lines, rows, digits, entropy, grep: against wc's rules, Python's counting, re and ripgrep."""

import collections
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

RG = Path(sys.executable).parent / "rg"

TEXTS = {
    "empty line": b"\n",
    "no newline at the end": b"a\nb\nc",
    "crlf": b"a\r\nbb\r\n\r\nccc\r\n",
    "only newlines": b"\n" * 5000,
    "binary": bytes(range(256)) * 40,
    "long line": b"x" * 3_000_000 + b"\nshort\n",
    "invalid utf-8": b"caf\xe9\n\xff\xfe\nERROR \xc3\x28\n",
    "marked": b"\xef\xbb\xbf2026-01-1 ERROR disk 7\r\n\nx",
    "only a mark": b"\xef\xbb\xbf",
    "log": b"".join(
        b"2026-01-%02d 12:00:%02d %s disk %d\n" % (i % 28 + 1, i % 60, [b"INFO", b"ERROR", b"warn"][i % 3], i)
        for i in range(20_000)
    ),
}


def line_count(data: bytes) -> int:
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def entropy(data: bytes) -> float:
    counts = collections.Counter(data)
    return -math.fsum(n / len(data) * math.log2(n / len(data)) for n in counts.values()) + 0.0


@pytest.mark.parametrize("name", TEXTS)
def test_counts_of_bytes(stead, tmp_path, name):
    data = TEXTS[name]
    (tmp_path / "f.log").write_bytes(data)
    lines, rows, digits, h = stead.results("f.log", "lines", "rows", "digits", "entropy", type="lines", chunk="4KiB")
    assert lines == rows == line_count(data)
    assert digits == {str(d): data.count(b"%d" % d) for d in range(10)}
    assert h == pytest.approx(entropy(data), rel=1e-14, abs=1e-15)


def test_counts_on_flights(stead, flights, frame):
    data = flights.read_bytes()
    lines, rows, digits, h = stead.results(flights, "lines", "rows", "digits", "entropy")
    assert lines == line_count(data) == len(frame) + 1
    assert rows == len(frame)
    assert digits == {str(d): data.count(b"%d" % d) for d in range(10)}
    assert h == pytest.approx(entropy(data), rel=1e-14)


def test_wc_agrees(stead, flights):
    wc = subprocess.run(["wc", "-l", flights], capture_output=True, check=True).stdout
    assert stead.result(flights, "lines") == int(wc.split()[0])


PATTERNS = ["ERROR", "ERROR.*disk", "^2026-01-1", "disk [0-9]+7$", "(?i)WARN", "[a-z]{4}", "x+", "é", "^$", r"\w$"]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", ["log", "crlf", "no newline at the end", "only newlines", "long line", "marked"])
def test_grep_counts_as_re_does(stead, tmp_path, name, pattern):
    (tmp_path / "f.log").write_bytes(TEXTS[name])
    lines = TEXTS[name].removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    lines = [line.removesuffix(b"\r").decode() for line in lines]
    # re's $ also matches before a final newline, which these lines no longer have.
    expected = sum(1 for line in lines if re.search(pattern, line))
    # '--kernel=' and quotes: a pattern may hold what the specification uses itself.
    spec = "grep:'" + pattern.replace("'", "''") + "'"
    assert stead.result("f.log", spec, type="lines", chunk="4KiB") == expected


@pytest.mark.parametrize("pattern", ["ERROR", "ERROR.*disk", r"disk \d+7\b", "warn|ERROR", r"\s12:00:0\d", "[^a-z ]{8}", "."])
@pytest.mark.parametrize("name", ["log", "invalid utf-8", "crlf", "marked"])
def test_grep_counts_as_ripgrep_does(stead, tmp_path, name, pattern):
    path = tmp_path / "f.log"
    path.write_bytes(TEXTS[name])
    for flag, option in [("", []), (",invert", ["-v"]), (",ignore_case", ["-i"]), (",fixed", ["-F"])]:
        rg = [RG, "--no-config", "-a", "-c", "--include-zero", *option, "-e", pattern, path]
        expected = int(subprocess.run(rg, capture_output=True).stdout or b"0")
        assert stead.result("f.log", f"grep:'{pattern}'{flag}", type="lines") == expected, (flag, option)


def test_grep_on_flights(stead, flights):
    for pattern in ["UA", "JFK,LAX", r",NA,NA,", r"N\d{3}JB"]:
        rg = [RG, "--no-config", "-c", "-e", pattern, flights]
        expected = int(subprocess.run(rg, capture_output=True, check=True).stdout)
        assert stead.result(flights, f"grep:'{pattern}'", type="lines") == expected


def test_grep_shows_lines_in_file_order(stead, tmp_path):
    data = TEXTS["log"]
    (tmp_path / "f.log").write_bytes(data)
    found = [m for m in re.finditer(rb"(?m)^.*ERROR.*7$", data)]
    spec = "grep:'ERROR.*7$',lines,max=25"
    got = stead.result("f.log", spec, type="lines", chunk="4KiB", threads=2)
    assert got["count"] == len(found)
    assert [(line["offset"], line["text"]) for line in got["lines"]] == [
        (m.start(), m.group().decode()) for m in found[:25]
    ]


def test_grep_writes_matching_lines(stead, tmp_path):
    data = TEXTS["log"]
    (tmp_path / "f.log").write_bytes(data)
    stead.result("f.log", "grep:ERROR,out=errors.log", type="lines", chunk="4KiB", threads=2)
    assert (tmp_path / "errors.log").read_bytes() == b"".join(
        line for line in data.splitlines(keepends=True) if b"ERROR" in line
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["errors.log", "f.log"]


def test_grep_on_fixed_records(stead, tmp_path):
    records = [b"%-16d" % (i * i) for i in range(5000)]
    (tmp_path / "f.bin").write_bytes(b"".join(records))
    expected = sum(1 for r in records if b"99" in r)
    assert stead.result("f.bin", "grep:99,fixed", record_length=16, type="records", chunk="4KiB") == expected
    # A match never spans two records: "1" at the end of one and "2" at the start of the next.
    (tmp_path / "g.bin").write_bytes(b"2xx1" * 1000)
    assert stead.result("g.bin", "grep:12,fixed", record_length=4, type="records") == 0
    assert stead.result("g.bin", "rows", record_length=4, type="records") == 1000
