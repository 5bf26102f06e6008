"""What a zone's items get of the options of its table, as the batches of a sink do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_sink import BulkInsert, Clustering, Retention, TableOptions, history, ingest
from tests.spark.source_files import rows_from, rows_in, write_parquet
from tests.spark.streams import head_of

pytestmark = pytest.mark.spark
ITEMS = 4


@pytest.mark.parametrize("audit", [False, True], ids=["published at once", "audited"])
def test_items_are_clustered_and_counted_and_keep_the_history_that_was_asked_for(
    spark: SparkSession, tmp_path: Path, audit: bool
) -> None:
    table = str(tmp_path / "table")
    options = TableOptions(
        clustering=Clustering(sort_by=["day"], every_commits=2),
        retention=Retention(max_snapshot_age="3 days"),
    )
    zone = ingest.BufferZone(str(tmp_path / "zone"), table, options=options, audit=audit)
    for number in range(ITEMS):
        file = write_parquet(tmp_path / "drop" / f"{number}.parquet", rows_from(100 * number, 100))
        zone.push(file)
        assert [landed.rows for landed in ingest.run(spark, zone, available_now=True)] == [100]
    assert rows_in(table) == rows_from(0, 100 * ITEMS)
    head = head_of(table)
    clusterings = [
        snapshot.summary
        for snapshot in head.metadata.snapshots
        if snapshot.summary is not None and _is_of_clustering(snapshot.summary)
    ]
    assert len(clusterings) == ITEMS // 2
    assert head.properties["history.expire.max-snapshot-age-ms"] == str(3 * 24 * 3600 * 1000)
    reports = history(table)
    assert [(report.batch_id, report.rows, report.planned_by) for report in reports] == [
        (number, 100, "files") for number in range(ITEMS)
    ]


def _is_of_clustering(summary: Any) -> bool:
    return any(key.startswith("streaming-sink.clustering.") for key in summary.additional_properties)


def test_a_zone_plans_its_own_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plans the sizes of the files that it writes"):
        ingest.BufferZone(str(tmp_path / "zone"), str(tmp_path / "table"), BulkInsert())
