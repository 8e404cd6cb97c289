"""Streams whose steps are recorded: read again when they have ended, and read from files by who comes late or is behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import stead
from support import ROOT, command
from test_streams import PATIENCE, grid, programs, space, tell  # noqa: F401

STREAMS = ROOT / "examples" / "streams"


@pytest.fixture
def spaces(space, tmp_path):  # noqa: F811
    """A dataspace `memory` and one of files, both of the test's own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    yield space | {"disk": str(disk)}
    # Of what nobody has read in memory, as nobody needs to.
    for name in stead.streams(dataspaces=space):
        stead.remove_stream(name, force=True, dataspaces=space)


def write(spaces, steps: int, **options) -> None:
    with stead.writer("sim", dataspaces=spaces, **options) as w:
        for n in range(steps):
            with w.step():
                w.put("T", grid(n), dims=("y", "x"), units="K", attributes={"levels": [1, 2]})


def test_recorded_steps_are_read_again(spaces, tmp_path):
    write(spaces, 6, persist="disk://runs/sim")
    # As a path, as text and as a location in a dataspace.
    folder = tmp_path / "disk" / "runs" / "sim"
    for name in (folder, str(folder), "disk://runs/sim"):
        with stead.reader(name, dataspaces=spaces) as r:
            assert r.steps == [0, 1, 2, 3, 4, 5]
            for n, step in enumerate(r):
                assert (step.number, step.dropped, step["T"].shape) == (n, 0, (9, 8))
                assert np.array_equal(step["T"], grid(n))
                assert np.array_equal(step.get("T", np.s_[2:5, 7]), grid(n)[2:5, 7])
            assert n == 5 and r.is_over
            assert np.array_equal(r.at(2)["T"], grid(2))
            with pytest.raises(stead.NotFoundError, match="step 6 of stream"):
                r.at(6)
    with stead.reader(folder, dataspaces=spaces) as r:
        assert r.wait_for("T", 3).number == 3 and r.next().number == 4
    info = stead.stream_info(folder, dataspaces=spaces)
    assert (info["name"], info["state"], info["complete"]) == ("sim", "ended", 6)
    with pytest.raises(stead.UsageError, match="steps of stream 'sim' were recorded here before"):
        stead.writer("sim", persist=folder, dataspaces=spaces)
    assert stead.remove_stream(folder, dataspaces=spaces) and not folder.exists()
    with pytest.raises(stead.NotFoundError):
        stead.reader(folder, dataspaces=spaces)


def test_a_path_without_a_slash_is_one_as_a_path(spaces, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(spaces, 1, persist="run")
    assert stead.reader(Path("run"), dataspaces=spaces).next().number == 0
    # As text it is the name of a stream: the one that is written now.
    with pytest.raises(stead.TimedOutError, match="nobody writes a stream 'run'"):
        stead.reader("run", timeout=0, dataspaces=spaces)


def test_what_was_recorded_is_listed(spaces, tmp_path):
    write(spaces, 2, persist="disk://runs/b")
    write(spaces, 3, persist="disk://runs/a")
    told = stead.recordings("disk://runs", dataspaces=spaces)
    assert [(t["location"], t["name"], t["writers"], t["steps"]) for t in told] == [("disk://runs/a", "sim", 1, 3), ("disk://runs/b", "sim", 1, 2)]
    assert all(t["is_whole"] and t["state"] == "ended" and t["bytes"] > 0 for t in told)
    assert [t["steps"] for t in stead.recordings(tmp_path / "disk" / "runs" / "a")] == [3]
    assert stead.recordings(tmp_path) == []
    with pytest.raises(stead.NotFoundError, match="none"):
        stead.recordings("disk://none", dataspaces=spaces)


def test_xarray_has_recorded_steps(spaces):
    pytest.importorskip("xarray")
    write(spaces, 3, persist="disk://run")
    for n, ds in enumerate(stead.open_stream("disk://run", dataspaces=spaces)):
        assert ds["T"].dims == ("y", "x") and ds["T"].attrs["units"] == "K"
        assert np.array_equal(ds["T"].values, grid(n))
    assert n == 2


def test_who_comes_late_begins_at_the_first_step(spaces):
    with stead.writer("sim", persist="disk://run", dataspaces=spaces) as w:
        for n in range(10):
            with w.step():
                w.put("T", grid(n))
        with stead.reader("sim", start="first", dataspaces=spaces) as r:
            for n in range(10):
                assert np.array_equal(r.next()["T"], grid(n))
            with w.step():
                w.put("T", grid(10))
            assert np.array_equal(r.next()["T"], grid(10))
            w.close()
            assert r.next() is None


def test_writers_do_not_wait_for_a_stopped_process(spaces, programs):  # noqa: F811
    """The reader is stopped by a signal, and has all steps when it goes on."""
    programs.space = spaces
    reader = programs.begin(
        """
        with stead.reader("sim", behind="spill", dataspaces=S) as r:
            say(r.next().number)
            hear()
            for step in r:
                assert step.dropped == 0
                assert (step["T"] == step.number).all()
            say(step.number)
        """
    )
    with stead.writer("sim", spill="disk://spill", spill_limit="1GiB", readers=1, memory="4MiB", timeout=PATIENCE, dataspaces=spaces) as w:
        for n in range(60):
            with w.step():
                w.put("T", np.full(1 << 16, n, "f8"))
            if n == 0:
                assert reader.stdout.readline() == "0\n"
                os.kill(reader.pid, signal.SIGSTOP)
    os.kill(reader.pid, signal.SIGCONT)
    tell(reader)
    out, err = reader.communicate(timeout=PATIENCE)
    assert (reader.returncode, out) == (0, "59\n"), err
    # What it did not need to keep has gone.
    assert not Path(spaces["disk"], "spill").exists()


def test_options_that_cannot_be(spaces):
    with pytest.raises(stead.UsageError, match="a limit for what spills"):
        stead.writer("sim", persist="disk://a", spill_limit="1GiB", dataspaces=spaces)
    with pytest.raises(stead.UsageError, match="spills there, too"):
        stead.writer("sim", persist="disk://a", spill="disk://b", dataspaces=spaces)
    with stead.writer("sim", dataspaces=spaces):
        with pytest.raises(stead.UsageError, match="not recorded"):
            stead.reader("sim", start="first", dataspaces=spaces)
        with pytest.raises(stead.UsageError, match="not recorded"):
            stead.reader("sim", behind="spill", dataspaces=spaces)


def agreed(monkeypatch, tmp_path, spaces, **more: str) -> None:
    """Has this process know these dataspaces, of some of which more is said."""
    file = tmp_path / "stead.toml"
    lines = (f'[dataspace.{name}]\npath = "{path}"\n{more.get(name, "")}\n' for name, path in spaces.items())
    file.write_text("".join(lines), encoding="utf-8")
    monkeypatch.setenv("STEAD_CONFIG", str(file))


def test_a_quota_of_the_dataspace_is_kept(spaces, tmp_path, monkeypatch):
    agreed(monkeypatch, tmp_path, spaces, disk='user_quota = "3MiB"')
    says = "recorded no more: step 2: 1.0 MiB are needed in dataspace 'disk', which has 3.0 MiB for each user"
    with pytest.raises(stead.NoSpaceError, match=says), stead.writer("sim", persist="disk://run", memory="4MiB", timeout=PATIENCE) as w:
        for n in range(1000):
            with w.step():
                w.put("T", np.full(1 << 17, n, "f8"))
    with stead.reader("disk://run") as r:
        assert r.steps == [0, 1]
        assert all((r.next()["T"] == n).all() for n in range(2))
        with pytest.raises(stead.PeerError, match="could not record it, after step 1"):
            r.next()
    used = sum(file.stat().st_blocks * 512 for file in Path(spaces["disk"]).rglob("*"))
    assert used <= 3 << 20


def test_a_place_to_spill_is_chosen(spaces, tmp_path, monkeypatch):
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True).stdout.strip() in ("tmpfs", "ramfs"):
        pytest.skip("this folder lies in memory")
    (tmp_path / "all").mkdir()
    there = {**spaces, "all": str(tmp_path / "all")}
    agreed(monkeypatch, tmp_path, there, all="shared = true")
    with stead.writer("sim", spill="auto", spill_limit="1MiB", timeout=PATIENCE) as w:
        (folder,) = Path(spaces["disk"]).glob(".spilled-*/sim-*")
        assert (folder / "stream.json").exists() and not list((tmp_path / "all").iterdir())
        with w.step():
            w.put("T", grid(0))
    assert stead.remove_stream("sim") and not folder.exists()
    with pytest.raises(stead.NoSpaceError, match="no dataspace has room for the .* that stream 'sim' may spill: 'disk' has "):
        stead.writer("sim", spill="auto", spill_limit=1 << 62, timeout=PATIENCE)
    # A path is a folder, whatever it is called.
    monkeypatch.chdir(tmp_path)
    with stead.writer("other", spill=Path("auto"), timeout=PATIENCE):
        assert (tmp_path / "auto" / "stream.json").exists()


def configured(spaces, tmp_path) -> dict[str, str]:
    """The environment of programs that have these dataspaces."""
    file = tmp_path / "stead.toml"
    file.write_text("".join(f'[dataspace.{name}]\npath = "{path}"\n' for name, path in spaces.items()), encoding="utf-8")
    return os.environ | {"STEAD_CONFIG": str(file)}


def test_the_example_and_the_command(spaces, tmp_path):
    """`recording` and `replay` of the page on coupling, and what the command tells of their steps."""
    env = configured({"memory": spaces["memory"], "nvme0": spaces["disk"]}, tmp_path)

    stead_command = command()

    def run(*words) -> str:
        done = subprocess.run([str(w) for w in words], env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(sys.executable, STREAMS / "recording.py")
    assert run(sys.executable, STREAMS / "replay.py").splitlines() == [f"{n} {float(n)}" for n in range(100)]
    shown = json.loads(run(stead_command, "stream", "show", "nvme0://runs/sim", "--format", "json"))
    assert shown["state"] == "ended" and shown["complete"] == 100 and shown["writers"][0]["presence"] == "left"
    assert [(v["name"], v["dtype"]) for v in shown["variables"]] == [("T", "f64")]
    page = run(stead_command, "stream", "show", "nvme0://runs/sim")
    assert " variable " in page and " T " in page
    assert "100 complete" in page and "in files" in page and "queued" not in page
    lines = run(stead_command, "stream", "watch", "nvme0://runs/sim", "--steps", "2", "--format", "json").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1]
    told = json.loads(run(stead_command, "stream", "ls", "nvme0://runs", "--format", "json"))
    assert [(t["location"], t["name"], t["steps"], t["state"], t["is_whole"]) for t in told] == [("nvme0://runs/sim", "sim", 100, "ended", True)]
    assert told[0]["bytes"] >= 100 * 8
    assert run(stead_command, "stream", "ls", "nvme0://runs").splitlines()[-1].split()[:3] == ["nvme0://runs/sim", "sim", "100"]
    run(stead_command, "stream", "rm", "nvme0://runs/sim")
    assert "no streams were recorded in nvme0://runs" in run(stead_command, "stream", "ls", "nvme0://runs")
    assert not Path(spaces["disk"], "runs", "sim").exists()


def test_the_command_says_what_is_damaged_and_what_to_do(spaces, tmp_path):
    """Files that are cut off, and a folder of which nothing is known."""
    env = configured({"memory": spaces["memory"], "nvme0": spaces["disk"]}, tmp_path)

    def run(*words) -> subprocess.CompletedProcess:
        return subprocess.run([command(), "stream", *words], env=env, capture_output=True, text=True, timeout=PATIENCE)

    write(spaces, 3, persist="disk://rec")
    folder = Path(spaces["disk"], "rec")
    whole = run("ls", "nvme0://")
    assert whole.stdout.splitlines()[-1].split()[-1] == "whole" and "damaged" not in run("show", "nvme0://rec").stdout
    os.truncate(folder / "0.data", 10)
    cut = "cut off: step 0 and those after it are not all there"
    line = run("ls", "nvme0://").stdout.splitlines()[-1]
    assert "damaged: " in line and cut in line and "whole" not in line
    (told,) = json.loads(run("ls", "nvme0://", "--format", "json").stdout)
    assert not told["is_whole"] and cut in told["damage"] and "0.data" in told["damage"]
    page = run("show", "nvme0://rec")
    assert page.returncode == 0 and "damaged" in page.stdout and cut in page.stdout
    assert json.loads(run("show", "nvme0://rec", "--format", "json").stdout)["damage"] == told["damage"]
    (folder / "stream.json").write_text("garbage")
    for force in (), ("--force",):
        gone = run("rm", "nvme0://rec", *force)
        assert gone.returncode == 1 and "remove it by hand" in gone.stderr and str(folder) in gone.stderr
    explained = run("explain", "nvme0://rec")
    assert explained.returncode == 2 and "'nvme0://rec' is recorded" in explained.stderr and "stead stream show" in explained.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")
@pytest.mark.parametrize("writers", [1, 2])
def test_a_disk_that_becomes_full(spaces, tmp_path, writers):
    """The writer is told at its next call, and what was recorded before is whole."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", small], check=True)
    try:
        all = [stead.writer("sim", rank=i, writers=writers, persist=small / "run", dataspaces=spaces) for i in range(writers)]
        step, early = 0, None
        with pytest.raises(stead.NoSpaceError, match="stream 'sim' is recorded no more") as told:
            for step in range(1000):
                for i, w in enumerate(all):
                    with w.step():
                        w.put("T", np.full(1 << 15, step, "f8"), shape=(writers << 15,), start=(i << 15,))
                if step < 12:
                    # One writer's thread alone would fill the disk where those of others do not come to run.
                    early = early or stead.reader(small / "run", timeout=PATIENCE, dataspaces=spaces)
                    assert early.next().number == step
        early.close()
        assert str(small) in str(told.value)
        for w in all:
            try:
                w.close()
            except stead.Error:
                pass
        had = 0
        with stead.reader(small / "run", dataspaces=spaces) as r, pytest.raises(stead.PeerError, match="could not record it|closed it before"):
            for had, found in enumerate(r, 1):
                assert (found["T"] == found.number).all() and found["T"].shape == (writers << 15,)
        assert 10 <= had < step + 1
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def table(steps: int) -> dict[str, np.ndarray]:
    """What two writers record: two fields, a number and one that grows, of all steps."""
    T = np.stack([np.arange(30.0).reshape(6, 5) * 1.5 + 100 * n for n in range(steps)])
    return {"T": T, "k": (T * 7).astype("i4") % 11, "t": 0.25 * np.arange(steps), "more": np.concatenate([np.arange(3.0 + n) for n in range(steps)])}


def recorded(spaces, steps: int = 4) -> str:
    fields = table(steps)
    both = [stead.writer("sim", rank=rank, writers=2, persist="disk://sim", timeout=PATIENCE, dataspaces=spaces) for rank in range(2)]
    for n in range(steps):
        for rank, w in enumerate(both):
            rows = slice(0, 2) if rank == 0 else slice(2, 6)
            with w.step():
                for name in "Tk":
                    w.put(name, fields[name][n, rows], shape=(6, 5), start=(rows.start, 0), dims=("y", "x"))
                if rank == 0:
                    w.put("t", fields["t"][n])
                    w.put("more", np.arange(3.0 + n))
    for w in both:
        w.close()
    return f"{spaces['disk']}/sim"


def test_kernels_run_over_what_was_recorded(spaces):
    folder, fields = recorded(spaces), table(4)
    T, k = fields["T"].ravel(), fields["k"].ravel().astype(float)
    data = stead.open(f"{folder}::T,k")
    assert (data.format, list(data.columns)) == ("recorded", ["T", "k"])
    for options in ({}, {"threads": 3, "chunk": "4KiB"}, {"chunk": "4KiB"}):
        r = data.run("rows", "mean:T", "sum:k", "quantile:T,q=0.5", "kmeans:T,k,k=2", **options)
        assert (r["rows"], r["sum:k"]) == (T.size, k.sum())
        assert r["mean:T"] == pytest.approx(T.mean(), rel=1e-15) and r["quantile:T,q=0.5"] == np.quantile(T, 0.5, method="lower")
    where = stead.run(f"{folder}::T,k", "rows", "max:T", where="k > 5")
    assert (where["rows"], where["max:T"]) == ((k > 5).sum(), T[k > 5].max())
    groups = stead.run(f"{folder}::T,k", "count:T", by="k")["count:T"]
    assert {int(float(key)): n for key, n in groups.items()} == {int(v): n for v, n in zip(*np.unique(k, return_counts=True))}
    # A number, and what has another shape in each step.
    assert stead.run(f"{folder}::t", "sum:t")["sum:t"] == fields["t"].sum()
    assert stead.run(f"{folder}::more", "rows", "sum:more")["sum:more"] == fields["more"].sum()
    # A kernel in Python sees the elements in their order.
    seen = []

    @stead.kernel(["T"])
    class All:
        def init(self):
            return []

        def update(self, state, x):
            return state + x.tolist()

        def merge(self, a, b):
            return a + b

        def finish(self, state):
            seen.extend(state)

    stead.run(f"{folder}::T", All(), threads=1, chunk="4KiB")
    assert seen == T.tolist()


def test_what_is_no_table_of_a_recording_is_refused(spaces, tmp_path):
    folder = recorded(spaces)
    for name, says in [
        (f"{folder}::U", "no variable 'U'"),
        (folder, "another shape than"),
        (f"{folder}::T,T", "two columns are called 'T'"),
        (f"{folder}::T,t", "another shape than 'T'"),
    ]:
        with pytest.raises(stead.Error, match=says):
            stead.open(name)
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(stead.UsageError, match="a recorded stream, and others are named"):
        stead.open([f"{folder}::T", tmp_path / "x.csv"])
    with pytest.raises(stead.UsageError, match="numbers only"):
        stead.run(f"{folder}::T", "entropy")
    # What else is called so is a file, and files of the folder can still be read as files.
    odd = tmp_path / "a::b"
    odd.write_text("a\n1\n")
    assert stead.run(odd, "rows")["rows"] == 1
    assert stead.open(f"{folder}/0.data", type="raw", dtype="u8").nbytes > 0
    # Bytes that are not those that were written.
    data = Path(folder, "0.data")
    bad = bytearray(data.read_bytes())
    bad[8] ^= 1
    data.write_bytes(bad)
    with pytest.raises(stead.Error, match="checksum|damaged"):
        stead.run(f"{folder}::T", "mean:T")


def test_the_command_runs_over_what_was_recorded(spaces):
    folder, T = recorded(spaces), table(4)["T"]
    done = subprocess.run([command(), "run", f"{folder}::T", "-k", "max:T", "--format", "json"], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["results"]["max:T"] == T.max(), done.stderr
    told = json.loads(subprocess.run([command(), "describe", f"{folder}::T,k", "--format", "json"], capture_output=True, text=True).stdout)
    assert (told["format"], told["details"]) == ("recorded", {"rows": T.size, "steps": 4, "shape": [6, 5]})
    assert [c["name"] for c in told["columns"]] == ["T", "k"] and told["rows"][1] == ["1.5", "10.0"]
