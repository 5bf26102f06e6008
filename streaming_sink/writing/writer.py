"""Writes a batch to closed data files in one Spark action: the driver's half of `rows/write_task.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from planners.model import InsertPlan
from planners.routing import Routing
from streaming_sink.spark.jobs import collect_results
from streaming_sink.table.file_jobs import TableLayout, file_job
from streaming_sink.tasks.files.metrics import ColumnMetrics
from streaming_sink.tasks.job import FileIds, KeyJob, Sieve, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import (
    ChangeCounts,
    DamagedRun,
    DeletedKeys,
    DeletedRows,
    Merge,
    MergeSkipped,
    Sifted,
    TaskReport,
    WrittenFile,
)
from streaming_sink.tasks.rows.write_task import WriteTask
from streaming_sink.writing.routes import routed, routed_by_key
from timeline.stores.base import Store

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What the tasks wrote: closed and durable files, no others."""

    new: tuple[WrittenFile, ...]
    """The rows of the batch, each exactly once."""
    merges: tuple[Merge, ...]
    skipped: tuple[MergeSkipped, ...]
    tasks: tuple[TaskReport, ...]
    sifted: tuple[Sifted, ...] = ()
    """The rows of the batch that failed a check, by task."""
    deleted: tuple[DeletedRows, ...] = ()
    """Rows of live files that changes replace or delete; of a file each position once, over all tasks."""
    deleted_keys: tuple[DeletedKeys, ...] = ()
    changes: ChangeCounts | None = None
    """None where rows were only added."""
    damaged_runs: tuple[DamagedRun, ...] = ()

    @classmethod
    def of(cls, results: Sequence[object]) -> WriteResult:
        """Sort what tasks have reported by its kind."""

        def those(kind: type[_T]) -> tuple[_T, ...]:
            return tuple(each for each in results if isinstance(each, kind))

        return cls(
            those(WrittenFile),
            those(Merge),
            those(MergeSkipped),
            those(TaskReport),
            those(Sifted),
            those(DeletedRows),
            those(DeletedKeys),
            _sum(those(ChangeCounts)),
            those(DamagedRun),
        )

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


def write(batch: DataFrame, job: WorkerJob, routing: Routing | None, schema: Schema) -> WriteResult:
    """Run one Spark action that writes every row of `batch` to new data files, and return what the tasks
    report. `routing`: which task writes which bucket; None lets each task write what it reads (`bulk_insert`,
    whose plan has no buckets). `schema`: the table's.

    Files come only from the descriptors of this action (R10): of a task that ran twice, one attempt counts.
    Nothing is committed. A failing task fails the call, as `collect_results` does; the files
    of other tasks stay unreferenced.
    """
    skips_unfit = job.sieve is not None and job.sieve.unfit is not None
    if job.keys is not None and routing is not None:
        rows = routed_by_key(batch, routing.tasks, job.keys.columns, schema)
    else:
        rows = routed(batch, routing, job.schema, job.partition_by, skips_unfit)
    return WriteResult.of(collect_results(rows, WriteTask(job)))


def _sum(counts: Sequence[ChangeCounts]) -> ChangeCounts | None:
    if not counts:
        return None
    return ChangeCounts(*(sum(getattr(each, it.name) for each in counts) for it in fields(ChangeCounts)))


def worker_job(
    store: Store,
    layout: TableLayout,
    plan: InsertPlan,
    routing: Routing | None,
    ids: FileIds,
    *,
    needs_ids: bool = False,
    sieve: Sieve | None = None,
    keys: KeyJob | None = None,
    stated: Mapping[str, ColumnMetrics] | None = None,
) -> WorkerJob:
    """Return what the tasks of a batch receive. A plan without buckets leaves the file boundaries to
    `rows_per_new_file` and `max_file_bytes`. Without `sieve` no row is checked; without `keys` rows are only
    added; `stated` are the metrics of the files that rows join.
    """
    job = file_job(store, layout, ids, plan.max_file_bytes, plan.rows_per_new_file, needs_ids=needs_ids)
    return replace(
        job,
        tasks={task: _buckets(plan, own) for task, own in _named_buckets(routing).items()},
        shared=_buckets(plan, routing.cold_buckets if routing else ()),
        first_free_bucket=len(plan.buckets),
        sieve=sieve,
        keys=keys,
        stated=stated or {},
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
