"""The files of a work item as the source of a landing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import SparkSession

from streaming_sink.ingest.profiling import Profiled, Profiling, Work
from streaming_sink.ingest.publishing import Publishing
from streaming_sink.landing.row_writing import file_ids
from streaming_sink.landing.source import SinkParts, commit
from streaming_sink.landing.stages import CommitRequest, Fitted, Settled, Written
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.reporting import Steps
from streaming_sink.writing.planning import bulk_plan
from streaming_sink.writing.target import Target, is_committed
from streaming_sink.writing.writer import WriteResult
from streaming_sink.zones.landed import Landed, summary_of
from timeline.errors import CommitConflictError, SchemaMismatchError
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.head import Head
from timeline.versions.work_items import WorkItem


class NothingToReadError(SchemaMismatchError):
    """No file of a work item can be read, and there is no table that could remember that."""


@dataclass(frozen=True, kw_only=True)
class FittedItem(Fitted):
    """The table that files fit, and what they hold."""

    work: Work
    profiled: Profiled


class ItemWriter(Protocol):
    """Writes the rows of files in one way: consolidated, or row by row."""

    def fit(self, parts: SinkParts, fitted: FittedItem) -> FittedItem:
        """Return the target with what the rows need beside the columns of their files."""

    def write(self, parts: SinkParts, fitted: FittedItem, transaction: WorkItem, steps: Steps) -> Written:
        """Write the rows of the files that are not rejected; files that turn out to be damaged are."""

    def learn(self, written: Written, steps: Steps) -> None:
        """Take note of what the rows have cost."""


@dataclass
class ItemSource:
    """The files of one work item that may land."""

    session: SparkSession
    work: Work
    profiling: Profiling
    publishing: Publishing
    writer: ItemWriter
    check_is_wanted: Callable[[], None]
    """Raises NotWantedError where another worker has the item."""
    rehearsed: bool = False
    """Whether nothing of it is published, also what was staged before."""
    described: Landed | None = None
    """What is known of the item before its commit."""
    is_recorded_empty: bool = True
    shares_its_name: bool = True
    _known: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self._known = dict(self.work.rejected)

    @property
    def name(self) -> str:
        return f"work item {self.work.item.number}"

    @property
    def transaction(self) -> WorkItem:
        return self.publishing.work_item(self.work.item.number)

    def open(self, parts: SinkParts, *, fresh: bool) -> Target | Settled | None:  # noqa: ARG002
        """Return the table on its newest head, once what is staged of the item is published, if anything."""
        parts.destination.refresh()
        if (table := parts.destination.table) is None:
            return None
        settled = None if self.rehearsed else self.publishing.settle(self.session, table, self.work.item)
        return settled or Target.of(table)

    def fit(self, parts: SinkParts, target: Target | None, steps: Steps) -> FittedItem | Settled:  # noqa: ARG002
        """Return the table once the files that can land fit it; the others are rejected.

        NothingToReadError where there is no table, and no file to make one of; NotWantedError where another
        worker has the item.
        """
        self.work.rejected = dict(self._known)
        with steps("profile"):
            profiled = self.profiling.profile(self.session, self.work, self.transaction)
        self.check_is_wanted()
        if profiled.target is None:
            path, reason = next(iter(self.work.reasons.items()))
            raise NothingToReadError(
                f"no file of {self.name} can be read, and there is no table yet that could remember that; it"
                f" is tried again: {path}: {reason}"
            )
        fitted = FittedItem(target=profiled.target, work=self.work, profiled=profiled)
        if profiled.profiles:
            fitted = self.writer.fit(parts, fitted)
        if fitted.target.table is not None and is_committed(fitted.target, self.transaction):
            return Settled(fitted.target.table)  # by another worker, since it was opened
        return fitted

    def write(self, parts: SinkParts, fitted: FittedItem, steps: Steps) -> Written:
        """Write the rows of the files that are not rejected."""
        self.check_is_wanted()
        return self.writer.write(parts, fitted, self.transaction, steps)

    def check(self, written: Written) -> None:
        """Raise CommitConflictError where other rows were written than the footers of the files state."""
        result = written.result
        stated = sum(each.rows for each in _profiled(written).profiles)
        if result.all_rows != stated:
            raise CommitConflictError(
                f"the files of {self.name} hold {stated:,} rows by their footers, and {result.all_rows:,}"
                " were read: a file has changed; nothing of the item is live"
            )
        if result.changes is None and not result.sifted and result.rows != stated:
            raise CommitConflictError(
                f"the files of {self.name} hold {stated:,} rows, and {result.rows:,} were written; nothing of"
                " the item is live"
            )

    def check_is_a_replay(self, head: Head, written: Written | None) -> None:
        """A work item is the same files for every worker."""

    def summary(self, written: Written) -> Mapping[str, str]:
        """Return the entries that name the item, after why files were rejected was stored in the zone."""
        target, profiled = written.fitted.target, _profiled(written)
        self.described = self.publishing.described(target, self.work, profiled, written.result)
        if not self.rehearsed:
            self.described = self.publishing.keep_rejections(self.described)
        return summary_of(self.publishing.app_id, self.described)

    def publish(self, table: Table, request: CommitRequest) -> Committed | AlreadyCommitted:
        """Commit the request; where items are audited, stage its files, and publish them once they pass."""
        if not self.publishing.stages(request):
            return commit(table, request)
        return self.publishing.publish_staged(self.session, table, self.work.item, request)

    def learn(self, written: Written, steps: Steps) -> None:
        """Let the next items be planned by this one."""
        self.writer.learn(written, steps)


def _profiled(written: Written) -> Profiled:
    assert isinstance(written.fitted, FittedItem)
    return written.fitted.profiled


def nothing_written(options: SinkOptions, fitted: FittedItem, transaction: WorkItem) -> Written:
    """Return what is written of an item none of whose files can land: it is recorded."""
    ids = file_ids(fitted, transaction)
    return Written(fitted, bulk_plan(options), ids, WriteResult((), (), (), ()))
