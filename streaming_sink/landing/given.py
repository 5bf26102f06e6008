"""A batch as it is given: under which transaction or work item it lands, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming_sink.landing.checking import check_is_a_replay
from streaming_sink.writing.writer import WriteResult
from timeline.errors import CommitConflictError
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem


@dataclass(frozen=True, slots=True)
class Given:
    """What a landing knows of a batch beside its rows."""

    transaction: Transaction | WorkItem
    query_id: str
    summary: Mapping[str, str]
    """Entries of its snapshot that name it."""
    tried_before: bool
    """Whether it may be in the table by an earlier try of the same caller."""
    rows: int | None = None
    """How many rows it has, of a work item; None of a batch, whose rows are not counted. A work item is
    recorded though it has none.
    """
    rehearsed: bool = False
    """Whether its rows are written, and nothing is committed."""

    def check_is_a_replay(self, head: Head, written: WriteResult | None = None) -> None:
        """Raise ValueError where another call of this very run has committed the batch."""
        if not self.tried_before and isinstance(self.transaction, Transaction):
            check_is_a_replay(head, self.transaction, written)

    def check_rows(self, result: WriteResult) -> None:
        """Raise CommitConflictError where other rows came than there are."""
        if self.rows not in (None, result.all_rows):
            raise CommitConflictError(
                f"the files of work item {self.transaction.batch} hold {self.rows:,} rows by their footers,"
                f" and {result.all_rows:,} were read: a file has changed; nothing of the item is live"
            )
