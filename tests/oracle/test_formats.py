"""Formats: the same data in every shape it can lie in, against pandas, NumPy, gzip."""

import csv
import gzip
import io
import math
import random
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

DTYPES = ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
NAMES = {"f": "f", "i": "i", "u": "u"}


def stead_dtype(code: str) -> str:
    return f"{code[0]}{int(code[1]) * 8}"


@pytest.fixture
def table(tmp_path):
    """A table with quotes, newlines in quotes, missing values."""
    r = random.Random(5)
    rows = [
        [
            r.choice(["", "NA", repr(r.uniform(-5, 5)), str(r.randint(-9, 9))]),
            r.choice(["plain", 'say "hi"', "two\nlines", "a,b", "", "ünïcode", "x\r\ny", '"']),
            str(i),
        ]
        for i in range(3000)
    ]
    return rows


def write_table(path, rows, **dialect):
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, **dialect)
        writer.writerow(["x", "note", "i"])
        writer.writerows(rows)


def expected(rows):
    xs = [float(r[0]) for r in rows if r[0] not in ("", "NA")]
    return [len(rows), len(xs), math.fsum(xs), float(sum(int(r[2]) for r in rows))]


SPECS = ["rows", "count:x", "sum:x", "sum:i"]


@pytest.mark.parametrize(
    "dialect, options",
    [
        ({}, {}),
        ({"lineterminator": "\n"}, {}),
        ({"delimiter": ";"}, {}),
        ({"delimiter": "|"}, {}),
        ({"delimiter": "\t"}, {"type": "tsv"}),
        ({"quotechar": "'"}, {"quote": "'"}),
        ({"quoting": csv.QUOTE_ALL}, {}),
        ({"quoting": csv.QUOTE_ALL, "lineterminator": "\n"}, {"chunk": "4KiB", "threads": 2}),
        ({"lineterminator": "\n"}, {"chunk": "4KiB", "threads": 2}),
    ],
)
def test_delimited_text_in_every_dialect(stead, tmp_path, table, dialect, options):
    write_table(tmp_path / "t.csv", table, **dialect)
    assert stead.results("t.csv", *SPECS, **options) == expected(table)
    # Text columns come back as they were written.
    notes = pd.Series([r[1] for r in table])
    by = stead.result("t.csv", "rows", by="note", **options)
    want = notes.value_counts().to_dict()
    want.pop("", None)
    assert {k: v for k, v in by.items() if k in want} == want


def test_no_header(stead, tmp_path):
    (tmp_path / "t.csv").write_text("1,2\n3,4\n5,6\n")
    assert stead.results("t.csv", "rows", "sum:0", "sum:1", header="no") == [3, 9.0, 12.0]
    assert stead.results("t.csv", "rows", "sum:b", header="no", names="a,b") == [3, 12.0]
    assert stead.results("t.csv", "rows", "sum:1", header="yes") == [2, 8.0]


def test_own_missing_tokens(stead, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,1\n-999,1\n?,1\n4,1\n")
    assert stead.results("t.csv", "count:x", "sum:x", missing=["-999", "?"]) == [2, 5.0]


def test_blanks_around_missing_tokens(stead, tmp_path):
    text = 'x,t\n1, NA\n nan,NA\nNaN ,b\n" NA ",b\n -999,b\n"-999 ",b\n 4 ,b\n'
    (tmp_path / "t.csv").write_text(text)
    xs = [r[0].strip() for r in csv.reader(io.StringIO(text))][1:]
    default, own = ["NA", "nan", "NaN"], ["NA", "nan", "NaN", "-999"]
    for tokens, options in [(default, {}), (own, {"missing": own})]:
        values = [float(x) for x in xs if x not in tokens]
        assert stead.results("t.csv", "count:x", "sum:x", **options) == [len(values), math.fsum(values)]
    # In columns of text they are compared as they stand.
    assert stead.result("t.csv", "rows", by="t") == {" NA": 1, "NA": 1, "b": 5}


def test_comments_are_no_records(stead, tmp_path):
    (tmp_path / "t.csv").write_text("# made by hand\nx,y\n1,2\n# and so on\n3,4\n")
    assert stead.results("t.csv", "rows", "sum:x", comment="#") == [2, 4.0]


def test_numbers_as_people_write_them(stead, tmp_path):
    values = ["1", "+2", "-3.5", "1e3", "1E-3", ".5", "6.", "0x", "1e400"][:7]
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{v},1\n" for v in values))
    assert stead.result("t.csv", "sum:x", column_type="x=number") == math.fsum(map(float, values))


def test_hard_decimals_are_rounded_correctly(stead, tmp_path):
    values = [
        "2.2250738585072011e-308",
        "9007199254740993",
        "1.7976931348623158e308",
        "179769313486231580793" + "0" * 288,
        "6.8547e-316",
        "4.9406564584124654e-324",
        "2.4703282292062328e-324",
        "0.1000000000000000055511151231257827021181583404541015625" + "0" * 300 + "1",
        "8.41e21",
        "9.5367431640625e-07",
    ]
    for v in values:
        (tmp_path / "t.csv").write_text(f"x,y\n{v},1\n")
        assert stead.result("t.csv", "max:x", column_type="x=number") == float(v), v


@pytest.mark.parametrize("how", ["gzip", "gzip-members", "zstd", "zstd-frames", "wrong-name"])
def test_compressed_text(stead, tmp_path, table, how):
    write_table(tmp_path / "t.csv", table)
    data = (tmp_path / "t.csv").read_bytes()
    half = len(data) // 2
    if how.startswith("zstd"):
        if shutil.which("zstd") is None:
            zstd = pytest.importorskip("compression.zstd", reason="neither zstd nor Python 3.14 is here").compress
        else:
            zstd = lambda b: subprocess.run(["zstd", "-q", "-c"], input=b, capture_output=True, check=True).stdout
        packed = zstd(data) if how == "zstd" else zstd(data[:half]) + zstd(data[half:])
        name = "t.csv.zst"
    else:
        packed = gzip.compress(data) if how == "gzip" else gzip.compress(data[:half]) + gzip.compress(data[half:])
        name = "t.csv.gz" if how != "wrong-name" else "t.csv"
    (tmp_path / name).write_bytes(packed)
    assert stead.results(name, *SPECS, chunk="4KiB", threads=2) == expected(table)


def test_flights_compressed_give_the_same_bits(stead, tmp_path, flights):
    specs = ["rows", "mean:arr_delay", "var:air_time", "entropy", "digits"]
    want = stead.results(flights, *specs)
    (tmp_path / "f.csv.gz").write_bytes(gzip.compress(flights.read_bytes(), 1))
    assert stead.results("f.csv.gz", *specs) == want


@pytest.mark.parametrize("code", DTYPES)
@pytest.mark.parametrize("end", ["<", ">"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_type(stead, tmp_path, code, end, order):
    r = np.random.default_rng(7)
    if code[0] == "f":
        a = r.normal(size=(701, 3)).astype(code)
    else:
        info = np.iinfo(code)
        a = r.integers(info.min // 2, info.max // 2, size=(701, 3), dtype=code)
    a = np.asarray(a.astype(end + code), order=order)
    np.save(tmp_path / "a.npy", a)
    (tmp_path / "a.raw").write_bytes(b"12345" + a.tobytes(order=order))
    want = [len(a), *(math.fsum(a[:, j].astype("f8")) for j in range(3)), float(a[:, 1].astype("f8").max())]
    specs = ["rows", "sum:0", "sum:1", "sum:2", "max:1"]
    assert stead.results("a.npy", *specs, chunk="4KiB", threads=2) == want
    raw = stead.results(
        "a.raw", *specs, type="raw", dtype=stead_dtype(code), shape="701x3", order=order,
        byte_order="little" if end == "<" else "big", skip=5, chunk="4KiB",
    )  # fmt: skip
    assert raw == want


def test_arrays_of_other_dimensions(stead, tmp_path):
    for shape in [(5000,), (10, 20, 30), (3, 4, 5, 6)]:
        a = np.arange(np.prod(shape), dtype="f8").reshape(shape)
        np.save(tmp_path / "a.npy", a)
        assert stead.results("a.npy", "rows", "sum:0") == [a.size, math.fsum(a.ravel())]


def test_fixed_records(stead, tmp_path):
    (tmp_path / "r.bin").write_bytes(b"HEADER" + b"abcdefg\n" * 1234)
    got = stead.results("r.bin", "rows", "grep:cde,fixed", type="records", record_length=8, skip=6)
    assert got == [1234, 1234]


def test_globs_directories_and_lists_are_one_dataset(stead, tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(12):
        (tmp_path / "d" / f"part{i}.csv").write_text("x,y\n" + "".join(f"{i},{j}\n" for j in range(i)))
    (tmp_path / "d" / ".hidden.csv").write_text("not,this\n")
    want = [sum(range(12)), float(sum(i * i for i in range(12)))]
    assert stead.results("d", "rows", "sum:x") == want
    assert stead.results("d/*.csv", "rows", "sum:x") == want
    assert stead.results([f"d/part{i}.csv" for i in range(12)], "rows", "sum:x") == want
    assert stead.results("d/part1?.csv", "rows") == [21]
    assert stead.document("d", "rows")["plan"]["files"] == 12


def test_a_line_of_200_megabytes(stead, tmp_path):
    with open(tmp_path / "f.log", "wb") as f:
        f.write(b"short\n")
        for _ in range(200):
            f.write(b"0123456789abcdef" * 65536)
        f.write(b"\nlast 7\n")
    n = 200 << 20
    document = stead.document("f.log", "lines", "digits", type="lines")
    assert document["results"]["lines"] == 3
    assert document["results"]["digits"]["3"] == n // 16
    assert document["results"]["digits"]["7"] == n // 16 + 1
    assert document["metrics"]["peak_memory_bytes"] < 1.2 * (1 << 30)


def test_describe_takes_no_huge_record_into_memory(stead, tmp_path):
    with open(tmp_path / "f.log", "wb") as f:
        f.write(b"short\n")
        for _ in range(100):
            f.write(b"x" * 1_000_000)
    # The peak of the largest child so far would hide that of this one, so the shell limits its memory.
    limited = 'ulimit -v 400000; exec "$0" describe f.log --type lines'
    done = subprocess.run(["bash", "-c", limited, stead.path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(a record of more than 16.0 MiB)" in done.stdout


def test_a_long_line_among_records(stead, tmp_path):
    long = b"x" * (20 << 20)
    (tmp_path / "f.log").write_bytes(b"a needle\n" + long + b" needle\nb\n")
    assert stead.results("f.log", "rows", "grep:needle", type="lines", memory="256MiB") == [3, 2]


def test_a_record_beyond_the_memory_is_an_error_that_says_where(stead, tmp_path):
    (tmp_path / "f.log").write_bytes(b"ok\n" + b"x" * (20 << 20) + b"\nb\n")
    stead.fails("run", "f.log", "--type", "lines", "-k", "grep:x", "--memory", "16MiB", code=1, says=("f.log:2", "longer than"))


def test_integers_beyond_2_to_53_are_counted(stead, tmp_path):
    a = np.array([[2**53 + 1], [2**53], [5]], dtype="i8")
    np.save(tmp_path / "a.npy", a)
    document = stead.document("a.npy", "max:0")
    assert document["metrics"]["integers_rounded"] == 1
    assert document["results"]["max:0"] == float(2**53)


def test_empty_rows_only_header(stead, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n")
    assert stead.results("t.csv", "rows", "lines", "count:x", column_type="x=number") == [0, 1, 0]


def test_describe_says_what_was_found(stead, flights):
    text = stead("describe", flights).stdout.decode()
    for word in ["csv", "arr_delay", "carrier", "text", "number", "N14228"]:
        assert word in text, word
    import json

    document = json.loads(stead("describe", flights, "--format", "json").stdout)
    assert "arr_delay" in json.dumps(document)


def test_csv_output_is_csv(stead, flights, frame):
    out = stead("run", flights, "-k", "mean:arr_delay", "-k", "rows", "--by", "carrier", "--format", "csv").stdout
    got = pd.read_csv(io.BytesIO(out), keep_default_na=False)
    assert list(got.columns) == ["carrier", "mean:arr_delay", "rows"]
    assert dict(zip(got["carrier"], got["rows"])) == frame["carrier"].value_counts().to_dict()
