"""`stead put`, `get` and `describe LAYOUT` in one process, and what they refuse."""

from __future__ import annotations

import json
import re
import resource
import signal

import pytest


@pytest.fixture
def space(tmp_path):
    (tmp_path / "nvme").mkdir()
    return f"nvme={tmp_path}/nvme"


def left(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


def table(path):
    path.write_text("x,y\n" + "".join(f'{i},"a\n{i % 5}"\n' for i in range(30_000)))
    return path.read_bytes()


@pytest.mark.parametrize("options", [["--stripe", "64KiB"], ["--stripe", "7001", "--align", "record"], ["--stripe", "3GiB"]])
def test_a_file_goes_over_parts_and_comes_back(stead, tmp_path, space, options):
    file = tmp_path / "t.csv"
    contents = table(file)
    page = stead("put", file, "--over", "nvme", "--parts", 4, "--dataspace", space, *options).stdout.decode()
    assert "in 4 part(s) on 1 node(s)" in page
    layout = tmp_path / "t.csv.stead-layout.toml"
    assert len(left(tmp_path)) == 6
    shown = json.loads(stead("describe", layout, "--format", "json").stdout)
    assert shown["bytes"] == len(contents) == sum(p["bytes"] for p in shown["parts"])
    for part in shown["parts"]:
        assert (tmp_path / "nvme" / part["path"]).stat().st_size == part["bytes"] and part["checksum"].startswith("crc32c:")
    file.unlink()
    page = stead("describe", file).stdout.decode()
    assert "layout of  t.csv" in page and "100.0 %" in page and "crc32c:" in page
    # The data are read where all parts are here.
    assert "the data were not read: " in page and "dataspace" in page.split("the data were not read: ")[1] and "columns" not in page
    assert shown["data"] is None and "dataspace" in shown["not_read"]
    page = stead("describe", layout, "--dataspace", space).stdout.decode()
    assert "not read" not in page and re.search(r"^columns\n +0  x  +number\n +1  y  +text$", page, re.M), page
    found = json.loads(stead("describe", layout, "--dataspace", space, "--format", "json").stdout)
    assert found["parts"] == shown["parts"] and found["data"]["format"] == "csv" and len(found["data"]["rows"]) == 5
    stead("get", layout, "--dataspace", space)
    assert file.read_bytes() == contents
    assert "columns" in stead("describe", file).stdout.decode()
    assert b"already" in stead("get", layout, "--dataspace", space, code=2).stderr
    copied = json.loads(stead("get", layout, "--dataspace", space, "--force", "--format", "json").stdout)
    assert (copied["bytes"], copied["parts"], copied["ranks"]) == (len(contents), 4, 1)


def test_the_layouts_of_a_folder_are_listed(stead, tmp_path, space):
    data = tmp_path / "data"
    data.mkdir()
    for name in "b.csv", "a.csv":
        table(tmp_path / name)
        stead("put", tmp_path / name, "--over", "nvme", "--parts", 3, "--dataspace", space, "--layout", data / f"{name}.stead-layout.toml")
    (data / "c.stead-layout.toml").write_text("nonsense")
    shown = json.loads(stead("describe", data, "--format", "json").stdout)
    assert list(shown) == ["layouts"]
    found = [(entry["name"], entry["bytes"], entry["parts"], len(entry["nodes"]), entry["error"] is None) for entry in shown["layouts"]]
    size = (tmp_path / "a.csv").stat().st_size
    assert found == [("a.csv", size, 3, 1, True), ("b.csv", size, 3, 1, True), (None, None, 0, 0, False)]
    page = stead("describe", data).stdout.decode()
    assert page.startswith("layouts\n") and "a.csv" in page and "c.stead-layout.toml" in page
    # Besides data that lie there.
    (data / "d.csv").write_text("u,v\n1,2\n")
    shown = json.loads(stead("describe", data, "--format", "json").stdout)
    assert [c["name"] for c in shown["columns"]] == ["u", "v"] and len(shown["layouts"]) == 3
    page = stead("describe", data).stdout.decode()
    assert "columns" in page and "layouts" in page


def test_dataspaces_are_configured(stead, tmp_path):
    file = tmp_path / "t.csv"
    table(file)
    config = tmp_path / "config" / "stead" / "stead.toml"
    config.parent.mkdir(parents=True)
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "WHOSE": "mine"}
    config.write_text(f'[dataspace.nvme]\npath = "{tmp_path}/${{WHOSE}}"\n')
    told = stead("put", file, "--over", "nvme", env=env, code=1).stderr.decode()
    assert "folder of dataspace 'nvme' is not there" in told and "mkdir -p" in told
    (tmp_path / "mine").mkdir()
    stead("put", file, "--over", "nvme", env=env)
    assert len(left(tmp_path / "mine")) == 1
    given = tmp_path / "given.toml"
    given.write_text("[dataspace.nvme]\npath = 'relative'\n")
    told = stead("get", f"{file}.stead-layout.toml", "--force", env=env | {"STEAD_CONFIG": str(given)}, code=1).stderr.decode()
    assert f"{given}:2: path 'relative' is not absolute" in told
    # One of which a variable is not set is nothing to those who use another one.
    config.write_text(config.read_text() + f'[dataspace.disk]\npath = "{tmp_path}/${{NOWHERE}}"\n')
    layout = f"{file}.stead-layout.toml"
    rows = stead("run", layout, "-k", "rows", "--format", "csv", env=env).stdout
    assert stead("run", file, "-k", "rows", "--format", "csv", env=env).stdout == rows
    told = stead("put", file, "--over", "disk", "--name", "m", env=env, code=1).stderr.decode()
    assert f"{config}:4: dataspace 'disk': variable 'NOWHERE' is not set" in told and "--dataspace disk=" in told
    config.write_text("")
    # Given on the command line it needs no configuration.
    assert b"not configured" in stead("run", layout, "-k", "rows", env=env, code=2).stderr
    mine = ["--dataspace", f"nvme={tmp_path}/mine"]
    assert stead("run", layout, "-k", "rows", "--format", "csv", *mine, env=env).stdout == rows
    assert b"columns" in stead("describe", layout, layout, *mine, env=env).stdout
    assert b"not absolute" in stead("run", layout, "-k", "rows", "--dataspace", "nvme=mine", code=2).stderr
    told = stead("put", file, "--over", "disk", "--name", "n", env=env, code=2).stderr.decode()
    assert "dataspace 'disk' is not configured" in told and "--dataspace disk=" in told


def test_a_full_device_leaves_nothing(stead, tmp_path, space):
    file = tmp_path / "f"
    file.write_bytes(bytes(3_000_000))

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    told = stead("put", file, "--over", "nvme", "--parts", 2, "--dataspace", space, preexec_fn=limit, code=1).stderr.decode()
    assert "cannot write: file too large" in told
    assert left(tmp_path) == ["f"]
    stead("put", file, "--over", "nvme", "--parts", 4, "--dataspace", space)
    before = left(tmp_path)
    layout = tmp_path / "f.stead-layout.toml"
    stead("get", layout, "-o", tmp_path / "back", "--dataspace", space, preexec_fn=limit, code=1)
    assert left(tmp_path) == before


def test_what_is_wrong_is_said(stead, tmp_path, space):
    file = tmp_path / "f"
    file.write_bytes(b"some bytes")
    put = ["put", file, "--dataspace", space]
    for words, code, says in [
        ([*put, "--over", "nvme@nowhere"], 2, "node 'nowhere' has no rank"),
        ([*put, "--over", "nvme@n[2-1]"], 2, "descends"),
        ([*put, "--over", "nvme", "--stripe", "0"], 2, "stripe of 0 bytes"),
        ([*put, "--over", "nvme", "--dataspace", "x"], 2, "is no dataspace"),
        (["get", file], 1, "not a layout"),
        (["get", tmp_path / "no.stead-layout.toml"], 1, "no such file"),
        (["describe", tmp_path / "no.stead-layout.toml"], 1, "no such file"),
    ]:
        assert says in stead(*words, code=code).stderr.decode()
        assert left(tmp_path) == ["f"]
