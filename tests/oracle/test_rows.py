"""Filters and groups: against pandas on the flights, and by hand on the edge cases."""

import math

import pandas as pd
import pytest

# (filter, the same in pandas)
FILTERS = [
    ("dep_delay > 0", lambda f: f.dep_delay > 0),
    ("dep_delay <= -5 and carrier == 'UA'", lambda f: (f.dep_delay <= -5) & (f.carrier == "UA")),
    ("carrier in ('UA', 'AA', 'F9')", lambda f: f.carrier.isin(["UA", "AA", "F9"])),
    ("carrier not in ('UA', 'AA')", lambda f: ~f.carrier.isin(["UA", "AA"])),
    ("arr_delay is missing", lambda f: f.arr_delay.isna()),
    ("arr_delay is not missing and month != 2", lambda f: f.arr_delay.notna() & (f.month != 2)),
    ("not (dep_delay > 0)", lambda f: f.dep_delay.notna() & ~(f.dep_delay > 0)),
    ("dep_delay > 0 or month = 1", lambda f: (f.dep_delay > 0) | (f.month == 1)),
    ("distance / air_time > 8.5", lambda f: f.distance / f.air_time > 8.5),
    ("abs(arr_delay) >= 60", lambda f: f.arr_delay.abs() >= 60),
    ("tailnum ~ '^N[0-9]+U'", lambda f: f.tailnum.str.contains("^N[0-9]+U", na=False)),
    ("tailnum !~ 'JB$'", lambda f: f.tailnum.notna() & ~f.tailnum.str.contains("JB$", na=False)),
    ("starts_with(dest, 'S') and ends_with(origin, 'K')", lambda f: f.dest.str.startswith("S") & f.origin.str.endswith("K")),
    ("contains(lower(dest), 'l')", lambda f: f.dest.str.lower().str.contains("l")),
    ("min(dep_delay, arr_delay) > 30", lambda f: (f.dep_delay > 30) & (f.arr_delay > 30)),
    ("(hour * 60 + minute) % 7 == 3", lambda f: (f.hour * 60 + f.minute) % 7 == 3),
    ("origin < 'JFK'", lambda f: f.origin < "JFK"),
    ("distance > 1e9", lambda f: f.distance > 1e9),
    ("floor(distance / 100) == 10 && !(carrier == 'B6')", lambda f: (f.distance // 100 == 10) & (f.carrier != "B6")),
]  # fmt: skip


@pytest.mark.parametrize("text, oracle", FILTERS, ids=[t for t, _ in FILTERS])
def test_filters_keep_the_rows_that_pandas_keeps(stead, flights, frame, text, oracle):
    kept = frame[oracle(frame)]
    specs = ["rows", "sum:distance", "count:arr_delay", "sum:arr_delay"]
    got = stead.document(flights, *specs, where=text)
    values = [got["results"][s] for s in specs]
    assert values == [
        len(kept),
        math.fsum(kept.distance),
        kept.arr_delay.count(),
        math.fsum(kept.arr_delay.dropna()),
    ]
    assert got["metrics"]["rows_kept"] == len(kept)
    assert got["metrics"]["rows"] == len(frame)


def test_filtered_bytes_are_those_of_the_kept_records(stead, flights, frame):
    data = flights.read_bytes().splitlines(keepends=True)[1:]
    kept = b"".join(line for line, c in zip(data, frame.carrier) if c == "F9")
    lines, digits, grep = stead.results(flights, "lines", "digits", "grep:DEN", where="carrier == 'F9'")
    assert lines == kept.count(b"\n")
    assert digits == {str(d): kept.count(b"%d" % d) for d in range(10)}
    assert grep == sum(b"DEN" in line for line in kept.splitlines())


@pytest.mark.parametrize("by", ["carrier", "origin", "month", "tailnum", "dest"])
def test_groups_are_those_of_pandas(stead, flights, frame, by):
    specs = ["rows", "count:arr_delay", "sum:arr_delay", "mean:arr_delay", "min:arr_delay", "max:arr_delay", "std:arr_delay"]
    rows, count, total, mean, low, high, std = stead.results(flights, *specs, by=by)
    # pandas: dropna=False keeps the group of missing values, which stead calls NA.
    groups = frame.groupby(by, dropna=False).arr_delay
    names = {("NA" if pd.isna(k) else str(k)): g for k, g in groups}
    assert set(rows) == set(names)
    for name, values in names.items():
        assert rows[name] == len(values)
        values = values.dropna()
        assert count[name] == len(values)
        assert total[name] == math.fsum(values)
        if len(values):
            assert mean[name] == pytest.approx(values.mean(), rel=1e-12, abs=1e-12)
            assert (low[name], high[name]) == (values.min(), values.max())
        else:
            assert mean[name] is low[name] is high[name] is None
        if len(values) > 1:
            assert std[name] == pytest.approx(values.std(), rel=1e-11, abs=1e-12)
        else:
            assert std[name] is None


def test_groups_of_two_columns(stead, flights, frame):
    rows, total = stead.results(flights, "rows", "sum:distance", by="origin,carrier")
    want = frame.groupby(["origin", "carrier"]).distance.agg(["size", "sum"])
    assert rows == {f"{o},{c}": n for (o, c), n in want["size"].items()}
    assert total == {f"{o},{c}": float(s) for (o, c), s in want["sum"].items()}


def test_groups_are_in_order(stead, flights):
    months = list(stead.result(flights, "rows", by="month"))
    assert months == [str(m) for m in range(1, 13)]
    carriers = list(stead.result(flights, "rows", by="carrier"))
    assert carriers == sorted(carriers)


def test_odd_names_of_groups(stead, tmp_path):
    (tmp_path / "t.csv").write_text('k,l,x\n"a,b",1,1\n"a,b",1.0,2\n"say ""q""",2,3\n,2,4\nNA,,5\n')
    assert stead.result("t.csv", "sum:x", by="k") == {"a,b": 3.0, 'say "q"': 3.0, "NA": 9.0}
    assert stead.result("t.csv", "sum:x", by="l") == {"1": 3.0, "2": 7.0, "NA": 5.0}


def test_groups_with_a_filter_that_leaves_none(stead, flights):
    assert stead.result(flights, "rows", by="carrier", where="distance < 0") == {}


def test_too_many_groups_for_the_memory(stead, tmp_path):
    (tmp_path / "t.csv").write_text("k,x\n" + "".join(f"key{i},{i}\n" for i in range(200_000)))
    stead.fails("run", "t.csv", "-k", "quantile:x", "--by", "k", "--memory", "16MiB", code=1, says=("--memory",))
    assert len(stead.result("t.csv", "rows", by="k")) == 200_000
