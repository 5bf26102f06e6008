"""Write-audit-publish of work items: staged rows are seen by snapshot id alone, and published once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from streaming_sink import ingest
from streaming_sink.commands.cli import FINDINGS, main
from streaming_sink.zones import deciding
from streaming_sink.zones.ledger import Ledger, retry
from streaming_sink.zones.status import status
from tests.sinks import flat_zone
from tests.spark.source_files import rows_from, rows_in, write_parquet
from timeline.table import open_table
from timeline.versions.staged import staged_items
from timeline.versions.work_items import discarded_items, published_items

pytestmark = pytest.mark.spark


def zone_at(folder: Path, **given: Any) -> ingest.BufferZone:
    return flat_zone(str(folder / "zone"), table=str(folder / "table"), **given)


def land(spark: SparkSession, zone: ingest.BufferZone) -> list[ingest.Landed]:
    return ingest.run(spark, zone, available_now=True)


def push(zone: ingest.BufferZone, folder: Path, first: int, count: int) -> None:
    zone.push(write_parquet(folder / "drop" / f"{first:04}.parquet", rows_from(first, count)))


def states(zone: ingest.BufferZone) -> list[str]:
    return [entry.state for entry in Ledger(zone).entries()]


def staged_of(folder: Path, zone: ingest.BufferZone) -> dict[int, int]:
    metadata = open_table(str(folder / "table")).head.metadata
    return {number: snapshot.snapshot_id for number, snapshot in staged_items(metadata, zone.app_id).items()}


def newest(folder: Path) -> str:
    head = open_table(str(folder / "table")).head
    return str(folder / "table" / "metadata" / f"v{head.number}.metadata.json")


def test_an_item_is_audited_before_readers_see_it(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[ingest.StagedItem] = []
    counts: list[tuple[int, int, int]] = []

    def look(item: ingest.StagedItem) -> None:
        seen.append(item)
        table = StaticTable.from_metadata(newest(tmp_path))
        main = table.scan().to_arrow().num_rows if table.current_snapshot() else 0
        staged = table.scan(snapshot_id=item.snapshot_id).to_arrow().num_rows
        counts.append((main, staged, item.rows.count()))

    zone = zone_at(tmp_path, partition_by=["day"], audit=look)
    for first in (0, 100):
        push(zone, tmp_path, first, 20)
        (landed,) = land(spark, zone)
        assert (landed.published_before, landed.rows, landed.partitions) == (False, 20, 4)
    assert counts == [(0, 20, 20), (20, 40, 20)]
    assert [item.number for item in seen] == [0, 1]
    assert rows_in(str(tmp_path / "table")) == [*rows_from(0, 20), *rows_from(100, 20)]
    head = open_table(str(tmp_path / "table")).head
    assert head.number == 5  # made, and two versions for each item
    assert not staged_of(tmp_path, zone)
    assert head.snapshot is not None
    assert head.snapshot.summary is not None
    told = head.snapshot.summary.additional_properties
    assert told["published-wap-id"] == f"{zone.app_id}-1"
    assert told["source-snapshot-id"] == str(seen[1].snapshot_id)
    assert states(zone) == ["landed", "landed"]


def test_an_item_that_fails_its_expectations_is_held_until_an_operator_decides(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zone = zone_at(tmp_path, audit=ingest.Audit(conditions=["id < 100", "day is not null"]))
    push(zone, tmp_path, 0, 10)
    land(spark, zone)
    for first in (95, 200, 300):
        push(zone, tmp_path, first, 10)
        assert land(spark, zone) == []
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 10)
    assert states(zone) == ["landed", "held", "held", "held"]
    found = status(zone)
    assert [(item.number, item.state) for item in found.open_items] == [(1, "held"), (2, "held"), (3, "held")]
    assert "5 rows do not meet id < 100" in found.open_items[0].reason
    assert main(["ingest", "status", str(tmp_path / "zone")]) == FINDINGS
    assert "5 rows do not meet id < 100" in capsys.readouterr().out
    assert main(["ingest", "run", str(tmp_path / "zone"), "--available-now"]) == FINDINGS
    assert "3 work items set apart or held; why: streaming-sink ingest status" in capsys.readouterr().out
    assert deciding.publish(zone, 1).rows == 10
    deciding.discard(zone, 2)
    assert rows_in(str(tmp_path / "table")) == [*rows_from(0, 10), *rows_from(95, 10)]
    assert states(zone) == ["landed", "landed", "discarded", "held"]
    assert retry(zone) == [3]
    assert land(spark, zone) == []  # audited again, and held again
    assert states(zone) == ["landed", "landed", "discarded", "held"]
    retry(zone)
    (landed,) = land(spark, zone_at(tmp_path, audit=False))
    assert (landed.number, landed.rows) == (3, 10)
    head = open_table(str(tmp_path / "table")).head
    assert published_items(head.properties, zone.app_id).to_text() == "0-1,3"
    assert discarded_items(head.properties, zone.app_id).to_text() == "2"
    assert land(spark, zone_at(tmp_path)) == []
    with pytest.raises(ValueError, match="work item 1 has landed already"):
        deciding.discard(zone, 1)
    with pytest.raises(ValueError, match="work item 2 was discarded"):
        deciding.publish(zone, 2)
    with pytest.raises(ValueError, match="has no work item 9"):
        deciding.publish(zone, 9)
