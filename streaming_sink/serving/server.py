"""Serves the catalog of buffer zones from this process, until it is stopped."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from streaming_sink.extras import MissingExtraError
from streaming_sink.ingest.zone import BufferZone

HOST, PORT = "127.0.0.1", 8765


def serve(
    *zones: BufferZone | str,
    host: str = HOST,
    port: int = PORT,
    token: str | None = None,
    on_listening: Callable[[], None] = lambda: None,
) -> None:
    """Serve the catalog of some buffer zones: a page, and a read-only JSON API, which /docs describes.
    Returns when the process is asked to end. `on_listening` is called once browsers can connect.

    On any other host than loopback a token is needed: ValueError without one, and where nothing can listen at
    the host and port, such as one that is in use. Requests are not logged, so that a log has neither a token
    nor names of files. MissingExtraError where the packages of the extra `http` are missing.
    """
    try:
        import uvicorn

        from streaming_sink.serving.app import create_app
    except ImportError as missing:
        raise MissingExtraError(
            f"pip install 'streaming-sink[http]' to serve a catalog: {missing}"
        ) from missing
    app = create_app(*zones, host=host, token=token)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    with _listening_at(host, port) as listening, suppress(KeyboardInterrupt):
        on_listening()
        uvicorn.Server(config).run(sockets=[listening])


def _listening_at(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as refused:
        # The resolver's errors have numbers below 0, which only their own text explains.
        number = refused.errno or 0
        why = os.strerror(number) if number > 0 else str(refused.strerror or refused)
        raise ValueError(
            f"nothing can listen there; choose another by port= or host=: {host} port {port}: {why.lower()}"
        ) from refused
