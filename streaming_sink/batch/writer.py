"""The driver's side of writing: one Spark action from a batch to closed data files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from planners.model import InsertPlan
from planners.routing import Routing
from streaming_sink.batch.routes import routed
from streaming_sink.spark.worker_failures import explain_worker_failure
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.parquet_properties import metrics_modes, parquet_settings
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.job import (
    RESULT_COLUMN,
    FileIds,
    Merge,
    MergeSkipped,
    TaskBuckets,
    TaskReport,
    WorkerJob,
    WrittenFile,
    decode,
)
from streaming_sink.tasks.worker import WriteTask
from timeline.stores.base import Store

_RESULT = StructType([StructField(RESULT_COLUMN, BinaryType())])


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What one batch is written by."""

    store: Store
    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    plan: InsertPlan
    """With no buckets every row is cut by `rows_per_new_file` and `max_file_bytes`."""
    routing: Routing | None
    """Which task writes which bucket; None lets tasks write what they read (`bulk_insert`; the plan has no
    buckets)."""
    ids: FileIds


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What the tasks wrote. Every file here is closed and durable; none else is reported."""

    new: tuple[WrittenFile, ...]
    """The rows of the batch, each exactly once."""
    merges: tuple[Merge, ...]
    skipped: tuple[MergeSkipped, ...]
    tasks: tuple[TaskReport, ...]

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return sum(file.rows for file in self.new)

    @property
    def fingerprint(self) -> int:
        """Of the rows of the batch, as `fingerprint_of` says."""
        return sum(task.fingerprint for task in self.tasks) % 2**64


def write(batch: DataFrame, job: WriteJob) -> WriteResult:
    """Run one Spark action that writes every row of `batch` to new data files, and return what the tasks
    report.

    Files come only from the descriptors of this action (R10): a task that ran twice reports once. Nothing is
    committed. A failing task fails the call, as `explain_worker_failure` names it; what others wrote by then
    is
    unreferenced.
    """
    told = worker_job(job)
    rows = routed(batch, job.routing, told.schema, told.partition_by)
    written = rows.mapInArrow(WriteTask(told), _RESULT)
    try:
        collected = written.collect()
    except Exception as failure:
        explained = explain_worker_failure(failure)
        if explained is None:
            raise
        raise explained from failure
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
        parquet=parquet_settings(job.properties, job.schema),
        metrics=metrics_modes(job.schema, job.properties),
        ids=job.ids,
        tasks={task: _buckets(job.plan, places) for task, places in _hot_buckets(job.routing).items()},
        shared=_buckets(job.plan, job.routing.cold_buckets if job.routing else ()),
        rows_per_new_file=job.plan.rows_per_new_file,
        max_file_bytes=job.plan.max_file_bytes,
        first_free_bucket=len(job.plan.buckets),
        fast_workers=fast_workers.wanted(),
    )


def _hot_buckets(routing: Routing | None) -> dict[int, list[int]]:
    """Return the places in the plan of the buckets that one task alone fills, by task."""
    places: dict[int, list[int]] = {}
    for hot in routing.hot if routing else ():
        for (_, task), buckets in zip(hot.slots, hot.buckets, strict=True):
            places.setdefault(task, []).extend(buckets)
    return places


def _buckets(plan: InsertPlan, places: Iterable[int]) -> TaskBuckets:
    return TaskBuckets(tuple((place, plan.buckets[place]) for place in places))
