"""Buckets of S3 and of Google in this process, whose requests can be spoiled one by one, and are counted."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree


class Spoiled(Enum):
    """What can happen to one request."""

    LOST = auto()
    """It never arrives, and the connection ends."""
    UNANSWERED = auto()
    """It is carried out, and the connection ends before the answer."""
    LATE = auto()
    """The connection ends; it is carried out when `arrive` is called."""
    TWICE = auto()
    """It is carried out and answered, and once more when `arrive` is called."""
    BUSY = auto()
    """503, and nothing is carried out."""
    REFUSED = auto()
    """403, and nothing is carried out."""
    ERROR_IN_200 = auto()
    """Nothing is carried out, and the answer is 200 with an error for its body, which a HEAD has not."""


@dataclass(frozen=True)
class Stored:
    """One object."""

    data: bytes
    tag: str
    second: int
    """When it was stored, or its upload began."""
    encoding: str = ""


@dataclass(frozen=True)
class Reply:
    """An answer to a request."""

    status: int
    body: bytes = b""
    stored: Stored | None = None
    """Whose headers it has."""


_Send = tuple[str, str, dict[str, str], dict[str, str], bytes]


@dataclass
class Buckets:
    """Objects by "bucket/key", and the requests that came for them."""

    objects: dict[str, Stored] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    """The requests' bodies."""
    spoiled: Callable[[int, str], Spoiled | None] = lambda _number, _request: None
    """Asked before each request, by its number from 0 on; it may change what is stored."""
    second: int = 1_700_000_000
    """Now. It passes when a test says so."""
    endpoint: str = ""
    _uploads: dict[str, tuple[str, int, dict[int, bytes]]] = field(default_factory=dict)
    _pending: list[_Send] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def options(self) -> dict[str, Any]:
        """Storage options of S3 that lead here."""
        keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
        return {**keys, "endpoint": self.endpoint, "allow_http": True}

    @property
    def google(self) -> dict[str, Any]:
        """Storage options of Google that lead here."""
        return {"base_url": self.endpoint, "bearer_token": "x", "allow_http": True}

    def put(self, name: str, data: bytes, encoding: str = "") -> None:
        self.objects[name] = Stored(data, _hash(data), self.second, encoding)

    def arrive(self) -> None:
        """Carry out what was late, or comes twice."""
        pending, self._pending = self._pending, []
        for request in pending:
            self._apply(*request)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Reply | None:
        """Return what a request is answered; None where the connection ends."""
        url = urlsplit(target)
        name, query = unquote(url.path.lstrip("/")), dict(parse_qsl(url.query, keep_blank_values=True))
        with self._lock:
            kind = "".join(f"?{each}" for each in ("uploads", "uploadId", "delete") if each in query)
            self.requests.append(f"{method} {name}{kind}")
            self.received += [body] if body else []
            fault = self.spoiled(len(self.requests) - 1, self.requests[-1])
            request = method, name, query, headers, body
            if fault in (Spoiled.LATE, Spoiled.TWICE):
                self._pending.append(request)
            if fault in (Spoiled.LOST, Spoiled.LATE):
                return None
            if fault in (Spoiled.BUSY, Spoiled.REFUSED):
                return Reply(503 if fault is Spoiled.BUSY else 403)
            if fault is Spoiled.ERROR_IN_200 and method != "HEAD":
                return Reply(200, b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>")
            reply = self._apply(*request)
            return None if fault is Spoiled.UNANSWERED else reply

    def _apply(
        self, method: str, name: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> Reply:
        found = self.objects.get(name)
        if method in ("HEAD", "GET"):
            if found is None:
                return Reply(404)
            first, _, last = headers.get("range", "").removeprefix("bytes=").partition("-")
            part = found.data[int(first or 0) : int(last) + 1 if last else None]
            return Reply(206 if "range" in headers else 200, part, found)
        if method == "DELETE":
            self._uploads.pop(query["uploadId"], None) if "uploadId" in query else self.objects.pop(
                name, None
            )
            return Reply(204)
        if method == "POST":
            return self._post(name, query, headers, body)
        source = headers.get("x-amz-copy-source", headers.get("x-goog-copy-source"))
        copied = None if source is None else self.objects.get(unquote(source).lstrip("/"))
        if source is not None and copied is None:
            return Reply(404)
        data = body if copied is None else copied.data
        result = f'<CopyResult><ETag>"{_hash(data)}"</ETag></CopyResult>'.encode()
        if "uploadId" in query:
            if query["uploadId"] not in self._uploads:
                return Reply(404)
            self._uploads[query["uploadId"]][2][int(query["partNumber"])] = data
            return Reply(200, b"" if copied is None else result, Stored(data, _hash(data), self.second))
        create = headers.get("if-none-match") == "*" or headers.get("x-goog-if-generation-match") == "0"
        if create and found is not None:
            return Reply(412)
        self.put(name, data, "" if copied is None else copied.encoding)
        return Reply(200, b"" if copied is None else result, self.objects[name])

    def _post(self, name: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Reply:
        if "uploads" in query:
            number = f"u{len(self.requests)}"
            self._uploads[number] = name, self.second, {}
            return Reply(200, f"<R><UploadId>{number}</UploadId></R>".encode())
        if "delete" in query:
            for key in ElementTree.fromstring(body).iter():
                if key.tag.endswith("Key"):
                    self.objects.pop(f"{name}/{key.text}", None)
            return Reply(200, b"<DeleteResult></DeleteResult>")
        if query["uploadId"] not in self._uploads:
            return Reply(404)
        _, began, parts = self._uploads[query["uploadId"]]
        given = [each.text or "" for each in ElementTree.fromstring(body).iter() if each.tag.endswith("ETag")]
        held = [parts[number] for number in sorted(parts)]
        if [tag.strip('"') for tag in given] != [_hash(data) for data in held]:
            return Reply(400, b"<Error><Code>InvalidPart</Code></Error>")
        if headers.get("if-none-match") == "*" and name in self.objects:
            return Reply(412)
        del self._uploads[query["uploadId"]]
        tag = f"{hashlib.md5(b''.join(bytes.fromhex(_hash(data)) for data in held)).hexdigest()}-{len(held)}"
        self.objects[name] = Stored(b"".join(held), tag, began)
        return Reply(200, f'<R><ETag>"{tag}"</ETag></R>'.encode())


@contextmanager
def buckets() -> Iterator[Buckets]:
    """Serve buckets until the block is left."""
    made = Buckets()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"buckets": made}))
    made.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    buckets: Buckets
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        self.close_connection = True
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            return
        self.close_connection = True  # the parser has taken it back
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        reply = self.buckets.answer(self.command, self.path, headers, body)
        if reply is None:
            return
        self.send_response(reply.status)
        if reply.stored is not None:
            self.send_header("ETag", f'"{reply.stored.tag}"')
            self.send_header("Last-Modified", formatdate(reply.stored.second, usegmt=True))
            if reply.stored.encoding:
                self.send_header("Content-Encoding", reply.stored.encoding)
            if reply.status == 206:
                size = len(reply.stored.data)
                first = self.headers["range"].removeprefix("bytes=").partition("-")[0]
                last = int(first) + len(reply.body) - 1
                self.send_header("Content-Range", f"bytes {quote(first)}-{last}/{size}")
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def log_message(self, *_: object) -> None:
        return


def _hash(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()
