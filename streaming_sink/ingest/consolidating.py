"""Consolidates the files of a work item: plans, and writes right-sized files in tasks; large ones that fit
are registered as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from planners.ingestion.consolidation import (
    ConsolidationPlan,
    SourceRows,
    TaskShare,
    partitions_of_shared_files,
    plan_consolidation,
)
from planners.model import InsertPlan, TablePartition, comparable
from planners.sizing import CommitSize, bytes_per_row
from streaming_sink.ingest.item_source import FittedItem, nothing_written
from streaming_sink.ingest.jobs import run_tasks
from streaming_sink.ingest.registering import Registering, allow_references, register_tasks
from streaming_sink.landing.row_writing import file_ids
from streaming_sink.landing.source import SinkParts
from streaming_sink.landing.stages import Written
from streaming_sink.reports.reporting import Steps
from streaming_sink.spark.jobs import Task, parallelism
from streaming_sink.table.file_jobs import file_job
from streaming_sink.table.planned_files import small_files
from streaming_sink.tasks.ingest.consolidation_task import ConsolidationTask, Share
from streaming_sink.tasks.ingest.profile_task import SourceMisstated, SourceProfile, SourceRejected
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import delete_files
from streaming_sink.writing.planning import Planned, commit_sizes
from streaming_sink.writing.writer import WriteResult
from timeline.stores.base import Store
from timeline.versions.work_items import WorkItem

_SHRINKS = 3
"""A row is taken to be so many times narrower in a large file than in small ones: 3.6 GB of these became 2.1.
"""


@dataclass(frozen=True)
class Consolidating:
    """Writes the rows of many files into few, and the small files of the table with them."""

    session: SparkSession
    sources: Sources
    registering: Registering
    fills: bool
    """Whether rows join small files of the table. What is staged is merged with none: others may replace that
    one until it is published."""
    check_is_wanted: Callable[[], None]

    def fit(self, parts: SinkParts, fitted: FittedItem) -> FittedItem:  # noqa: ARG002
        """Rows need no more than the columns of their files."""
        return fitted

    def write(self, parts: SinkParts, fitted: FittedItem, transaction: WorkItem, steps: Steps) -> Written:
        """Write the rows of the files, without those that turn out to be damaged."""
        profiled, work, target = fitted.profiled, fitted.work, fitted.target
        assert target.table is not None
        assert target.head is not None
        known = self.registering.registered_before(target.head, work.item, profiled.profiles)
        profiled.reject(work, known)
        while profiled.profiles:
            self.check_is_wanted()
            with steps("plan"):
                plan = self._plan(parts, fitted)
            with steps("write"):
                ids = file_ids(fitted, transaction)
                result, unfit = self._write(parts, fitted, plan, ids)
            if not unfit:
                allow_references(target.table, (file.path for file in result.new))
                return Written(fitted, Planned(plan.plan, None, "files"), ids, result)
            profiled.rewrite(work, [each for each in unfit if isinstance(each, SourceMisstated)])
            profiled.reject(work, [each for each in unfit if isinstance(each, SourceRejected)])
        return nothing_written(parts.options, fitted, transaction)

    def learn(self, written: Written, steps: Steps) -> None:
        """Files say what they hold: nothing is to be guessed of the next ones."""

    def _plan(self, parts: SinkParts, fitted: FittedItem) -> ConsolidationPlan:
        head, options = fitted.target.head, parts.options
        assert head is not None
        profiles = [each for each in fitted.profiled.profiles if each.rewritten is not None]
        sources = [
            SourceRows(profile.number, partition, rows, profile.copied)
            for profile in profiles
            for partition, rows in profile.parts
        ]
        spec_id, sizing = fitted.target.spec.spec_id, options.sizing
        partitions = {TablePartition(spec_id, comparable(each.partition)) for each in sources}
        reserved = parts.destination.reservations.files(head)
        small = small_files(head, partitions, sizing.small_file_bytes, reserved)
        return plan_consolidation(
            sources,
            tuple(small) if self.fills else (),
            sizing,
            bytes_per_row=_width(commit_sizes(head), profiles, sizing.max_file_bytes),
            policy=options.fill_policy,
            parallelism=parallelism(self.session),
        )

    def _write(
        self, parts: SinkParts, fitted: FittedItem, plan: ConsolidationPlan, ids: FileIds
    ) -> tuple[WriteResult, list[SourceRejected | SourceMisstated]]:
        """Return what was written, and which files do not land as it was planned: then nothing was."""
        item, profiles = fitted.work.item, fitted.profiled.profiles
        job = file_job(parts.destination.store, fitted.target, ids, parts.options.sizing.max_file_bytes)
        rows = {profile.number: profile.rows for profile in profiles}
        copied = frozenset(profile.number for profile in profiles if profile.copied)
        tasks: list[Task] = []
        for share in plan.tasks:
            numbers = dict.fromkeys(source.file for source in share.sources)
            of_task = Share(
                self.sources,
                tuple((number, item.files[number]) for number in numbers),
                partitions_of_shared_files(share, plan.tasks),
                {number: rows[number] for number in numbers},
                copied.intersection(numbers),
            )
            tasks.append(ConsolidationTask(_job_of(job, plan.plan, share), of_task))
        registered = self.registering.files(item, profiles)
        tasks += register_tasks(job, self.sources, registered, parallelism(self.session))
        name = f"{parts.options.location}: work item {item.number}"
        results = [each for task in run_tasks(self.session, name, tasks) for each in task]
        unfit = [each for each in results if isinstance(each, SourceRejected | SourceMisstated)]
        written = WriteResult.of(results)
        if unfit:
            _delete(parts.destination.store, written)
        return written, unfit


def _delete(store: Store, result: WriteResult) -> None:
    delete_files(store, [*result.new, *(merge.merged for merge in result.merges)])


def _job_of(job: WorkerJob, plan: InsertPlan, share: TaskShare) -> WorkerJob:
    """Return the job of one share of a plan."""
    return replace(
        job,
        shared=TaskBuckets(tuple((place, plan.buckets[place]) for place in share.buckets)),
        rows_per_new_file=plan.rows_per_new_file,
        max_file_bytes=plan.max_file_bytes,
        first_free_bucket=len(plan.buckets),
    )


def _width(history: Sequence[CommitSize], profiles: Sequence[SourceProfile], max_file_bytes: int) -> int:
    """Return the bytes of a row: of row groups that are copied those that they have, and of others those of
    the last commits; in a new table, those of the source files.
    """
    copied = [profile for profile in profiles if profile.copied]
    rows = sum(profile.rows for profile in profiles)
    known, known_rows = sum(each.data_bytes for each in copied), sum(each.rows for each in copied)
    if history or rows == known_rows:
        width = bytes_per_row(history, max_file_bytes=max_file_bytes)
    else:
        # Small files hold their rows in more bytes than a large one will. A width that is too low is
        # harmless: a task ends a file at its size; one that is too high makes files that stay small.
        others = sum(profile.data_bytes for profile in profiles) - known
        width = max(1, others // (rows - known_rows) // _SHRINKS)
    return max(1, (known + width * (rows - known_rows)) // rows) if rows else width
