"""Writes a batch to closed data files in one Spark action: the driver's half of `rows/write_task.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from planners.model import InsertPlan
from planners.routing import Routing
from streaming_sink.spark.jobs import collect_results
from streaming_sink.table.file_jobs import file_job
from streaming_sink.tasks.files.metrics import ColumnMetrics
from streaming_sink.tasks.job import FileIds, KeyJob, Sieve, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import (
    ChangeCounts,
    DeletedKeys,
    DeletedRows,
    Merge,
    MergeSkipped,
    Sifted,
    TaskReport,
    TaskResult,
    WrittenFile,
)
from streaming_sink.tasks.rows.write_task import WriteTask
from streaming_sink.writing.routes import routed, routed_by_key
from timeline.stores.base import Store


@dataclass(frozen=True, slots=True)
class WriteJob:
    """How the rows of one batch are written."""

    store: Store
    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    plan: InsertPlan
    """A plan without buckets leaves the file boundaries to `rows_per_new_file` and `max_file_bytes`."""
    routing: Routing | None
    """Which task writes which bucket; None lets each task write what it reads (`bulk_insert`, whose plan has
    no buckets)."""
    ids: FileIds
    sieve: Sieve | None = None
    """What becomes of rows that fail a check; None where no row is checked."""
    keys: KeyJob | None = None
    """How rows find those that they replace; None where rows are only added."""
    needs_ids: bool = False
    """Whether files that rows join are read by field ids alone, as `WorkerJob`."""
    stated: Mapping[str, ColumnMetrics] = field(default_factory=dict)
    """Of the files that rows join, as `WorkerJob`."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What the tasks wrote: closed and durable files, no others."""

    new: tuple[WrittenFile, ...]
    """The rows of the batch, each exactly once."""
    merges: tuple[Merge, ...]
    skipped: tuple[MergeSkipped, ...]
    tasks: tuple[TaskReport, ...]
    sifted: tuple[Sifted, ...] = ()
    deleted: tuple[DeletedRows, ...] = ()
    """Rows of live files that changes replace or delete; of a file each position once, over all tasks."""
    deleted_keys: tuple[DeletedKeys, ...] = ()
    changes: ChangeCounts | None = None
    """None where rows were only added."""
    """The rows of the batch that failed a check, by task."""

    @property
    def rows(self) -> int:
        """Rows of the batch that are for the table."""
        return sum(file.rows for file in self.new)

    @property
    def all_rows(self) -> int:
        """Rows of the batch, with those that failed a check."""
        return sum(task.rows for task in self.tasks)

    @property
    def has_effect(self) -> bool:
        """Whether there is anything to commit: rows of the batch, unless all of them are changes that change
        nothing.
        """
        if self.changes is None or self.sifted:
            return self.all_rows > 0
        return bool(self.new or self.deleted or any(each.hashes for each in self.deleted_keys))

    @property
    def quarantined(self) -> int:
        return sum(each.quarantined for each in self.sifted)

    @property
    def dropped(self) -> int:
        return sum(each.dropped for each in self.sifted)

    @property
    def quarantine_files(self) -> tuple[WrittenFile, ...]:
        """Files of the quarantine, not of the table."""
        return tuple(file for each in self.sifted for file in each.files)

    @property
    def fingerprint(self) -> int:
        """Of the rows of the batch, as `fingerprint_of` says."""
        return sum(task.fingerprint for task in self.tasks) % 2**64


def write(batch: DataFrame, job: WriteJob) -> WriteResult:
    """Run one Spark action that writes every row of `batch` to new data files, and return what the tasks
    report.

    Files come only from the descriptors of this action (R10): of a task that ran twice, one attempt counts.
    Nothing is committed. A failing task fails the call, as `collect_results` does; the files
    of other tasks stay unreferenced.
    """
    task_job = worker_job(job)
    skips_unfit = job.sieve is not None and job.sieve.unfit is not None
    if job.keys is not None and job.routing is not None:
        rows = routed_by_key(batch, job.routing.tasks, job.keys.columns, job.schema)
    else:
        rows = routed(batch, job.routing, task_job.schema, task_job.partition_by, skips_unfit)
    results: list[TaskResult] = collect_results(rows, WriteTask(task_job))
    return WriteResult(
        new=tuple(each for each in results if isinstance(each, WrittenFile)),
        merges=tuple(each for each in results if isinstance(each, Merge)),
        skipped=tuple(each for each in results if isinstance(each, MergeSkipped)),
        tasks=tuple(each for each in results if isinstance(each, TaskReport)),
        sifted=tuple(each for each in results if isinstance(each, Sifted)),
        deleted=tuple(each for each in results if isinstance(each, DeletedRows)),
        deleted_keys=tuple(each for each in results if isinstance(each, DeletedKeys)),
        changes=_sum([each for each in results if isinstance(each, ChangeCounts)]),
    )


def _sum(counts: Sequence[ChangeCounts]) -> ChangeCounts | None:
    if not counts:
        return None
    return ChangeCounts(*(sum(getattr(each, it.name) for each in counts) for it in fields(ChangeCounts)))


def worker_job(job: WriteJob) -> WorkerJob:
    """Return `job` as the plain values that a task receives."""
    plan, places = job.plan, _named_buckets(job.routing)
    return replace(
        file_job(
            job.store, job, job.ids, plan.max_file_bytes, plan.rows_per_new_file, needs_ids=job.needs_ids
        ),
        tasks={task: _buckets(plan, own) for task, own in places.items()},
        shared=_buckets(plan, job.routing.cold_buckets if job.routing else ()),
        first_free_bucket=len(plan.buckets),
        sieve=job.sieve,
        keys=job.keys,
        stated=job.stated,
    )


def _named_buckets(routing: Routing | None) -> dict[int, list[int]]:
    """Return the indexes in the plan of the buckets that a single task fills, by task."""
    if routing is None:
        return {}
    places = {task: list(own) for task, own in enumerate(routing.own_buckets)}
    for hot in routing.hot:
        for (_, task), buckets in zip(hot.slots, hot.buckets, strict=True):
            places.setdefault(task, []).extend(buckets)
    return places


def _buckets(plan: InsertPlan, places: Iterable[int]) -> TaskBuckets:
    return TaskBuckets(tuple((place, plan.buckets[place]) for place in places))
