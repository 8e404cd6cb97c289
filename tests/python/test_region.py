"""Memory that programs and transfers share, and buffers of staged data."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import stead
from node import node


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("STEAD_STATE", str(tmp_path / "state"))


@pytest.fixture
def name():
    one = f"test-{os.getpid()}/field"
    yield one
    stead._stead.remove_region(one, [])


def test_a_region_is_an_array_and_an_end_of_transfers(name, tmp_path):
    r = stead.region(name, (100, 50), "f8")
    assert r.array.shape == (100, 50) and r.array.flags.writeable and not r.array.any() and r.size == 40_000
    assert (r.location, os.fspath(r), repr(r)) == (f"memory://{name}", f"memory://{name}", f"Region({name!r}, float64, (100, 50))")
    r.array[:] = np.random.default_rng(1).normal(size=(100, 50))
    stead.stage(r, tmp_path / "out").wait()
    assert (np.fromfile(tmp_path / "out") == r.array.ravel()).all()
    # Another program has the same memory.
    script = f"import stead; r = stead.region({name!r}, dtype='f8'); r.array[7] = 42; r.close()"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert r.array[0, 7] == 42 and stead.regions()[name] == 40_000
    # The system does not notice; letting it go does.
    assert stead.stage(r, tmp_path / "out", action="sync").wait().bytes == 40_000
    with pytest.raises(stead.UsageError, match="already"):
        stead.region(name, 5)
    array = r.array
    r.close()
    assert r.array is None and "closed" in repr(r) and array[0, 7] == 42
    with pytest.raises(stead.UsageError, match="closed"):
        r.touch()
    with stead.region(name) as r:
        assert r.array.dtype == np.uint8 and r.array.shape == (40_000,)
    with stead.region(name, dtype="f8") as r:
        r.remove()
    assert name not in stead.regions() and array[0, 7] == 42
    r.remove()
    # What a transfer brings is one.
    stead.stage(tmp_path / "out", f"memory://{name}").wait()
    assert (stead.region(name, dtype="f8").array == array.ravel()).all()
    stead.stage(f"memory://{name}", action="remove").wait()
    with pytest.raises(stead.NotFoundError):
        stead.region(name)


def test_regions_that_cannot_be(name, tmp_path):
    with pytest.raises(stead.NoSpaceError, match="are free"):
        stead.region(name, 1 << 60)
    for shape in (0, (3, 0), (-1, -5)):
        with pytest.raises(stead.UsageError):
            stead.region(name, shape)
    for out in ("../x", "/x", ""):
        with pytest.raises(stead.UsageError):
            stead.region(out, 1)
    with pytest.raises(TypeError, match="objects of Python"):
        stead.region(name, 4, object)
    stead.region(name, 16).close()
    with pytest.raises(TypeError, match="objects of Python"):
        stead.region(name, dtype=[("a", object)])
    stead.region(name).remove()
    stead.region(name, 10).close()
    with pytest.raises(stead.UsageError, match="whole elements"):
        stead.region(name, dtype="f8")
    # In a folder of one's own.
    (tmp_path / "own").mkdir()
    own = {"memory": tmp_path / "own"}
    with stead.region("x", 3, dataspaces=own) as r:
        assert r.path == str(tmp_path / "own/x") and stead.regions(dataspaces=own) == {"x": 3}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home/deep").mkdir(parents=True)
    for name in ("a", "b", "deep/c"):
        (tmp_path / "home" / name).write_text(name * 1000)
    (tmp_path / "fast").mkdir()
    return tmp_path / "home"


def test_a_buffer_writes_back_what_was_changed(home, tmp_path):
    spaces = {"fast": tmp_path / "fast"}
    before = {p.name: p.stat().st_ino for p in home.rglob("*")}
    with stead.buffer(f"{home}/", "fast://run1/", dataspaces=spaces) as folder:
        assert folder == tmp_path / "fast/run1" and (folder / "deep/c").read_text() == "deep/c" * 1000
        (folder / "a").write_text("changed")
        (folder / "new").write_text("new")
        (folder / "b").unlink()
    assert (home / "a").read_text() == "changed" and (home / "new").read_text() == "new" and (home / "b").exists()
    assert (home / "deep/c").stat().st_ino == before["c"] and os.listdir(tmp_path / "fast") == []
    with stead.buffer(home, tmp_path / "fast/x", delete=True, keep=True) as folder:
        (folder / "b").unlink()
    assert not (home / "b").exists() and (tmp_path / "fast/x/a").exists()
    with pytest.raises(stead.UsageError, match="already"), stead.buffer(home, tmp_path / "fast/x"):
        pass
    with stead.buffer(home, tmp_path / "fast/y", back=False) as folder:
        (folder / "a").unlink()
        (folder / "other").write_text("lost")
    assert (home / "a").exists() and not (home / "other").exists() and os.listdir(tmp_path / "fast") == ["x"]


def test_a_buffer_of_several_and_of_a_file(home, tmp_path):
    with stead.buffer([home / "a", f"{home}/deep/"], tmp_path / "fast/both") as folder:
        assert sorted(os.listdir(folder)) == ["a", "deep"]
        (folder / "a").write_text("1")
        (folder / "deep/c").write_text("2")
    assert ((home / "a").read_text(), (home / "deep/c").read_text()) == ("1", "2") and os.listdir(tmp_path / "fast") == []
    with stead.buffer(home / "a", tmp_path / "fast/one") as path:
        path.write_text("3")
    assert (home / "a").read_text() == "3" and os.listdir(tmp_path / "fast") == []
    for bad in (f"{home}/*", [home / "a", home / "a"]):
        with pytest.raises(stead.UsageError), stead.buffer(bad, tmp_path / "fast/none"):
            pass


def test_nothing_is_lost_if_the_work_fails(home, tmp_path):
    with pytest.raises(ZeroDivisionError) as e, stead.buffer(home, tmp_path / "fast/x") as folder:
        (folder / "a").write_text("half")
        1 / 0  # noqa: B018
    assert (home / "a").read_text() == "a" * 1000 and (tmp_path / "fast/x/a").read_text() == "half"
    if sys.version_info >= (3, 11):
        assert str(tmp_path / "fast/x") in e.value.__notes__[0]
    # Nor if it cannot be written back.
    (tmp_path / "fast/x/a").rename(tmp_path / "a")
    with pytest.raises(stead.Error), stead.buffer(home, tmp_path / "fast/y") as folder:
        (folder / "deep/c").write_text("kept")
        (home / "deep/c").unlink()
        (home / "deep").rmdir()
        (home / "deep").write_text("in the way")
    assert (tmp_path / "fast/y/deep/c").read_text() == "kept"


def test_a_daemon_has_it_too(name, tmp_path):
    with stead.region(name, 1000) as r, node() as one, stead.daemon(one.path) as d:
        r.array[:] = 7
        assert d.submit(r, tmp_path / "out").wait().state == "finished"
        assert (tmp_path / "out").read_bytes() == b"\7" * 1000
