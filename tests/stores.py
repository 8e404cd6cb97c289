"""An object store on this machine, and a proxy in front of it that fails as it is told."""

from __future__ import annotations

import http.client
import itertools
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import boto3
from moto.server import ThreadedMotoServer

#: What a request is about, by its method and its query.
KINDS = {"POST uploads": "create", "POST uploadId": "complete", "DELETE uploadId": "abort", "POST delete": "delete"}
UNAVAILABLE = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Store:
    """Buckets, and the proxy by which they are reached; `rule` is asked about each request."""

    def __init__(self):
        self.server = ThreadedMotoServer("127.0.0.1", 0)
        self.server.start()
        self.host, self.port = self.server.get_host_and_port()
        self.env = {
            "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "kept-to-itself", "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
        self.s3 = boto3.client(
            "s3", endpoint_url=f"http://{self.host}:{self.port}", region_name="us-east-1", aws_access_key_id="testing",
            aws_secret_access_key="kept-to-itself",
        )  # fmt: skip
        self.rule: Callable[[int, str], str | None] = lambda number, kind: None
        self.seen: list[str] = []
        self.lock, self.numbers = threading.Lock(), itertools.count()
        self.proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.proxy.daemon_threads = True
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self.env["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{self.proxy.server_address[1]}"

    def anew(self, bucket: str) -> None:
        """As new, with this bucket."""
        connection = http.client.HTTPConnection(self.host, self.port)
        connection.request("POST", "/moto-api/reset")
        connection.getresponse().read()
        self.rule, self.seen, self.numbers = (lambda number, kind: None), [], itertools.count()
        self.s3.create_bucket(Bucket=bucket)

    def asked(self, kind: str) -> str | None:
        with self.lock:
            self.seen.append(kind)
            number = next(self.numbers)
        return self.rule(number, kind)

    def objects(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
        return {key[len(prefix):]: self.s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def uploads(self, bucket: str) -> list[str]:
        return [one["Key"] for one in self.s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    def end(self) -> None:
        self.proxy.shutdown()
        self.server.stop()


def kind_of(method: str, path: str) -> str:
    """What is asked for: `create`, `part`, `complete`, `abort`, `delete`, `list`, or the method."""
    query = parse_qs(urlsplit(path).query, keep_blank_values=True)
    if "partNumber" in query:
        return "part"
    if "list-type" in query:
        return "list"
    return next((KINDS[f"{method} {key}"] for key in query if f"{method} {key}" in KINDS), method.lower())


def handler(store: Store):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args) -> None:
            pass

        def hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def answer(self, status: int, headers: list[tuple[str, str]], body: bytes, sent: int) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            length = dict((n.lower(), v) for n, v in headers).get("content-length", len(body))
            self.send_header("Content-Length", str(length if self.command == "HEAD" else len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[:sent])

        def serve(self) -> None:
            body = self.body()
            fault = store.asked(kind_of(self.command, self.path))
            if fault == "unavailable":
                return self.answer(503, [], UNAVAILABLE, len(UNAVAILABLE))
            if fault == "refused":
                return self.hang_up()
            if fault == "slow":
                time.sleep(0.3)
            connection = http.client.HTTPConnection(store.host, store.port, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("transfer-encoding", "content-length", "connection", "expect"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            whole = answer.read()
            connection.close()
            if fault == "lost":
                return self.hang_up()
            self.answer(answer.status, answer.getheaders(), whole, len(whole) // 2 if fault == "short" else len(whole))
            if fault == "short":
                self.hang_up()

        def body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def guarded(self) -> None:
            try:
                self.serve()
            except OSError:
                # Who asked has been killed.
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = guarded

    return Handler
