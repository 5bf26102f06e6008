"""Servers, started when a test first asks for one and stopped at the end, and the proxy before them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers import binaries, launch
from tests.servers.launch import Server
from tests.servers.proxy import Proxy
from tests.servers.rest_catalog import RestCatalog, rest_catalog
from tests.servers.sql import Sql
from tests.tiers import IN_SOAK, only_in_soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.catalog_case import Case

SAFE = [*launch.QUICK, *(pytest.param(name, marks=only_in_soak) for name in launch.SLOW)]
"""Every run uses the quick ones; the others take minutes to build."""

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


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RestCatalog, Sql]]:
    """A REST catalog, and Spark SQL on it."""
    folder = tmp_path_factory.mktemp("lake")
    with contextlib.ExitStack() as stack:
        with binaries.or_skip():
            catalog = stack.enter_context(rest_catalog(folder))
        sql = Sql(catalog.uri, stack.enter_context((folder / "errors").open("w")))
        stack.callback(sql.kill)
        sql.says("STARTED")
        sql.run("CREATE NAMESPACE lake.db")
        yield catalog, sql


@pytest.fixture(autouse=True)
def no_cache(request: pytest.FixtureRequest) -> Iterator[None]:
    """What was refused or changed under a commit is settled as soon as the catalog shows it. A sink goes on
    looking for as long as a cache might show the past, seven seconds in a test, and this catalog has none;
    the soak looks as long.
    """
    with pytest.MonkeyPatch.context() as patched:
        if "running" in request.fixturenames and not IN_SOAK:
            from timeline.catalogs.catalog_log import CatalogLog  # as above

            patched.setattr(CatalogLog, "stale_seconds", 0.2)
        yield


@pytest.fixture
def case(running: tuple[RestCatalog, Sql], spark: SparkSession) -> Case:
    """A table of its own, which a sink writes to and Spark changes."""
    from tests.servers.catalog_case import Case  # other servers' tests must not pay for this import

    return Case(*running, spark)


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging does not wait where Spark has rewritten files."""
    monkeypatch.setattr("streaming_sink.table.foreign_rewrites.partitions_that_wait", lambda *_: frozenset())
