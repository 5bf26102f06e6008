"""A stream whose columns change while its query runs, restarts and meets other writers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

from streaming_sink import IcebergSink, SchemaContract
from streaming_sink.clustering import execute, schedule
from tests.sinks import flat_sink
from tests.spark.streams import SMALL
from timeline.errors import SchemaMismatchError
from timeline.table import open_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def _sink(location: Path, app_id: str | None = None, **given: Any) -> IcebergSink:
    given.setdefault("schema", SchemaContract.evolving())
    return flat_sink(str(location), app_id=app_id, sizing=SMALL, **given)


def _rows(location: Path) -> list[dict[str, Any]]:
    return sorted(
        StaticTable.from_metadata(str(location)).scan().to_arrow().to_pylist(), key=lambda row: row["id"]
    )


def _event(number: int) -> dict[str, Any]:
    event: dict[str, Any] = {"id": number, "amount": number if number < 40 else 2**40 + number}
    if number >= 20:
        event["user"] = {"name": f"n{number}"}
    if number >= 30:
        event["user"]["age"] = number
    if number >= 50:
        event["tags"] = [{"k": "v"}]
    return event


def _write_events(folder: Path, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    for first in range(numbers.start, numbers.stop, 10):
        lines = [json.dumps(_event(number)) for number in range(first, first + 10)]
        (folder / f"{first:04d}.txt").write_text("\n".join(lines) + "\n")


def _run(spark: SparkSession, folder: Path, sink: IcebergSink, checkpoint: Path) -> None:
    def land(batch: DataFrame, batch_id: int) -> None:
        inferred = batch.sparkSession.read.json(batch.rdd.map(lambda row: row.value)).schema
        parsed = batch.select(sf.from_json("value", inferred).alias("row")).select("row.*")
        small = batch_id < 4
        sink(parsed.withColumn("amount", sf.col("amount").cast("int")) if small else parsed, batch_id)

    stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    query = (
        stream.writeStream.foreachBatch(land)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_query_goes_on_while_its_json_gets_columns_and_wider_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, table = tmp_path / "source", tmp_path / "table"
    _write_events(source, range(40))
    _run(spark, source, _sink(table), tmp_path / "checkpoint")
    _write_events(source, range(40, 70))
    _run(spark, source, sink := _sink(table), tmp_path / "checkpoint")

    wanted = [
        {
            "id": number,
            "amount": _event(number)["amount"],
            "user": {"name": f"n{number}", "age": number if number >= 30 else None} if number >= 20 else None,
            "tags": [{"k": "v"}] if number >= 50 else None,
        }
        for number in range(70)
    ]
    # pyiceberg reads a null list of structs as an empty one, from some files.
    assert [{**row, "tags": row["tags"] or None} for row in _rows(table)] == wanted
    # Spark takes files of one second in any order.
    evolved = "; ".join(report.why for report in sink.reports)
    assert evolved.count("amount widened from int to long") == 1
    assert evolved.count("tags added as list<struct<") == 1


def test_a_schema_that_grows_costs_one_version_and_no_data_file(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table", "app")
    sink(spark.range(10), 0)
    files = {path: path.read_bytes() for path in table.rglob("*.parquet")}
    before = open_table(str(table)).head.number
    sink(spark.range(10, 20).withColumn("note", sf.lit("n")), 1)
    assert open_table(str(table)).head.number == before + 2
    assert {path: path.read_bytes() for path in files} == files
    assert [row["note"] for row in _rows(table)] == [None] * 10 + ["n"] * 10


def test_a_plan_from_before_the_schema_grew_is_carried_out_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    sink = _sink(table, "app", fill_policy="never")
    for number in range(3):
        sink(spark.range(10 * number, 10 * number + 10), number)
    plan = schedule(str(table), sort_by=["id"])
    assert plan is not None
    sink(spark.range(30, 40).withColumn("note", sf.lit("n")), 3)
    report = execute(spark, str(table), plan.plan_id)
    assert report is not None
    assert [len(report.committed), len(report.groups)] == [1, 1]
    assert [(row["id"], row["note"]) for row in _rows(table)] == [
        (number, "n" if number >= 30 else None) for number in range(40)
    ]


def test_two_sinks_that_add_the_same_column_converge(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    one, other = _sink(table, "one"), _sink(table, "other")
    one(spark.range(10), 0)
    other(spark.range(10, 20), 0)
    one(spark.range(20, 30).withColumn("note", sf.lit("one")), 1)
    other(spark.range(30, 40).withColumn("note", sf.lit("other")), 1)
    assert [row["note"] for row in _rows(table)] == [None] * 20 + ["one"] * 10 + ["other"] * 10
    assert len(open_table(str(table)).head.metadata.schemas) == 2
    with pytest.raises(SchemaMismatchError, match="note is bigint in the batch and string in the table"):
        other(spark.range(40, 50).withColumn("note", sf.lit(1).cast("long")), 2)
    assert len(_rows(table)) == 40


def test_ignored_columns_are_not_written(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = _sink(table, "app", schema=SchemaContract(new_columns="ignore"))
    sink(spark.range(10), 0)
    sink(spark.range(10, 20).withColumn("debug", sf.create_map(sf.lit("a"), sf.lit(1))), 1)
    assert [list(row) for row in _rows(table)] == [["id"]] * 20
