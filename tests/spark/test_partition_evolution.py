"""A stream whose partitioning changes: what the table holds, which spec its files are of, and who may change
it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

from streaming_sink import IcebergSink
from tests.spark.streams import SMALL
from timeline.table import open_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def _sink(location: Path, *partition_by: str, app_id: str = "app", **given: Any) -> IcebergSink:
    given = {"sizing": SMALL, "evolve_partitioning": True, **given}
    return IcebergSink(str(location), app_id=app_id, partition_by=partition_by, **given)


def _rows(spark: SparkSession, first: int, count: int = 10) -> DataFrame:
    """Rows of regions r0 to r2 and of hours of one day."""
    ids = spark.range(first, first + count)
    return ids.select(
        "id",
        sf.format_string("r%d", sf.col("id") % 3).alias("region"),
        sf.timestamp_seconds(1_767_225_600 + (sf.col("id") % 5) * 3600).alias("at"),
    )


def _ids(location: Path) -> list[int]:
    table = StaticTable.from_metadata(str(location))
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def _specs(location: Path) -> dict[int, list[str]]:
    return {
        spec.spec_id: [f"{field.field_id} {field.name} {field.transform}" for field in spec.fields]
        for spec in open_table(str(location)).head.metadata.partition_specs
    }


def _files_by_spec(location: Path) -> dict[int, int]:
    return dict(Counter(file.spec_id for file in open_table(str(location)).head.live_files()))


def test_a_partitioning_evolves_in_one_version_and_no_data_file_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    IcebergSink(str(table), app_id="app", sizing=SMALL, fill_policy="never")(_rows(spark, 0), 0)
    files = {path: path.read_bytes() for path in table.rglob("*.parquet")}
    before = open_table(str(table)).head.number
    sink = _sink(table, "region", "hour(at)", fill_policy="never")
    sink(_rows(spark, 10), 1)
    assert open_table(str(table)).head.number == before + 2
    assert {path: path.read_bytes() for path in files} == files
    assert _specs(table) == {0: [], 1: ["1000 region identity", "1001 at_hour hour"]}
    assert _files_by_spec(table)[0] == len(files)
    assert _ids(table) == list(range(20))
    assert sink.reports[-1].why == ("the table's partitioning has changed from nothing to region, hour(at)")
    sink(_rows(spark, 20), 2)
    assert open_table(str(table)).head.number == before + 3
