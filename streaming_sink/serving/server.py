"""Serves the catalog of buffer zones from this process, until it is stopped."""

from __future__ import annotations

from streaming_sink.ingest.zone import BufferZone

HOST, PORT = "127.0.0.1", 8765


def serve(*zones: BufferZone | str, host: str = HOST, port: int = PORT, token: str | None = None) -> None:
    """Serve the catalog of some buffer zones: a page, and a read-only JSON API, which /docs describes.
    Returns when the process is asked to end.

    On any other host than loopback a token is needed: ValueError without one. Requests are not logged, so
    that a log has neither a token nor names of files. ImportError where the packages of the extra `http` are
    missing.
    """
    try:
        import uvicorn

        from streaming_sink.serving.app import create_app
    except ImportError as missing:
        raise ImportError(f"pip install 'streaming-sink[http]' to serve a catalog: {missing}") from missing
    app = create_app(*zones, host=host, token=token)
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False, server_header=False)
