"""Publishes what was written of a work item: at once, or after it was staged and audited."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from planners.buffering import PlannedItem
from streaming_sink.ingest.event_time import event_time_of
from streaming_sink.ingest.profiling import Work
from streaming_sink.ingest.registering import allow_references
from streaming_sink.table.data_files import data_file, fill_of
from streaming_sink.tasks.ingest.profile_task import SourceRejected
from streaming_sink.tasks.ingest.register_task import Registered
from streaming_sink.tasks.results import Merge, TaskReport, WrittenFile
from streaming_sink.writing.target import Target
from streaming_sink.zones.audit import Auditor, check_row_counts
from streaming_sink.zones.landed import Landed, keep_rejections, landed_in, summary_of
from streaming_sink.zones.write_audit_publish import settle
from timeline.clock import SYSTEM
from timeline.commit.attempts import rehearse
from timeline.commit.changes import Append, Change, Intent
from timeline.errors import CommitConflictError, ErrorKind, TimelineError
from timeline.names import ulid
from timeline.staging import stage
from timeline.stores.base import Store
from timeline.table import AlreadyCommitted, Table
from timeline.versions.work_items import WorkItem, discarded_items


class NotWantedError(TimelineError):
    """The work item is another worker's, or was discarded; this worker has published nothing of it."""

    kind = ErrorKind.PLAN_AGAIN


@dataclass
class Written:
    """What the tasks have written of a work item."""

    new: list[WrittenFile] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    rejected: list[SourceRejected] = field(default_factory=list)
    rows: int = 0
    registered: int = 0
    """How many of the new files have the bytes of a source file."""

    def add(self, results: Sequence[object]) -> None:
        """Add what a task has reported."""
        made = [each.file for each in results if isinstance(each, Registered)]
        self.new += [*(each for each in results if isinstance(each, WrittenFile)), *made]
        self.merges += [each for each in results if isinstance(each, Merge)]
        self.rejected += [each for each in results if isinstance(each, SourceRejected)]
        self.rows += sum(each.rows for each in results if isinstance(each, TaskReport))
        self.registered += len(made)

    @property
    def every(self) -> list[WrittenFile]:
        return [*self.new, *(merge.merged for merge in self.merges)]


@dataclass(frozen=True)
class Publishing:
    """Publishes the work items of a zone."""

    app_id: str
    zone: Store
    auditor: Auditor | None
    """None where items are published as they are written."""
    open_below_bytes: int

    def settle(self, session: SparkSession, table: Table, item: PlannedItem) -> Landed | None:
        """Return what became of an item that the known head has; what is staged of one is published first, if
        it passes its audit. None where the item is neither settled nor staged.

        Raises AuditFailedError, NotWantedError for an item that was discarded, and as `Table.commit`.
        """
        began, auditor = time.perf_counter(), self.auditor

        def check(staged: Snapshot, files: Sequence[DataFile]) -> None:
            check_row_counts(table.store, staged, files)
            if auditor is not None:
                auditor.audit(session, table, item, staged)

        done = settle(table, WorkItem(self.app_id, item.number), check, self.open_below_bytes)
        if done is None:
            return None
        landed = self.landed(table, item)
        if isinstance(done, AlreadyCommitted):
            return landed
        return replace(
            landed,
            published_before=False,
            oldest_ms=min(file.arrived_ms for file in item.files),
            landed_ms=time.time_ns() // 1_000_000,
            milliseconds={"publish": since(began)},
        )

    def publish(
        self, session: SparkSession, target: Target, work: Work, written: Written, spent: dict[str, int]
    ) -> Landed:
        """Commit what was written, and return what became of the item: staged first, where it is audited and
        has rows. Raises as `settle`.
        """
        began = time.perf_counter()
        table, item = target.table, work.item
        assert table is not None
        allow_references(table, (file.path for file in written.new))
        new = tuple(data_file(file, target.spec) for file in written.new)
        landed = self.described(target, work, written)
        summary, schema_id = summary_of(self.app_id, landed), target.schema.schema_id
        transaction = WorkItem(self.app_id, item.number)
        if self.auditor is not None and new:
            stage(table, transaction, new, schema_id=schema_id, summary=summary)
            spent["stage"] = since(began)
            settled = self.settle(session, table, item)
            if settled is None:
                raise CommitConflictError(f"work item {item.number} was unstaged before it was published")
            return replace(settled, milliseconds={**spent, **settled.milliseconds})
        committed = table.commit(
            _changes(target, new, written.merges),
            schema_id=schema_id,
            transaction=transaction,
            summary=summary,
            open_below_bytes=self.open_below_bytes,
        )
        spent["commit"] = since(began)
        if isinstance(committed, AlreadyCommitted):
            return self.landed(table, item)
        return replace(
            landed,
            version=committed.version,
            snapshot_id=committed.appended_snapshot_id,
            landed_ms=time.time_ns() // 1_000_000,
            milliseconds=spent,
        )

    def rehearse(self, target: Target, work: Work, written: Written) -> None:
        """Build the version that `publish` would commit, and publish nothing. Raises what that raises."""
        table = target.table
        assert table is not None
        allow_references(table, (file.path for file in written.new))
        new = tuple(data_file(file, target.spec) for file in written.new)
        summary = summary_of(self.app_id, _described(target, work, written))
        changes = tuple(_changes(target, new, written.merges))
        uuid, item = str(table.head.metadata.table_uuid), WorkItem(self.app_id, work.item.number)
        intent = Intent(changes, target.schema.schema_id, uuid, item, summary, self.open_below_bytes)
        rehearse(intent, table.head, table.log.manifest_files, table.log.environment)

    def described(self, target: Target, work: Work, written: Written) -> Landed:
        """Return what is known of an item before its commit, with the reasons of its rejected files kept."""
        return keep_rejections(self.zone, _described(target, work, written), _new_id())

    def landed(self, table: Table, item: PlannedItem) -> Landed:
        """Return what the known head says of a settled item. NotWantedError where it was discarded."""
        if item.number in discarded_items(table.head.properties, self.app_id):
            raise NotWantedError(f"work item {item.number} was discarded")
        return landed_in(table.head, self.app_id, item.number)


def since(started: float) -> int:
    """Return the milliseconds since a moment of `time.perf_counter`."""
    return round((time.perf_counter() - started) * 1000)


def _described(target: Target, work: Work, written: Written) -> Landed:
    item = work.item
    return Landed(
        item.number,
        published_before=False,
        version=0,
        files_in=len(item.files) - len(work.rejected),
        bytes_in=sum(file.bytes for _, file in work.files()),
        rows=written.rows,
        files_out=len(written.new),
        bytes_out=sum(file.bytes for file in written.new),
        merged_files=sum(len(merge.inputs) for merge in written.merges),
        registered=written.registered,
        partitions=len({file.partition for file in written.new}),
        oldest_ms=min(file.arrived_ms for file in item.files),
        event_time_ms=event_time_of(target.schema, target.spec, written.new),
        rejected=work.reasons,
        rejected_places=sorted(work.rejected),
    )


def _changes(target: Target, new: tuple[DataFile, ...], merges: Sequence[Merge]) -> list[Change]:
    appends: list[Change] = [Append(new)] if new else []
    return [*appends, *(fill_of(merge, target.spec) for merge in merges)]


def _new_id() -> str:
    return ulid(SYSTEM.now_ms(), SYSTEM.random.getrandbits(80))
