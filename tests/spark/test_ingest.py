"""Files wait in a buffer zone and land in a table, each once, as few files; what cannot land is told."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from planners import FileSizing
from streaming_sink import IcebergSink, SchemaContract, Upsert, ingest
from streaming_sink.commands.cli import main
from streaming_sink.ingest.worker import Worker
from streaming_sink.zones.deciding import reannounce
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.planning.flux import Flux
from tests.sinks import flat_zone
from tests.spark.source_files import files_in, rows_from, rows_in, write_parquet
from tests.spark.streams import head_of, metadata_file
from timeline.errors import KeyConflictError
from timeline.versions.work_items import published_items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def zone_at(folder: Path, **given: Any) -> ingest.BufferZone:
    return flat_zone(str(folder / "zone"), table=str(folder / "table"), **given)


def land(spark: SparkSession, zone: ingest.BufferZone) -> list[ingest.Landed]:
    return ingest.run(spark, zone, available_now=True)


def test_fifteen_files_of_four_partitions_become_four_files_by_one_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The picture of Adobe's article: 15 files and 15 commits, of rows of any partition, before."""
    zone = zone_at(tmp_path, partition_by=["day"])
    for number in range(15):
        write_parquet(tmp_path / "drop" / f"{number:02}.parquet", rows_from(number * 10, 10))
    assert zone.push(f"{tmp_path}/drop/").files == 15
    (landed,) = land(spark, zone)
    assert (landed.files_in, landed.files_out, landed.partitions, landed.rows) == (15, 4, 4, 150)
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 150)
    assert files_in(str(tmp_path / "table")) == ["mon", "thu", "tue", "wed"]
    head = head_of(str(tmp_path / "table"))
    assert len(head.metadata.snapshots) == 1
    summary = head.metadata.snapshots[0].summary
    assert summary is not None
    assert summary.additional_properties["streaming-sink.ingest.item"] == f"{zone.app_id}/0"


def test_a_file_that_is_pushed_again_lands_once_and_a_replaced_one_lands_as_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = zone_at(tmp_path)
    path = write_parquet(tmp_path / "drop" / "a.parquet", rows_from(0, 10))
    zone.push(path)
    zone.push(path, path)
    assert len(land(spark, zone)) == 1
    assert land(spark, zone_at(tmp_path)) == []  # a process that starts anew knows what has landed
    Path(path).unlink()
    write_parquet(Path(path), rows_from(10, 5))
    zone.push(path)
    assert len(land(spark, zone)) == 1
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 15)


def test_small_files_of_the_table_are_filled_by_the_next_item(spark: SparkSession, tmp_path: Path) -> None:
    zone = zone_at(tmp_path, sizing=FileSizing(max_file_bytes=3000, small_file_bytes=2000))
    for number in range(12):
        zone.push(write_parquet(tmp_path / "drop" / f"{number}.parquet", rows_from(number * 10, 10)))
        land(spark, zone)
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 120)
    assert len(list(head_of(str(tmp_path / "table")).live_files())) <= 9


def test_a_file_with_rows_of_many_partitions_is_shared_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    days = [f"d{number}" for number in range(12)]
    zone = zone_at(tmp_path, partition_by=["day"])
    for number in range(40):
        write_parquet(tmp_path / "drop" / f"{number}.parquet", rows_from(number * 50, 50, days))
    zone.push(f"{tmp_path}/drop/")
    (landed,) = land(spark, zone)
    assert (landed.files_in, landed.files_out) == (40, 12)
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 2000, days)


def test_json_csv_and_avro_land_beside_parquet(spark: SparkSession, tmp_path: Path) -> None:
    drop, rows = tmp_path / "drop", rows_from(0, 40)
    write_parquet(drop / "a.parquet", rows[:10])
    (drop / "b.json").write_text("\n".join(json.dumps({"id": id_, "day": day}) for id_, day in rows[10:20]))
    (drop / "c.csv").write_text("id,day\n" + "\n".join(f"{id_},{day}" for id_, day in rows[20:30]))
    fields = [{"name": "id", "type": "long"}, {"name": "day", "type": "string"}]
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    with (drop / "d.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": id_, "day": day} for id_, day in rows[30:]])
    zone = zone_at(tmp_path)
    zone.push(f"{drop}/")
    (landed,) = land(spark, zone)
    assert (landed.rejected, landed.rows) == ({}, 40)
    assert rows_in(str(tmp_path / "table")) == rows


def test_files_that_spark_partitioned_keep_the_columns_of_their_folders(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows, drop = rows_from(0, 40), tmp_path / "drop"
    spark.createDataFrame(rows, "id bigint, day string").write.partitionBy("day").parquet(f"{drop}/old")
    zone = zone_at(tmp_path, partition_by=["day"])
    zone.push(f"{drop}/")
    assert sum(each.rows for each in land(spark, zone)) == 40
    assert rows_in(str(tmp_path / "table")) == rows
    more = spark.createDataFrame(rows_from(40, 40), "id bigint, day string")
    more.write.partitionBy("day").json(f"{drop}/new")
    zone.push(f"{drop}/")
    (landed,) = land(spark, zone)
    assert landed.rejected == {}
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 80)


def test_lists_of_any_kind_and_columns_of_nulls_land(spark: SparkSession, tmp_path: Path) -> None:
    kinds = [pa.list_(pa.int32()), pa.list_(pa.int32(), 2), pa.large_list(pa.int32())]
    for number, kind in enumerate(kinds):
        table = pa.table({"id": [number], "day": ["mon"], "pair": pa.array([[number, 7]], kind)})
        (tmp_path / "drop").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "drop" / f"{number}.parquet")
    nulls = pa.table({"id": [3], "day": pa.nulls(1), "pair": pa.nulls(1)})
    pq.write_table(nulls, tmp_path / "drop" / "3.parquet")
    zone = zone_at(tmp_path)
    zone.push(f"{tmp_path}/drop/")
    (landed,) = land(spark, zone)
    assert landed.rejected == {}
    path = metadata_file(str(tmp_path / "table"))
    assert path is not None
    read = StaticTable.from_metadata(path).scan().to_arrow().sort_by("id").to_pylist()
    assert [row["pair"] for row in read] == [[0, 7], [1, 7], [2, 7], None]


def test_files_that_cannot_land_are_told_and_the_others_land(spark: SparkSession, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    write_parquet(drop / "0-good.parquet", rows_from(0, 10))
    zone = zone_at(tmp_path)
    zone.push(f"{drop}/")
    land(spark, zone)
    good = Path(write_parquet(drop / "1-good.parquet", rows_from(10, 10)))
    whole = good.read_bytes()
    (drop / "empty.parquet").touch()
    (drop / "half.parquet").write_bytes(whole[: len(whole) // 2])
    (drop / "text.parquet").write_text("id,day\n1,mon\n")
    gone = Path(write_parquet(drop / "gone.parquet", rows_from(90, 1)))
    changed = Path(write_parquet(drop / "changed.parquet", rows_from(91, 1)))
    write_parquet(drop / "more-columns.parquet", rows_from(92, 1), extra=1)
    pq.write_table(pa.table({"ID": [1], "day": ["mon"]}), drop / "upper.parquet")
    pq.write_table(pa.table({"id": ["seven"], "day": ["mon"]}), drop / "text-id.parquet")
    (drop / "bad.json").write_text('{"id": 1, "day": ')
    zone.push(f"{drop}/")
    gone.unlink()
    changed.write_bytes(whole)
    (landed,) = land(spark, zone)
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 20)
    told = {Path(path).name: reason for path, reason in landed.rejected.items()}
    expected = {
        "empty.parquet": "it is empty",
        "half.parquet": "Parquet",
        "text.parquet": "Parquet",
        "gone.parquet": "it was deleted after it was announced",
        "changed.parquet": "it was replaced by other bytes after it was announced",
        "more-columns.parquet": "extra",
        "upper.parquet": "ID",
        "text-id.parquet": "id",
        "bad.json": "JSON",
    }
    assert told.keys() == expected.keys()
    for name, part in expected.items():
        assert part in told[name], (name, told[name])


def test_values_that_do_not_fit_are_found_while_writing(spark: SparkSession, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    write_parquet(drop / "0.parquet", rows_from(0, 10))
    damaged = bytearray(Path(write_parquet(drop / "1.parquet", rows_from(10, 5000))).read_bytes())
    damaged[300:340] = bytes(40)  # a page; its footer is whole
    (drop / "1.parquet").write_bytes(bytes(damaged))
    zone = zone_at(tmp_path)
    zone.push(f"{drop}/")
    (landed,) = land(spark, zone)
    assert [Path(path).name for path in landed.rejected] == ["1.parquet"]
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 10)


def test_an_item_of_which_no_file_can_land_is_over(spark: SparkSession, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    zone = zone_at(tmp_path)
    zone.push(write_parquet(drop / "0.parquet", rows_from(0, 10)))
    land(spark, zone)
    (drop / "1.parquet").write_text("no")
    zone.push(f"{drop}/")
    (landed,) = land(spark, zone)
    assert (landed.rows, len(landed.rejected)) == (0, 1)
    head = head_of(str(tmp_path / "table"))
    assert published_items(head.properties, zone.app_id).to_text() == "0-1"
    assert len(head.metadata.snapshots) == 1


def test_new_columns_are_added_where_the_contract_says_so(spark: SparkSession, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    zone = zone_at(tmp_path, schema=SchemaContract.evolving())
    zone.push(write_parquet(drop / "0.parquet", rows_from(0, 10)))
    land(spark, zone)
    zone.push(write_parquet(drop / "1.parquet", rows_from(10, 10), extra=7))
    (landed,) = land(spark, zone)
    assert landed.rejected == {}
    assert head_of(str(tmp_path / "table")).schema.column_names == ["id", "day", "extra"]
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 20)


def test_a_file_that_brings_a_column_lands_though_the_one_after_it_does_not(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zone = zone_at(tmp_path, schema=SchemaContract.evolving())
    drop = tmp_path / "drop"
    zone.push(
        write_parquet(drop / "0.parquet", rows_from(0, 10)),
        write_parquet(drop / "1.parquet", rows_from(10, 10), extra=7),
        write_parquet(drop / "2.parquet", rows_from(20, 10)),
    )
    (landed,) = land(spark, zone)
    assert (landed.rows, landed.rejected) == (30, {})
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 30)
    assert [field.name for field in head_of(str(tmp_path / "table")).schema.fields][-1] == "extra"
    assert "planned and written again" not in caplog.text


def test_files_that_were_rejected_land_once_they_are_replayed(spark: SparkSession, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    zone = zone_at(tmp_path)
    zone.push(write_parquet(drop / "0.parquet", rows_from(0, 10)))
    land(spark, zone)
    wider = write_parquet(drop / "1.parquet", rows_from(10, 10), extra=7)
    zone.push(wider, write_parquet(drop / "2.parquet", rows_from(20, 10)))
    (landed,) = land(spark, zone)
    assert list(landed.rejected) == [wider]
    assert reannounce(zone).files == (wider,)
    (again,) = land(spark, zone)
    assert list(again.rejected) == [wider]
    evolving = ingest.BufferZone(zone.store.location, contract=SchemaContract.evolving())
    assert reannounce(evolving, [wider]).files == (wider,)
    (last,) = land(spark, evolving)
    assert (last.rejected, last.rows) == ({}, 10)
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 30)
    reannounce(evolving)
    assert land(spark, evolving) == []
    assert [entry.state for entry in Ledger(evolving).find(wider)] == ["rejected", "rejected", "landed"]
    (other,) = reannounce(evolving, [wider]).others
    assert (other.path, other.state) == (wider, "landed")


def test_a_version_that_was_replaced_is_not_announced_again(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bytes under its name are those of the version that has landed."""
    zone, drop = zone_at(tmp_path), tmp_path / "drop"
    write_parquet(drop / "0.parquet", rows_from(0, 10))
    zone.push(f"{drop}/0.parquet")
    land(spark, zone)
    path = write_parquet(drop / "1.parquet", rows_from(10, 10), extra=7)
    zone.push(path)
    (landed,) = land(spark, zone)
    assert list(landed.rejected) == [path]
    write_parquet(drop / "1.parquet", rows_from(10, 10))
    zone.push(path)
    land(spark, zone)
    assert main(["ingest", "reannounce", zone.store.location]) == 0
    assert "announced again: 0 files" in capsys.readouterr().out
    assert land(spark, zone) == []
    assert main(["ingest", "status", zone.store.location]) == 0
    assert main(["ingest", "reannounce", zone.store.location, "--file", path]) == 0
    assert f"it is landed, by work item 2, and not rejected: {path}" in capsys.readouterr().out


def test_a_stream_writes_beside_the_zone(spark: SparkSession, tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    sink = IcebergSink(str(tmp_path / "table"), app_id="stream")
    for number in range(3):
        zone.push(write_parquet(tmp_path / "drop" / f"{number}.parquet", rows_from(number * 10, 10)))
        land(spark, zone)
        sink(spark.createDataFrame(rows_from(100 + number * 10, 10), "id bigint, day string"), number)
    sink.finish()
    assert rows_in(str(tmp_path / "table")) == [*rows_from(0, 30), *rows_from(100, 30)]


def test_a_table_with_a_key_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(str(tmp_path / "table"), Upsert(key=["id"]), app_id="keyed")
    sink(spark.createDataFrame(rows_from(0, 1), "id bigint, day string"), 0)
    zone = zone_at(tmp_path)
    zone.push(write_parquet(tmp_path / "drop" / "0.parquet", rows_from(0, 10)))
    Flux(zone).plan(flush=True)
    with pytest.raises(KeyConflictError, match="without a look at their keys: give it an Upsert"):
        Worker(zone).land_next(spark)


def test_two_workers_and_two_planners_land_each_file_once(spark: SparkSession, tmp_path: Path) -> None:
    zone = zone_at(tmp_path, rules=ingest.Rules(max_files=5, max_age="1 second"))
    stop = threading.Event()
    zone.push(write_parquet(tmp_path / "drop" / "first.parquet", rows_from(1000, 1)))
    landed: list[ingest.Landed] = []
    runs = [
        threading.Thread(
            target=ingest.run,
            args=(spark, zone_at(tmp_path)),
            kwargs={"stop": stop, "poll_seconds": 0.1, "on_landed": landed.append},
        )
        for _ in range(2)
    ]
    for each in runs:
        each.start()
    for number in range(30):
        zone.push(write_parquet(tmp_path / "drop" / f"{number}.parquet", rows_from(number * 10, 10)))
    give_up_at = time.monotonic() + 120
    while len(rows_in(str(tmp_path / "table"))) < 301:
        assert time.monotonic() < give_up_at, landed
        time.sleep(0.2)
    stop.set()
    for each in runs:
        each.join()
    assert rows_in(str(tmp_path / "table")) == [*rows_from(0, 300), *rows_from(1000, 1)]
    assert sum(each.files_in for each in landed if not each.published_before) == 31


def test_a_worker_that_dies_after_its_commit_leaves_the_reasons(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop = tmp_path / "drop"
    zone = zone_at(tmp_path)
    path = write_parquet(drop / "0.parquet", rows_from(0, 10))
    zone.push(path)
    zone.push(write_parquet(Path(path), rows_from(0, 20)))  # one path, two versions in one item
    (drop / "1.parquet").touch()
    zone.push(f"{drop}/1.parquet")
    with monkeypatch.context() as dying:
        dying.setattr("streaming_sink.ingest.worker.write_landed", _dies)
        with pytest.raises(KeyboardInterrupt):
            land(spark, zone)
    for _ in range(2):
        states = [(Path(each.path).name, each.state) for each in Ledger(zone).entries()]
        assert states == [("0.parquet", "rejected"), ("0.parquet", "landed"), ("1.parquet", "rejected")]
        assert land(spark, zone) == []
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 20)


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_first_file_that_no_table_can_have_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.duration("s"))}), drop / "0.parquet")
    pq.write_table(pa.table({"id": [1], "day": pa.nulls(1)}), drop / "1.parquet")
    write_parquet(drop / "2.parquet", rows_from(0, 10))
    zone = zone_at(tmp_path, partition_by=["day"])
    zone.push(f"{drop}/")
    (landed,) = land(spark, zone)
    assert [Path(path).name for path in landed.rejected] == ["0.parquet"]
    path = metadata_file(str(tmp_path / "table"))
    assert path is not None
    read = StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    assert {"id": 1, "day": None} in read
    assert len(read) == 11
