"""Publishes the work items of a zone, staged and audited where that is asked; says what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import TimeTransform
from pyiceberg.types import DateType, PrimitiveType
from pyspark.sql import SparkSession

from planners.ingestion.buffering import PlannedItem
from streaming_sink.ingest.auditing import Auditor
from streaming_sink.ingest.profiling import Profiled, Work
from streaming_sink.landing.stages import CommitRequest, Settled
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import WriteResult
from streaming_sink.zones.audit import check_row_counts
from streaming_sink.zones.landed import Landed, keep_rejections, landed_in
from streaming_sink.zones.write_audit_publish import settle
from timeline.changes.changes import Change
from timeline.clock import SYSTEM
from timeline.errors import CommitConflictError, ErrorKind, TimelineError
from timeline.staging import stage_item
from timeline.stores.base import Store
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.work_items import WorkItem, discarded_items


class NotWantedError(TimelineError):
    """The work item is another worker's, or was discarded; this worker has published nothing of it."""

    kind = ErrorKind.PLAN_AGAIN


@dataclass(frozen=True)
class Publishing:
    """Publishes the work items of a zone."""

    app_id: str
    work_item: Callable[[int], WorkItem]
    """Makes the transaction of an item, by its number."""
    zone: Store
    auditor: Auditor | None
    """None where items are published as they are written."""
    open_below_bytes: int

    def settle(
        self, session: SparkSession, table: Table, item: PlannedItem, beside: Sequence[Change] = ()
    ) -> Settled | None:
        """Return that the known head has an item as settled; what is staged of one is published first, with
        other changes `beside` it, if it passes its audit. None where the item is neither settled nor staged.

        Raises AuditFailedError, and as `Table.commit`.
        """
        auditor = self.auditor

        def check(staged: Snapshot, files: Sequence[DataFile]) -> None:
            check_row_counts(table.store, staged, files)
            if auditor is not None:
                auditor.audit(session, table, item, staged)

        done = settle(table, self.work_item(item.number), check, self.open_below_bytes, beside)
        if done is None:
            return None
        return Settled(table, None if isinstance(done, AlreadyCommitted) else done)

    def stages(self, request: CommitRequest) -> bool:
        """Return whether a commit is staged and audited before it is published: one that brings files."""
        return self.auditor is not None and any(change.appended_files for change in request.changes)

    def publish_staged(
        self, session: SparkSession, table: Table, item: PlannedItem, request: CommitRequest
    ) -> Committed | AlreadyCommitted:
        """Stage the files of a commit, and publish them, with its other changes, as `settle`."""
        new = tuple(file for change in request.changes for file in change.appended_files)
        transaction = self.work_item(item.number)
        stage_item(table, transaction, new, schema_id=request.schema_id, summary=request.summary)
        beside = [change for change in request.changes if not change.appended_files]
        settled = self.settle(session, table, item, beside)
        if settled is None:
            raise CommitConflictError(f"work item {item.number} was unstaged before it was published")
        return settled.published or AlreadyCommitted(table.head.number)

    def described(self, target: Target, work: Work, profiled: Profiled, result: WriteResult) -> Landed:
        """Return what is known of an item before its commit."""
        item = work.item
        return Landed(
            item.number,
            published_before=False,
            version=0,
            files_in=len(item.files) - len(work.rejected),
            bytes_in=sum(file.bytes for _, file in work.files()),
            rows=result.rows if result.changes is not None or result.sifted else result.all_rows,
            files_out=len(result.new),
            bytes_out=sum(file.bytes for file in result.new),
            merged_files=sum(len(merge.inputs) for merge in result.merges),
            registered=sum(each.rewritten is None for each in profiled.profiles),
            partitions=len({file.partition for file in result.new}),
            oldest_ms=min(file.arrived_ms for file in item.files),
            event_time_ms=event_time_of(target.schema, target.spec, result.new),
            rejected=work.reasons,
            rejected_places=sorted(work.rejected),
        )

    def keep_rejections(self, described: Landed) -> Landed:
        """Store why files are rejected in the zone, and return where."""
        return keep_rejections(self.zone, described, SYSTEM.new_id(SYSTEM.now_ms()))

    def landed(self, table: Table, item: PlannedItem) -> Landed:
        """Return what the known head says of a settled item. NotWantedError where it was discarded."""
        if item.number in discarded_items(table.head.properties, self.app_id):
            raise NotWantedError(f"work item {item.number} was discarded")
        return landed_in(table.head, self.app_id, item.number)


_DAY_MS = 24 * 60 * 60 * 1000


def event_time_of(schema: Schema, spec: PartitionSpec, files: Iterable[WrittenFile]) -> tuple[int, ...]:
    """Return the earliest and the latest event time in milliseconds: of the column by whose year, month, day
    or hour the table is partitioned. () where there is none, or where no file has bounds of it.
    """
    column = next((it.source_id for it in spec.fields if isinstance(it.transform, TimeTransform)), None)
    if column is None or column not in schema.field_ids:
        return ()
    kind = schema.find_field(column).field_type
    assert isinstance(kind, PrimitiveType)
    bounds = [
        _to_ms(kind, bytes(each[column]))
        for file in files
        for each in (file.lower_bounds, file.upper_bounds)
        if column in each
    ]
    return (min(bounds), max(bounds)) if bounds else ()


def _to_ms(kind: PrimitiveType, bound: bytes) -> int:
    value = int(from_bytes(kind, bound))
    return value * _DAY_MS if isinstance(kind, DateType) else value // 1000
