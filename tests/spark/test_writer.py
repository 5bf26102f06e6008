# ruff: noqa: DTZ001 - Arrow's timestamps without a zone are Python's naive datetimes
"""One Spark action from a batch to data files, by every route."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyspark.sql import functions as sf

from planners.model import Bucket, InputFile, InsertPlan
from planners.routing import SLOTS, HotRoute, Routing
from streaming_sink.spark.settings import safe_shuffle
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.schema import iceberg_schema
from streaming_sink.table.spec import partition_sources, partition_spec
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.partitioning import source_type, split
from streaming_sink.writing.routes import key_expression
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import worker_job, write
from timeline.errors import SchemaMismatchError
from timeline.stores import LocalStore

pytestmark = pytest.mark.spark

SINGLE = Routing(tasks=1, cold_tasks=1, hot=(), cold_buckets=(), shuffled=False)


def _plan(*buckets, rows=10**6):
    return InsertPlan(tuple(buckets), (), 10, rows, 1 << 30)


def _job(location, batch, partition_by=(), plan=None, routing=SINGLE, schema=None, properties=None):
    schema = schema or iceberg_schema(batch.schema)
    spec = partition_spec(partition_by, schema) if partition_by else UNPARTITIONED_PARTITION_SPEC
    target, ids = Target(None, schema, spec, properties or {}), FileIds(1, "app", 0)
    job = worker_job(LocalStore(location), target, plan or _plan(), routing, ids)
    return job, routing, schema


def _ids(result):
    return sorted(
        each
        for file in result.new
        for each in pq.ParquetFile(file.path).read(["id"]).column("id").to_pylist()
    )


def _batch(spark, rows=1000, slices=4):
    return spark.range(0, rows, 1, slices).select("id", (sf.col("id") % 8).cast("int").alias("p"))


def _shuffled(tasks=3, cold=3, hot=(), cold_buckets=()):
    return Routing(tasks=tasks, cold_tasks=cold, hot=hot, cold_buckets=cold_buckets, shuffled=True)


def _jobs_of(spark, run):
    """Run `run` and return how many Spark jobs it took."""
    context = spark.sparkContext
    group = f"counted-{uuid4()}"  # Spark keeps the jobs of a group: a name must not come twice
    context.setJobGroup(group, "counted")
    try:
        result = run()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    return result, len(context.statusTracker().getJobIdsForGroup(group))


def test_the_coalesced_route_is_one_job_of_one_task(spark, location):
    batch = _batch(spark)
    result, jobs = _jobs_of(spark, lambda: write(batch, *_job(location, batch)))
    assert jobs == 1
    assert _ids(result) == list(range(1000))
    assert [task.rows for task in result.tasks] == [1000]


@pytest.mark.parametrize("partition_by", [["p"], ["bucket(4, id)"]])
def test_the_shuffled_route_is_one_job_with_adaptive_execution_on(spark, location, partition_by):
    batch = _batch(spark)
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    job = _job(location, batch, partition_by, routing=_shuffled())
    with safe_shuffle(spark):  # as a sink plans and writes
        result, jobs = _jobs_of(spark, lambda: write(batch, *job))
    assert jobs == 1
    assert _ids(result) == list(range(1000))
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert max(Counter(file.partition for file in result.new).values()) == 1, (
        "a cold partition came to two tasks"
    )


def test_bulk_insert_writes_in_the_tasks_that_read(spark, location):
    batch = _batch(spark)
    result, jobs = _jobs_of(spark, lambda: write(batch, *_job(location, batch, routing=None)))
    assert jobs == 1
    assert [task.rows for task in result.tasks] == [250] * 4
    assert len(result.new) == 4


def test_a_hot_partition_is_cut_by_slots_and_its_buckets_go_with_their_tasks(spark, location):
    batch = spark.range(10_000).select(
        "id", sf.when(sf.col("id") < 8000, 0).otherwise(sf.col("id") % 5).alias("p")
    )
    buckets = [Bucket((0,), 1000), Bucket((0,), 2000), Bucket((0,), 1000), Bucket((3,), 100)]
    hot = HotRoute((0,), ((SLOTS // 2, 2), (SLOTS, 3)), ((0, 1), (2,)))
    job = _job(location, batch, ["p"], _plan(*buckets), _shuffled(4, 2, (hot,), (3,)))
    result = write(batch, *job)
    assert _ids(result) == list(range(10_000))
    by_bucket = {file.bucket: file for file in result.new}
    assert [by_bucket[n].rows for n in range(4)] == [1000, 2000, 1000, 100]
    shares = {task.task: task.rows for task in result.tasks}
    assert shares[2] + shares[3] == 8400
    assert 3800 < shares[2] < 4600
    assert {file.partition for file in result.new} == {(n,) for n in range(5)}


def test_a_hot_partition_of_a_bucket_transform_is_found(spark, location):
    batch = _batch(spark)
    hot = HotRoute((2,), ((SLOTS, 1),), ((0,),))
    job = _job(location, batch, ["bucket(4, id)"], _plan(Bucket((2,), 10**6)), _shuffled(2, 1, (hot,)))
    result = write(batch, *job)
    assert {file.bucket: file.partition for file in result.new}[0] == (2,)
    in_hot = next(file.rows for file in result.new if file.partition == (2,))
    assert {task.task: task.rows for task in result.tasks} == {0: 1000 - in_hot, 1: in_hot}


def test_a_row_comes_to_the_same_task_however_the_batch_is_sliced(spark, location):
    """R10: a stage that runs again in part must not move a row."""
    hot = HotRoute((1,), ((SLOTS // 3, 1), (SLOTS, 2)), ((), ()))
    seen = []
    for slices in (1, 7):
        batch = _batch(spark, slices=slices)
        result = write(batch, *_job(location, batch, ["p"], routing=_shuffled(3, 2, (hot,))))
        seen.append(sorted((task.task, task.rows) for task in result.tasks))
    assert seen[0] == seen[1]


def test_columns_that_cannot_be_hashed_are_left_out_of_the_hash(spark, location):
    batch = _batch(spark).select(
        "id", "p", sf.create_map(sf.lit("k"), "id").alias("m"), sf.struct(sf.create_map("id", "p")).alias("s")
    )
    hot = HotRoute((1,), ((SLOTS // 2, 0), (SLOTS, 1)), ((), ()))
    result = write(batch, *_job(location, batch, ["p"], routing=_shuffled(2, 1, (hot,))))
    assert _ids(result) == list(range(1000))
    only_maps = batch.select("m")
    hot = HotRoute((), ((SLOTS // 2, 0), (SLOTS, 1)), ((), ()))
    result = write(only_maps, *_job(location, only_maps, routing=_shuffled(2, 1, (hot,))))
    assert sorted(task.rows for task in result.tasks) == [0, 1000]


def test_a_fill_reads_and_merges_through_spark(spark, location):
    batch = _batch(spark, 100)
    small = write(batch, *_job(location, batch)).new[0]
    fill = Bucket((), 1000, (InputFile(small.path, small.rows),), small.bytes, small.rows)
    routing = Routing(tasks=1, cold_tasks=1, hot=(), cold_buckets=(0,), shuffled=False)
    result = write(batch, *_job(location, batch, plan=_plan(fill), routing=routing))
    [merge] = result.merges
    assert merge.inputs == (small.path,)
    assert merge.new == result.new[0].path
    assert merge.merged.rows == 200


def test_adaptive_execution_is_restored_after_a_failure(spark, location):
    batch = _batch(spark).select("id", sf.raise_error(sf.lit("no such day")).cast("int").alias("p"))
    with pytest.raises(Exception, match="no such day"):
        write(batch, *_job(location, batch, ["p"], routing=_shuffled()))
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"


def test_a_null_in_a_required_column_is_a_schema_mismatch(spark, location):
    batch = spark.range(3).select("id", sf.when(sf.col("id") != 1, sf.lit(1)).alias("p"))
    schema = iceberg_schema(batch.schema)
    schema = type(schema)(*(field.model_copy(update={"required": True}) for field in schema.fields))
    with pytest.raises(SchemaMismatchError, match="required by the table but holds nulls: p"):
        write(batch, *_job(location, batch, schema=schema))


TIMES = [
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1),
    datetime(1960, 2, 29, 12),
    datetime(2024, 7, 1, 23, 30),
]
SPECS = [
    "d", "year(d)", "month(d)", "day(d)", "z", "year(z)", "month(z)", "day(z)", "hour(z)", "n", "year(n)",
    "month(n)", "day(n)", "hour(n)", "i", "truncate(7, i)", "truncate(3, s)", "truncate(2, b)", "s", "m",
    "truncate(7, m)", "st.x", "bucket(3, s)", "odd name", "f",
]  # fmt: skip
WITHOUT_EXPRESSION = ["n", "truncate(7, m)", "bucket(3, s)"]


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_spark_and_the_workers_agree_on_every_partition_key(spark, location, zone):
    """A hot partition's rows must be recognised by the expression, whatever the session's time zone."""
    kept = spark.conf.get("spark.sql.session.timeZone")
    rows = [
        (at.isoformat(" "), n - 2, ["é😀xy", "", "日本語", "a"][n], Decimal(n - 2) / 3)
        for n, at in enumerate(TIMES)
    ]
    rows.append((None, None, None, None))
    batch = spark.createDataFrame(rows, "t string, i int, s string, m decimal(10,2)").select(
        sf.concat("t", sf.lit("Z")).cast("timestamp").alias("z"),
        sf.col("t").cast("timestamp_ntz").alias("n"),
        sf.to_date("t").alias("d"),
        "i",
        "s",
        "m",
        sf.col("s").cast("binary").alias("b"),
        sf.when(sf.col("i") > -2, sf.struct(sf.col("i").alias("x"))).alias("st"),
        sf.col("i").alias("odd name"),
        sf.when(sf.col("i") == 0, sf.lit(float("nan"))).otherwise(sf.col("i") / 2).alias("f"),
    )
    table = arrow_schema(iceberg_schema(batch.schema))
    schema = iceberg_schema(batch.schema)
    table = arrow_schema(schema)
    arrow = conform(batch.toArrow().combine_chunks().to_batches()[0], table)
    checks, specs = [], []
    for text in SPECS:
        [field] = partition_sources(schema, partition_spec([text], schema))
        column = key_expression(field, source_type(table, field.source))
        if column is None:
            assert text in WITHOUT_EXPRESSION
            continue
        keys = [key[0] for key, _ in split(arrow, (field,))]
        matches = [column.eqNullSafe(sf.lit(key)).cast("int") for key in keys]
        checks.append(sum(matches[1:], matches[0]))
        specs.append(text)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for row in batch.select(*checks).collect():
            assert dict(zip(specs, row, strict=True)) == dict.fromkeys(specs, 1)
    finally:
        spark.conf.set("spark.sql.session.timeZone", kept)


@pytest.mark.parametrize("partition_by", [["p"], ["truncate(2, p)", "bucket(4, id)"]])
def test_a_batch_without_the_partition_column_is_shuffled_as_nulls(spark, location, partition_by):
    whole = _batch(spark)
    job = _job(location, whole, partition_by, routing=_shuffled(), schema=iceberg_schema(whole.schema))
    result = write(whole.drop("p"), *job)
    assert _ids(result) == list(range(1000))
    assert {file.partition[0] for file in result.new} == {None}


@pytest.mark.parametrize("transform", ["bucket(4, d)", "truncate(3, d)"])
@pytest.mark.parametrize("rows", [1, 9])
def test_partitions_of_decimals_take_any_number_of_rows(spark, location, transform, rows):
    batch = spark.range(rows).selectExpr("id", "cast(id as string) s", "cast(id as decimal(10, 2)) d")
    result = write(batch, *_job(location, batch, [transform]))
    assert _ids(result) == list(range(rows))
