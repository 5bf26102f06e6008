"""How each object-store server is started, on a free port of this machine, with one empty bucket."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from tests.servers import binaries
from timeline.stores.object import ObjectStore

BUCKET = "test-bucket"
_READY_SECONDS = 180
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, the same for everybody."""


@dataclass(frozen=True)
class Server:
    """A running server, and the storage options that reach it. A copy may reach it through a proxy."""

    name: str
    scheme: str
    endpoint: str
    options: dict[str, Any]

    def store(self, path: str) -> ObjectStore:
        return ObjectStore(f"{self.scheme}://{BUCKET}/{path}", self.options)

    def at(self, endpoint: str, **options: Any) -> Server:
        """The same server, reached at another endpoint."""
        moved = {
            name: value.replace(self.endpoint, endpoint) if isinstance(value, str) else value
            for name, value in self.options.items()
        }
        return replace(self, endpoint=endpoint, options={**moved, **options})


@contextlib.contextmanager
def ministack(folder: Path) -> Iterator[Server]:
    program = Path(sys.executable).with_name("ministack")
    server = _s3("ministack", key="test", secret="test")
    port = server.endpoint.rpartition(":")[2]
    environment = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": port, "LOG_LEVEL": "ERROR"}
    with running([str(program)], folder, environment, f"{server.endpoint}/_ministack/health"):
        _make_bucket(server)
        yield server


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[Server]:
    server = _s3("minio", key="minio-root", secret="minio-secret")
    command = [str(binaries.minio()), "server", "--quiet", "--address", server.endpoint.partition("//")[2]]
    command += ["--console-address", f"127.0.0.1:{free_port()}", str(folder / "drive")]
    environment = {"MINIO_ROOT_USER": "minio-root", "MINIO_ROOT_PASSWORD": "minio-secret"}
    environment |= {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
    with running(command, folder, environment, f"{server.endpoint}/minio/health/ready"):
        _make_bucket(server)
        yield server


@contextlib.contextmanager
def versitygw(folder: Path) -> Iterator[Server]:
    server = _s3("versitygw", key="root-key", secret="root-secret")
    (folder / "posix" / BUCKET).mkdir(parents=True)  # a bucket is a folder
    command = [str(binaries.versitygw()), "--port", server.endpoint.partition("//")[2], "--health", "/ready"]
    environment = {"ROOT_ACCESS_KEY": "root-key", "ROOT_SECRET_KEY": "root-secret"}
    with running([*command, "posix", str(folder / "posix")], folder, environment, f"{server.endpoint}/ready"):
        yield server


@contextlib.contextmanager
def s3mock(folder: Path) -> Iterator[Server]:
    """Right one after the other, wrong when raced: the server that must be refused."""
    server = _s3("s3mock", key="any", secret="any")
    port = server.endpoint.rpartition(":")[2]
    command = [binaries.java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", str(binaries.s3mock())]
    command += ["--server.port=0", f"--http.port={port}", "--server.address=127.0.0.1"]
    command += ["--vectors.http.port=0", "--vectors.https.port=0"]  # it would take fixed ones
    environment = {"COM_ADOBE_TESTING_S3MOCK_STORE_INITIAL_BUCKETS": BUCKET}
    with running(command, folder, environment, f"{server.endpoint}/favicon.ico"):
        yield server


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    options = {
        "account_name": _AZURE_ACCOUNT,
        "account_key": _AZURE_KEY,
        "endpoint": f"{endpoint}/{_AZURE_ACCOUNT}",
        "allow_http": True,
    }
    command = [str(binaries.azurite()), "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "blobs")]
    with running(command, folder, {}, endpoint):
        _make_container(endpoint)
        yield Server("azurite", "az", endpoint, options)


@contextlib.contextmanager
def fake_gcs(folder: Path) -> Iterator[Server]:
    endpoint = f"http://127.0.0.1:{free_port()}"
    command = [str(binaries.fake_gcs()), "-address", endpoint.partition("//")[2], "-bucket", BUCKET]
    # With a token given, obstore asks nobody for one.
    options = {"base_url": endpoint, "bearer_token": "x", "allow_http": True}
    with running(command, folder, {}, f"{endpoint}/_internal/healthcheck"):
        yield Server("fake-gcs", "gs", endpoint, options)


Launch = Callable[[Path], "contextlib.AbstractContextManager[Server]"]

QUICK: dict[str, Launch] = {"ministack": ministack, "azurite": azurite}
"""Servers that a fresh machine has within a minute."""
SLOW: dict[str, Launch] = {"fake-gcs": fake_gcs, "minio": minio, "versitygw": versitygw}
"""Servers that are built for some minutes the first time."""


def _s3(name: str, key: str, secret: str) -> Server:
    endpoint = f"http://127.0.0.1:{free_port()}"
    options = {
        "access_key_id": key,
        "secret_access_key": secret,
        "region": "us-east-1",
        "endpoint": endpoint,
        "allow_http": True,
    }
    return Server(name, "s3", endpoint, options)


def free_port() -> int:
    """Return a port of the loopback address that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextlib.contextmanager
def running(command: list[str], folder: Path, environment: dict[str, str], ready: str) -> Iterator[None]:
    """Run a server in the folder till the block is left; enter it once it answers at `ready`."""
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, env={**os.environ, **environment}, cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_ready(server, ready, folder / "log")
        yield
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up_at = time.monotonic() + _READY_SECONDS
    while time.monotonic() < give_up_at:
        assert server.poll() is None, f"the server stopped: {log.read_text()[-2000:]}"
        if _answers(url):
            return
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {log.read_text()[-2000:]}")


def _answers(url: str) -> bool:
    scheme, _, address = url.partition("://")
    try:
        if scheme == "tcp":  # it speaks no HTTP: that it listens is enough
            host, _, port = address.partition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
        else:
            urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError as answer:
        answer.close()
        return answer.code < 500
    except OSError:
        return False  # nobody listens yet
    return True


def _make_bucket(server: Server) -> None:
    options = {name: value for name, value in server.options.items() if name != "allow_http"}
    client = S3Store(BUCKET, config=options, client_options={"allow_http": True})
    _put(obstore.sign(client, "PUT", "", timedelta(seconds=60)), {})


def _make_container(endpoint: str) -> None:
    """Create the container by a request signed with the account's key; obstore has no call for it."""
    date, version = formatdate(usegmt=True), "2021-08-06"
    resource = f"/{_AZURE_ACCOUNT}/{BUCKET}"
    headers = f"x-ms-date:{date}\nx-ms-version:{version}"
    text = f"PUT{chr(10) * 12}{headers}\n/{_AZURE_ACCOUNT}{resource}\nrestype:container"
    digest = hmac.new(base64.b64decode(_AZURE_KEY), text.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    _put(
        f"{endpoint}{resource}?restype=container",
        {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {_AZURE_ACCOUNT}:{signature}",
        },
    )


def _put(url: str, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, method="PUT", data=b"", headers=headers)
    request.add_unredirected_header("Content-Type", "")
    with urllib.request.urlopen(request) as reply:
        assert reply.status in (200, 201)
