"""The probe of a catalog on real servers: one that keeps commits passes, and one that loses some does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from tests.servers import binaries, launch
from tests.servers.launch import BUCKET, Server
from tests.servers.rest_catalog import rest_catalog
from tests.tiers import only_in_soak
from tests.unit.timeline.world import SCHEMA
from timeline.catalogs.opening import connect_catalog, create_in_catalog
from timeline.catalogs.probing.probe import Capabilities, probe_catalog
from timeline.changes.changes import SetProperties
from timeline.clock import SYSTEM
from timeline.errors import UnsafeCatalogError
from timeline.stores import open_store

pytestmark = [pytest.mark.servers, pytest.mark.slow]


def test_icebergs_own_rest_server_passes_and_nothing_of_the_probe_stays(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with binaries.or_skip():
            server = stack.enter_context(rest_catalog(tmp_path))
        catalog: Any = connect_catalog(server.properties)
        catalog.create_namespace("db")
        environment = replace(SYSTEM, now_ms=catalog.server_clock.now_ms)
        found = probe_catalog(
            lambda: connect_catalog(server.properties), ("db", "t"), open_store, environment
        )
        assert found == Capabilities(raced=True, keeps_both=True, removes_snapshots=True, keeps_tags=True)
        assert catalog.list_tables("db") == []
        assert [it for it in server.warehouse.rglob("*") if it.is_file()] == []


@pytest.fixture
def nessie(start_server: Callable[[str], Server], tmp_path: Path) -> Iterator[tuple[str, Server]]:
    """Nessie 0.99, whose catalog keeps its tables in an S3 server: 245 MB, and 20 s until it is there."""
    s3, port, management = start_server("ministack"), launch.free_port(), launch.free_port()
    with ExitStack() as stack:
        with binaries.or_skip():
            command = [binaries.java21(), "-Xmx700m"]
            jar = binaries.nessie()
        given = "nessie.catalog.service.s3.default-options"
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": management,
            "quarkus.otel.sdk.disabled": "true",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "wh",
            "nessie.catalog.warehouses.wh.location": f"s3://{BUCKET}/wh",
            f"{given}.endpoint": s3.endpoint,
            f"{given}.path-style-access": "true",
            f"{given}.region": "us-east-1",
            f"{given}.access-key": "urn:nessie-secret:quarkus:s3key",
            "s3key.name": "test",
            "s3key.secret": "test",
        }
        command += [f"-D{name}={value}" for name, value in settings.items()]
        uri = f"http://127.0.0.1:{port}/iceberg"
        stack.enter_context(launch.running([*command, "-jar", str(jar)], tmp_path, {}, f"{uri}/v1/config"))
        yield uri, s3


@only_in_soak
def test_a_server_that_loses_commits_to_empty_tables_is_refused(nessie: tuple[str, Server]) -> None:
    """Nessie 0.99 acknowledges two of eight commits that race on an empty table, and has one."""
    uri, s3 = nessie

    def connect() -> Any:
        return connect_catalog({"type": "rest", "uri": uri})

    table = create_in_catalog(
        connect(),
        ("db", "t"),
        lambda location: open_store(location, s3.options),
        SCHEMA,
        UNPARTITIONED_PARTITION_SPEC,
        {},
        create_namespace=True,
        connect=connect,
    )
    with pytest.raises(UnsafeCatalogError, match=r"would be lost|drops the snapshots"):
        table.commit([SetProperties({"a": "b"})])
    assert table.refresh().number == 0
    assert connect().list_tables("db") == [("db", "t")]
