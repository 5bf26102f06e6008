"""A stream stages its batches in a buffer zone, each once; watched folders announce what fills them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming_sink import ingest
from streaming_sink.ingest import running
from streaming_sink.zones.cleaning import Cleaned, clean
from tests.spark.source_files import rows_from, rows_in, write_parquet
from timeline.errors import CheckpointRegressionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def zone_at(folder: Path) -> ingest.BufferZone:
    return ingest.BufferZone(str(folder / "zone"), table=str(folder / "table"))


def stream(
    spark: SparkSession, tmp_path: Path, zone: ingest.BufferZone, checkpoint: str = "checkpoint"
) -> None:
    source = spark.readStream.schema("id bigint, day string").option("maxFilesPerTrigger", 1)
    writer = source.json(str(tmp_path / "in")).writeStream.foreachBatch(zone.siphon("clicks"))
    query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def add_input(tmp_path: Path, name: str, start: int) -> None:
    (tmp_path / "in").mkdir(exist_ok=True)
    lines = [json.dumps({"id": id_, "day": day}) for id_, day in rows_from(start, 10)]
    (tmp_path / "in" / f"{name}.json").write_text("\n".join(lines))


def test_a_stream_that_is_staged_lands_with_the_zone(spark: SparkSession, tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    for number in range(3):
        add_input(tmp_path, str(number), number * 10)
    stream(spark, tmp_path, zone)
    assert rows_in(str(tmp_path / "table")) == []
    add_input(tmp_path, "3", 30)
    stream(spark, tmp_path, zone)
    landed = ingest.run(spark, zone, available_now=True)
    assert [each.rows for each in landed] == [40]
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 40)


def test_a_batch_that_is_tried_again_is_staged_once(spark: SparkSession, tmp_path: Path) -> None:
    """A crash between the staged files and the checkpoint: Spark gives the batch again."""
    zone = zone_at(tmp_path)
    batch = spark.createDataFrame(rows_from(0, 40), "id bigint, day string").repartition(4)
    zone.siphon("clicks")(batch, 0)
    zone.siphon("clicks")(batch.repartition(2), 0)  # a process that starts anew
    ingest.run(spark, zone, available_now=True)
    zone.siphon("clicks")(batch, 0)
    assert ingest.run(spark, zone, available_now=True) == []
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 40)


def test_staged_files_go_after_the_grace_period_and_rejected_ones_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = zone_at(tmp_path)
    batches = [spark.createDataFrame(rows_from(at, 10), "id bigint, day string") for at in (0, 10)]
    zone.siphon("clicks")(batches[0], 0)
    write_parquet(tmp_path / "drop" / "other.parquet", rows_from(50, 1))
    zone.push(f"{tmp_path}/drop/")
    ingest.run(spark, zone, available_now=True)
    zone.siphon("clicks")(batches[1].withColumn("extra", batches[1]["id"]), 1)
    ingest.run(spark, zone, available_now=True)
    staged = tmp_path / "zone" / "staged" / "clicks"
    assert clean(zone, "1 hour") == Cleaned(0, 0)
    assert len(list(staged.rglob("*.parquet"))) > 1
    cleaned = clean(zone, "0 seconds")
    assert cleaned.items == 2
    left = {path.parent.name for path in staged.rglob("*.parquet")}
    assert left == {"000000000001"}  # it has a column that the contract refuses
    assert (tmp_path / "drop" / "other.parquet").exists()
    assert clean(zone, "0 seconds") == Cleaned(0, 0)
    zone.siphon("clicks")(batches[0], 0)  # a replay of what has landed and was deleted
    ingest.run(spark, zone, available_now=True)
    assert rows_in(str(tmp_path / "table")) == [*rows_from(0, 10), *rows_from(50, 1)]


def test_a_fresh_checkpoint_under_a_used_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    add_input(tmp_path, "0", 0)
    stream(spark, tmp_path, zone)
    with pytest.raises(Exception, match="has staged batches here as another query"):
        stream(spark, tmp_path, zone, "another-checkpoint")
    with pytest.raises(CheckpointRegressionError, match="choose another app_id"):
        zone.siphon("clicks")(spark.createDataFrame(rows_from(0, 1), "id bigint, day string"), 0)


def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="app_id must be letters, digits"):
        zone_at(tmp_path).siphon("../other")


def test_an_empty_batch_stages_nothing(spark: SparkSession, tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    zone.siphon("clicks")(spark.createDataFrame([], "id bigint, day string"), 0)
    assert running.plan_waiting(zone, flush=True) == 0


def test_files_that_fill_a_watched_folder_land_once_they_are_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = zone_at(tmp_path)
    drop = tmp_path / "drop"
    drop.mkdir()
    zone.watch(str(drop), "*.parquet")
    write_parquet(drop / "day=mon" / "a.parquet", rows_from(0, 10))
    (drop / "notes.txt").write_text("no")
    (drop / "_temporary").mkdir()
    write_parquet(drop / "_temporary" / "b.parquet", rows_from(50, 10))
    (drop / "empty.parquet").touch()  # it waits until it is written
    for _ in range(2):
        ingest.run(spark, zone_at(tmp_path), available_now=True)
    (drop / "empty.parquet").unlink()
    write_parquet(drop / "empty.parquet", rows_from(10, 10))
    ingest.run(spark, zone_at(tmp_path), available_now=True)
    assert rows_in(str(tmp_path / "table")) == rows_from(0, 20)
