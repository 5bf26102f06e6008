"""A table whose files are in an S3 server that only the catalog's own settings say how to reach."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from streaming_sink import CatalogTable, FileSizing, IcebergSink, history
from streaming_sink.errors import StoreUnavailableError
from tests.servers.launch import BUCKET, Server

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

_names = itertools.count()


def properties_of(server: Server, folder: Path, **others: str) -> dict[str, str]:
    """Return a catalog's properties, as pyiceberg takes them, of a warehouse in the server."""
    return {
        "type": "sql",
        "name": "lake",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"s3://{BUCKET}/warehouse {next(_names)}",
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.options["access_key_id"],
        "s3.secret-access-key": server.options["secret_access_key"],
        "s3.region": "us-east-1",
        **others,
    }


def test_driver_and_tasks_take_them_from_the_catalog(s3: Server, tmp_path: Path, spark: SparkSession) -> None:
    given = properties_of(s3, tmp_path)
    table = CatalogTable("db.events", given, create_namespace=True)
    sizing = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB")
    sink = IcebergSink(table, app_id="app", sizing=sizing)
    for number in range(3):
        sink(spark.range(number * 10, number * 10 + 10).selectExpr("id", "'ours' by"), number)
    sink.finish()
    with SqlCatalog(**given) as catalog:  # type: ignore[arg-type]
        loaded: Any = catalog.load_table("db.events")
        assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == list(range(30))
        assert loaded.location().startswith("s3://")
        catalog.engine.dispose()
    assert [report.batch_id for report in history(table) if report.batch_id is not None] == [0, 1, 2]


def test_options_that_are_given_take_the_place_of_all_that_the_catalog_states(
    s3: Server, tmp_path: Path, spark: SparkSession
) -> None:
    wrong = properties_of(s3, tmp_path, **{"s3.endpoint": "http://127.0.0.1:9"})
    batch = spark.range(10).selectExpr("id", "'ours' by")
    with pytest.raises(StoreUnavailableError):
        IcebergSink(CatalogTable("db.a", wrong, create_namespace=True), app_id="app")(batch, 0)
    table = CatalogTable("db.b", wrong, create_namespace=True, storage_options=s3.options)
    assert IcebergSink(table, app_id="app")(batch, 0).outcome == "committed"
