"""The change log of a sink: a second table that gets what each version of the main one has changed, once.

The main table's commit decides: what a version changed is read from its snapshot afterwards, and appended
under the version's number. Versions that a killed process has left out come with the next batch. The log has
appends and fills alone, so that stream readers follow it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from planners.model import InsertPlan, TablePartition
from streaming_sink.options.table_options import options_of_second_table
from streaming_sink.reading.changes import CHANGE_TYPE, changes_of
from streaming_sink.reading.pieces import changed_pieces
from streaming_sink.reports.maintenance_report import DeliveryReport
from streaming_sink.reports.reporting import hand_over
from streaming_sink.seconds.second_table import open_or_create
from streaming_sink.spark.jobs import parallelism
from streaming_sink.spark.worker_failures import UnreadableFileError
from streaming_sink.table.data_files import data_file
from streaming_sink.tasks.files.change_task import ChangedRows
from streaming_sink.tasks.files.delete_files import read_deletes_in
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.results import delete_files
from streaming_sink.upkeep.maintenance import Maintenance
from streaming_sink.writing.writer import WriteResult, worker_job, write
from timeline.changes.changes import Change
from timeline.changes.follow_changes import (
    Follow,
    HoldFollowed,
    NameSecondTable,
    followed,
    following,
)
from timeline.changes.schema_changes import MergeSchema
from timeline.drafts.succession import commit_time
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    SchemaMismatchError,
)
from timeline.plans.reservations import Reservations
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.outbox import second_tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.options.table_options import SinkOptions
    from streaming_sink.options.values.tables import CatalogTable, PathTable
    from streaming_sink.reports.reporting import Steps

_LOG = logging.getLogger("streaming_sink")
_APP_ID = "changes"
_TRIES = 20
"""How often a log is looked at again where other processes append to it; each time one of them has."""
_ROWS_A_TASK = 500_000
_OWN_COLUMNS = (
    NestedField(1, CHANGE_TYPE, StringType(), required=False),
    NestedField(2, "_commit_version", LongType(), required=False),
    NestedField(3, "_commit_snapshot_id", LongType(), required=False),
    NestedField(4, "_commit_timestamp", TimestamptzType(), required=False),
)


class ChangeLog:
    """Holds the one open change log of a sink."""

    def __init__(self, options: SinkOptions, place: PathTable | CatalogTable) -> None:
        self._options, self._place = options, place
        self._table: Table | None = None
        self.maintenance = Maintenance(options_of_second_table(options, self._place))

    def prepare(self, session: SparkSession, main: Table, app_id: str, steps: Steps) -> None:
        """Open or create the log before a batch is committed to `main`, so that it follows from here on, and
        append what a killed process has left out. Raises as `follow`.
        """
        self.follow(session, main, app_id, steps)

    def changes(self, main: Table, app_id: str, result: WriteResult) -> list[Change]:  # noqa: ARG002
        """Return the changes by which the commits of the main table name the log, and hold the snapshot that
        its next changes are read against.
        """
        if self._table is None:
            return []
        uuid = str(self._table.head.metadata.table_uuid)
        return [NameSecondTable(self._table.log.address, uuid), HoldFollowed(uuid)]

    def follow(self, session: SparkSession, main: Table, app_id: str, steps: Steps) -> None:  # noqa: ARG002
        """Append what the versions of `main` have changed up to its known head, each once; no request where
        it knows that it has.

        Raises SchemaMismatchError for a table at its location that is no log of this one, ValueError where
        versions have expired before they were appended, UnreadableFileError where a file of one cannot be
        read, and as a commit does; the next call continues.
        """
        if self._table is None:
            known = second_tables_of(main.head.properties).get(self._place.address)
            self._table = open_or_create(self._place, known, log_schema(main.head.schema), _check_is_log)
        uuid = str(main.head.metadata.table_uuid)
        if followed(self._table.head, uuid) is None:
            try:
                self._commit(self._table, Follow((), uuid, None), main.head.number)
            except (CommitConflictError, CheckpointRegressionError):
                self._table.refresh()  # another process has begun
        named_in = partial(read_deletes_in, main.store)
        for _ in range(_TRIES):
            after = followed(self._table.head, uuid)
            if after is None or after >= main.head.number:
                return
            try:
                pieces = main.on_head(partial(_pieces, after=after, named_in=named_in))
            except ValueError as expired:
                raise ValueError(self._ended(after, "cannot be read any more", expired)) from expired
            if not pieces:
                return
            with steps("changelog"):
                try:
                    if not self._append(session, main, self._table, uuid, after, pieces):
                        continue
                except UnreadableFileError as lost:
                    raise UnreadableFileError(self._ended(after, "cannot be read", lost)) from lost
                self._maintain(session, self._table, steps)
                return
        raise CommitConflictError(
            f"other processes kept appending to the change log {_TRIES} times: {self._place.location}",
            location=self._place.location,
        )

    def _ended(self, after: int, what: str, why: Exception) -> str:
        return (
            f"the change log has the versions up to {after}, and what came next {what}: {why}. Name a new"
            " location, changelog_table=...: a new log begins with its first batch;"
            f" {self._place.location} stays as it is"
        )

    def _append(
        self,
        session: SparkSession,
        main: Table,
        log: Table,
        uuid: str,
        after: int,
        pieces: Sequence[ChangedRows],
    ) -> bool:
        """Append the rows of some versions; False where another process has appended some first."""
        began = perf_counter()
        wanted = MergeSchema(log_schema(main.head.schema).as_struct())
        if wanted.merged(log.head.metadata) != log.head.schema:
            try:
                log.commit([wanted])
            except CommitConflictError:
                log.refresh()
                return False
        self.maintenance.catch_up(log)
        tasks = ceil(sum(each.rows for each in pieces) / _ROWS_A_TASK)
        rows = changes_of(session, main, pieces).coalesce(max(1, min(tasks, parallelism(session))))
        most = self._options.sizing.max_file_bytes
        plan = InsertPlan((), (), bytes_per_row=1, rows_per_new_file=most, max_file_bytes=most)
        ids = FileIds(commit_time(log.log.environment, log.head), _APP_ID, main.head.number)
        result = write(rows, worker_job(log.store, log.head, plan, None, ids), None, log.head.schema)
        files = tuple(data_file(file, log.head.spec) for file in result.new)
        try:
            self._commit(log, Follow(files, uuid, after), main.head.number)
        except (CommitConflictError, CheckpointRegressionError) as lost:
            _LOG.info("the change log is looked at again: %s", lost)
            delete_files(log.store, result.new)
            log.refresh()
            return False
        report = DeliveryReport(
            table=self._place.called(log.store.location),
            main_table=self._options.table.called(main.store.location),
            app_id=_APP_ID,
            outcome="delivered",
            rows=sum(file.record_count for file in files),
            files=len(files),
            milliseconds=round((perf_counter() - began) * 1000),
        )
        hand_over(self._options.on_report, report)
        return True

    def _commit(self, log: Table, change: Follow, number: int) -> None:
        log.commit(
            [change],
            schema_id=log.head.schema.schema_id,
            transaction=following(change.main_uuid, number),
            open_below_bytes=self._options.sizing.small_file_bytes,
        )

    def _maintain(self, session: SparkSession, log: Table, steps: Steps) -> None:
        whole = TablePartition(log.head.spec.spec_id, ())
        done = self.maintenance.after_commit(session, log, Reservations(log.store), [whole], steps)
        for report in done.reports:
            _LOG.info("%s: %s", report.table, report.line())


def _check_is_log(head: Head) -> None:
    if CHANGE_TYPE not in {field.name for field in head.schema.fields}:
        location = head.metadata.location
        raise SchemaMismatchError(
            f"the table at the change log's location has no column {CHANGE_TYPE}, so it is no change log;"
            f" give the sink another location, changelog_table=...: {location}",
            location=location,
        )


def _pieces(head: Head, after: int, named_in: Callable[[str], Mapping[str, Sized]]) -> list[ChangedRows]:
    """Return what the versions after one have changed, and no purge."""
    return changed_pieces(head, after + 1, head.number, named_in, purges=False)


def log_schema(schema: Schema) -> Schema:
    """Return the columns of the change log of a table: its own, and what `changes` says of each row.

    SchemaMismatchError where the table has a column of such a name.
    """
    own = {field.name for field in _OWN_COLUMNS}
    if taken := sorted(own & {field.name for field in schema.fields}):
        raise SchemaMismatchError(
            f"the table has a column {taken[0]}, which its change log has for the change; rename it, or leave"
            " out changelog_table"
        )
    columns = [field.model_copy(update={"required": False}) for field in schema.fields]
    highest = schema.highest_field_id
    added = [
        field.model_copy(update={"field_id": highest + number})
        for number, field in enumerate(_OWN_COLUMNS, 1)
    ]
    return Schema(*columns, *added)
