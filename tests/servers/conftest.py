"""Servers, started when a test first asks for one and stopped at the end, and the proxy before them."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.servers import binaries, launch
from tests.servers.launch import Server
from tests.servers.proxy import Proxy

SAFE = list(launch.QUICK)
"""The servers that every run uses; STREAMING_SINK_SERVERS=all adds those that take minutes to build."""
if os.environ.get("STREAMING_SINK_SERVERS") == "all":
    SAFE += launch.SLOW

_LAUNCHES = {**launch.QUICK, **launch.SLOW, "s3mock": launch.s3mock}
_names = itertools.count(1)

StartServer = Callable[[str], Server]


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Return the running server of a name; skips the test, or in CI fails it, where it cannot be had."""
    with contextlib.ExitStack() as running:
        started: dict[str, Server] = {}

        def start(name: str) -> Server:
            if name not in started:
                with binaries.or_skip():
                    started[name] = running.enter_context(_LAUNCHES[name](tmp_path_factory.mktemp(name)))
            return started[name]

        yield start


@pytest.fixture(params=SAFE)
def server(request: pytest.FixtureRequest, start_server: StartServer) -> Server:
    """Each server that keeps create-if-absent."""
    return start_server(request.param)


@pytest.fixture
def s3(start_server: StartServer) -> Server:
    """The S3 server that starts fastest."""
    return start_server("ministack")


@pytest.fixture
def proxy(s3: Server) -> Iterator[Proxy]:
    """A proxy before the S3 server; it spoils nothing until a test says what."""
    with Proxy(s3.endpoint).running() as running:
        yield running


@pytest.fixture
def folder() -> str:
    """A path in the bucket that nobody used before."""
    return f"lake {next(_names)}/table"
