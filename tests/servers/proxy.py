"""An HTTP proxy that stands before an object store: it delays, counts, and spoils requests on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from urllib.parse import parse_qs, unquote, urlsplit


class Fault(Enum):
    """What can happen to one request."""

    RESET_BEFORE = auto()
    """The connection is reset, and the server never saw the request."""
    RESET_AFTER = auto()
    """The server has carried out the request; the connection is reset before its answer."""
    SILENT_BEFORE = auto()
    """Nobody answers, until the client gives up. The server never saw the request."""
    SILENT_AFTER = auto()
    """The server has carried out the request; nobody answers, until the client gives up."""
    ERROR_BEFORE = auto()
    """503, and the server never saw the request."""
    ERROR_AFTER = auto()
    """The server has carried out the request, and the answer is 500."""


_SENT_ON = (Fault.RESET_AFTER, Fault.SILENT_AFTER, Fault.ERROR_AFTER)


@dataclass(frozen=True)
class Request:
    """A request as the client sent it."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        """LIST, GET, HEAD, PUT, POST or DELETE; what S3 charges for a listing is not a GET."""
        return "LIST" if self.method == "GET" and ("list-type" in self.query) else self.method

    @property
    def is_create(self) -> bool:
        """Whether the request stores an object only where there is none."""
        return any(name in self.headers for name in ("if-none-match", "x-goog-if-generation-match"))


Choice = Callable[[Request], "Fault | None"]


@dataclass
class Proxy:
    """A proxy that runs in a thread of its own; `latency` and `fault` may be changed at any time."""

    upstream: str
    latency: float = 0.0
    """Seconds from a request's arrival to the first byte of its answer, at least."""
    fault: Choice | None = None
    requests: list[Request] = field(default_factory=list)
    endpoint: str = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.new_event_loop)
    _open: list[asyncio.StreamWriter] = field(init=False, default_factory=list)
    """The connections of clients and to the server, all that there were."""

    def count(self) -> Counter[str]:
        """Return how many requests of each kind came since the last count."""
        taken, self.requests = self.requests, []
        return Counter(request.kind for request in taken)

    @contextlib.contextmanager
    def running(self) -> Iterator[Proxy]:
        """Serve until the block is left."""
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._stop(server), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    async def _stop(self, server: asyncio.AbstractServer) -> None:
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for each in self._open:  # also of a task that was cancelled before it began, or while it closed
            each.transport.abort()
        for _ in range(3):  # a transport is closed in the loop's next round
            await asyncio.sleep(0)

    def _accept(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        self._open.append(answer)
        task = self._loop.create_task(self._serve(client, answer))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # a server that is away

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to the server."""
        host, _, port = urlsplit(self.upstream).netloc.partition(":")
        server, forward = await asyncio.open_connection(host, int(port))
        self._open.append(forward)
        return server, forward

    async def _serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        """Carry one client's connection, by a connection of its own to the server."""
        server, forward = await self._connect()
        try:
            while await self._exchange(client, answer, server, forward):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # either side has gone, or the proxy stops: so does the other
        finally:
            answer.close()
            forward.close()

    async def _exchange(
        self,
        client: asyncio.StreamReader,
        answer: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        forward: asyncio.StreamWriter,
    ) -> bool:
        """Carry one request and its answer; return whether the connection can carry another."""
        head = await _read_head(client)
        if not head:
            return False
        loop = asyncio.get_running_loop()
        due = loop.time() + self.latency
        request = _parse(head)
        body = await _read_body(client, request.headers)
        self.requests.append(request)
        fault = None if self.fault is None else self.fault(request)
        reply = b""
        if fault is None or fault in _SENT_ON:
            forward.write(head + body)
            reply = await _read_reply(server, request.method)
        await asyncio.sleep(due - loop.time())
        if fault in (Fault.RESET_BEFORE, Fault.RESET_AFTER):
            reset(answer)
            return False
        if fault in (Fault.SILENT_BEFORE, Fault.SILENT_AFTER):
            await client.read(1)
            return False
        if fault is not None:
            status = "503 Slow Down" if fault is Fault.ERROR_BEFORE else "500 Internal Server Error"
            reply = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()
        answer.write(reply)
        await answer.drain()
        return b"\r\nconnection: close\r\n" not in reply[: reply.find(b"\r\n\r\n") + 2].lower()


def reset(answer: asyncio.StreamWriter) -> None:
    """Close with RST, not FIN, as a broken network or a killed server does."""
    connection = answer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    answer.transport.abort()


async def _read_head(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise
        return b""


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in lines}


def _parse(head: bytes) -> Request:
    method, target, _ = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    return Request(method, unquote(url.path), query, _headers(head))


async def _read_body(stream: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await stream.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while True:
        line = await stream.readuntil(b"\r\n")
        body += line + await stream.readexactly(int(line, 16) + 2)
        if int(line, 16) == 0:
            return body


async def _read_reply(stream: asyncio.StreamReader, method: str) -> bytes:
    head = await _read_head(stream)
    if not head:
        raise ConnectionError("the server closed the connection")
    status = int(head.split(b" ", 2)[1])
    if status == 100:
        return await _read_reply(stream, method)
    if method == "HEAD" or status in (204, 304):
        return head
    return head + await _read_body(stream, _headers(head))
