"""Bad input: what is said, the exit code, and that nothing half-written is left."""

import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from support import Stead

CSV = "x,name\n1,a\n2,b\n3,c\n"


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.csv").write_text(CSV)
    return "t.csv"


def left(tmp_path):
    return sorted(p.name for p in tmp_path.iterdir())


def test_a_missing_file(stead):
    stead.fails("run", "no.csv", "-k", "rows", code=1, says=("no.csv", "no such file"))


def test_an_unreadable_file(stead, table, tmp_path):
    (tmp_path / table).chmod(0)
    if os.geteuid() != 0:
        stead.fails("run", table, "-k", "rows", code=1, says=(table, "permission denied"))
        return
    # The superuser may read everything: somebody else asks, from a place that everybody may enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copy(stead.path, folder)
        shutil.copy(tmp_path / table, folder)
        other = Stead(f"{folder}/{Path(stead.path).name}", Path(folder))
        other.fails("run", table, "-k", "rows", code=1, says=(table, "permission denied"), user=65534)


def test_a_glob_without_match(stead):
    stead.fails("run", "*.csv", "-k", "rows", code=1, says=("*.csv",))


def test_an_empty_directory(stead, tmp_path):
    (tmp_path / "d").mkdir()
    stead.fails("run", "d", "-k", "rows", code=1, says=("d",))


def test_an_empty_file(stead, tmp_path):
    (tmp_path / "e.csv").write_bytes(b"")
    stead.fails("run", "e.csv", "-k", "rows", code=1, says=("e.csv: empty file",))
    stead.fails("run", "e.csv", "-k", "mean:x", code=1, says=("e.csv: empty file",))
    stead.fails("run", "e.csv", "--type", "npy", "-k", "rows", code=1, says=("e.csv",))
    stead.fails("describe", "e.csv", code=1, says=("e.csv",))
    # As lines there is nothing to find out, and nothing to count.
    assert stead.results("e.csv", "lines", "rows", "entropy", type="lines") == [0, 0, 0.0]


def test_no_such_column(stead, table):
    stead.fails("run", table, "-k", "mean:y", code=2, says=("no column 'y'", "x, name"))
    stead.fails("run", table, "-k", "rows", "--where", "nme == 'a'", code=2, says=("nme", "name"))
    stead.fails("run", table, "-k", "rows", "--by", "nam", code=2, says=("'nam'", "'name'"))


def test_text_in_a_numeric_column(stead, tmp_path):
    rows = [str(i) for i in range(2000)]
    rows[1499] = "abc"
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{v},1\n" for v in rows))
    options = ["--column-type", "x=number"]
    stead.fails("run", "t.csv", "-k", "sum:x", *options, code=1, says=("t.csv:1501", "column 'x'", "'abc'", "--lenient"))
    document = stead.document("t.csv", "rows", "count:x", "sum:x", lenient=True, column_type="x=number")
    assert document["metrics"]["rows_skipped"] == 1
    assert document["results"]["rows"] == 1999
    assert document["results"]["sum:x"] == sum(range(2000)) - 1499
    # A column that is not asked for is not read.
    assert stead.result("t.csv", "sum:y") == 2000.0


def test_a_text_column_where_numbers_are_needed(stead, table):
    stead.fails("run", table, "-k", "mean:name", code=1, says=("column 'name' holds text",))


def test_ragged_rows(stead, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3\n4,5\n6,7,8\n")
    stead.fails("run", "t.csv", "-k", "sum:y", code=1, says=("t.csv:3",))
    document = stead.document("t.csv", "rows", "sum:x", "sum:y", lenient=True)
    assert document["metrics"]["rows_skipped"] == 2
    assert document["results"] == {"rows": 2, "sum:x": 5.0, "sum:y": 7.0}


def test_a_quote_that_is_never_closed(stead, tmp_path):
    (tmp_path / "t.csv").write_text('x,y\n1,"a\n2,b\n3,c\n')
    stead.fails("run", "t.csv", "-k", "sum:x", "--type", "csv", "--header", "yes", code=1, says=("t.csv", "quote"))


@pytest.mark.parametrize("keep", [3, 9, 60, 127, 128, 1000])
def test_a_truncated_npy(stead, tmp_path, keep):
    np.save(tmp_path / "a.npy", np.zeros((100, 3)))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:keep])
    stead.fails("run", "a.npy", "--type", "npy", "-k", "sum:0", code=1, says=("a.npy",))


def test_a_strange_npy(stead, tmp_path):
    for array in [np.array(["a", "b"]), np.zeros(3, dtype="c16"), np.zeros(3, dtype=[("a", "f8")]), np.zeros(3, "?")]:
        np.save(tmp_path / "a.npy", array)
        stead.fails("run", "a.npy", "-k", "rows", code=1, says=("a.npy",))


def test_a_wrong_shape(stead, tmp_path):
    np.zeros(1000).tofile(tmp_path / "a.raw")
    raw = ["--type", "raw", "--dtype", "f64", "-k", "rows"]
    message = stead.fails("run", "a.raw", *raw, "--shape", "10x101", code=2, says=("a.raw", "8000"))
    assert "8080" in message or "8,080" in message
    stead.fails("run", "a.raw", *raw, "--shape", "10x", code=2)
    stead.fails("run", "a.raw", *raw, "--shape", "9223372036854775807x9223372036854775807", code=2)


def test_records_that_do_not_divide_the_file(stead, tmp_path):
    (tmp_path / "r.bin").write_bytes(b"x" * 1001)
    stead.fails("run", "r.bin", "--type", "records", "--record-length", "10", "-k", "rows", code=1, says=("r.bin", "100 records of 10 bytes"))


def test_invalid_utf8_is_data_not_an_error(stead, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"x,name\n1,caf\xe9\n2,\xff\xfe\n3,ok\n")
    assert stead.results("t.csv", "rows", "sum:x", "grep:ok") == [3, 6.0, 1]
    assert len(stead.result("t.csv", "rows", by="name")) == 3


@pytest.mark.parametrize("damage", ["cut", "flip", "trailer", "garbage"])
def test_a_corrupt_gzip(stead, tmp_path, damage):
    data = bytearray(gzip.compress(b"".join(b"%d,%d\n" % (i, i * i) for i in range(50_000))))
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flip":
        data[len(data) // 2] ^= 0xFF
    elif damage == "trailer":
        data[-6] ^= 1
    else:
        data += b"this is no gzip member"
    (tmp_path / "t.csv.gz").write_bytes(data)
    stead.fails("run", "t.csv.gz", "-k", "lines", code=1, says=("t.csv.gz",))


def test_a_corrupt_zstd(stead, tmp_path):
    (tmp_path / "t.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"\x84" * 200)
    stead.fails("run", "t.csv.zst", "-k", "lines", code=1, says=("t.csv.zst",))


def test_usage(stead, table):
    for args in [
        ["run", table],
        ["run", "-k", "rows"],
        ["run", table, "-k", "rowz"],
        ["run", table, "-k", "mean:x,bins=3"],
        ["run", table, "-k", "hist:x,bins=0"],
        ["run", table, "-k", "rows", "--where", "x >"],
        ["run", table, "-k", "rows", "--where", "(" * 500 + "x" + ")" * 500],
        ["run", table, "-k", "rows", "--memory", "12 parsecs"],
        ["run", table, "-k", "rows", "--memory", "1KiB"],
        ["run", table, "-k", "grep:'('"],
        ["run", table, "-k", "rows", "--threads", "many"],
        ["run", table, "-k", "rows", "--delimiter", ";", "--type", "npy"],
        ["kernels", "nonesuch"],
        ["frobnicate"],
        ["--nonesuch"],
    ]:
        message = stead.fails(*args, code=2)
        assert len(message.splitlines()) < 30, args


def test_suggestions(stead, table):
    stead.fails("run", table, "-k", "mean:x", "-k", "row", code=2, says=("'rows'",))


def test_a_full_disk(stead, tmp_path):
    """The limit on file size stands for a full disk: what is written fails in the middle of the file."""
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},1\n" for i in range(50_000)))

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    for spec in ["normalize:x,method=zscore,out=n.npy", "grep:1,out=g.csv"]:
        stead.fails("run", "t.csv", "-k", spec, code=1, preexec_fn=limit)
        assert left(tmp_path) == ["t.csv"]


def test_a_full_file_system(stead, tmp_path):
    """A real one, where the superuser lets us mount it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], capture_output=True)
    if mounted.returncode != 0:
        # An ordinary user has /dev/full, on which nothing can be made, and test_a_full_disk.
        assert os.geteuid() != 0 or b"denied" in mounted.stderr or b"not permitted" in mounted.stderr
        return
    try:
        (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},1\n" for i in range(100_000)))
        stead.fails("run", "t.csv", "-k", "normalize:x,method=zscore,out=disk/n.npy", code=1, says=("n.npy", "space"))
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_results_into_a_full_pipe(stead, table):
    with open("/dev/full", "w") as full:
        done = subprocess.run([stead.path, "run", table, "-k", "rows"], cwd=stead.cwd, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"panicked" not in done.stderr


def test_a_reader_that_goes_away(stead, table):
    """`stead kernels | head -1` ends quietly."""
    done = subprocess.run(
        f"'{stead.path}' kernels kmeans | head -c 1", shell=True, capture_output=True, cwd=stead.cwd
    )
    assert done.stderr == b""


@pytest.fixture
def big(tmp_path):
    """A file that takes a while: sparse zeros would compress time, so real lines, 300 MB."""
    block = b"".join(b"%d,%d,some text to fill the line\n" % (i, i * 7) for i in range(20_000))
    with open(tmp_path / "big.csv", "wb") as f:
        f.write(b"x,y,note\n")
        while f.tell() < 300_000_000:
            f.write(block)
    return "big.csv"


def start(stead, *args):
    """Starts a run and waits until it has read something."""
    p = subprocess.Popen([stead.path, "run", *args], cwd=stead.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return p


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def read_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/io") as f:
        return int(f.readline().split()[1])


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_and_cleans_up(stead, tmp_path, big, sign):
    p = start(stead, big, "-k", "var:x", "-k", "normalize:x,method=zscore,out=n.npy", "--threads", "1", "--engine", "pread")
    wait_for(lambda: p.poll() is not None or read_bytes(p.pid) > 20_000_000)
    p.send_signal(sign)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130, err
    assert out == b""
    assert b"stopped" in err
    assert left(tmp_path) == [big]


def test_a_file_that_shrinks_during_the_scan(stead, tmp_path, big):
    p = start(stead, big, "-k", "var:x", "-k", "normalize:x,method=zscore,out=n.npy", "--threads", "1", "--engine", "pread")
    wait_for(lambda: p.poll() is not None or read_bytes(p.pid) > 20_000_000)
    os.truncate(tmp_path / big, 1_000_000)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 1, (out, err)
    assert out == b""
    assert big.encode() in err
    assert left(tmp_path) == [big]


def is_mapped(pid: int, name: str) -> bool:
    try:
        with open(f"/proc/{pid}/maps") as f:
            return any(line.rstrip().endswith("/" + name) for line in f)
    except ProcessLookupError:
        return False


def test_a_file_that_shrinks_while_it_is_mapped(stead, tmp_path, big):
    """It was written just now, so it lies in the page cache and is looked at there."""
    p = start(stead, big, "-k", "var:x", "-k", "normalize:x,method=zscore,out=n.npy", "--threads", "1")
    wait_for(lambda: p.poll() is not None or is_mapped(p.pid, big))
    os.truncate(tmp_path / big, 1_000_000)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 1, (out, err)
    assert out == b""
    assert big.encode() in err and b"shrank" in err
    assert left(tmp_path) == [big]


def test_errors_are_not_mixed_with_results(stead, table):
    done = stead("run", table, "-k", "rows", "--format", "json", "--progress", "never")
    assert done.stderr == b""
    assert set(json.loads(done.stdout)) == {"results", "plan", "metrics"}


def test_outputs_are_looked_at_before_the_data(stead, table, tmp_path):
    before = (tmp_path / table).read_bytes()
    for args, code, says in [
        (["-k", "hist:x", "--plot", table], 2, (table, "replace the data")),
        (["-k", "grep:a,out=o", "-k", "grep:b,out=./o"], 2, ("./o", "two outputs")),
        (["-k", "grep:a,out=o", "-k", "hist:x", "--plot", "o"], 2, ("two outputs",)),
        (["-k", "normalize:x,out=no/o.npy"], 1, ("no/o.npy", "no directory 'no'")),
        (["-k", "grep:a,out=/dev/stdout"], 2, ("/dev/stdout", "a device")),
    ]:
        stead.fails("run", table, *args, code=code, says=says)
        assert left(tmp_path) == [table]
    assert (tmp_path / table).read_bytes() == before


def test_no_output_is_left_when_another_kernel_fails_later(stead, tmp_path):
    """grep is done after the first pass; the file of normalize grows beyond what may be written."""
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},1\n" for i in range(50_000)))

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    both = ["-k", "grep:4999,out=g.csv", "-k", "normalize:x,out=n.npy"]
    stead.fails("run", "t.csv", *both, code=1, says=("n.npy",), preexec_fn=limit)
    assert left(tmp_path) == ["t.csv"]


def test_more_files_than_may_be_open(stead, tmp_path):
    for i in range(200):
        (tmp_path / f"t{i}.csv").write_text(f"x,y\n{i},1\n")

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    done = stead("run", "t*.csv", "-k", "rows", "-k", "sum:x", "--format", "csv", preexec_fn=limit)
    assert done.stdout == b"kernel,item,value\nrows,,200\nsum:x,,19900.0\n"


def test_links_that_lead_in_circles(stead, table, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "round").symlink_to(tmp_path)
    (tmp_path / "d" / "again").symlink_to(tmp_path)
    assert stead.result("**/*.csv", "rows") == 3


def test_options_that_do_not_fit_what_was_found(stead, table, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    stead.fails("run", table, "-k", "rows", "--skip", "3", code=2, says=(table, "skip", "'csv'"))
    stead.fails("run", "a.npy", "-k", "rows", "--missing", "0", code=2, says=("a.npy", "missing", "'npy'"))


def test_compressed_binary_data_are_not_taken_for_plain_ones(stead, tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(100_000)))
    stead.fails("run", "a.gz", "-k", "lines", code=1, says=("a.gz", "gzip", "--compression none"))


def test_columns_of_one_name(stead, tmp_path):
    (tmp_path / "t.csv").write_text("a,a,b\n1,2,3\n4,5,6\n")
    assert stead.results("t.csv", "sum:a", "sum:a.1", "sum:1") == [5.0, 7.0, 7.0]
    stead.fails("run", "t.csv", "-k", "rows", "--names", "x,x,y", code=2, says=("'x'",))


def test_a_signal_while_the_results_wait_for_their_reader(stead, tmp_path):
    (tmp_path / "t.csv").write_text("g,x\n" + "".join(f"g{i},1\n" for i in range(20_000)))
    p = start(stead, "t.csv", "-k", "rows", "--by", "g", "--format", "json")
    # The first byte comes when the run is over; the pipe takes a small part of the rest.
    assert p.stdout.read(1) == b"{"
    p.send_signal(signal.SIGINT)
    assert p.wait(timeout=60) == 130
