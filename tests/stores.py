"""Object stores on this machine, and proxies in front of them that fail as they are told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import itertools
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback
import xml.etree.ElementTree as Xml
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import boto3
from moto.server import ThreadedMotoServer

#: What a request is about, by its method and its query.
KINDS = {
    "POST uploads": "create", "POST uploadId": "complete", "DELETE uploadId": "abort", "POST delete": "delete",
    "GET uploads": "uploads", "GET uploadId": "parts",
}  # fmt: skip
UNAVAILABLE = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
Headers = list[tuple[str, str]]
#: A fault, or what is to be done with an answer: with the handler, the status, the headers and the body.
Rule = Callable[[int, str], "str | Callable | None"]


def tree(at: Path, large: int = 20 * MIB + 1) -> dict[str, bytes]:
    rng = random.Random(large)
    files = {f"d{i % 3}/f {i}+%é": rng.randbytes(size) for i, size in enumerate([0, 1, 100, 70_000, 3 * MIB])}
    files["large"] = rng.randbytes(large)
    write(at, files)
    return files


def write(at: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def named(at: Path) -> dict[str, bytes]:
    return {str(path.relative_to(at)): path.read_bytes() for path in at.rglob("*") if path.is_file()}


class Counting(ThreadingHTTPServer):
    """Tells a proxy of its connections, from when they are taken until all is done."""

    daemon_threads = True
    front: Front

    def process_request(self, request, client_address) -> None:
        self.front.connected(1)
        self.front.ports.add(client_address[1])
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:
        super().shutdown_request(request)
        self.front.connected(-1)


class Front:
    """A proxy before a server at `host` and `port`; `rule` is asked about each request."""

    host: str
    port: int

    def __init__(self):
        self.lock = threading.Lock()
        #: Connections that are open, and the ports of all that were taken.
        self.connections, self.ports = 0, set()
        self.forget()
        self.proxy = Counting(("127.0.0.1", 0), handler(self))
        self.proxy.front = self
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.proxy.server_address[1]}"

    def forget(self) -> None:
        self.rule: Rule = lambda number, kind: None
        self.seen: list[str] = []
        #: What each request had as headers.
        self.heads: list[dict[str, str]] = []
        self.numbers = itertools.count()

    def asked(self, kind: str, headers: dict[str, str]):
        with self.lock:
            self.seen.append(kind)
            self.heads.append(headers)
            number = next(self.numbers)
        return self.rule(number, kind)

    def connected(self, more: int) -> None:
        with self.lock:
            self.connections += more

    def settle(self) -> None:
        """Waits until all is done that was asked by those who have ended, also by one that was killed and hears no answer."""
        until = time.monotonic() + 60
        # Those that have come before this one are counted when this one is.
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.ports.discard(one.getsockname()[1])
            one.connect(self.proxy.server_address)
            while one.getsockname()[1] not in self.ports:
                assert time.monotonic() < until, "nobody takes connections"
                time.sleep(0.005)
        while self.connections:
            assert time.monotonic() < until, f"{self.connections} connections are open\n{self.doing()}"
            time.sleep(0.005)

    def doing(self) -> str:
        """What each thread is at."""
        threads = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = sys._current_frames().items()
        return "\n".join(f"{threads.get(of)}:\n{''.join(traceback.format_stack(frame)[-6:])}" for of, frame in stacks)

    def kind_of(self, method: str, path: str) -> str:
        """What is asked for: `create`, `part`, `complete`, `abort`, `delete`, `list`, or the method."""
        query = parse_qs(urlsplit(path).query, keep_blank_values=True)
        if "partNumber" in query:
            return "part"
        if "list-type" in query:
            return "list"
        return next((KINDS[f"{method} {key}"] for key in query if f"{method} {key}" in KINDS), method.lower())

    def there(self, method: str, path: str, headers: Headers) -> tuple[str, Headers]:
        """A request as the server is to get it."""
        return path, headers

    def back(self, method: str, status: int, headers: Headers) -> tuple[int, Headers]:
        """An answer as whoever asked is to get it."""
        return status, headers

    def end(self) -> None:
        self.proxy.shutdown()
        self.proxy.server_close()


class Store(Front):
    """Buckets of S3."""

    url = "s3://"

    def __init__(self):
        super().__init__()
        self.server = ThreadedMotoServer("127.0.0.1", 0)
        self.server.start()
        self.host, self.port = self.server.get_host_and_port()
        self.env = {
            "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "kept-to-itself", "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": f"http://{self.address}",
        }  # fmt: skip
        self.s3 = boto3.client(
            "s3", endpoint_url=f"http://{self.host}:{self.port}", region_name="us-east-1", aws_access_key_id="testing",
            aws_secret_access_key="kept-to-itself",
        )  # fmt: skip

    def anew(self, bucket: str) -> None:
        """As new, with this bucket."""
        connection = http.client.HTTPConnection(self.host, self.port)
        connection.request("POST", "/moto-api/reset")
        connection.getresponse().read()
        self.forget()
        self.s3.create_bucket(Bucket=bucket)

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self.s3.put_object(Bucket=bucket, Key=key, Body=data)

    def objects(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
        return {key[len(prefix):]: self.s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def uploads(self, bucket: str) -> list[str]:
        return [one["Key"] for one in self.s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    def end(self) -> None:
        super().end()
        self.server.stop()


class Google(Store):
    """What a server of S3 becomes one of Google's by: the names that its XML interface has for the same things.

    No server that speaks this interface whole is to be had; what is asked is what Google describes, and so is what is answered.
    """

    url = "gs://"

    def __init__(self):
        super().__init__()
        key = '{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true, "gcs_base_url": "http://%s"}'
        self.env = {"GOOGLE_SERVICE_ACCOUNT_KEY": key % self.address, "GOOGLE_ALLOW_HTTP": "true"}

    def there(self, method: str, path: str, headers: Headers) -> tuple[str, Headers]:
        before, _, query = path.partition("?")
        # Keys come as one step.
        path = quote(unquote(before), safe="/") + (f"?{query}" if query else "")
        renamed = []
        for name, value in headers:
            name = name.lower()
            if name == "x-goog-if-generation-match":
                assert value == "0"
                name, value = "if-none-match", "*"
            elif name == "x-goog-copy-source":
                value = quote(unquote(value), safe="/")
            if name == "authorization":
                assert value.startswith("Bearer")
                continue
            renamed.append((name.replace("x-goog-", "x-amz-"), value))
        renamed.append(("authorization", "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"))
        if method == "DELETE" and "uploadId" not in query:
            # What is not there cannot be removed, with Google.
            bucket, _, key = unquote(before)[1:].partition("/")
            if "Contents" not in self.s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1):
                path += "-is-not-there?uploadId=none"
        return path, renamed

    def back(self, method: str, status: int, headers: Headers) -> tuple[int, Headers]:
        return status, [(n.lower().replace("x-amz-", "x-goog-"), v) for n, v in headers] + [("x-goog-generation", "1")]


class Azure(Front):
    """Containers of Azurite."""

    url = "az://"
    account = "devstoreaccount1"
    # It is in the documents of everybody.
    key = base64.b64decode("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==")

    @staticmethod
    def program() -> Path | None:
        """Azurite, if it is there."""
        main = ROOT / ".build/azurite/node_modules/azurite/dist/src/blob/main.js"
        return main if main.exists() and shutil.which("node") else None

    def __init__(self, folder: Path):
        super().__init__()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host, self.port = free.getsockname()
        words = ["--blobPort", self.port, "--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        self.server = subprocess.Popen(
            ["node", self.program(), *map(str, words)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.env = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": f"http://{self.address}"}
        deadline = time.monotonic() + 60
        while True:
            assert self.server.poll() is None and time.monotonic() < deadline, "Azurite does not begin"
            try:
                return socket.create_connection((self.host, self.port), 1).close()
            except OSError:
                time.sleep(0.1)

    def kind_of(self, method: str, path: str) -> str:
        query = parse_qs(urlsplit(path).query)
        kinds = {"block": "part", "blocklist": "complete", "list": "list", "batch": "delete"}
        return kinds.get(query.get("comp", [""])[0], method.lower())

    def ask(self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", **more: str) -> bytes:
        """A request, signed by the key."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        resource = f"/{self.account}/{self.account}/{quote(path)}"
        resource += "".join(f"\n{name}:{value}" for name, value in sorted((query or {}).items()))
        ours = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        text = "\n".join([method, "", "", str(len(body) or ""), *[""] * 8, ours + resource])
        sign = base64.b64encode(hmac.digest(self.key, text.encode(), hashlib.sha256)).decode()
        headers |= {"Authorization": f"SharedKey {self.account}:{sign}", "Content-Length": str(len(body))}
        words = "&".join(f"{name}={quote(value, safe='')}" for name, value in (query or {}).items())
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request(method, f"/{self.account}/{quote(path)}?{words}", body, headers)
        answer = connection.getresponse()
        whole = answer.read()
        assert answer.status < 300, whole
        return whole

    def anew(self, bucket: str) -> None:
        for name in Xml.fromstring(self.ask("GET", "", {"comp": "list"})).iter("Name"):
            self.ask("DELETE", name.text, {"restype": "container"})
        self.forget()
        self.ask("PUT", bucket, {"restype": "container"})

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self.ask("PUT", f"{bucket}/{key}", body=data, x_ms_blob_type="BlockBlob")

    def objects(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        listed = self.ask("GET", bucket, {"comp": "list", "prefix": prefix, "restype": "container"})
        names = [name.text for blob in Xml.fromstring(listed).iter("Blob") for name in blob.iter("Name")]
        return {name[len(prefix):]: self.ask("GET", f"{bucket}/{name}") for name in names}

    def uploads(self, bucket: str) -> list[str]:
        """Blobs of which there are blocks alone: nobody can give these up, and they go after a week."""
        query = {"comp": "list", "include": "uncommittedblobs", "restype": "container"}
        blobs = Xml.fromstring(self.ask("GET", bucket, query)).iter("Blob")
        there = self.objects(bucket)
        return [name.text for blob in blobs for name in blob.iter("Name") if name.text not in there]

    def end(self) -> None:
        super().end()
        self.server.kill()
        self.server.wait(60)


def handler(front: Front):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # As servers do: who asks for nothing, or takes no answer, is not waited for.
        timeout = 20

        def log_message(self, *args) -> None:
            pass

        def hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def answer(self, status: int, headers: Headers, body: bytes, sent: int) -> None:
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
            kind = front.kind_of(self.command, self.path)
            fault = front.asked(kind, {name.lower(): value for name, value in self.headers.items()})
            if fault == "unavailable":
                return self.answer(503, [], UNAVAILABLE, len(UNAVAILABLE))
            if fault == "refused":
                return self.hang_up()
            if fault == "slow":
                time.sleep(0.3)
            connection = http.client.HTTPConnection(front.host, front.port, timeout=30)
            path, headers = front.there(self.command, self.path, self.headers.items())
            connection.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "content-length", "connection", "expect"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            whole = answer.read()
            connection.close()
            if fault == "lost":
                return self.hang_up()
            status, headers = front.back(self.command, answer.status, answer.getheaders())
            if callable(fault):
                return fault(self, status, headers, whole)
            self.answer(status, headers, whole, len(whole) // 2 if fault == "short" else len(whole))
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


class Authority:
    """One of the tests' own, which says who a server is."""

    def __init__(self, folder: Path, name: str):
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.certificate(self.subject, self.key, None))

    def certificate(self, subject, key, names) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        now = datetime.now(timezone.utc)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.subject).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
        if names is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def server(self, *names: str) -> Path:
        """A file with a key, and a certificate for these names."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.folder / f"server of {'+'.join(names)}.pem"
        path.write_bytes(text + self.certificate(subject, key, names))
        return path


class Tls:
    """TLS before a proxy, at a port of its own."""

    def __init__(self, front: Front, certificate: Path):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.front, self.tries, self.whole = front, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.tries += 1
            self.front.connected(1)
            threading.Thread(target=self.guarded, args=[connection], daemon=True).start()

    def guarded(self, connection: socket.socket) -> None:
        try:
            self.serve(connection)
        finally:
            self.front.connected(-1)

    def serve(self, connection: socket.socket) -> None:
        try:
            inner = self.context.wrap_socket(connection, server_side=True)
        except OSError:
            return connection.close()
        self.whole += 1
        outer = socket.create_connection(self.front.proxy.server_address)
        threading.Thread(target=pump, args=[outer, inner], daemon=True).start()
        pump(inner, outer)

    def end(self) -> None:
        os.close(self.listener.detach())


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while some := source.recv(1 << 16):
            target.sendall(some)
    except OSError:
        pass
    finally:
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
