"""A table in Glue's catalog: a sink on a server that checks versions; one that does not is refused (R33)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming_sink import CatalogTable, FileSizing, IcebergSink, history
from tests.servers.launch import BUCKET, Server
from timeline.catalogs import probed_log
from timeline.catalogs.opening import connect_catalog
from timeline.catalogs.probing.probe import Capabilities, probe_catalog
from timeline.clock import SYSTEM
from timeline.errors import UnsafeCatalogError
from timeline.stores import open_store

pytestmark = [pytest.mark.servers, pytest.mark.slow]

_names = itertools.count()
Open = Callable[[str], Any]


@pytest.fixture
def properties(s3: Server) -> dict[str, str]:
    """Those of a catalog whose tables are in the same server's S3."""
    pytest.importorskip("boto3", reason="pip install boto3")
    return {
        "type": "glue",
        "warehouse": f"s3://{BUCKET}/glue {next(_names)}",
        "glue.endpoint": s3.endpoint,
        "client.region": "us-east-1",
        "client.access-key-id": s3.options["access_key_id"],
        "client.secret-access-key": s3.options["secret_access_key"],
        "s3.endpoint": s3.endpoint,
    }


@pytest.fixture
def open_there(s3: Server) -> Open:
    probed_log._shown.clear()
    return lambda location: open_store(location, s3.options)


def test_a_server_that_checks_versions_passes(properties: dict[str, str], open_there: Open) -> None:
    def connect() -> Any:
        return connect_catalog(properties, open_store=open_there)

    catalog, database = connect(), f"db{next(_names)}"
    catalog.create_namespace(database)
    found = probe_catalog(connect, (database, "t"), open_there, SYSTEM)
    assert found == Capabilities(raced=True, keeps_both=True, removes_snapshots=True, keeps_tags=True)
    assert catalog.list_tables(database) == []


def test_a_server_that_ignores_versions_is_refused(
    properties: dict[str, str], open_there: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As moto 5.2 does, which lost 123 of 225 acknowledged commits of four processes."""
    from timeline.catalogs.clients.glue import GlueMetastore

    def update_blindly(
        self: Any, database_name: str, table_name: str, table_input: Any, version_id: str
    ) -> None:
        current = self.glue.get_table(DatabaseName=database_name, Name=table_name)["Table"]["VersionId"]
        assert version_id
        self.glue.update_table(DatabaseName=database_name, TableInput=table_input, VersionId=current)

    monkeypatch.setattr(GlueMetastore, "_update_glue_table", update_blindly)

    def connect() -> Any:
        return connect_catalog(properties, open_store=open_there)

    catalog = connect()
    catalog.create_namespace("blind")
    with pytest.raises(UnsafeCatalogError, match="would be lost"):
        probe_catalog(connect, ("blind", "t"), open_there, SYSTEM)
    assert catalog.list_tables("blind") == []


@pytest.mark.spark
def test_a_stream_beside_pyiceberg_keeps_the_rows_of_both(
    properties: dict[str, str], open_there: Open, spark: SparkSession
) -> None:
    assert open_there is not None
    table = CatalogTable(f"db{next(_names)}.events", properties, create_namespace=True)
    assert table.location == f"glue:{'.'.join(table.table)}"
    sizing = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB")
    sink = IcebergSink(table, app_id="app", sizing=sizing)

    def land(number: int) -> Any:
        return sink(spark.range(number * 10, number * 10 + 10).selectExpr("id", "'ours' by"), number)

    for number in range(3):
        assert land(number).outcome == "committed"
    from pyiceberg.catalog.glue import GlueCatalog

    theirs = GlueCatalog("theirs", **properties).load_table(tuple(table.table))
    theirs.append(pa.table({"id": [1000], "by": ["theirs"]}))
    theirs.delete("id < 5")
    for number in range(3, 5):
        assert land(number).outcome == "committed"
    sink.finish()
    assert sorted(theirs.refresh().scan().to_arrow()["id"].to_pylist()) == [*range(5, 50), 1000]
    assert {it.batch_id for it in history(table) if it.batch_id is not None} == set(range(5))
