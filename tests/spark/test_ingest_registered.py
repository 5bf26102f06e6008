"""Files that are large enough and fit land as they are, beside small ones that are consolidated."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import streaming_sink
from planners import All, FileSizing
from streaming_sink import ingest
from streaming_sink.clustering import service
from streaming_sink.tasks.row_groups.compact import BINARY, Field
from streaming_sink.zones.landed import landed_in
from tests.sinks import flat_zone
from tests.spark.source_files import Row, files_in, rows_from, rows_in, write_parquet
from tests.spark.streams import head_of, metadata_file
from tests.unit.streaming_sink.ingest.lying_footers import lying
from timeline.diagnosis import doctor
from timeline.properties import COPIED_FROM_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SIZING = FileSizing(max_file_bytes=40_000, small_file_bytes=4_000)


def zone_at(folder: Path, **given: object) -> ingest.BufferZone:
    return flat_zone(
        str(folder / "zone"), table=str(folder / "table"), partition_by=["day"], sizing=SIZING, **given
    )


def push(zone: ingest.BufferZone, folder: Path) -> list[Row]:
    """Announce two large files of a day each, a large one of many days, and three small ones."""
    kinds = [(0, 3_000, ["mon"]), (3_000, 3_000, ["tue"]), (6_000, 2_000, ["mon", "tue"])]
    kinds += [(number, 10, ["mon"]) for number in (9_000, 9_010, 9_020)]
    landing = []
    for start, count, days in kinds:
        landing += rows_from(start, count, days)
        write_parquet(folder / "drop" / f"{start}.parquet", rows_from(start, count, days))
    zone.push(f"{folder}/drop/")
    return sorted(landing)


def test_large_files_of_one_partition_keep_their_bytes(spark: SparkSession, tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    rows = push(zone, tmp_path)
    (landed,) = ingest.run(spark, zone, available_now=True)
    assert (landed.files_in, landed.registered, landed.files_out) == (6, 2, 4)
    assert "2 registered as they came" in landed.line()
    table = tmp_path / "table"
    head = head_of(str(table))
    assert landed_in(head, zone.app_id, 0).registered == 2
    sources = {(tmp_path / "drop" / name).read_bytes() for name in ("0.parquet", "3000.parquet")}
    assert sources <= {path.read_bytes() for path in table.rglob("*.parquet")}
    assert rows_in(str(table)) == rows
    assert files_in(str(table)) == ["mon", "mon", "tue", "tue"]
    assert doctor(str(table)).findings == ()


def test_a_file_whose_footer_bounds_its_rows_wrongly_is_consolidated(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A filter by such a bound passes over a row."""

    def change(meta: Any) -> None:
        if meta[3].value.items == [b"id"]:
            for number in (1, 5):
                meta[12].value[number] = Field(BINARY, struct.pack("<q", 2_998))

    zone = zone_at(tmp_path, by_reference=True)
    path = tmp_path / "drop" / "0.parquet"
    write_parquet(path, rows := rows_from(0, 3_000, ["mon"]))
    lying(path, change)
    zone.push(f"{tmp_path}/drop/")
    (landed,) = ingest.run(spark, zone, available_now=True)
    assert (landed.files_in, landed.registered, landed.rejected) == (1, 0, {})
    assert "id states values from 0 to 2998, and has 0 to 2999" in caplog.text
    location = str(tmp_path / "table")
    assert rows_in(location) == rows
    read = StaticTable.from_metadata(str(metadata_file(location)))
    assert read.scan("id = 2999").to_arrow().num_rows == 1


def test_files_by_reference_are_read_where_they_are_and_never_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = zone_at(tmp_path, by_reference=True)
    rows = push(zone, tmp_path)
    (landed,) = ingest.run(spark, zone, available_now=True)
    assert (landed.registered, landed.files_out) == (2, 4)
    table, drop = str(tmp_path / "table"), tmp_path / "drop"
    kept = {str(path): path.read_bytes() for path in drop.iterdir()}
    live = {file.location for file in head_of(table).live_files()}
    assert {f"{drop}/0.parquet", f"{drop}/3000.parquet"} <= live
    assert rows_in(table) == rows
    assert doctor(table).findings == ()
    fed = streaming_sink.changes(spark, table, 1).collect()
    assert sorted((row.id, row.day) for row in fed) == rows
    # The same bytes again, announced anew as another version, would count twice.
    (drop / "0.parquet").write_bytes(kept[f"{drop}/0.parquet"])
    zone.push(f"{drop}/0.parquet")
    (again,) = ingest.run(spark, zone, available_now=True)
    assert "by reference already" in again.rejected[f"{drop}/0.parquet"]
    assert service.schedule_and_execute(spark, table, sort_by=["id"], select=All()).committed
    assert not any(file.location.startswith(str(drop)) for file in head_of(table).live_files())
    assert rows_in(table) == rows
    streaming_sink.expire_snapshots(table)
    streaming_sink.remove_orphan_files(table)
    assert {str(path): path.read_bytes() for path in drop.iterdir()} == kept


def test_row_groups_of_files_that_are_too_small_to_register_are_copied(
    spark: SparkSession, tmp_path: Path
) -> None:
    properties = {COPIED_FROM_BYTES: "2000", "write.parquet.compression-codec": "snappy"}
    sizing = FileSizing(max_file_bytes=400_000, small_file_bytes=300_000)
    zone = flat_zone(
        str(tmp_path / "zone"),
        table=str(tmp_path / "table"),
        partition_by=["day"],
        sizing=sizing,
        table_properties=properties,
    )
    rows = push(zone, tmp_path)
    (landed,) = ingest.run(spark, zone, available_now=True)
    assert (landed.files_in, landed.registered, landed.files_out, landed.rejected) == (6, 0, 2, {})
    table, drop = str(tmp_path / "table"), tmp_path / "drop"
    assert rows_in(table) == rows
    kept = [file.location for file in head_of(table).live_files()]
    for name in ("0.parquet", "3000.parquet"):
        whole = (drop / name).read_bytes()
        footer = pq.read_metadata(drop / name)
        pages = whole[4 : 4 + sum(footer.row_group(0).column(at).total_compressed_size for at in range(2))]
        assert [pages in Path(location).read_bytes() for location in kept].count(True) == 1, name
    assert doctor(table).findings == ()
    assert ingest.run(spark, zone, available_now=True) == []
    # A file that is damaged is refused, as one that is decoded, and the others land.
    write_parquet(drop / "20000.parquet", rows_from(20_000, 3_000, ["mon"]))
    write_parquet(drop / "30000.parquet", rows_from(30_000, 3_000, ["mon"]))
    damaged = bytearray((drop / "30000.parquet").read_bytes())
    damaged[2_000:2_100] = bytes(100)
    (drop / "30000.parquet").write_bytes(damaged)
    zone.push(f"{drop}/")
    (second,) = ingest.run(spark, zone, available_now=True)
    assert [*second.rejected] == [f"{drop}/30000.parquet"]
    assert rows_in(table) == sorted(rows + rows_from(20_000, 3_000, ["mon"]))
