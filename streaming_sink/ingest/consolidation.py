"""Consolidates the files of a work item: profiles, plans, writes right-sized files in tasks, publishes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from planners import CommitSize, TablePartition, bytes_per_row, comparable
from planners.buffering import PlannedItem
from planners.consolidation import SourceRows, TaskShare, partitions_of_shared_files, plan_consolidation
from planners.model import InsertPlan
from streaming_sink.ingest.at_fault import find_at_fault
from streaming_sink.ingest.item_batches import ItemBatches
from streaming_sink.ingest.jobs import run_tasks
from streaming_sink.ingest.profiling import Profiled, Profiling, Work
from streaming_sink.ingest.publishing import NotWantedError, Publishing, Written, since
from streaming_sink.ingest.registering import Registering, register_tasks
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.spark.jobs import parallelism
from streaming_sink.spark.worker_python import Task
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.parquet_properties import metrics_modes, parquet_settings
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.ingest.consolidation_task import ConsolidationTask, Share
from streaming_sink.tasks.ingest.profile_task import SourceProfile
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import delete_files
from streaming_sink.writing.planning import commit_sizes, small_files
from streaming_sink.writing.target import Destination, Target
from streaming_sink.zones.audit import Auditor
from streaming_sink.zones.landed import Landed
from timeline.clock import SYSTEM
from timeline.commit.succession import commit_time
from timeline.errors import CommitConflictError, SchemaMismatchError
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.keys import key_of

_LOG = logging.getLogger("streaming_sink")
_TRIES = 5
_SHRINKS = 3
"""A row is taken to be so many times narrower in a large file than in small ones: 3.6 GB of these became 2.1.
"""


class Consolidation:
    """Lands the work items of one zone, one at a time. Keeps the open table."""

    def __init__(
        self,
        options: SinkOptions,
        app_id: str,
        sources: Sources,
        zone: Store,
        auditor: Auditor | None = None,
        by_reference: bool = False,
    ) -> None:
        self._options, self._app_id, self._sources = options, app_id, sources
        self._registering = Registering(options.location, zone.location, by_reference)
        self._publishing = Publishing(app_id, zone, auditor, options.sizing.small_file_bytes)
        self._fills = auditor is None
        self._destination = Destination(options)
        by_row = bool(options.keys is not None or options.checks.expectations)
        self._profiling = Profiling(options, self._destination, sources, registers=not by_row)
        self._batches = ItemBatches(options, self._destination, sources, self._publishing) if by_row else None

    def finish(self) -> None:
        """Wait for what goes on beside the items."""
        if self._batches is not None:
            self._batches.finish()

    def table(self) -> Table | None:
        """Return the table on its newest head, None where no work item has created it yet."""
        self._destination.refresh()
        return self._destination.table

    def land(self, session: SparkSession, item: PlannedItem, is_wanted: Callable[[], bool]) -> Landed:
        """Land the files of a work item, once, and return what became of it. Files that cannot land are named
        in the answer; the others go on, also where an item fails for an unforeseen reason: then
        halves of it are rehearsed until the files at fault are found, and one commit lands the others.

        `is_wanted` is asked before a step that costs: False where another worker has the item. Raises
        SchemaMismatchError, CommitConflictError and the other errors of a commit; nothing of the item is live
        then, unless the error says that this is unknown. AuditFailedError: the item is staged, and stays so.
        """
        work = Work(item)
        try:
            return self._land_in_time(session, work, is_wanted)
        except Exception as failure:
            at_fault = find_at_fault(work, failure, lambda part: self._rehearse(session, part, is_wanted))
            if not at_fault:
                raise
        return self._land_in_time(session, Work(item, at_fault), is_wanted)

    def _land_in_time(self, session: SparkSession, work: Work, is_wanted: Callable[[], bool]) -> Landed:
        """Land the files of an item that are not rejected yet, again where others commit at the same time."""
        known = dict(work.rejected)
        for tries in range(1, _TRIES + 1):
            try:
                return self._land(session, work, is_wanted)
            except CommitConflictError as conflict:
                if tries == _TRIES:
                    raise
                _LOG.warning("work item %d is planned and written again: %s", work.item.number, conflict)
                work.rejected = dict(known)
        raise AssertionError("the last try returns or raises")

    def _land(self, session: SparkSession, work: Work, is_wanted: Callable[[], bool]) -> Landed:
        started, spent = time.perf_counter(), dict[str, int]()
        table = self.table()
        if table is not None and (done := self._publishing.settle(session, table, work.item)) is not None:
            return done
        profiled = self._profiling.profile(session, work)
        spent["profile"] = since(started)
        _check_is_wanted(work, is_wanted)
        if profiled.target is None:
            return _nothing_landed(work)
        if self._batches is not None:
            return self._batches.land(session, work, profiled, spent)
        written = self._write_all(session, profiled.target, profiled, work, is_wanted)
        spent["write"] = since(started) - spent["profile"]
        return self._publishing.publish(session, profiled.target, work, written, spent)

    def _rehearse(self, session: SparkSession, work: Work, is_wanted: Callable[[], bool]) -> bool:
        """Do all that landing these files does, but for the commit; what was written is deleted. Return
        whether there was a file to do it with. Raises as `land`, and StoreUnavailableError.
        """
        self._destination.refresh()
        profiled = self._profiling.profile(session, work)
        _check_is_wanted(work, is_wanted)
        if profiled.target is None or not profiled.profiles:
            return False
        if self._batches is not None:
            self._batches.rehearse(session, work, profiled)
            return True
        written = self._write_all(session, profiled.target, profiled, work, is_wanted)
        try:
            self._publishing.rehearse(profiled.target, work, written)
        finally:
            delete_files(self._destination.store, written.every)
        return bool(written.every)

    def _write_all(
        self,
        session: SparkSession,
        target: Target,
        profiled: Profiled,
        work: Work,
        is_wanted: Callable[[], bool],
    ) -> Written:
        """Write the rows of the profiled files, without those that turn out to be damaged."""
        written = Written()
        if target.head is not None:
            profiled.reject(
                work, self._registering.registered_before(target.head, work.item, profiled.profiles)
            )
        while profiled.profiles:
            _check_is_wanted(work, is_wanted)
            rewritten = [each for each in profiled.profiles if each.rewritten is not None]
            plan = self._plan(session, target, rewritten)
            written = self._write(session, target, plan, work, profiled.profiles)
            if not written.rejected:
                break
            profiled.reject(work, written.rejected)
            written = Written()
        expected = sum(profile.rows for profile in profiled.profiles)
        if written.rows != expected:
            delete_files(self._destination.store, written.every)
            raise CommitConflictError(
                f"the files of work item {work.item.number} hold {expected:,} rows by their footers, and"
                f" {written.rows:,} were written: a file has changed; nothing of the item is live"
            )
        return written

    def _plan(self, session: SparkSession, target: Target, profiles: Sequence[SourceProfile]) -> _Planned:
        head, options = target.head, self._options
        assert head is not None
        if (key := key_of(head.properties)) is not None:
            raise SchemaMismatchError(
                f"the table has the key {key.describe(head.schema)}, and the buffer zone inserts rows without"
                f" a look at their keys; give the zone an Upsert with that key: {options.location}"
            )
        sources = [
            SourceRows(profile.number, partition, rows)
            for profile in profiles
            for partition, rows in profile.parts
        ]
        partitions = {TablePartition(target.spec.spec_id, comparable(each.partition)) for each in sources}
        reserved, small = self._destination.reservations.files(head), options.sizing.small_file_bytes
        planned = plan_consolidation(
            sources,
            # What is staged is merged with no file, since others may replace that one until it is published.
            tuple(small_files(head, partitions, small, reserved)) if self._fills else (),
            options.sizing,
            bytes_per_row=_width(commit_sizes(head), profiles, options.sizing.max_file_bytes),
            policy=options.fill_policy,
            parallelism=parallelism(session),
        )
        return _Planned(planned.plan, planned.tasks)

    def _write(
        self,
        session: SparkSession,
        target: Target,
        plan: _Planned,
        work: Work,
        profiles: Sequence[SourceProfile],
    ) -> Written:
        rows = {profile.number: profile.rows for profile in profiles}
        job = self._worker_job(target, work.item.number)
        tasks: list[Task] = []
        for share in plan.tasks:
            numbers = dict.fromkeys(source.file for source in share.sources)
            tasks.append(
                ConsolidationTask(
                    _writing(job, plan.plan, share),
                    Share(
                        self._sources,
                        tuple((number, work.item.files[number]) for number in numbers),
                        partitions_of_shared_files(share, plan.tasks),
                        {number: rows[number] for number in numbers},
                    ),
                )
            )
        registered = self._registering.files(work.item, profiles)
        tasks += register_tasks(job, self._sources, registered, parallelism(session))
        written = Written()
        for results in run_tasks(session, f"{self._options.location}: work item {work.item.number}", tasks):
            written.add(results)
        if written.rejected:
            delete_files(self._destination.store, written.every)
        return written

    def _worker_job(self, target: Target, number: int) -> WorkerJob:
        return WorkerJob(
            store=self._destination.store,
            schema=arrow_schema(target.schema),
            partition_by=partition_sources(target.schema, target.spec),
            parquet=parquet_settings(target.properties, target.schema),
            metrics=metrics_modes(target.schema, target.properties),
            ids=FileIds(commit_time(SYSTEM, target.head), self._app_id, number),
            tasks={},
            shared=TaskBuckets(),
            rows_per_new_file=1,
            max_file_bytes=self._options.sizing.max_file_bytes,
            fast_workers=fast_workers.is_enabled(),
        )


def _writing(job: WorkerJob, plan: InsertPlan, share: TaskShare) -> WorkerJob:
    """Return the job of one share of a plan."""
    return replace(
        job,
        shared=TaskBuckets(tuple((place, plan.buckets[place]) for place in share.buckets)),
        rows_per_new_file=plan.rows_per_new_file,
        max_file_bytes=plan.max_file_bytes,
        first_free_bucket=len(plan.buckets),
    )


@dataclass(frozen=True)
class _Planned:
    plan: InsertPlan
    tasks: tuple[TaskShare, ...]


def _width(history: Sequence[CommitSize], profiles: Sequence[SourceProfile], max_file_bytes: int) -> int:
    """Return the bytes of a row: those of the last commits; in a new table, those of the source files."""
    rows = sum(profile.rows for profile in profiles)
    if history or not rows:
        return bytes_per_row(history, max_file_bytes=max_file_bytes)
    # Small files hold their rows in more bytes than a large one will. A width that is too low is harmless: a
    # task ends a file at its size; one that is too high makes files that stay small.
    return max(1, sum(profile.data_bytes for profile in profiles) // rows // _SHRINKS)


def _check_is_wanted(work: Work, is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise NotWantedError(f"another worker has work item {work.item.number}")


def _nothing_landed(work: Work) -> Landed:
    """No file can be read, and there is no table that could remember the item: it stays open."""
    first = next(iter(work.reasons.items()))
    raise SchemaMismatchError(
        f"no file of work item {work.item.number} can be read, and there is no table yet that could remember"
        f" that; it is tried again: {first[0]}: {first[1]}"
    )
