"""One micro-batch from DataFrame to commit: checked, planned, written, committed, reported."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession

from planners import TablePartition
from streaming_sink.keyed.by_key import ChangesByKey, KeyedWrite
from streaming_sink.landing import outcomes
from streaming_sink.landing.checking import (
    RulesOfBatches,
    check_as_counted,
    check_is_acceptable,
    delete_written,
    sieve_of,
)
from streaming_sink.landing.given import Given
from streaming_sink.landing.prepare import prepared
from streaming_sink.landing.run_states import RunState, RunStates
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.batch_report import EPOCH_ID, QUERY_ID, BatchReport
from streaming_sink.reports.reporting import MaintenanceReport
from streaming_sink.reports.steps import Steps
from streaming_sink.seconds.change_log import ChangeLog
from streaming_sink.seconds.quarantine import Quarantine
from streaming_sink.spark.caller import OUTSIDE, Run
from streaming_sink.spark.jobs import parallelism
from streaming_sink.spark.settings import check_later_shuffles
from streaming_sink.spark.worker_failures import InvalidTextFoundError, UnreadableFileError
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.checks import REPLAY_APP, RowRules, apply_rules, came_schema
from streaming_sink.table.data_files import data_file, fill_of
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.rows.failures import REFUSE
from streaming_sink.upkeep.maintenance import Maintenance
from streaming_sink.writing.planning import Planned
from streaming_sink.writing.target import Destination, Target, is_committed
from streaming_sink.writing.writer import WriteJob, WriteResult, write
from timeline.clock import SYSTEM
from timeline.commit.changes import Change
from timeline.commit.plan_changes import CountCommit
from timeline.commit.succession import commit_time
from timeline.errors import CommitConflictError, RowsChangedError
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem

_LOG = logging.getLogger("streaming_sink")
_CONFLICT_TRIES = 3
_ROWS_CHANGED_TRIES = 20
"""Tries where others keep changing the same rows: each time one of the writers has landed."""


class Landing:
    """Lands the batches of one sink, one at a time. Keeps the open table, the passes of clustering, and what
    the batches of each run have shown.
    """

    def __init__(self, options: SinkOptions, destination: Destination | None = None) -> None:
        self.options = options
        self.maintenance = Maintenance(options)
        self._destination = destination or Destination(options)
        self._rules = RulesOfBatches(options)
        self._quarantine = Quarantine(options)
        self._change_log = ChangeLog(options)
        self._keys = ChangesByKey(options)
        self._runs = RunStates()

    @property
    def location(self) -> str:
        """The table's location, as its store spells it."""
        return self._destination.store.location

    def finish(self, timeout_seconds: float | None) -> list[MaintenanceReport]:
        """Wait for the passes beside the stream, as `Maintenance.finish`."""
        self._keys.finish(timeout_seconds)
        every = (self.maintenance, self._quarantine.maintenance, self._change_log.maintenance)
        return [report for each in every for report in each.finish(timeout_seconds)]

    def known_schema(self) -> Schema | None:
        """Return the table's schema as this process knows it, or None where there is no table yet."""
        return self._destination.known_schema()

    def land(self, batch: DataFrame, batch_id: int, run: Run, *, given_before: bool) -> BatchReport:
        """Commit the batch's rows exactly once, and report it; see `IcebergSink` for the errors.

        `given_before` says that this very DataFrame has landed in this run under this number.
        """
        state = self._runs.of(run)
        if state.last_tried is None:
            check_later_shuffles(batch, self.options.location)
        tried_before, state.last_tried = given_before or state.last_tried == batch_id, batch_id
        transaction = Transaction(
            run.app_id, run.query_id, run.run_id, batch_id, state.epoch, self.options.takeover_from
        )
        summary = {EPOCH_ID: str(batch_id)} | ({} if run.query_id == OUTSIDE else {QUERY_ID: run.query_id})
        return self._land(batch, Given(transaction, run.query_id, summary, tried_before), state)

    def land_item(
        self, batch: DataFrame, item: WorkItem, rows: int, summary: Mapping[str, str], rehearsed: bool = False
    ) -> BatchReport:
        """Commit the rows of a work item exactly once, under entries of the snapshot's summary; an item
        without rows is recorded, too. `rehearsed`: write them, and delete what was written in the place of a
        commit. CommitConflictError where other than so many rows came.
        """
        given = Given(item, OUTSIDE, summary, tried_before=True, rows=rows, rehearsed=rehearsed)
        return self._land(batch, given, self._runs.of(Run(item.app_id, OUTSIDE, "")))

    def _land(self, batch: DataFrame, given: Given, state: RunState) -> BatchReport:
        steps, transaction = Steps(), given.transaction
        # For any other application the column that marks rows as replayed is a reserved name.
        came = self._keys.written_schema(
            came_schema(batch) if transaction.app_id.startswith(REPLAY_APP) else batch.schema
        )
        with steps("head"):
            # Rows that others change, or fills move, are not where an older head says: it would look twice.
            keys = self.options.keys
            moved = keys is not None and bool(keys.keeps or self.maintenance.has_published())
            target = self._destination.target(came, fresh=state.last_landed is None or moved)
            if not is_committed(target, transaction):
                self._keys.check(target)
                if self.options.checks.expectations:  # refused before the schema evolves, if they are none
                    self._rules.of(batch, target.schema, self._destination.misfits(target, came))
                target = self._destination.fit(target, came, transaction)
                self._check_clustering(target, state)
            table = target.table if is_committed(target, transaction) else None
        if table is None:
            try:
                report = self._write_and_commit(batch, target, given, state, steps)
            finally:
                self._destination.await_probe()  # of a batch that was empty or refused
        else:
            given.check_is_a_replay(table.head)
            state.epoch = transaction.epoch_after_skip(table.head.properties)
            report = self._skip(batch.sparkSession, transaction, table, steps)
        state.last_landed = transaction.batch
        return replace(report, table=self.location)

    def _write_and_commit(
        self, batch: DataFrame, target: Target, given: Given, state: RunState, steps: Steps
    ) -> BatchReport:
        session, transaction = batch.sparkSession, given.transaction
        cores = parallelism(session)
        for tries in count(1):
            planned_on = target.version
            try:
                with steps("head"):
                    rules = self._rules.of(batch, target.schema, target.misfits)
                    target = self._ready(target, rules, batch, transaction)
                if target.table is not None:
                    self._change_log.open(session, target.table, steps)
                preparing = prepared(
                    apply_rules(self._keys.changes(batch, target), rules),
                    target,
                    self._destination,
                    self.options,
                    state.experience,
                    cores,
                    steps,
                    rules.unfit != REFUSE,
                )
                with preparing as (rows, planned), steps("write"):
                    job = self._write_job(target, planned, transaction)
                    keyed = self._keys.begin(target)
                    sieve = sieve_of(rules, batch, job.ids, given.query_id, self._quarantine, target)
                    keys = None if keyed is None else keyed.job
                    result = write(rows, replace(job, sieve=sieve, keys=keys))
                check_as_counted(planned, result)
                given.check_rows(result)
                if given.rehearsed:
                    delete_written(result, self._destination.store, self._quarantine)
                    return outcomes.empty(transaction, result, steps)
                check_is_acceptable(rules, result, self.options, self._destination.store, self._quarantine)
                if not result.has_effect and given.rows is None:
                    return outcomes.empty(transaction, result, steps)
                draft = outcomes.written(transaction, result, planned, target, rules, steps, tries)
                with steps("commit"):
                    table = target.table or self._destination.create(target)
                    self.maintenance.catch_up(table)
                    committed, left = self._commit(table, target, job.ids, keyed, result, given, draft)
                break
            except (CommitConflictError, InvalidTextFoundError, UnreadableFileError) as conflict:
                text = isinstance(conflict, InvalidTextFoundError)
                helps = not text or self._destination.begin_to_check_text()
                changed = isinstance(conflict, RowsChangedError)
                if tries >= (_ROWS_CHANGED_TRIES if changed else _CONFLICT_TRIES) or not helps:
                    raise
                _LOG.warning(
                    "batch %d of %s is planned and written again: %s",
                    transaction.batch,
                    transaction.app_id,
                    conflict,
                )
                self._destination.refresh()
                came = self._keys.written_schema(came_schema(batch))
                known = self._destination.target(came, fresh=False)
                if isinstance(conflict, UnreadableFileError) and known.version == planned_on:
                    raise  # else this writer slept until files of the head that it knew were deleted
                target = self._destination.fit(known, came, transaction)
                self._keys.check(target)
        if isinstance(committed, AlreadyCommitted):
            given.check_is_a_replay(table.head, result)
            state.epoch = committed.epoch
            return self._skip(session, transaction, table, steps)
        state.epoch = committed.epoch
        if result.rows:
            state.experience.add(result, planned, target.spec.spec_id, steps.seconds("write"), cores)
        self._quarantine.after_commit(session, table, transaction.app_id, steps)
        self._change_log.follow(session, table, steps)
        touched = {TablePartition(target.spec.spec_id, file.partition) for file in result.new} | set(left)
        maintained = self.maintenance.after_commit(
            session, table, self._destination.reservations, touched, steps
        )
        self._keys.after_commit(table, touched)
        return outcomes.committed(draft, committed, maintained, self.options, steps)

    def _ready(
        self, target: Target, rules: RowRules, batch: DataFrame, transaction: Transaction | WorkItem
    ) -> Target:
        """Return the target once what the application's last commit left for the quarantine is there and,
        where rows may be quarantined, once both tables are: the main one's names the other's files (R24). The
        hashes of keys need the table's uuid.
        """
        if (rules.quarantine or self.options.keys is not None) and target.table is None:
            self._destination.create(target)
            came = self._keys.written_schema(came_schema(batch))
            known = self._destination.target(came, fresh=False)
            target = replace(known, misfits=target.misfits)
        if target.table is not None:
            if rules.quarantine:
                self._quarantine.open(target.table)
            self._quarantine.deliver(target.table, transaction.app_id)
        return target

    def _write_job(self, target: Target, planned: Planned, transaction: Transaction | WorkItem) -> WriteJob:
        # The time in the files' names follows the table's, since the garbage fence compares the two (R6).
        return WriteJob(
            store=self._destination.store,
            schema=target.schema,
            spec=target.spec,
            properties=target.properties,
            plan=planned.plan,
            routing=planned.routing,
            ids=FileIds(commit_time(SYSTEM, target.head), transaction.app_id, transaction.batch),
        )

    def _commit(
        self,
        table: Table,
        target: Target,
        ids: FileIds,
        keyed: KeyedWrite | None,
        result: WriteResult,
        given: Given,
        draft: BatchReport,
    ) -> tuple[Committed | AlreadyCommitted, Collection[TablePartition]]:
        """Commit what was written. Also return the partitions that rows left."""
        transaction = given.transaction
        new = tuple(data_file(file, target.spec) for file in result.new)
        fills = [fill_of(merge, target.spec) for merge in result.merges]
        summary = {**draft.to_summary(), **given.summary}
        counted: list[Change] = [] if self.options.clustering is None else [CountCommit()]
        named = self._quarantine.change(table, transaction.app_id, result)
        counted += self._change_log.changes()
        if self.options.retention is not None and transaction.epoch is None:  # a run's first commit
            counted += self.options.retention.changes(table.head.properties)
        beside = [*fills, named, *counted]

        def publish(changes: Sequence[Change]) -> Committed | AlreadyCommitted:
            return table.commit(
                [*changes, *beside],
                schema_id=target.schema.schema_id,
                transaction=transaction,
                summary=summary,
                open_below_bytes=self.options.sizing.small_file_bytes,
            )

        return self._keys.commit(table, target, keyed, result, new, ids, publish)

    def _skip(
        self, session: SparkSession, transaction: Transaction | WorkItem, table: Table, steps: Steps
    ) -> BatchReport:
        """Complete what a crash may have cut off after the batch's commit; nothing else is left to do."""
        with steps("commit"):
            table.tidy()
        self._quarantine.after_commit(session, table, transaction.app_id, steps)
        self._change_log.open(session, table, steps)
        maintained = self.maintenance.after_commit(session, table, self._destination.reservations, (), steps)
        return outcomes.skipped(transaction, table, maintained, steps)

    def _check_clustering(self, target: Target, state: RunState) -> None:
        """Raise ValueError at a run's first batch for a sort column that the table does not have."""
        if self.options.clustering is not None and state.last_landed is None:
            self.options.clustering.settings.check_columns(arrow_schema(target.schema))
