"""The driver's side of writing: one Spark action from a batch to closed data files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession

from planners.model import Bucket
from streaming_sink.parquet_properties import metrics_modes, parquet_settings
from streaming_sink.routes import Route, routed
from streaming_sink.schema import arrow_schema
from streaming_sink.worker import WriteTask
from streaming_sink.writejob import (
    RESULT_COLUMN,
    FileIds,
    Merge,
    MergeSkipped,
    PartitionSource,
    TaskBuckets,
    TaskReport,
    WorkerJob,
    WrittenFile,
    decode,
)
from timeline.stores.base import Store

_ADAPTIVE = "spark.sql.adaptive.enabled"


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What one batch is written by."""

    store: Store
    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    route: Route
    buckets: tuple[Bucket, ...]
    """As the plan orders them."""
    tasks: Mapping[int, tuple[int, ...]]
    """Task -> indexes of its buckets."""
    rows_per_new_file: int
    max_file_bytes: int
    ids: FileIds


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What the tasks wrote: every file here is closed and durable, and no other file of this action is live."""

    new: tuple[WrittenFile, ...]
    """The rows of the batch, each exactly once."""
    merges: tuple[Merge, ...]
    skipped: tuple[MergeSkipped, ...]
    tasks: tuple[TaskReport, ...]

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return sum(file.rows for file in self.new)


def write(batch: DataFrame, job: WriteJob) -> WriteResult:
    """Run one Spark action that writes every row of `batch` to new data files, and return what the tasks report.

    Files come only from the descriptors of this action (R10): a task that ran twice reports once. Nothing is
    committed. A failing task fails the call; what others wrote by then is unreferenced.
    """
    rows = routed(batch, job.route).mapInArrow(WriteTask(worker_job(job)), f"{RESULT_COLUMN} binary")
    with _without_adaptive_execution(batch.sparkSession):
        collected = rows.collect()
    results = [decode(bytes(row[0])) for row in collected]
    return WriteResult(
        new=tuple(each for each in results if isinstance(each, WrittenFile)),
        merges=tuple(each for each in results if isinstance(each, Merge)),
        skipped=tuple(each for each in results if isinstance(each, MergeSkipped)),
        tasks=tuple(each for each in results if isinstance(each, TaskReport)),
    )


def worker_job(job: WriteJob) -> WorkerJob:
    """Return `job` as the plain values that tasks are told."""
    return WorkerJob(
        store=job.store,
        schema=arrow_schema(job.schema),
        partition_by=partition_sources(job.schema, job.spec),
        parquet=parquet_settings(job.properties),
        metrics=metrics_modes(job.schema, job.properties),
        ids=job.ids,
        tasks={
            task: TaskBuckets(tuple((index, job.buckets[index]) for index in indexes))
            for task, indexes in job.tasks.items()
        },
        rows_per_new_file=job.rows_per_new_file,
        max_file_bytes=job.max_file_bytes,
        first_free_bucket=len(job.buckets),
    )


def partition_sources(schema: Schema, spec: PartitionSpec) -> tuple[PartitionSource, ...]:
    """Return the fields of `spec` with their source columns by name."""
    sources = []
    for field in spec.fields:
        name = schema.find_column_name(field.source_id)
        assert name is not None
        sources.append(PartitionSource(field.name, tuple(name.split(".")), str(field.transform)))
    return tuple(sources)


@contextmanager
def _without_adaptive_execution(session: SparkSession) -> Iterator[None]:
    """Adaptive execution would run a shuffle's two stages as two jobs."""
    before = session.conf.get(_ADAPTIVE)
    if before == "false":
        yield
        return
    session.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        session.conf.set(_ADAPTIVE, before)
