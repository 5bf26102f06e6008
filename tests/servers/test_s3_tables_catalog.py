"""A table in a REST catalog of the kind of S3 Tables: it states how files are reached, and that they stay."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

from streaming_sink import CatalogTable, FileSizing, IcebergSink, history
from tests.servers.launch import Server
from timeline.catalogs import probed_log
from timeline.catalogs.probing.probe import Capabilities

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def properties(s3: Server) -> dict[str, str]:
    """Those of a catalog whose tables are in the same server's S3."""
    boto3 = pytest.importorskip("boto3", reason="pip install boto3")
    keys = {
        "aws_access_key_id": s3.options["access_key_id"],
        "aws_secret_access_key": s3.options["secret_access_key"],
    }
    tables = boto3.client("s3tables", endpoint_url=s3.endpoint, region_name="us-east-1", **keys)
    bucket = tables.create_table_bucket(name="lake")["arn"]
    return {"type": "rest", "uri": f"{s3.endpoint}/iceberg", "warehouse": bucket}


def test_a_stream_beside_pyiceberg_keeps_the_rows_of_both(
    properties: dict[str, str], spark: SparkSession
) -> None:
    probed_log._shown.clear()
    table = CatalogTable("db.events", properties, create_namespace=True)
    sink = IcebergSink(table, app_id="app", sizing=FileSizing(fill="never"))

    def land(number: int) -> Any:
        return sink(spark.range(number * 10, number * 10 + 10).selectExpr("id", "'ours' by"), number)

    land(0)
    assert list(probed_log._shown.values()) == [
        Capabilities(raced=True, keeps_both=True, removes_snapshots=False, keeps_tags=False)
    ]
    theirs = RestCatalog("theirs", **properties).load_table("db.events")
    theirs.append(pa.table({"id": [1000], "by": ["theirs"]}))
    assert land(1).outcome == "committed"
    assert sorted(theirs.refresh().scan().to_arrow()["id"].to_pylist()) == [*range(20), 1000]
    assert [it.batch_id for it in history(table)] == [0, 1]
