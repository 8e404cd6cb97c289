"""Transfers with servers of each kind: S3 over TLS, Google's, Azure's."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("moto")
from stores import MIB, Authority, Azure, Google, Store, Tls, named, tree, write  # noqa: E402
from test_daemon import daemon  # noqa: E402, F401


class Safe(Store):
    """Buckets of S3 behind TLS, with an authority of this site."""

    def __init__(self, folder: Path):
        super().__init__()
        self.site, self.folder = Authority(folder, "site"), folder
        self.tls = Tls(self, self.site.server("localhost"))
        del self.env["AWS_ALLOW_HTTP"]
        self.env |= {"AWS_ENDPOINT_URL": f"https://localhost:{self.tls.port}", "SSL_CERT_FILE": str(self.site.file)}

    def end(self) -> None:
        self.tls.end()
        super().end()


@pytest.fixture(scope="module")
def safe(tmp_path_factory):
    store = Safe(tmp_path_factory.mktemp("authorities"))
    yield store
    store.end()


@pytest.fixture(scope="module", params=["s3", "gs", "az"])
def a_store(request, tmp_path_factory):
    if request.param == "az" and not Azure.program():
        pytest.skip("no Azurite: install node and npm, and run scripts/setup.sh test")
    folder = tmp_path_factory.mktemp("store")
    store = {"s3": lambda: Safe(folder), "gs": Google, "az": lambda: Azure(folder)}[request.param]()
    yield store
    store.end()


@pytest.fixture
def store(a_store):
    a_store.anew("bkt")
    return a_store


def test_both_ways_byte_for_byte(store, stage, tmp_path):
    files, at = tree(tmp_path / "from"), store.url + "bkt"
    done = stage(f"{tmp_path}/from/", f"{at}/run 7/", "--verify")
    assert done["files_done"] == done["files"] == len(files)
    assert store.objects("bkt", "run 7/") == files and store.uploads("bkt") == []
    assert store.seen.count("part") == 3
    stage("archive://run 7", tmp_path / "back", "--dataspace", f"archive={at}", "--verify")
    assert named(tmp_path / "back") == files
    for name in files:
        # The large one, too, whose parts come before what it is.
        assert (tmp_path / "back" / name).stat().st_mtime_ns == (tmp_path / "from" / name).stat().st_mtime_ns, name
    # Within the store nothing comes by here.
    store.seen.clear()
    stage(f"{at}/run 7/", f"{at}/other/")
    assert store.objects("bkt", "other/") == files and not {"get", "part"} & set(store.seen)
    stage("--move", f"{at}/other", tmp_path / "moved")
    assert named(tmp_path / "moved") == files and store.objects("bkt", "other/") == {}
    # A pattern, and what it leaves.
    stage("--remove", f"{at}/run 7/d*/*[01]+*")
    left = {name: data for name, data in files.items() if "0+" not in name and "1+" not in name}
    assert store.objects("bkt", "run 7/") == left
    stage(f"{at}/**/*2+*", tmp_path / "one")
    assert [Path(name).name for name in named(tmp_path / "one")] == ["f 2+%é"]
    assert stage("--remove", f"{at}/run 7")["files_done"] == len(left)
    assert store.objects("bkt") == {}


def test_a_bucket_with_a_name_is_not_for_the_daemon(store, stage, tmp_path, daemon):
    """It has no credentials, and by its unit no network."""
    daemon.begin()
    config = tmp_path / "stead.toml"
    config.write_text(f'[dataspace.archive]\npath = "{store.url}bkt"\n')
    more = {"STEAD_SOCKET": str(daemon.path), "STEAD_CONFIG": str(config)}
    (tmp_path / "f").write_bytes(b"bytes")
    assert stage(tmp_path / "f", "archive://f", **more)["state"] == "finished"
    assert store.objects("bkt") == {"f": b"bytes"}
    assert stage("archive://f", tmp_path / "g", **more)["state"] == "finished"
    assert (tmp_path / "g").read_bytes() == b"bytes"
    assert json.loads(daemon.stage("--list", "--all").stdout) == []
    # All else is.
    assert stage(tmp_path / "f", tmp_path / "h", **more)["state"] == "finished"
    assert len(json.loads(daemon.stage("--list", "--all").stdout)) == 1


def test_a_gentle_one_both_ways(store, stage, tmp_path):
    files, at = tree(tmp_path / "from"), f"{store.url}bkt/gentle/"
    assert stage("--gentle", "--verify", f"{tmp_path}/from/", at)["files_done"] == len(files)
    assert store.objects("bkt", "gentle/") == files
    stage("--gentle", "--verify", at, f"{tmp_path}/back/")
    assert named(tmp_path / "back") == files


def test_syncs(store, stage, tmp_path):
    files = {f"d{i % 4}/f{i}": b"%d" % i for i in range(60)} | {"large": os.urandom(9 * MIB)}
    write(tmp_path / "from", files)
    at = f"{store.url}bkt/all"
    sync = ["--sync", "--delete", tmp_path / "from", at]
    assert stage(*sync)["files_done"] == len(files)
    assert stage(*sync)["files_done"] == 0
    write(tmp_path / "from", {"d1/f1": b"changed", "new/f": b"new"})
    (tmp_path / "from/d2/f2").unlink()
    assert stage(*sync)["files_done"] == 3
    assert store.objects("bkt", "all/") == named(tmp_path / "from")
    store.put("bkt", "all/theirs", b"theirs")
    back = ["--sync", at, tmp_path / "back"]
    stage(*back)
    assert named(tmp_path / "back") == store.objects("bkt", "all/")
    assert stage(*back)["files_done"] == 0
    assert "something of this name already" in stage(tmp_path / "from/d1/f1", f"{at}/theirs", code=2)
    assert "no such" in stage(f"{at}/none", tmp_path / "g", code=1)
    assert "bucket" in stage(tmp_path / "from/d1/f1", f"{store.url}no-such-bucket/f", code=1)


def marked(tmp_path: Path) -> int:
    """Parts that the journal says are there."""
    with sqlite3.connect(tmp_path / "state/transfers.db", timeout=30) as journal:
        marks = [mark for (mark,) in journal.execute("SELECT mark FROM item WHERE mark IS NOT NULL")]
    return sum(part is not None for mark in marks for part in json.loads(mark)["parts"])


@pytest.mark.parametrize("then", ["resumed", "given up"])
def test_a_large_upload_that_is_killed(store, begin, stage, tmp_path, then):
    files = {"large": random.Random(3).randbytes(40 * MIB)}
    write(tmp_path, files)
    os.utime(tmp_path / "large", ns=(1_500_000_000_123_456_789,) * 2)
    go_on = threading.Event()

    def hold(number: int, kind: str) -> str | None:
        if kind == "part" and store.seen.count("part") > 3:
            go_on.wait(60)
            return "refused"
        return None

    store.rule = hold
    at = f"{store.url}bkt/large"
    under_way = begin(tmp_path / "large", at, "--threads", 1)
    deadline = time.monotonic() + 60
    while store.seen.count("part") <= 3 or marked(tmp_path) < 3:
        assert under_way.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    under_way.send_signal(signal.SIGKILL)
    under_way.communicate(timeout=60)
    go_on.set()
    store.settle()
    assert store.uploads("bkt") == ["large"] and store.objects("bkt") == {}
    store.rule, store.seen = (lambda number, kind: None), []
    if then == "resumed":
        assert [s["state"] for s in stage("--resume")] == ["finished"]
        # Three of five are there.
        assert store.seen.count("part") == 2 and store.seen.count("create") == 0
        assert store.objects("bkt") == files
        stage(at, tmp_path / "back")
        assert (tmp_path / "back").stat().st_mtime_ns == 1_500_000_000_123_456_789
    else:
        [latest] = json.loads(begin("--list").communicate(timeout=60)[0])
        assert stage("--cancel", latest["id"])["state"] == "cancelled"
        assert store.objects("bkt") == {}
        if store.url == "az://":
            # Blocks go by themselves.
            return
    assert store.uploads("bkt") == []


def test_who_is_believed(safe, stage_with, tmp_path):
    """Authorities are those of the file that is named; what is not believed is one error, at once."""
    safe.anew("bkt")
    write(tmp_path, {"f": b"f"})
    go = [tmp_path / "f", "s3://bkt/f", "--exists", "replace"]
    stage_with(safe, *go)
    others = Authority(safe.folder, "others")
    wrong_name = Tls(safe, safe.site.server("elsewhere.example"))
    for text, server, authorities in [
        ("authority that is not known", safe.tls, others),
        ("for another name", wrong_name, safe.site),
    ]:
        before = server.tries
        url = f"https://localhost:{server.port}"
        said = stage_with(safe, *go, code=1, AWS_ENDPOINT_URL=url, SSL_CERT_FILE=str(authorities.file))
        assert text in said and "localhost" in said and "SSL_CERT_FILE" in said, said
        assert len(said.splitlines()) == 2, said
        # Nobody tries for a minute what will never be.
        assert server.tries - before <= 3, server.tries - before
    wrong_name.end()
    assert safe.objects("bkt") == {"f": b"f"}


def test_keys_of_a_profile(safe, stage_with, tmp_path):
    """Where the tools of S3 have them, if the environment has none."""
    safe.anew("bkt")
    home, url = tmp_path / "home", safe.env["AWS_ENDPOINT_URL"]
    keys = "aws_access_key_id = {}\naws_secret_access_key = kept-to-itself\n".format
    config = f"[profile site]\nregion = eu-central-1\nendpoint_url = {url}\n"
    config += "[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = default\nregion = us-west-2\n"
    credentials = f"[default]\n{keys('OTHER')}\n[site]\n{keys('OFSITE')}aws_session_token = a-token\n"
    write(home / ".aws", {"credentials": credentials.encode(), "config": config.encode()})
    write(tmp_path, {"f": b"f", "keys": f"[default]\n{keys('ELSEWHERE')}".encode()})
    plain = SimpleNamespace(env={"SSL_CERT_FILE": safe.env["SSL_CERT_FILE"], "HOME": str(home)})
    go = [tmp_path / "f", "s3://bkt/f", "--exists", "replace"]

    def signed_by(store, **more: str) -> dict[str, str]:
        safe.heads.clear()
        stage_with(store, *go, **more)
        heads = [head for head in safe.heads if "authorization" in head]
        (by,) = {(*head["authorization"].split("Credential=")[1].split("/")[:3], head.get("x-amz-security-token", "")) for head in heads}
        return {"key": by[0], "region": by[2], "token": by[3]}

    assert signed_by(plain, AWS_PROFILE="site") == {"key": "OFSITE", "region": "eu-central-1", "token": "a-token"}
    # A token of the environment is of other keys.
    other = signed_by(plain, AWS_ENDPOINT_URL=url, AWS_SESSION_TOKEN="old")
    assert other == {"key": "OTHER", "region": "us-east-1", "token": ""}
    elsewhere = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"), "AWS_CONFIG_FILE": "/dev/null"}
    assert signed_by(plain, AWS_ENDPOINT_URL=url, **elsewhere)["key"] == "ELSEWHERE"
    # What the environment has goes first.
    assert signed_by(safe, HOME=str(home), AWS_PROFILE="site")["key"] == "testing"
    # And each setting by itself: what it does not say is that of the profile, whose keys nobody needs then.
    mine = {name: safe.env[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    assert signed_by(plain, AWS_PROFILE="site", **mine) == {"key": "testing", "region": "eu-central-1", "token": ""}
    assert signed_by(plain, AWS_PROFILE="site", AWS_REGION="eu-west-1", **mine)["region"] == "eu-west-1"
    assert signed_by(plain, AWS_PROFILE="role", AWS_ENDPOINT_URL=url, **mine) == {"key": "testing", "region": "us-west-2", "token": ""}
    said = stage_with(plain, *go, code=2, AWS_PROFILE="role")
    assert "role_arn" in said and "aws configure export-credentials --profile role" in said, said
    assert "no profile 'none'" in stage_with(plain, *go, code=2, AWS_PROFILE="none")
    state = b"".join(path.read_bytes() for path in (tmp_path / "state").glob("transfers.db*"))
    assert b"kept-to-itself" not in state and b"a-token" not in state
