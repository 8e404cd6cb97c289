"""Runs: files, errors, threads, signals, progress."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import stead
from stead._progress import Bar


def test_what_names_a_dataset(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.csv").write_text(f"x\n{i}\n")
    for source, total in [
        (str(tmp_path / "1.csv"), 1.0),
        (tmp_path / "2.csv", 2.0),
        (str(tmp_path / "*.csv"), 3.0),
        (tmp_path, 3.0),
        ([tmp_path / "1.csv", str(tmp_path / "2.csv")], 3.0),
    ]:
        assert stead.open(source).run("sum:x")["sum:x"] == total
        assert stead.run(source, "sum:x", where="x >= 0")["sum:x"] == total
    ds = stead.open(tmp_path)
    assert [os.path.basename(f) for f in ds.files] == ["0.csv", "1.csv", "2.csv"]
    assert ds.nbytes == 12 and ds.shape is None and ds.format == "csv" and ds.types == {"x": "number"}
    assert "3 files" in repr(ds) and "csv" in repr(ds)


def test_options_reach_the_reader(tmp_path):
    f = tmp_path / "f.txt"
    f.write_text("# made by hand\na|'1|0'|-\nb|2|3\n")
    ds = stead.open(f, type="csv", delimiter="|", quote="'", comment="#", header=False, names=["k", "t", "v"], missing=["-"])
    assert ds.columns == ["k", "t", "v"]
    assert ds.run("count:v", "sum:v", "rows").results == {"count:v": 1, "sum:v": 3.0, "rows": 2}
    assert stead.open(b"a,\"b\n", quote=False, header=False).run("rows")["rows"] == 1
    assert stead.open(b"z\n01\n", header=True, column_types={"z": "text"}).types == {"z": "text"}
    assert stead.open(bytes(24), type="records", record_length=8, skip=8).run("rows")["rows"] == 2
    d = stead.open(f, type="lines").describe(rows=1)
    assert d["format"] == "lines" and d["rows"] == [["# made by hand"]] and "first rows" in repr(d)


def test_means_never_change_an_answer(flights):
    ds = stead.open(flights)
    specs = ["mean:arr_delay", "std:arr_delay", "entropy", "quantile:distance"]
    first = ds.run(specs, threads=1).results
    for means in [
        {"threads": 3, "chunk": "64KiB"},
        {"engine": "pread", "queue_depth": 2, "memory": "256MiB"},
        {"direct": True, "chunk": 1 << 20},
    ]:
        assert ds.run(specs, **means).results == first
    plan = ds.run(specs, threads=2, chunk="128KiB", memory=2**28).plan
    assert plan["threads"] == 2 and plan["chunk_bytes"] == 128 << 10 and plan["memory_bytes"] == 2**28


def test_lenient(tmp_path):
    (tmp_path / "b.csv").write_text("x\n1\nabc\n3\n")
    ds = stead.open(tmp_path / "b.csv", column_types={"x": "number"})
    with pytest.raises(stead.DataError) as e:
        ds.run("sum:x")
    assert (e.value.line, e.value.column, e.value.kind) == (3, "x", "data") and e.value.path.endswith("b.csv")
    assert "column_types={NAME" in e.value.hint and "--" not in e.value.hint
    r = ds.run("sum:x", lenient=True)
    assert r["sum:x"] == 4.0 and r.metrics["rows_skipped"] == 1


def test_exceptions_are_pythons_own_too(tmp_path):
    (tmp_path / "x.csv").write_text("x\n1\n")
    ds = stead.open(tmp_path / "x.csv")
    cases = [
        (lambda: stead.open(tmp_path / "nope.csv"), stead.NotFoundError, FileNotFoundError),
        (lambda: stead.open(b"", type="csv"), stead.FormatError, ValueError),
        (lambda: ds.run("mena:x"), stead.UsageError, ValueError),
        (lambda: ds.run("mean:x", where="x >"), stead.UsageError, ValueError),
        (lambda: ds.run("mean:x", by="nope"), stead.UsageError, ValueError),
        (lambda: ds.run("mean:x", engine="steam"), stead.UsageError, ValueError),
        (lambda: ds.run("mean:x", memory="lots"), stead.UsageError, ValueError),
        (lambda: ds.run("mean:x", memory="1KiB"), stead.UsageError, ValueError),
        (lambda: ds.run(stead.normalize("x", out=tmp_path / "no" / "dir.npy")), stead.NotFoundError, FileNotFoundError),
    ]
    for call, ours, pythons in cases:
        with pytest.raises(ours) as e:
            call()
        assert isinstance(e.value, pythons) and isinstance(e.value, stead.Error)
        assert e.value.kind == ours.kind and str(e.value)
        copy = pickle.loads(pickle.dumps(e.value))
        assert str(copy) == str(e.value) and copy.path == e.value.path and type(copy) is ours
    with pytest.raises(stead.UsageError, match="hint: did you mean 'mean'"):
        ds.run("mena:x")
    with pytest.raises(FileNotFoundError) as e:
        stead.open(tmp_path / "nope.csv")
    assert e.value.errno == 2 and e.value.filename.endswith("nope.csv")
    every = {c for c in vars(stead).values() if isinstance(c, type) and issubclass(c, stead.Error)}
    assert {c.kind for c in every - {stead.Error}} == {
        "usage", "not_found", "permission", "format", "data", "changed", "limit", "no_space", "io", "cancelled", "peer", "timeout",
        "internal",
    }  # fmt: skip
    assert issubclass(stead.LimitError, MemoryError) and issubclass(stead.IoError, OSError)


def test_another_thread_stops_a_run(long_job):
    names = {}
    exec(long_job, names)
    # It can only come to the call if the run has released the interpreter's lock.
    cancel, started = stead.Cancel(), threading.Event()

    def stop():
        assert started.wait(60)
        cancel.cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(stead.CancelledError):
        names["ds"].run(names["job"], cancel=cancel, progress=lambda _: started.set())
    thread.join()
    assert cancel.cancelled
    with pytest.raises(stead.CancelledError):
        names["ds"].run("rows", cancel=cancel)


def test_ctrl_c_stops_a_run(long_job):
    code = long_job + (
        # Background jobs of a shell ignore it, and children of theirs do too.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def tell(s):\n"
        "    print('running', flush=True)\n"
        "try:\n"
        "    ds.run(job, progress=tell)\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped', stead.open(np.ones(3)).run('rows')['rows'])\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert out.splitlines()[-1] == "stopped 3" and child.returncode == 0


def test_runs_in_many_threads_at_once(flights):
    ds = stead.open(flights)
    expected = ds.run("mean:arr_delay", "rows").results
    got, array = [], np.arange(1000.0)

    def work():
        for _ in range(3):
            got.append(ds.run("mean:arr_delay", "rows").results)
            assert stead.open(array).run("sum:value")["sum:value"] == array.sum()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [expected] * 12


def test_progress(flights, capsys):
    seen = []
    stead.open(flights).run("mean:arr_delay", "std:distance", progress=seen.append)
    last = seen[-1]
    assert last.n_pass == 1 and last.bytes == last.total_bytes == flights.stat().st_size
    assert last.rows == 336_776 and last.seconds >= 0 and "Snapshot(" in repr(last)
    with pytest.raises(ZeroDivisionError):
        stead.open(flights).run("mean:arr_delay", progress=lambda s: 1 / 0)
    capsys.readouterr()
    # Not on a terminal: nothing is shown unless it is asked for, and nothing stays on the line.
    stead.open(flights).run("mean:arr_delay")
    assert capsys.readouterr().err == ""


def test_the_bar(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    bar = Bar(out)
    bar(stead.Snapshot(1, 10, 100, 5, 0.1))
    assert out.getvalue() == ""
    bar(stead.Snapshot(1, 50 << 20, 100 << 20, 5, 1.0))
    assert " 50% |" in out.getvalue() and "50.0 MiB/100.0 MiB 50.0 MiB/s, 0:01 left" in out.getvalue()
    bar(stead.Snapshot(2, 100, 100, 5, 7200.0))
    assert "pass 2 100%" in out.getvalue()
    assert max(map(len, out.getvalue().split("\r"))) < 80
    bar.close()
    assert out.getvalue().endswith(" \r")
    out.close()
    bar(stead.Snapshot(1, 50, 100, 5, 1.0))
