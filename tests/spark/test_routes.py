"""On any route, and however wrong its forecast is, a batch's rows are in the table, value for value."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

from planners import FileSizing
from planners.model import Arrival
from streaming_sink import IcebergSink
from streaming_sink.writing.planning import Experience
from tests.spark.streams import head_of, metadata_file
from tests.tiers import only_in_soak

pytestmark = pytest.mark.spark

SIZING = FileSizing(max_file_bytes="32KiB", small_file_bytes="24KiB")
CORES = 2
SLOW, FAST = 1e-9, 1e9
"""Seconds of a task: as if all tasks of a batch took long, or no time at all."""


def _batch(spark, start, rows, slices=4, empty=0):
    """Return rows of which nine in ten are of one partition, in so many slices and some that are empty."""
    ids = spark.range(start, start + rows, 1, slices)
    if empty:
        ids = ids.union(spark.range(0, empty, 1, empty).where("id < 0"))
    return ids.select(
        "id",
        sf.when(sf.col("id") % 10 > 0, "hot").otherwise(sf.concat(sf.lit("p"), sf.col("id") % 7)).alias("p"),
        sf.sha2(sf.col("id").cast("string"), 256).alias("text"),
        sf.struct(
            sf.col("id").alias("a"), sf.array(sf.col("id"), sf.lit(None).cast("bigint")).alias("b")
        ).alias("nested"),
        sf.create_map(sf.lit("k"), sf.col("id").cast("int")).alias("m"),
        sf.when(sf.col("id") % 3 > 0, sf.col("id") / 3).alias("x"),
    )


def _of_batch(batch):
    return Counter(repr(_plain(row.asDict(recursive=True))) for row in batch.collect())


def _of_table(location):
    rows = StaticTable.from_metadata(metadata_file(location)).scan().to_arrow().to_pylist()
    return Counter(repr(_plain({**row, "m": dict(row["m"])})) for row in rows)


def _plain(row):
    return {name: row[name] for name in ("id", "p", "text", "nested", "m", "x")}


SIZES = [
    {"rows": 1, "slices": 1},
    {"rows": 900},
    {"rows": 1500, "slices": 1},
    {"rows": 1, "slices": 1},
    {"rows": 3000, "slices": 2, "empty": 3},
    {"rows": 300, "empty": 5},
    {"rows": 3000},
    {"rows": 2900, "slices": 7},
]


@pytest.mark.parametrize(
    ("partition_by", "seconds"),
    [
        pytest.param([], SLOW, id="whole-slow", marks=only_in_soak),
        pytest.param([], FAST, id="whole-fast"),
        pytest.param(["p"], SLOW, id="p-slow", marks=only_in_soak),
        pytest.param(["p"], FAST, id="p-fast"),
        pytest.param(["bucket(3, id)"], SLOW, id="bucket-slow"),
        pytest.param(["bucket(3, id)"], FAST, id="bucket-fast", marks=only_in_soak),
    ],
)
def test_batches_of_any_size_after_one_another(spark, location, monkeypatch, partition_by, seconds):
    """A batch is forecast from those before it: here ten and a hundred times too low and too high."""
    monkeypatch.setattr("streaming_sink.writing.planning.ONE_TASK_SECONDS", seconds)
    sink = IcebergSink(location, partition_by=partition_by, sizing=SIZING, app_id="app")
    expected: Counter[str] = Counter()
    start = 0
    for number, size in enumerate(SIZES):
        batch = _batch(spark, start, **size)
        expected += _of_batch(batch)
        sink(batch, number)
        start += size["rows"]
    assert _of_table(location) == expected
    forecast = {report.route for report in sink.reports if report.planned_by == "forecast"}
    if seconds == FAST:
        assert forecast == {"one task"}
    elif partition_by:
        assert forecast == {"shuffle"}


_PARTITIONINGS: dict[str, list[str]] = {"whole": [], "p": ["p"], "bucket": ["bucket(3, id)"]}
_FIRST = {"one row": SIZES[0], "empty tasks": SIZES[4], "many": SIZES[6]}
_IN_EVERY_RUN = {("one row", "bucket"), ("empty tasks", "whole"), ("many", "p"), ("many", "whole")}


@pytest.mark.parametrize(
    ("size", "partition_by"),
    [
        pytest.param(
            _FIRST[size],
            _PARTITIONINGS[by],
            id=f"{size}-{by}",
            marks=[] if (size, by) in _IN_EVERY_RUN else [only_in_soak],
        )
        for size in _FIRST
        for by in _PARTITIONINGS
    ],
)
def test_a_first_batch_is_written_in_one_pass_and_cut_by_size(spark, location, partition_by, size):
    sink = IcebergSink(location, partition_by=partition_by, sizing=SIZING, app_id="app")
    batch = _batch(spark, 0, **size)
    sink(batch, 0)
    assert _of_table(location) == _of_batch(batch)
    [report] = sink.reports
    assert report.planned_by == "size"
    assert report.route == ("shuffle" if partition_by else "2 tasks")
    assert "profile" not in report.milliseconds
    # Below the limit are the tails alone: one of each task, or of each partition.
    tails = Counter(file.partition for file in head_of(location).files_below(SIZING.small_file_bytes))
    assert max(tails.values()) <= (1 if partition_by else CORES)


@pytest.mark.parametrize("foreseen", [100, 10_000, pytest.param(1_000, marks=only_in_soak)])
def test_tasks_that_write_what_they_read_fill_small_files(spark, location, monkeypatch, foreseen):
    """Ten times too low, ten times too high, and right."""
    monkeypatch.setattr(Experience, "expected", lambda *_: (Arrival((), foreseen),))
    monkeypatch.setattr("streaming_sink.writing.planning.tasks_that_fit", lambda *_: CORES)
    monkeypatch.setattr("streaming_sink.writing.planning.ONE_TASK_SECONDS", SLOW)
    sink = IcebergSink(location, app_id="app", sizing=replace(SIZING, fill="inline", fill_policy="always"))
    expected: Counter[str] = Counter()
    for number in range(4):
        batch = _batch(spark, number * 1000, 1000, empty=number)
        expected += _of_batch(batch)
        sink(batch, number)
        assert _of_table(location) == expected
    assert [report.route for report in sink.reports][1:] == ["2 tasks"] * 3
    assert sum(report.filled_files for report in sink.reports) > 0


def test_a_counted_batch_of_an_unpartitioned_table_is_not_shuffled(spark, location):
    first = IcebergSink(location, sizing=SIZING, app_id="app")
    batches = [_batch(spark, 0, 100), _batch(spark, 100, 2000)]
    first(batches[0], 0)
    second = IcebergSink(location, app_id="other", sizing=replace(SIZING, fill="inline"))
    second(batches[1], 0)
    assert _of_table(location) == _of_batch(batches[0]) + _of_batch(batches[1])
    assert [(each.planned_by, each.route) for each in second.reports] == [("profile", "2 tasks")]


@pytest.mark.parametrize("expected", [None, (Arrival((), 9),)], ids=["counted", "forecast"])
def test_no_route_takes_more_than_one_pass_over_rows_that_differ_each_time(
    spark, location, monkeypatch, expected
):
    """A row that was computed twice would have two names."""
    monkeypatch.setattr(Experience, "expected", lambda *_: expected)
    sink = IcebergSink(location, app_id="app", sizing=replace(SIZING, fill="inline"))
    for number in range(2):
        batch = _batch(spark, number * 1000, 1000).withColumn("text", sf.expr("uuid()"))
        sink(batch, number)
    rows = StaticTable.from_metadata(metadata_file(location)).scan(selected_fields=("id", "text")).to_arrow()
    assert Counter(rows["id"].to_pylist()) == Counter(range(2000))
    assert len(set(rows["text"].to_pylist())) == 2000
