"""Dataspaces as a file system of fsspec: `stead://`."""

from __future__ import annotations

import errno
import gc
import io
import json
import os
import signal
import pickle
import tempfile
import zipfile
from datetime import datetime, timedelta, timezone

import fsspec
import numpy as np
import pandas as pd
import pytest
import stead
from fsspec.tests import abstract

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("STEAD_STATE", str(tmp_path / "state"))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "fast").mkdir()
    return tmp_path / "fast"


@pytest.fixture
def fs(root):
    return stead.FileSystem(dataspaces={"fast": root}, durable=False, skip_instance_cache=True)


@pytest.fixture(scope="module")
def store():
    pytest.importorskip("moto")
    from stores import Store

    one = Store()
    yield one
    one.end()


@pytest.fixture
def bucket(store, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in store.env.items():
        monkeypatch.setenv(name, value)
    store.anew("bkt")
    return stead.FileSystem(dataspaces={"old": "s3://bkt/below"}, skip_instance_cache=True)


def table() -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(1000), "y": np.linspace(0, 1, 1000), "name": [f"n{i}" for i in range(1000)]})


@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_child_that_was_forked_leaves_a_file_to_its_parent(fs, root, how):
    f = fs.open("fast/f", "wb")
    f.write(b"of the parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if how == "close":
                f.close()
            else:
                del f
                gc.collect()
                code = 0
        except stead.UsageError as e:
            code = 0 if "before a fork" in str(e) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    f.write(b", too")
    f.close()
    assert (root / "f").read_bytes() == b"of the parent, too" and [p.name for p in root.iterdir()] == ["f"]


def test_a_child_that_was_forked_opens_buckets_of_its_own(bucket, tmp_path):
    bucket.pipe("old/f", b"of all")
    f = bucket.open("old/f")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            own = stead.FileSystem(dataspaces={"old": "s3://bkt/below"}, skip_instance_cache=True)
            assert own.cat("old/f") == b"of all"
            stead.stage("old://f", tmp_path / "g", dataspaces={"old": "s3://bkt/below"}).wait()
            # One of a child of its own, too.
            if (second := os.fork()) == 0:
                signal.alarm(60)
                again = stead.FileSystem(dataspaces={"old": "s3://bkt/below"}, skip_instance_cache=True)
                os._exit(again.ls("old", detail=False) != ["old/f"])
            assert os.waitpid(second, 0)[1] == 0
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "g").read_bytes() == f.read() == b"of all"


def test_it_is_found_by_its_name(root, tmp_path, monkeypatch):
    (tmp_path / "stead.toml").write_text(f'[dataspace.fast]\npath = "{root}"\n')
    monkeypatch.setenv("STEAD_CONFIG", str(tmp_path / "stead.toml"))
    fsspec.get_filesystem_class("stead").clear_instance_cache()
    table().to_csv("stead://fast/run 1/t.csv", index=False)
    assert sorted(p.name for p in root.rglob("*")) == ["run 1", "t.csv"]
    pd.testing.assert_frame_equal(pd.read_csv("stead://fast/run 1/t.csv"), table())
    table().to_parquet("stead://fast/t.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet("stead://fast/t.parquet", columns=["y"]), table()[["y"]])
    with fsspec.open("stead://fast/t.json", "wt") as f:
        json.dump([1, 2], f)
    assert json.loads((root / "t.json").read_text()) == [1, 2]
    with fsspec.open_files("stead://fast/run 1/*.csv", "rt")[0] as f:
        assert f.readline() == "x,y,name\n"
    fs, path = fsspec.url_to_fs("stead://fast/t.json")
    assert isinstance(fs, stead.FileSystem) and path == "fast/t.json" and fs.ls("") == [{"name": "fast", "type": "directory", "size": 0}]
    assert fs.unstrip_protocol(path) == "stead://fast/t.json"
    same = pickle.loads(pickle.dumps(fs))
    assert same.cat_file("stead://fast/t.json") == b"[1, 2]"
    fsspec.get_filesystem_class("stead").clear_instance_cache()


def test_what_there_is_is_told(fs, root):
    fs.pipe({"fast/a/b/one.csv": b"1", "fast/a/two.csv": b"22", "fast/c": b"333"})
    assert fs.ls("stead://fast", detail=False) == ["fast/a", "fast/c"]
    one = fs.info("fast/a/two.csv")
    assert (one["name"], one["type"], one["size"], fs.size("fast/c")) == ("fast/a/two.csv", "file", 2, 3)
    assert one["ino"] == (root / "a/two.csv").stat().st_ino and fs.ls("fast/a/two.csv") == [one]
    assert fs.find("fast") == ["fast/a/b/one.csv", "fast/a/two.csv", "fast/c"] and fs.du("fast") == 6
    assert fs.glob("fast/**/*.csv") == ["fast/a/b/one.csv", "fast/a/two.csv"] and fs.glob("fast/?") == ["fast/a", "fast/c"]
    assert list(fs.walk("fast/a")) == [("fast/a", ["b"], ["two.csv"]), ("fast/a/b", [], ["one.csv"])]
    assert fs.isdir("fast/a") and fs.isfile("fast/c") and fs.exists("fast") and not fs.exists("fast/none") and not fs.exists("none/x")
    now = datetime.now(timezone.utc)
    assert all(abs(now - time) < timedelta(minutes=5) for time in (fs.modified("fast/c"), fs.created("fast/c")))
    os.utime(root / "c", (0, 1e9))
    assert fs.modified("fast/c") == datetime.fromtimestamp(1e9, timezone.utc)
    for ask in (fs.info, fs.ls, fs.open, fs.cat_file, fs.rm, fs.rmdir, fs.modified):
        for none in ("fast/none", "fast/none/x", "none/x"):
            with pytest.raises(FileNotFoundError):
                ask(none)


def test_ranges_are_read(fs):
    data = os.urandom(3 * MIB)
    fs.pipe({"fast/f": data, "fast/g": b"abc", "fast/empty": b""})
    with fs.open("fast/f") as f:
        assert (f.size, f.read(10), f.seek(-7, 2), f.read(), f.tell()) == (3 * MIB, data[:10], 3 * MIB - 7, data[-7:], 3 * MIB)
        assert os.fstat(f.fileno()).st_size == 3 * MIB
    assert fs.cat_file("fast/f", 5, 50) == data[5:50] and fs.cat_file("fast/f", -5) == data[-5:] and fs.cat_file("fast/f", 9, 3) == b""
    found = fs.cat_ranges(["fast/f", "fast/g", "fast/none", "fast/f", "fast/empty"], [1, 0, 0, -2, 0], [3, None, 9, None, 9])
    assert found[:2] == [data[1:3], b"abc"] and isinstance(found[2], FileNotFoundError) and found[3:] == [data[-2:], b""]
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["fast/none"], 0, 1, on_error="raise")
    with fs.open("fast/g", "rt") as f:
        assert f.read() == "abc"


def test_files_appear_as_a_whole_or_not_at_all(fs, root):
    with fs.open("fast/new/f", "wb") as f:
        f.write(b"one")
        f.flush()
        assert fs.ls("fast/new") == [] and fs.find("fast") == []
    assert fs.cat("fast/new/f") == b"one"
    (root / "new/f").chmod(0o640)
    for mode in ("wb", "w", "ab"):
        with pytest.raises(ZeroDivisionError), fs.open("fast/new/f", mode) as f:
            f.write(b"half" if "b" in mode else "half")
            1 / 0  # noqa: B018
    with pytest.raises(ZeroDivisionError), fsspec.core.OpenFile(fs, "fast/new/f", mode="w") as f:
        f.write("half")
        1 / 0  # noqa: B018

    class Odd:
        def __str__(self) -> str:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pd.DataFrame({"x": ["y" * 1000] * 100 + [Odd()]}).to_csv(
            "stead://fast/new/f", storage_options={"dataspaces": {"fast": root}, "durable": False}
        )
    for mode in ("wb", "w"):
        with pytest.warns(ResourceWarning, match="was not closed"):
            fs.open("fast/new/f", mode).write(b"lost" if "b" in mode else "lost")
            gc.collect()
    assert fs.cat("fast/new/f") == b"one" and os.listdir(root / "new") == ["f"]
    # An error that is over is none.
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        with fs.open("fast/new/f", "w") as f:
            f.write("two")
    assert (root / "new/f").read_text() == "two" and (root / "new/f").stat().st_mode & 0o777 == 0o640
    f = fs.open("fast/new/f", "ab")
    try:
        {}["x"]  # type: ignore[index]
    except KeyError:
        f.write(b" and three")
        f.close()
    assert fs.cat("fast/new/f") == b"two and three"
    with fs.open("fast/z.zip", "wb") as f, zipfile.ZipFile(f, "w") as z:
        z.writestr("a", b"x" * 1000)
    with fs.open("fast/z.zip") as f:
        assert zipfile.ZipFile(f).read("a") == b"x" * 1000
    with fs.open("fast/t.gz", "wt", compression="gzip", encoding="utf-8") as f:
        f.write("é")
    for mode in ("wb", "wt"):
        with pytest.raises(ZeroDivisionError), fs.open("fast/t.gz", mode, compression="infer") as f:
            f.write(b"half" if "b" in mode else "half")
            1 / 0  # noqa: B018
    assert fs.open("fast/t.gz", "rt", compression="gzip", encoding="utf-8").read() == "é"


def test_a_file_of_a_transaction_that_failed_takes_no_other_with_it(fs):
    with fs.transaction:
        with pytest.raises(ZeroDivisionError), fs.open("fast/a", "wb") as f:
            f.write(b"a")
            raise ZeroDivisionError
        with fs.open("fast/b", "wb") as f:
            f.write(b"b")
    assert fs.ls("fast", detail=False) == ["fast/b"]


@pytest.mark.parametrize("how", [{"mode": "wb"}, {"mode": "w"}, {"mode": "wb", "compression": "gzip"}])
def test_a_block_that_ends_well_where_an_error_is_handled_is_written(fs, how):
    f = fs.open("fast/why", **how)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        with f:
            f.write("why" if how["mode"] == "w" else b"why")
    with fs.open("fast/why", "rb", compression=how.get("compression")) as f:
        assert f.read() == b"why"


def test_transactions_give_names_together(fs):
    with fs.transaction:
        with fs.open("fast/a", "wb") as f:
            f.write(b"a")
        fs.pipe_file("fast/b", b"b")
        assert fs.ls("fast") == []
    assert fs.ls("fast", detail=False) == ["fast/a", "fast/b"]
    with pytest.raises(ZeroDivisionError), fs.transaction:
        fs.pipe_file("fast/a", b"c")
        1 / 0  # noqa: B018
    assert fs.cat("fast/a") == b"a"


def test_folders_are_made_and_removed(fs, root):
    fs.mkdir("fast/a/b")
    with pytest.raises(FileNotFoundError):
        fs.mkdir("fast/x/y", create_parents=False)
    fs.touch("fast/f")
    for taken in ("fast/a/b", "fast/f", "fast", ""):
        with pytest.raises(FileExistsError):
            fs.mkdir(taken)
    with pytest.raises(NotADirectoryError):
        fs.mkdir("fast/f/g")
    fs.makedirs("fast/a/b", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs("fast/f", exist_ok=True)
    with pytest.raises(OSError) as e:
        fs.rmdir("fast/a")
    assert e.value.errno == errno.ENOTEMPTY
    with pytest.raises(NotADirectoryError):
        fs.rmdir("fast/f")
    for mode in ("rb", "wb", "xb"):
        with pytest.raises(IsADirectoryError):
            fs.open("fast/a", mode)
    with pytest.raises(FileExistsError):
        fs.open("fast/f", "x")
    for path in ("fast", ""):
        with pytest.raises(IsADirectoryError):
            fs.open(path)
    for do in (lambda: fs.rm("fast", recursive=True), lambda: fs.mv("fast", "fast/x", recursive=True)):
        with pytest.raises(ValueError, match="DATASPACE"):
            do()
    with pytest.raises(ValueError, match="as a whole"):
        fs.open("fast/f", "r+b")
    fs.rmdir("fast/a/b")
    fs.rmdir("fast/a")
    assert os.listdir(root) == ["f"]


def test_nothing_leads_out(fs, root, tmp_path):
    (tmp_path / "secret").write_text("s")
    (root / "d").symlink_to(tmp_path)
    (root / "f").symlink_to(tmp_path / "secret")
    os.mkfifo(root / "pipe")
    before = set(os.listdir(tmp_path))
    for path in ("fast/../secret", "fast/d/../secret", "fast/.", "fast//secret", "fast/d/secret", "fast/f"):
        for mode in ("rb", "wb", "xb", "ab"):
            with pytest.raises((PermissionError, ValueError, FileExistsError)):
                fs.open(path, mode)
        for do in (fs.cat_file, fs.mkdir, fs.makedirs):
            with pytest.raises((PermissionError, ValueError, FileExistsError)):
                do(path)
    for path in ("fast/../secret", "fast/d/secret"):
        assert not fs.exists(path)
        for do in (fs.info, fs.ls, fs.rm, fs.rmdir, lambda p: fs.get(p, str(tmp_path / "got")), lambda p: fs.cp_file(p, "fast/got")):
            with pytest.raises((PermissionError, ValueError)):
                do(path)
        with pytest.raises((PermissionError, ValueError)):
            fs.put_file(str(tmp_path / "secret"), path)
    with pytest.raises((ValueError, stead.Error)):
        fs.open("fast/pipe")
    assert [fs.info(f"fast/{name}")["type"] for name in ("d", "f", "pipe")] == ["link", "link", "other"]
    assert fs.find("fast/d") == ["fast/d"]
    fs.rm("fast/d")
    assert set(os.listdir(tmp_path)) - {"state"} == before - {"state"} and (tmp_path / "secret").read_text() == "s"


def test_trees_are_transfers(fs, root, tmp_path):
    fs.pipe({f"fast/run/d{i % 2}/f{i}": bytes([i]) * 1000 * i for i in range(6)})
    fs.mkdir("fast/run/empty")
    fs.get("fast/run", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/d1/f5").read_bytes() == b"\5" * 5000 and (tmp_path / "got/empty").is_dir()
    fs.get("fast/run", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/run/d0/f2").stat().st_mtime_ns == (root / "run/d0/f2").stat().st_mtime_ns
    fs.put(str(tmp_path / "got/run") + "/", "fast/back", recursive=True)
    fs.cp("fast/back", "fast/more/", recursive=True)
    assert fs.find("fast/more/back") == [p.replace("run", "more/back") for p in fs.find("fast/run")]
    fs.mv("fast/more/back", "fast/moved", recursive=True)
    fs.mv("fast/moved/d0/f0", "fast/moved/zero")
    assert fs.size("fast/moved/zero") == 0 and not fs.exists("fast/more/back") and not fs.exists("fast/moved/d0/f0")
    with pytest.raises(IsADirectoryError):
        fs.rm("fast/moved")
    with pytest.raises(IsADirectoryError):
        fs.mv("fast/moved", "fast/m")
    ran = [t.action for t in stead.transfers(all=True)]
    assert ran == ["move", "move", "copy", "copy", "copy", "copy"]
    fs.rm(["fast/moved", "fast/moved/d1", "fast/back/*"], recursive=True)
    assert fs.find("fast/moved") == fs.find("fast/back") == [] and len(stead.transfers(all=True)) == 7
    # Of one there is nothing to go on with.
    (root / "run/link").symlink_to("d1/f1")
    for one in ("fast/run/link", "fast/run/d1/f3"):
        fs.rm(one)
        assert not fs.lexists(one)
        with pytest.raises(FileNotFoundError):
            fs.rm(one)
    assert (root / "run/d1/f1").stat().st_size == 1000 and len(stead.transfers(all=True)) == 7
    fs.rm(["fast/run/d1/f5", "fast/run/d0/f2"])
    assert [t.action for t in stead.transfers(all=True)][:1] == ["remove"] and len(stead.transfers(all=True)) == 8
    # A name that would be a pattern is a name.
    fs.pipe_file("fast/odd[1]*", b"odd")
    fs.cp_file("fast/odd[1]*", "fast/o?d")
    fs.get_file("fast/o?d", str(tmp_path / "odd"))
    fs.put_file(str(tmp_path / "odd"), "fast/[odd]")
    assert fs.cat_file("fast/[odd]") == b"odd"
    with pytest.raises(FileExistsError):
        fs.put_file(str(tmp_path / "odd"), "fast/[odd]", mode="create")
    out = io.BytesIO()
    fs.get_file("fast/run/d1/f1", out)
    assert out.getvalue() == b"\1" * 1000


def test_a_bucket_is_one_too(bucket, store, tmp_path):
    fs, data = bucket, os.urandom(17 * MIB)
    fs.pipe({"old/d/f": b"small", "old/large": data})
    assert store.objects("bkt", "below/") == {"d/f": b"small", "large": data} and store.uploads("bkt") == []
    assert store.seen.count("part") == 2
    assert fs.find("old") == ["old/d/f", "old/large"] and fs.info("old/d")["type"] == "directory" and fs.size("old/large") == 17 * MIB
    store.seen.clear()
    with fs.open("old/large") as f:
        assert f.read(10) == data[:10] and f.read(MIB) == data[10 : MIB + 10] and f.seek(-5, 2) and f.read() == data[-5:]
    assert store.seen.count("get") <= 3
    found = fs.cat_ranges(["old/large", "old/none", "old/large"], [5, 0, -3], [9, 1, None])
    assert (found[0], found[2]) == (data[5:9], data[-3:]) and isinstance(found[1], FileNotFoundError)
    for size in (5, 17 * MIB):
        with pytest.raises(ZeroDivisionError), fs.open("old/d/f", "wb") as f:
            f.write(data[:size])
            1 / 0  # noqa: B018
        with pytest.warns(ResourceWarning):
            fs.open("old/d/f", "wb").write(data[:size])
            gc.collect()
    assert fs.cat("old/d/f") == b"small" and store.uploads("bkt") == []
    with pytest.raises(ValueError):
        fs.open("old/d/f", "ab")
    with pytest.raises(OSError) as e:
        fs.rmdir("old/d")
    assert e.value.errno == errno.ENOTEMPTY
    fs.mkdir("old/any")
    with pytest.raises(ValueError):
        fs.open("old/../f")
    fs.get("old/", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/large").read_bytes() == data
    fs.mv("old/d/f", "old/g")
    fs.rm("old/large")
    assert store.objects("bkt", "below/") == {"g": b"small"}
    options = {"dataspaces": {"old": "s3://bkt/below"}}
    table().to_parquet("stead://old/t.parquet", storage_options=options)
    pd.testing.assert_frame_equal(pd.read_parquet("stead://old/t.parquet", storage_options=options), table())


class Same(abstract.AbstractFixtures):
    """What fsspec asks of every file system."""

    @pytest.fixture(scope="class")
    @classmethod
    def fs(cls):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as root:
            os.mkdir(f"{root}/space")
            yield stead.FileSystem(dataspaces={"s": f"{root}/space"}, durable=False, state=f"{root}/state", skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self, fs):
        fs.mkdir("s/test")
        yield "s/test"
        fs.rm("s/test", recursive=True)

    @pytest.fixture
    def fs_join(self):
        return lambda *steps: "/".join(steps)


class TestCopy(abstract.AbstractCopyTests, Same):
    pass


class TestGet(abstract.AbstractGetTests, Same):
    pass


class TestPut(abstract.AbstractPutTests, Same):
    pass


class TestOpen(abstract.AbstractOpenTests, Same):
    pass


class TestPipe(abstract.AbstractPipeTests, Same):
    pass


def test_dask_reads_and_writes_through_it(root):
    bag = pytest.importorskip("dask.bag")
    options = {"dataspaces": {"fast": str(root)}}
    bag.from_sequence(["a", "b", "c"], npartitions=3).to_textfiles("stead://fast/t/*.txt", storage_options=options)
    assert sorted(os.listdir(root / "t")) == ["0.txt", "1.txt", "2.txt"]
    read = bag.read_text("stead://fast/t/*.txt", storage_options=options).compute(scheduler="threads")
    assert sorted(line.strip() for line in read) == ["a", "b", "c"]


def test_quotas_are_kept(root, tmp_path, monkeypatch):
    (tmp_path / "stead.toml").write_text(f'[dataspace.small]\npath = "{root}"\nuser_quota = "300kB"\n')
    monkeypatch.setenv("STEAD_CONFIG", str(tmp_path / "stead.toml"))
    fs = stead.FileSystem(durable=False, skip_instance_cache=True)
    # What is known before makes not even a folder.
    with pytest.raises(stead.NoSpaceError, match="dataspace 'small'"):
        fs.pipe_file("small/new/f", b"x" * 400_000)
    with pytest.raises(stead.NoSpaceError):
        fs.open("small/new/f", "wb", size=400_000)
    assert list(root.iterdir()) == []
    fs.pipe_file("small/f", b"y" * 100_000)
    with pytest.raises(FileExistsError):
        fs.pipe_file("small/f", b"z", mode="create")
    # What is not known before is refused meanwhile: large writes, small ones that wait for the end, and what goes by the descriptor.
    with pytest.raises(stead.NoSpaceError, match="dataspace 'small'"), fs.open("small/f", "wb") as f:
        for _ in range(10):
            f.write(b"x" * 100_000)
    with pytest.raises(stead.NoSpaceError), fs.open("small/f", "ab") as f:
        for _ in range(300):
            f.write(b"x" * 1000)
    with pytest.raises(stead.NoSpaceError), fs.open("small/g", "wb") as f:
        np.zeros(100_000).tofile(f)
    with pytest.raises(stead.NoSpaceError):
        pd.DataFrame({"x": np.arange(100_000)}).to_csv("stead://small/t.csv", index=False)
    assert [p.name for p in root.iterdir()] == ["f"] and (root / "f").read_bytes() == b"y" * 100_000
    # What was not written takes nothing of it, and what goes gives room.
    fs.pipe_file("small/g", b"z" * 150_000)
    with pytest.raises(stead.NoSpaceError):
        fs.pipe_file("small/h", b"z" * 150_000)
    fs.rm("small/g")
    fs.pipe_file("small/h", b"z" * 150_000)
    # One that goes back to what it has written.
    with fs.open("small/z.zip", "wb") as f, zipfile.ZipFile(f, "w") as z:
        z.writestr("one", b"1" * 20_000)
    with fs.open("small/z.zip") as f:
        assert zipfile.ZipFile(f).read("one") == b"1" * 20_000
