"""Stores that answer what they should not: other bytes, more of them, none for long, names that lead elsewhere, lists without an end."""

from __future__ import annotations

import random
import re
import sqlite3
import threading
import time
from datetime import datetime, timedelta, timezone
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

import pytest

pytest.importorskip("moto")
from moto.core import DEFAULT_ACCOUNT_ID  # noqa: E402
from moto.s3.models import s3_backends  # noqa: E402
from stores import MIB, Store, named, write  # noqa: E402


@pytest.fixture(scope="module")
def a_store():
    store = Store()
    yield store
    store.end()


@pytest.fixture
def store(a_store):
    a_store.anew("bkt")
    return a_store


class Once:
    """A rule: a fault for the first request of a kind, or for all of them."""

    def __init__(self, kind: str, fault, always: bool = False):
        self.kind, self.fault, self.always, self.done = kind, fault, always, 0

    def __call__(self, number: int, kind: str):
        if kind != self.kind or (self.done and not self.always):
            return None
        self.done += 1
        return self.fault


def other_tag(handler, status, headers, whole) -> None:
    headers = [(name, '"0123456789abcdef0123456789abcdef"' if name.lower() == "etag" else value) for name, value in headers]
    handler.answer(status, headers, whole, len(whole))


def twice(handler, status, headers, whole) -> None:
    handler.answer(status, headers, whole * 2, 2 * len(whole))


@pytest.mark.parametrize("kind, fault", [("part", other_tag), ("get", other_tag), ("get", twice)])
def test_answers_that_are_wrong(store, stage, tmp_path, kind, fault):
    data = random.Random(1).randbytes(20 * MIB)
    write(tmp_path, {"f": data})
    go = [tmp_path / "f", "s3://bkt/f"] if kind == "part" else ["s3://bkt/f", tmp_path / "back"]
    if kind == "get":
        store.put("bkt", "f", data)
    # Once: it is tried again, and is right.
    store.rule = once = Once(kind, fault)
    stage(*go)
    assert once.done == 1
    assert (store.objects("bkt")["f"] if kind == "part" else (tmp_path / "back").read_bytes()) == data
    assert store.uploads("bkt") == []
    # Always: one error, and nothing is left of it.
    store.rule = Once(kind, fault, always=True)
    said = stage(*go, "--exists", "replace", code=1)
    assert "bkt/f" in said, said
    assert store.uploads("bkt") == []
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".stead-")]
    assert store.objects("bkt")["f"] == data


def test_a_server_that_stalls_in_the_middle(store, stage, tmp_path):
    data, go_on = random.Random(2).randbytes(9 * MIB), threading.Event()
    store.put("bkt", "f", data)

    def stall(handler, status, headers, whole) -> None:
        handler.answer(status, headers, whole, len(whole) // 2)
        go_on.wait(60)

    store.rule = stalled = Once("get", stall)
    stage("s3://bkt/f", tmp_path / "f", AWS_TIMEOUT="6s")
    go_on.set()
    assert stalled.done == 1 and (tmp_path / "f").read_bytes() == data
    said = stage("s3://bkt/f", tmp_path / "f", code=1, AWS_TIMEOUT="soon")
    assert "'soon' is no time" in said, said


@pytest.fixture
def trap():
    """Another host, which is told what it should not be told."""
    heard = []

    class Trap(BaseHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

        def hear(self) -> None:
            heard.append((self.path, dict(self.headers), self.rfile.read(int(self.headers.get("Content-Length") or 0))))
            self.send_error(404)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = hear

    with ThreadingHTTPServer(("127.0.0.1", 0), Trap) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}", heard
        server.shutdown()


@pytest.mark.parametrize("kind", ["list", "get", "head", "put", "create", "part"])
def test_nobody_is_sent_elsewhere_with_credentials(store, stage, tmp_path, trap, kind):
    where, heard = trap
    store.put("bkt", "f", b"f" * 100)
    write(tmp_path, {"small": b"small", "large": b"large" * (2 * MIB)})

    def elsewhere(handler, status, headers, whole) -> None:
        handler.answer(307, [("Location", where + handler.path)], b"", 0)

    store.rule = Once(kind, elsewhere, always=True)
    up = [tmp_path / ("large" if kind in ("create", "part") else "small"), "s3://bkt/up"]
    go = ["s3://bkt/", tmp_path / "back"] if kind in ("list", "get") else up
    said = stage(*go, code=1, AWS_SESSION_TOKEN="kept-to-itself-for-an-hour")
    assert heard == [], heard
    assert "sends to another one" in said and "AWS_ENDPOINT_URL" in said, said


def test_plain_servers_have_mirrors(stages, tmp_path):
    """Where nobody has credentials, a server may send on to another one."""
    write(tmp_path / "served", {"f": b"mirrored" * 1000})

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

    class Moved(Quiet):
        def send_head(self):
            self.send_response(302)
            self.send_header("Location", mirror + self.path)
            self.end_headers()

    class Nobody:
        env: dict[str, str] = {}

    serve = partial(ThreadingHTTPServer, ("127.0.0.1", 0))
    with serve(partial(Quiet, directory=tmp_path / "served")) as one, serve(Moved) as other:
        mirror = f"http://localhost:{one.server_address[1]}"
        for server in (one, other):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        stages.stage(Nobody, f"http://127.0.0.1:{other.server_address[1]}/f", tmp_path / "f")
        assert (tmp_path / "f").read_bytes() == b"mirrored" * 1000
        one.shutdown()
        other.shutdown()


ODD = ["a b", "per%20cent", "100%", "plus+and&", "q?x=1#y", "ünïcödé/日本", "back\\slash", "semi;colon,", "'quotes\"", "~tilde", "..."]


def test_odd_names_come_and_go(store, stage, tmp_path):
    files = {name: name.encode() for name in ODD} | {f"d {n}/{name}": b"" for n, name in enumerate(ODD)}
    for name, data in files.items():
        store.put("bkt", name, data)
    # What some tools make for folders.
    store.put("bkt", "d 1/", b"")
    store.put("bkt", "empty/", b"")
    stage("s3://bkt/", tmp_path / "back")
    assert named(tmp_path / "back") == files
    stage(f"{tmp_path}/back/", "s3://bkt/again/")
    assert store.objects("bkt", "again/") == files


def listed(keys: list[str], folders: list[str] = (), token: str | None = None, tag: str = '"e"'):
    """A rule: what a list is answered with."""

    def answer(handler, status, headers, whole) -> None:
        one = "<Contents><Key>{}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified><ETag>{}</ETag><Size>1</Size></Contents>"
        text = "".join(one.format(escape(key).replace("\n", "&#10;"), tag) for key in keys)
        text += "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders)
        if token is not None:
            text += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        body = f"<ListBucketResult>{text}</ListBucketResult>".encode()
        handler.answer(200, [("Content-Type", "application/xml")], body, len(body))

    return answer


EVIL = [
    (["run/../out"], []), (["run/../../out"], []), (["../out"], []), (["/out"], []), ([], ["/"]), ([], ["run/../"]), (["run//out"], []),
    ([], ["run//"]), (["run/./out"], []), (["run/.."], []), (["run/a\nb"], []), (["run/"], []), (["run/x/../../../out"], []),
]  # fmt: skip


@pytest.mark.parametrize("keys, folders", EVIL)
@pytest.mark.parametrize("source", ["s3://bkt/run/", "s3://bkt/"])
def test_no_name_leads_out_of_the_target(store, begin, tmp_path, keys, folders, source):
    (tmp_path / "in/target").mkdir(parents=True)
    at = f"{tmp_path}/in/target/"

    def rule(number: int, kind: str):
        return listed(["run/good", *keys], folders) if kind == "list" else None

    for key in ["run/good", "good", *keys]:
        if key and not key.endswith("/") and "\n" not in key:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object("bkt", key, b"x")
    store.rule = rule
    done = begin(source, at)
    out, err = done.communicate(timeout=60)
    assert "panicked" not in err
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    outside = {name for name in there if not name.startswith(("in/target/", "state/"))}
    assert outside == set(), outside
    # What cannot be brought is told, or is of no matter for what was asked for.
    assert done.returncode in (0, 1, 2) and (done.returncode == 0 or err.startswith("stead: ")), err


def test_keys_that_no_file_can_have_are_told(store, stage, tmp_path):
    for key, text in [("/out", "begin with '/'"), ("run//x", "empty"), ("run/../x", ".."), ("run/tail/", "ends with '/'")]:
        store.anew("bkt")
        store.put("bkt", "run/good", b"good")
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object("bkt", key, b"x")
        said = stage("s3://bkt/", tmp_path / "back", code=2)
        assert text in said and len(said.splitlines()) <= 3, said
        assert not (tmp_path / "back").exists() or named(tmp_path / "back") in ({}, {"run/good": b"good"})


def test_lists_of_many_pages(store, stage):
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for n in range(1100):
        backend.put_object("bkt", f"many/f{n:05}", b"")
    assert stage("--remove", "s3://bkt/many")["files_done"] == 1100
    assert store.objects("bkt") == {} and store.seen.count("list") >= 2


def test_listed_names_are_asked_for_several_at_a_time(store, stage, tmp_path):
    files = {f"d/f{i}": b"%d" % i for i in range(48)}
    for name, data in files.items():
        store.put("bkt", f"run/{name}", data)
    lock, asked = threading.Lock(), [0, 0]

    def slow(number: int, kind: str) -> None:
        if kind == "head":
            with lock:
                asked[:] = asked[0] + 1, max(asked[1], asked[0] + 1)
            time.sleep(0.1)
            with lock:
                asked[0] -= 1

    store.rule = slow
    write(tmp_path, {"list": "".join(f"{name}\n" for name in files).encode()})
    stage("s3://bkt/run", tmp_path / "to", "--files-from", tmp_path / "list", "--threads", 1)
    assert named(tmp_path / "to") == files
    assert 4 <= asked[1] <= 16


@pytest.mark.parametrize("tokens", ["AAAA", "ABAB"])
def test_lists_without_an_end(store, stage, tmp_path, tokens):
    count = iter(range(1_000_000))

    def rule(number: int, kind: str):
        if kind != "list":
            return None
        return listed(["run/f"], token=tokens[next(count) % 4])

    store.rule = rule
    said = stage("s3://bkt/run/", tmp_path / "back", code=1)
    assert "again and again" in said, said
    assert next(count) < 20


def test_an_object_that_changes_meanwhile(store, stage, tmp_path):
    old, new = (random.Random(n).randbytes(24 * MIB) for n in (1, 2))
    store.put("bkt", "f", old)

    def change(handler, status, headers, whole) -> None:
        store.put("bkt", "f", new)
        handler.answer(status, headers, whole, len(whole))

    store.rule = changed = Once("get", change)
    stage("s3://bkt/f", tmp_path / "f", "--threads", 1)
    assert changed.done == 1 and (tmp_path / "f").read_bytes() == new
    # Who asks for a part says of which object.
    assert all('"' in head["if-match"] for head, kind in zip(store.heads, store.seen) if kind == "get")


def strays(tmp_path) -> list[tuple]:
    with sqlite3.connect(tmp_path / "state/transfers.db", timeout=30) as journal:
        return journal.execute("SELECT url, key FROM stray").fetchall()


def test_uploads_that_nobody_has_heard_of_are_given_up_later(store, stage, tmp_path):
    """One whose begin was not answered; and none that may be of others."""
    write(tmp_path, {"large": b"large" * (2 * MIB), "small": b"small"})
    asked = []

    def lose(number: int, kind: str) -> str | None:
        if kind == "create":
            asked.append(datetime.now(timezone.utc))
        return "lost" if kind == "create" and len(asked) == 1 else None

    store.rule = lose
    stage(tmp_path / "large", "s3://bkt/run/large")
    # It was begun once more, and not behind anybody's back.
    assert len(asked) == 2 and store.uploads("bkt") == ["run/large"]
    assert strays(tmp_path) == [("s3://bkt", "run/large")]
    [stray] = [one["UploadId"] for one in store.s3.list_multipart_uploads(Bucket="bkt")["Uploads"]]

    def upload(key: str, parts: int = 0) -> str:
        number = store.s3.create_multipart_upload(Bucket="bkt", Key=key)["UploadId"]
        for n in range(parts):
            store.s3.upload_part(Bucket="bkt", Key=key, UploadId=number, PartNumber=n + 1, Body=b"theirs")
        return number

    minute, old = timedelta(minutes=1), timedelta(minutes=30)
    begun = {stray: asked[0] - old}
    # Of others: with parts, of another time, of other keys.
    begun[upload("run/large", parts=1)] = asked[0] - old
    begun[upload("run/large")] = asked[0] - old + 10 * minute
    begun[upload("run/large")] = asked[0] - old - minute
    begun[upload("run/large2")] = begun[upload("run/")] = asked[0] - old
    others = set(begun) - {stray}

    def times(handler, status, headers, whole) -> None:
        """This server does not know when uploads were begun."""
        for number, time_of in begun.items():
            one = f"<UploadId>{number}</UploadId>.*?<Initiated>(.*?)</Initiated>".encode()
            text = time_of.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()
            whole = re.sub(one, lambda m, text=text: m[0].replace(m[1], text), whole, flags=re.S)
        headers = [one for one in headers if one[0].lower() != "date"]
        handler.answer(status, [*headers, ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()))], whole, len(whole))

    def there() -> set[str]:
        return {one["UploadId"] for one in store.s3.list_multipart_uploads(Bucket="bkt").get("Uploads", [])}

    store.rule = lambda number, kind: times if kind == "uploads" else None
    # It is young: the first part of somebody may be on its way.
    stage(tmp_path / "small", "s3://bkt/a")
    assert there() == set(begun) and "uploads" not in store.seen
    with sqlite3.connect(tmp_path / "state/transfers.db", timeout=30) as journal:
        journal.execute("UPDATE stray SET asked = asked - ?", [old.total_seconds()])
    stage(tmp_path / "small", "s3://bkt/b")
    assert there() == others and strays(tmp_path) == []
    assert {"uploads", "parts", "abort"} <= set(store.seen)
    # Those who may not look have no other trouble by it.
    store.rule = lose
    asked.clear()
    stage(tmp_path / "large", "s3://bkt/run/more")
    with sqlite3.connect(tmp_path / "state/transfers.db", timeout=30) as journal:
        journal.execute("UPDATE stray SET asked = asked - ?", [old.total_seconds()])
    store.rule = Once("uploads", lambda handler, *_: handler.answer(403, [], b"<Error/>", 8), always=True)
    stage(tmp_path / "small", "s3://bkt/c")
    assert len(strays(tmp_path)) == 1
