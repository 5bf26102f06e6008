"""The quarantine of a sink: a second table, into which rows that fail a check go whole, exactly once (R24).

The main table's commit decides: it names the files of the batch's quarantined rows. They are appended to the
quarantine after it, if the process is killed in between by the next one.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext, suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from planners.model import TablePartition
from streaming_sink.checks.quarantine_table import (
    QUARANTINE_PROPERTIES,
    QUARANTINE_SCHEMA,
    check_is_quarantine,
)
from streaming_sink.options.table_options import options_of_second_table
from streaming_sink.reports.maintenance_report import DeliveryReport
from streaming_sink.reports.reporting import hand_over
from streaming_sink.seconds.second_table import open_named, open_or_create
from streaming_sink.table.data_files import data_file
from streaming_sink.table.file_jobs import file_job
from streaming_sink.tasks.job import FileIds, WorkerJob
from streaming_sink.tasks.results import delete_files
from streaming_sink.upkeep.maintenance import Maintenance
from streaming_sink.writing.writer import WriteResult
from timeline.changes.changes import Change
from timeline.changes.outbox_changes import PutOutbox
from timeline.errors import CommitConflictError, TableNotFoundError, TableRenamedError
from timeline.outbox import Delivered, deliver, register_main
from timeline.plans.reservations import Reservations
from timeline.table import Table
from timeline.versions.outbox import Delivery, second_tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.options.table_options import SinkOptions
    from streaming_sink.reports.reporting import Steps

_LOG = logging.getLogger("streaming_sink")
_NO_CUT = 1 << 62


class Quarantine:
    """Holds the one open quarantine table of a sink, and knows what was delivered into it. Makes no request
    before `open`, or before there is something to deliver.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._table: Table | None = None
        self._mains: set[str] = set()
        self._delivered: dict[tuple[str, str], int] = {}
        self.maintenance = Maintenance(options_of_second_table(options, options.quarantine))

    def open(self, main: Table) -> None:
        """Open or create the quarantine, and have its cleaner keep what `main` will name. Call it before the
        first file is written there; no request once it has succeeded.

        Raises SchemaMismatchError for another table at its location, TableNotFoundError for one in a catalog
        that was renamed, and as a commit does.
        """
        if self._table is None:
            place = self._options.quarantine
            known = second_tables_of(main.head.properties).get(place.address)
            self._table = open_or_create(
                place, known, QUARANTINE_SCHEMA, check_is_quarantine, QUARANTINE_PROPERTIES
            )
        main_uuid = str(main.head.metadata.table_uuid)
        if main_uuid not in self._mains:
            register_main(self._table, main)
            self._mains.add(main_uuid)

    def job(self, ids: FileIds) -> WorkerJob:
        """Return how tasks write the quarantine's files of one batch; files are cut by their size alone.

        `ids` are those of the main table's files, whose fence refuses them too once they are old (R6).
        """
        table = self._opened
        most = self._options.sizing.max_file_bytes
        job = file_job(table.store, table.head, ids, most, rows_per_new_file=_NO_CUT)
        return replace(job, folder=table.log.outbox_folder)

    def prepare(self, session: SparkSession, main: Table, app_id: str, steps: Steps) -> None:  # noqa: ARG002
        """Deliver what the application's last commit to `main` has left for the quarantine, as `deliver`."""
        self.deliver(main, app_id)

    def changes(self, main: Table, app_id: str, result: WriteResult) -> list[Change]:
        """Return the change that names the batch's quarantined rows in its own commit to `main`, in the place
        of what was delivered before; it does nothing where there is neither.
        """
        delivered = self._delivered.get(_key(main, app_id))
        if not result.quarantine_files:
            return [PutOutbox(app_id, (), delivered)]
        if main.head.version.is_shared:
            self._check_is_there()
        head = self._opened.head
        files = tuple(data_file(file, head.spec) for file in result.quarantine_files)
        delivery = Delivery(
            self._opened.log.address, str(head.metadata.table_uuid), head.schema.schema_id, files
        )
        return [PutOutbox(app_id, (delivery,), delivered)]

    def _check_is_there(self) -> None:
        """Raise CommitConflictError where someone has dropped the quarantine since it was opened: what a
        commit names for it could not be delivered.
        """
        location = self._opened.store.location
        try:
            self._opened.refresh()
        except (TableNotFoundError, CommitConflictError) as gone:
            self._table = None
            self._mains.clear()
            raise CommitConflictError(
                "the quarantine was dropped, or renamed, while the batch was written; nothing of the batch is"
                f" live, and it is written again: {location}",
                location=location,
            ) from gone

    @property
    def _opened(self) -> Table:
        assert self._table is not None
        return self._table

    def deliver(self, main: Table, app_id: str) -> bool:
        """Deliver what the known head of `main` names of an application, unless this process has; return
        whether there was anything. No request where there is not.

        Raises as `timeline.outbox.deliver`; what is not delivered stays named, and the next call delivers it.
        """
        entry = main.head.outbox(app_id)
        if entry is None or self._delivered.get(_key(main, app_id)) == entry.sequence:
            return False
        try:
            if self._table is not None:
                self.maintenance.catch_up(self._table)
            began = perf_counter()
            uuids = {each.location: each.table_uuid for each in entry.deliveries}
            delivered = deliver(main, app_id, lambda address: self._open(address, uuids[address]))
        except Exception:
            self._table = None  # it may have been dropped; a next try opens what is there
            self._mains.clear()
            raise
        self._delivered[_key(main, app_id)] = entry.sequence
        for each in delivered:
            hand_over(self._options.on_report, self._report(main, each, perf_counter() - began))
        return True

    def _report(self, main: Table, delivered: Delivered, seconds: float) -> DeliveryReport:
        table, files = self._options.table, delivered.delivery.files
        return DeliveryReport(
            table=table.beside(delivered.delivery.location).location,
            main_table=table.called(main.store.location),
            app_id=delivered.app_id,
            outcome=delivered.outcome.value,
            rows=sum(file.record_count for file in files),
            files=len(files),
            milliseconds=round(seconds * 1000),
        )

    def delete(self, result: WriteResult) -> None:
        """Delete the files of quarantined rows of a batch that is refused, best effort."""
        if result.quarantine_files:
            delete_files(self._opened.store, result.quarantine_files)

    def _open(self, address: str, table_uuid: str) -> Table:
        """Return the table that an entry names; its uuid decides, under whichever name the sink has it."""
        if self._table is not None and str(self._table.head.metadata.table_uuid) == table_uuid:
            return self._table
        try:
            return open_named(self._options.table.beside(address), table_uuid)
        except TableRenamedError:
            with suppress(TableNotFoundError):
                own = self._options.quarantine.open()
                if str(own.head.metadata.table_uuid) == table_uuid:
                    return own
            raise

    def follow(self, session: SparkSession, main: Table, app_id: str, steps: Steps) -> None:
        """Deliver what a batch's commit has named, as `deliver`, and fill the quarantine's small files beside
        the stream where that is needed: it is in the log, and no error of the batch.
        """
        with steps("quarantine") if main.head.outbox(app_id) else nullcontext():
            if not self.deliver(main, app_id) or self._table is None:
                return
            whole = TablePartition(self._table.head.spec.spec_id, ())
            done = self.maintenance.after_commit(
                session, self._table, Reservations(self._table.store), [whole], steps
            )
            for report in done.reports:
                _LOG.info("%s: %s", report.table, report.line())


def _key(main: Table, app_id: str) -> tuple[str, str]:
    return str(main.head.metadata.table_uuid), app_id
