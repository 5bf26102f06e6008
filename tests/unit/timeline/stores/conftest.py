"""Every kind of store, each at a fresh location, for the suites of this folder."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore as ObstoreMemory
from obstore.store import S3Store

from timeline.stores import LocalStore, MemoryStore, Store
from timeline.stores._object_client import Place
from timeline.stores.object import ObjectStore

_BUCKET = "test-bucket"
_names = itertools.count(1)
_obstore_memories: dict[str, ObstoreMemory] = {}


def memory_client(place: Place, options: Mapping[str, Any], commit: bool) -> ObstoreMemory:
    """Stands in for a cloud: copies of a store that were pickled find the same objects."""
    return _obstore_memories.setdefault(f"{place.bucket}/{place.prefix}", ObstoreMemory())


@pytest.fixture(scope="session")
def s3_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A real S3 server with one bucket; yields the storage options that reach it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "LOG_LEVEL": "ERROR"}
    folder = tmp_path_factory.mktemp("ministack")
    options = {
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
        "endpoint": f"http://127.0.0.1:{port}",
        "allow_http": True,
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(Path(sys.executable).with_name("ministack"))],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_ready(server, options["endpoint"])
            client = S3Store(
                _BUCKET,
                config={name: value for name, value in options.items() if name != "allow_http"},
                client_options={"allow_http": True},
            )
            url = obstore.sign(client, "PUT", "", timedelta(seconds=60))
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT", data=b"")) as reply:
                assert reply.status == 200
            yield options
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], endpoint: str) -> None:
    for _ in range(300):
        assert server.poll() is None, "the server stopped"
        try:
            with urllib.request.urlopen(f"{endpoint}/_ministack/health"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError("the server did not start")


KINDS = [
    "local",
    "memory",
    "obstore-memory",
    pytest.param("s3", marks=pytest.mark.servers),
]


@pytest.fixture
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Store]:
    """Make a store of a kind, at a location that nobody used before."""

    def make(kind: str) -> Store:
        number = next(_names)
        if kind == "local":
            return LocalStore(tmp_path / f"lake {number}" / "table")
        if kind == "memory":
            return MemoryStore(f"lake {number}/table")
        if kind == "obstore-memory":
            return ObjectStore(f"s3://bucket/lake {number}/table", None, memory_client)
        return ObjectStore(f"s3://{_BUCKET}/lake {number}/table", request.getfixturevalue("s3_options"))

    return make


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, make_store: Callable[[str], Store]) -> Store:
    return make_store(request.param)
