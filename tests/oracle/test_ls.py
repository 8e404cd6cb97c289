"""`stead ls` beside what the system and a store say."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime, timezone

import pytest


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "space"
    for path in ["run1/a.h5", "run1/b.h5", "run1/deep/er/c.h5", "run1.txt", "Run/x", "straße/é", "two\nlines", ".hidden"]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(path.encode() * 100)
    (root / "link").symlink_to("run1")
    (root / "run1" / ".stead-0123456789abcdef-2a").write_bytes(b"not whole")
    (root / "empty").mkdir()
    os.mkfifo(root / "pipe")
    os.utime(root / "run1" / "a.h5", ns=(1, 1_709_251_199_250_000_000))
    return root


def kind(path) -> str:
    if path.is_symlink():
        return "link"
    return "folder" if path.is_dir() else "file" if path.is_file() else "special"


def known(root, path) -> dict:
    """What the system says, as JSON has it."""
    meta, what = path.lstat(), kind(path)
    name = str(path.relative_to(root))
    return {"name": name, "kind": what, "size": None if what == "folder" else meta.st_size, "modified": pytest.approx(meta.st_mtime, abs=1e-6)}


def is_whole(path) -> bool:
    return not path.name.startswith(".stead-")


def in_order(paths):
    """Those of a folder by their bytes, and what lies in one behind it."""
    return sorted(filter(is_whole, paths), key=lambda p: [os.fsencode(step) for step in p.parts])


def test_folders_as_the_system_has_them(stead, tree):
    space = ("--dataspace", f"space={tree}")
    one = json.loads(stead("ls", "space://", *space, "--format", "json").stdout)
    assert one == [known(tree, path) for path in in_order(tree.iterdir())]
    every = json.loads(stead("ls", "-R", tree, "--format", "json").stdout)
    assert every == [known(tree, path) for path in in_order(tree.rglob("*"))] and len(every) > 12
    lines = stead("ls", "space://run1", *space).stdout.decode()
    assert lines == "a.h5\nb.h5\ndeep/\n"
    # From the working directory, and what a name that is text or none looks like in one line.
    assert stead("ls", ".", cwd=tree / "run1").stdout.decode() == lines
    assert "two\\nlines\n" in stead("ls", tree).stdout.decode()
    os.close(os.open(os.fsencode(tree) + b"/no\xfftext", os.O_CREAT | os.O_WRONLY))
    assert "no\\xfftext\n" in stead("ls", tree).stdout.decode()
    assert list(b"no\xfftext") in [row["name"] for row in json.loads(stead("ls", tree, "--format", "json").stdout)]


def test_files_links_and_patterns(stead, tree):
    space = ("--dataspace", f"space={tree}")
    said = lambda *words: stead("ls", *words, *space).stdout.decode().splitlines()  # noqa: E731
    assert said("space://run1.txt") == ["space://run1.txt"]
    assert said(tree / "run1/a.h5") == [f"{tree}/run1/a.h5"]
    assert said("space://run1/*.h5") == ["space://run1/a.h5", "space://run1/b.h5"]
    assert said("space://**/*.h5") == ["space://run1/a.h5", "space://run1/b.h5", "space://run1/deep/er/c.h5"]
    assert said("space://run*") == ["space://run1/", "space://run1.txt"]
    assert said("space://run*", "-R") == [
        "space://run1/", "space://run1/a.h5", "space://run1/b.h5", "space://run1/deep/", "space://run1/deep/er/",
        "space://run1/deep/er/c.h5", "space://run1.txt",
    ]  # fmt: skip
    assert said("space://e*/") == [] == said("space://empty")
    # A link that is named by its path leads on; in a dataspace none does.
    assert said(tree / "link") == ["a.h5", "b.h5", "deep/"]
    assert said("space://link") == ["space://link"]
    done = stead("ls", "*.h5", cwd=tree / "run1")
    assert done.stdout.decode() == "a.h5\nb.h5\n"


def test_the_long_form(stead, tree):
    lines = stead("ls", "-l", tree / "run1").stdout.decode().splitlines()
    assert lines[0] == "file          900 B  2024-02-29 23:59:59Z  a.h5"
    when = datetime.fromtimestamp((tree / "run1/deep").stat().st_mtime, tz=timezone.utc)
    assert lines[2] == f"folder            -  {when:%Y-%m-%d %H:%M:%SZ}  deep/"


def test_what_cannot_be_listed(stead, tree):
    space = ("--dataspace", f"space={tree}")
    for at, code, says in [
        ("space://none", 1, "no such file or folder"),
        (tree / "run1" / "none", 1, "none"),
        ("space://*.none", 1, "no file has a name that matches"),
        ("space://run1.txt/", 2, "this is no folder"),
        ("space://../x", 2, ".."),
        ("unknown://x", 2, "'unknown' is not configured here"),
        ("space://link/a.h5", 1, "link"),
        ("node9:/scratch", 2, "no daemon runs here"),
    ]:
        done = stead("ls", at, *space, code=code)
        assert says in done.stderr.decode() and done.stdout == b"", (at, done.stderr)
    stead("ls", "-R", code=2)


def test_dataspaces(stead, tree, tmp_path):
    (tmp_path / "stead.toml").write_text(f'[dataspace.space]\npath = "{tree}"\n[dataspace.old]\npath = "s3://bkt/old"\n')
    env = os.environ | {"STEAD_CONFIG": str(tmp_path / "stead.toml")}
    assert stead("ls", env=env).stdout == b"old://\nspace://\nmemory://\n"
    listed = json.loads(stead("ls", "--format", "json", env=env).stdout)
    assert listed == [
        {"name": "old", "kind": "bucket", "path": "s3://bkt/old"},
        {"name": "space", "kind": "node", "path": str(tree)},
        # The one that everybody has.
        {"name": "memory", "kind": "memory", "path": f"/dev/shm/stead-{os.geteuid()}"},
    ]
    assert str(tree) in stead("ls", "--long", env=env).stdout.decode()
    assert stead("ls", "space://Run", env=env).stdout == b"x\n"


def test_many_names_of_which_few_are_read(stead, tmp_path):
    names = sorted(f"{i * 7919 % 30_011:05}" for i in range(30_000))
    (tmp_path / "many").mkdir()
    for name in names:
        (tmp_path / "many" / name).touch()
    assert stead("ls", "many").stdout.decode().split() == names
    # Whoever has seen enough ends it in silence.
    done = subprocess.run(f"{stead.path} ls many | head -n 3", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == names[:3] and done.stderr == ""


def test_buckets(stead):
    pytest.importorskip("moto")
    from stores import Store

    store = Store()
    try:
        store.anew("bkt")
        env = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")} | store.env
        keys = ["below/a.txt", "below/a/1", "below/a/deep/2", "below/b", "top"]
        for key in keys:
            store.s3.put_object(Bucket="bkt", Key=key, Body=key.encode())
        said = lambda *words: stead("ls", *words, env=env).stdout.decode().splitlines()  # noqa: E731
        assert said("s3://bkt/") == said("s3://bkt") == ["below/", "top"]
        assert said("s3://bkt/below") == ["a/", "a.txt", "b"]
        assert said("s3://bkt/below/*/*") == ["s3://bkt/below/a/1", "s3://bkt/below/a/deep/"]
        assert said("old://", "--dataspace", "old=s3://bkt/below", "-R") == ["a/", "a/1", "a/deep/", "a/deep/2", "a.txt", "b"]
        rows = json.loads(stead("ls", "s3://bkt/below", "--format", "json", env=env).stdout)
        assert rows[0] == {"name": "a", "kind": "folder", "size": None, "modified": None}
        assert rows[2]["size"] == len("below/b") and rows[2]["modified"] > 1e9
        done = stead("ls", "s3://bkt/none", env=env, code=1)
        assert "no such file or folder" in done.stderr.decode()
        # Of several pages.
        many = [f"many/{i:04}" for i in range(1500)]
        for key in many:
            store.s3.put_object(Bucket="bkt", Key=key, Body=b"")
        assert said("s3://bkt/many") == [key.removeprefix("many/") for key in many]
    finally:
        store.end()
