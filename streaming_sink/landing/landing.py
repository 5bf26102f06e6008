"""The landing of rows from any source: opened, fitted, written, judged, committed, followed, reported."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession

from planners.model import TablePartition
from streaming_sink.landing import outcomes
from streaming_sink.landing.batch_rows import BatchRows
from streaming_sink.landing.checking import RulesOfBatches, delete_written
from streaming_sink.landing.judging import judge
from streaming_sink.landing.operations import operation_of
from streaming_sink.landing.requests import changes_beside, fills_of, request_of
from streaming_sink.landing.row_writing import RowWriting
from streaming_sink.landing.run_states import RunState, RunStates
from streaming_sink.landing.source import FittedT, SinkParts, Source, rehearse_commit
from streaming_sink.landing.stages import Judged, Settled, Written
from streaming_sink.landing.tries import check_helps
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.batch_report import EPOCH_ID, QUERY_ID, BatchReport
from streaming_sink.reports.reporting import MaintenanceReport, Steps
from streaming_sink.seconds.change_log import ChangeLog
from streaming_sink.seconds.quarantine import Quarantine
from streaming_sink.seconds.second_table import SecondTable
from streaming_sink.spark.caller import OUTSIDE, QueryRun
from streaming_sink.spark.settings import check_later_shuffles
from streaming_sink.spark.worker_failures import InvalidTextFoundError, UnreadableFileError
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import data_file
from streaming_sink.upkeep.maintenance import Maintained, Maintenance
from streaming_sink.writing.target import Destination, Target
from timeline.changes.changes import Append, Change
from timeline.errors import CommitConflictError, SchemaMismatchError
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem

_LOG = logging.getLogger("streaming_sink")


class Landing:
    """Lands the rows of one sink, or of one zone, a source at a time. Keeps the open table, the passes beside
    it, and what the batches of each run have shown.
    """

    def __init__(
        self, options: SinkOptions, destination: Destination | None = None, upkeep: SinkOptions | None = None
    ) -> None:
        """`upkeep`: the options of the passes beside, where they are others."""
        self.options = options
        self._destination = destination or Destination(options)
        quarantine, rules = Quarantine(options), RulesOfBatches(options)
        self._operation = operation_of(options)
        self._parts = SinkParts(options, self._destination, rules, self._operation, quarantine)
        self._seconds: list[SecondTable] = [quarantine]
        if options.change_log is not None:
            self._seconds.append(ChangeLog(options, options.change_log))
        self._maintenance = Maintenance(upkeep or options)
        self._runs = RunStates()

    @property
    def location(self) -> str:
        """How reports call the table, as `Destination.name`."""
        return self._destination.name

    def finish(self, timeout_seconds: float | None, *, at_rest: bool = True) -> list[MaintenanceReport]:
        """Wait for the passes beside the stream, as `Maintenance.finish`."""
        self._operation.finish(timeout_seconds)
        every = (self._maintenance, *(each.maintenance for each in self._seconds))
        return [report for each in every for report in each.finish(timeout_seconds, at_rest=at_rest)]

    def known_schema(self) -> Schema | None:
        """Return the table's schema as this process knows it, or None where there is no table yet."""
        return self._destination.known_schema()

    def land_batch(
        self, batch: DataFrame, batch_id: int, run: QueryRun, *, given_before: bool
    ) -> BatchReport:
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
        named = {EPOCH_ID: str(batch_id)} | ({} if run.query_id == OUTSIDE else {QUERY_ID: run.query_id})
        writing = RowWriting(batch.sparkSession, transaction, run.query_id, state.experience)
        source = BatchRows(batch, transaction, named, tried_before, writing)
        return self._land(batch.sparkSession, source, state)

    def land_item(self, session: SparkSession, source: Source[FittedT]) -> BatchReport:
        """Commit the rows of a work item exactly once, and report it. Raises as `IcebergSink`."""
        return self._land(session, source, self._runs.of(QueryRun(source.transaction.app_id, OUTSIDE, "")))

    def writing_of_item(self, session: SparkSession, item: WorkItem) -> RowWriting:
        """Return how the rows of a work item are written, which its source reads."""
        run = QueryRun(item.app_id, OUTSIDE, "")
        return RowWriting(session, item, OUTSIDE, self._runs.of(run).experience)

    def rehearse(self, source: Source[FittedT]) -> bool:
        """Do all that landing the rows does, but for the commit; what was written is deleted. Return whether
        there was anything to commit. Raises as `land_item`.
        """
        for tries in count(1):
            try:
                return self._rehearse(source)
            except (CommitConflictError, InvalidTextFoundError) as conflict:
                check_helps(conflict, tries, source, self._destination)
                self._destination.refresh()
        raise AssertionError("the last try returns or raises")

    def _rehearse(self, source: Source[FittedT]) -> bool:
        steps = Steps()
        fitted = self._fitted(source, self._opened(source, steps, fresh=True), steps)
        if isinstance(fitted, Settled):
            return False
        self._check_clustering(fitted.target)
        fitted = self._ready(fitted)
        written = source.write(self._parts, fitted, steps)
        try:
            source.check(written)
            if written.keyed is None and (table := fitted.target.table) is not None:
                new = tuple(data_file(file, fitted.target.spec) for file in written.result.new)
                changes = [Append(new), *fills_of(written)]
                draft = outcomes.written(written, steps, 1)
                rehearse_commit(table, request_of(source, written, draft, self.options, changes))
        finally:
            delete_written(written.result, self._destination.store, self._parts.quarantine)
        return written.result.all_rows > 0

    def _land(self, session: SparkSession, source: Source[FittedT], state: RunState) -> BatchReport:
        steps = Steps()
        try:
            report = self._report(session, source, state, steps)
        finally:
            self._destination.await_probe()  # of a batch that was empty or refused
        state.last_landed = source.transaction.batch
        return replace(report, table=self.location)

    def _report(
        self, session: SparkSession, source: Source[FittedT], state: RunState, steps: Steps
    ) -> BatchReport:
        # Rows that others change, or fills move, are not where an older head says: it would look twice.
        keys = self.options.keys
        moved = keys is not None and bool(keys.keeps or self._maintenance.has_published())
        beside = keys is not None and self._destination.is_made_first and state.last_landed is not None
        fresh, planned_on = state.last_landed is None or (moved and not beside), 0
        if beside:  # others delete without a tombstone: no change may be late by a row that was gone before
            with steps("head"):
                self._destination.refresh()
        before: Written | None = None
        for tries in count(1):
            try:
                opened = self._opened(source, steps, fresh=fresh and tries == 1)
                fitted = self._fitted(source, opened, steps)
                if isinstance(fitted, Settled):
                    break
                planned_on = fitted.target.version
                if state.last_landed is None:
                    self._check_clustering(fitted.target)
                with steps("head"):
                    fitted = self._ready(fitted)
                    self._prepare_seconds(session, source, fitted.target.table, steps)
                before = written = source.write(self._parts, fitted, steps)
                judged = judge(source, written, self._parts)
                if not written.result.has_effect and not source.is_recorded_empty:
                    return outcomes.empty(source.transaction, written.result, steps)
                draft = outcomes.written(written, steps, tries)
                with steps("commit"):
                    table = fitted.target.table or self._destination.create(fitted.target)
                    self._maintenance.catch_up(table)
                    if written.result.quarantine_files and source.shares_its_name:
                        table.refresh()
                        self._prepare_seconds(session, source, table, steps)
                    is_first = state.last_landed is None or not source.shares_its_name
                    committed, left, draft = self._commit(table, source, judged, draft, is_first)
                break
            except (CommitConflictError, InvalidTextFoundError, UnreadableFileError) as conflict:
                check_helps(conflict, tries, source, self._destination)
                _LOG.warning("%s is planned and written again: %s", source.name, conflict)
                self._destination.refresh()
                known = self._destination.table
                unmoved = known is not None and known.head.number == planned_on
                if unmoved and isinstance(conflict, UnreadableFileError):
                    raise  # else this writer slept until files of the head that it knew were deleted
        if isinstance(fitted, Settled):
            return self._skip(session, source, fitted, before, state, steps)
        if isinstance(committed, AlreadyCommitted):
            return self._skip(session, source, Settled(table), written, state, steps)
        state.epoch = committed.epoch
        source.learn(written, steps)
        maintained = self._follow(session, table, source, judged, left, steps)
        return outcomes.committed(draft, committed, maintained, self.options, steps)

    def _opened(self, source: Source[FittedT], steps: Steps, *, fresh: bool) -> Target | Settled | None:
        """Return the table as the source finds it, if this sink may write to it."""
        with steps("head"):
            opened = source.open(self._parts, fresh=fresh)
            if isinstance(opened, Target):
                self._operation.check(opened)
            return opened

    def _fitted(
        self, source: Source[FittedT], opened: Target | Settled | None, steps: Steps
    ) -> FittedT | Settled:
        return opened if isinstance(opened, Settled) else source.fit(self._parts, opened, steps)

    def _ready(self, fitted: FittedT) -> FittedT:
        """Return the target once it is there, where rows may be quarantined: the table's commit names the
        other's files (R24). The hashes of keys need the table's uuid, and files its location.
        """
        target = fitted.target
        first = fitted.rules.quarantine or self.options.keys is not None or self._destination.is_made_first
        if target.table is None and first:
            target = replace(Target.of(self._destination.create(target)), misfits=target.misfits)
        if target.table is not None and fitted.rules.quarantine:
            self._parts.quarantine.open(target.table)
        return replace(fitted, target=target)

    def _prepare_seconds(
        self, session: SparkSession, source: Source[FittedT], table: Table | None, steps: Steps
    ) -> None:
        if table is not None:
            for each in self._seconds:
                each.prepare(session, table, source.transaction.app_id, steps)

    def _commit(
        self, table: Table, source: Source[FittedT], judged: Judged, draft: BatchReport, is_first: bool
    ) -> tuple[Committed | AlreadyCommitted, Collection[TablePartition], BatchReport]:
        """Commit what was judged. Also return the partitions that rows left, and the draft as committed."""
        written, stated = judged.written, draft
        target, result, ids = written.fitted.target, written.result, written.ids
        beside = changes_beside(source, written, table, self.options, self._seconds, is_first)

        def publish(changes: Sequence[Change], withdrawn: int) -> Committed | AlreadyCommitted:
            nonlocal stated
            stated, these = draft.with_withdrawn(withdrawn), (*changes, *beside)
            return source.publish(table, request_of(source, written, stated, self.options, these))

        new = tuple(data_file(file, target.spec) for file in result.new)
        try:
            return *self._operation.commit(table, target, written.keyed, result, new, ids, publish), stated
        except SchemaMismatchError as changed:
            # Another engine has changed a column since: the new schema may not concern the batch.
            raise CommitConflictError(str(changed), location=changed.location) from changed

    def _follow(
        self,
        session: SparkSession,
        table: Table,
        source: Source[FittedT],
        judged: Judged,
        left: Collection[TablePartition],
        steps: Steps,
    ) -> Maintained:
        """Bring the second tables and the table's files up to the commit."""
        for each in self._seconds:
            each.follow(session, table, source.transaction.app_id, steps)
        spec_id = judged.written.fitted.target.spec.spec_id
        touched = {TablePartition(spec_id, file.partition) for file in judged.written.result.new} | set(left)
        maintained = self._maintenance.after_commit(
            session, table, self._destination.reservations, touched, steps
        )
        self._operation.after_commit(table, touched)
        return maintained

    def _skip(
        self,
        session: SparkSession,
        source: Source[FittedT],
        settled: Settled,
        written: Written | None,
        state: RunState,
        steps: Steps,
    ) -> BatchReport:
        """Complete what a crash may have cut off after the commit; nothing else is left to do."""
        table, transaction = settled.table, source.transaction
        source.check_is_a_replay(table.head, written)
        state.epoch = transaction.epoch_after_skip(table.head.properties)
        with steps("commit"):
            table.tidy()
        for each in self._seconds:
            each.follow(session, table, transaction.app_id, steps)
        maintained = self._maintenance.after_commit(session, table, self._destination.reservations, (), steps)
        return outcomes.skipped(transaction, settled, maintained, steps)

    def _check_clustering(self, target: Target) -> None:
        """Raise ValueError at a run's first batch for a column or partition field that the table lacks."""
        if (clustering := self.options.clustering) is not None:
            clustering.settings.check_table(arrow_schema(target.schema), target.spec, target.head)
