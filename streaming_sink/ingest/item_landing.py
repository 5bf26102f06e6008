"""Lands the work items of a zone, and finds the files that make one fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession

from planners.ingestion.buffering import PlannedItem
from planners.ingestion.halving import halve
from streaming_sink.ingest.auditing import auditor_of
from streaming_sink.ingest.consolidating import Consolidating
from streaming_sink.ingest.item_source import ItemSource, ItemWriter, NothingToReadError
from streaming_sink.ingest.profiling import Profiling, Work
from streaming_sink.ingest.publishing import NotWantedError, Publishing
from streaming_sink.ingest.reading_rows import RowReading
from streaming_sink.ingest.registering import Registering
from streaming_sink.landing.landing import Landing
from streaming_sink.spark.worker_failures import UnfitRowsError, may_be_of_the_rows
from streaming_sink.writing.target import Destination
from streaming_sink.zones.landed import Landed
from streaming_sink.zones.stored_zone import StoredZone
from timeline.table import Table
from timeline.versions.work_items import published_items


class ItemLanding:
    """Lands the work items of one zone, one at a time. Keeps the open table."""

    def __init__(self, zone: StoredZone) -> None:
        """ValueError as `auditor_of`."""
        options, auditor = zone.sink_options, auditor_of(zone)
        by_reference = zone.definition.source_folders.by_reference
        self._sources = zone.sources
        self._registering = Registering(options.location, zone.store.location, by_reference)
        self._publishing = Publishing(
            zone.app_id, zone.work_item, zone.store, auditor, options.sizing.small_file_bytes
        )
        self._destination = Destination(options)
        self._by_row = bool(options.keys is not None or options.checks.expectations)
        self._profiling = Profiling(options, self._destination, self._sources, registers=not self._by_row)
        # Small files join the rows of items, unless these are staged, or written row by row.
        inline = not self._by_row and auditor is None
        upkeep = replace(options, sizing=replace(options.sizing, fill="never")) if inline else options
        self._landing = Landing(options, self._destination, upkeep)

    def finish(self) -> None:
        """Wait for what goes on beside the items."""
        self._landing.finish(None)

    def table(self) -> Table | None:
        """Return the table on its newest head, None where no work item has created it yet."""
        self._destination.refresh()
        return self._destination.table

    def has_published(self, item: PlannedItem) -> bool:
        """Return whether the known head has the rows of an item. No request."""
        table = self._destination.table
        published = published_items({} if table is None else table.head.properties, self._publishing.app_id)
        return item.number in published

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
            return self._land(session, work, is_wanted)
        except Exception as failure:
            at_fault = find_at_fault(work, failure, lambda part: self._rehearse(session, part, is_wanted))
            if not at_fault:
                raise
        return self._land(session, Work(item, at_fault), is_wanted)

    def _land(self, session: SparkSession, work: Work, is_wanted: Callable[[], bool]) -> Landed:
        source = self._source(session, work, is_wanted)
        report = self._landing.land_item(session, source)
        table = self._destination.table
        assert table is not None  # the report is of a version
        landed = self._publishing.landed(table, work.item)
        if report.outcome == "skipped":
            return landed
        spent = {step: ms for step, ms in report.milliseconds.items() if step != "total"}
        landed = replace(landed, landed_ms=time.time_ns() // 1_000_000, milliseconds=spent)
        if source.described is None:  # what an earlier try has staged was published
            oldest = min(file.arrived_ms for file in work.item.files)
            return replace(landed, published_before=False, oldest_ms=oldest)
        return replace(
            source.described,
            version=report.version or landed.version,
            snapshot_id=landed.snapshot_id,
            quarantined=report.quarantined,
            dropped=report.dropped,
            landed_ms=landed.landed_ms,
            milliseconds=landed.milliseconds,
        )

    def _rehearse(self, session: SparkSession, work: Work, is_wanted: Callable[[], bool]) -> bool:
        """Do all that landing these files does, but for the commit. Return whether there was a file to do it
        with. Raises as `land`, and StoreUnavailableError.
        """
        try:
            return self._landing.rehearse(self._source(session, work, is_wanted, rehearsed=True))
        except NothingToReadError:
            return False

    def _source(
        self, session: SparkSession, work: Work, is_wanted: Callable[[], bool], rehearsed: bool = False
    ) -> ItemSource:
        def check_is_wanted() -> None:
            if not is_wanted():
                raise NotWantedError(f"another worker has work item {work.item.number}")

        writer: ItemWriter
        if self._by_row:
            item = self._publishing.work_item(work.item.number)
            writer = RowReading(session, self._sources, self._landing.writing_of_item(session, item))
        else:
            fills = self._publishing.auditor is None
            writer = Consolidating(session, self._sources, self._registering, fills, check_is_wanted)
        return ItemSource(
            session, work, self._profiling, self._publishing, writer, check_is_wanted, rehearsed
        )


_LOG = logging.getLogger("streaming_sink")


def find_at_fault(work: Work, failure: Exception, rehearse: Callable[[Work], bool]) -> dict[int, str]:
    """Return the files of an item that make it fail, by number, with the reasons; empty where the failure is
    no file's, as far as can be known: of a store, a lost worker, a limit, or of all files alike. A failure
    that names values of rows is of the file that has them, also where no other file is there to compare with.

    `rehearse` lands a part of the item but for its commit, and returns whether it had a file to do so with.
    Raises what it raises, where that is no file's.
    """
    if not may_be_of_the_rows(failure):
        return {}
    number, reasons = work.item.number, dict[int, str]()
    files = [place for place, _ in work.files()]
    if len(files) == 1 and isinstance(failure, UnfitRowsError):
        return {files[0]: str(failure)}
    halving = halve(files)
    while (part := halving.next) is not None:
        _LOG.warning("work item %d fails, and %d of its files are tried: %s", number, len(part), failure)
        try:
            shows = rehearse(work.part(part))
        except Exception as found:
            if not may_be_of_the_rows(found):
                raise
            failure, of_rows = found, isinstance(found, UnfitRowsError)
            text = " ".join(str(found).split())[-500:]
            reasons[part[0]] = text if of_rows else f"{type(found).__name__}: {text}"
            halving = halving.after(fails=True, shows=of_rows)
        else:
            halving = halving.after(fails=False, shows=shows)
    return {place: reasons[place] for place in halving.at_fault}
