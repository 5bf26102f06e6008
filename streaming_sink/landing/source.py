"""What a landing asks of the place where its rows come from, and what it offers in return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from streaming_sink.landing.checking import RulesOfBatches
from streaming_sink.landing.operations import Operation
from streaming_sink.landing.stages import CommitRequest, Fitted, Settled, Written
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.reporting import Steps
from streaming_sink.seconds.quarantine import Quarantine
from streaming_sink.writing.target import Destination, Target
from timeline.changes.intent import Intent
from timeline.commit.attempts import rehearse
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem

FittedT = TypeVar("FittedT", bound=Fitted)


@dataclass(frozen=True)
class SinkParts:
    """What the landings of one sink share, and their sources use."""

    options: SinkOptions
    destination: Destination
    rules: RulesOfBatches
    operation: Operation
    quarantine: Quarantine


class Source(Protocol[FittedT]):
    """Rows that land in one commit, from anywhere. Each stage may be asked again, where the one after it has
    met a conflict.
    """

    @property
    def name(self) -> str:
        """What a log calls it: "batch 3 of users"."""

    @property
    def transaction(self) -> Transaction | WorkItem:
        """Under what the table remembers that it has the rows."""

    @property
    def shares_its_name(self) -> bool:
        """Whether other processes commit as the same application at the same time."""

    @property
    def is_recorded_empty(self) -> bool:
        """Whether the table remembers the transaction though it has no rows."""

    def open(self, parts: SinkParts, *, fresh: bool) -> Target | Settled | None:
        """Return the table, on its newest head if `fresh`, or what it will be; None where the rows alone say
        that.
        """

    def fit(self, parts: SinkParts, target: Target | None, steps: Steps) -> FittedT | Settled:
        """Return the table once the rows fit it: created, or evolved, as the options allow."""

    def write(self, parts: SinkParts, fitted: FittedT, steps: Steps) -> Written:
        """Write the rows to data files, durably."""

    def check(self, written: Written) -> None:
        """Raise CommitConflictError where other rows were written than there are."""

    def check_is_a_replay(self, head: Head, written: Written | None) -> None:
        """Raise ValueError where the head has the transaction, and not these rows."""

    def summary(self, written: Written) -> Mapping[str, str]:
        """Return the entries of the snapshot that name the source."""

    def publish(self, table: Table, request: CommitRequest) -> Committed | AlreadyCommitted:
        """Commit the request, at once or after what the source asks before."""

    def learn(self, written: Written, steps: Steps) -> None:
        """Take note of what the rows have cost, once they are committed."""


def commit(table: Table, request: CommitRequest) -> Committed | AlreadyCommitted:
    """Commit a request at once. Raises as `Table.commit`."""
    return table.commit(
        request.changes,
        schema_id=request.schema_id,
        transaction=request.transaction,
        summary=request.summary,
        open_below_bytes=request.open_below_bytes,
    )


def rehearse_commit(table: Table, request: CommitRequest) -> None:
    """Build the version that `commit` would publish on the known head, and publish nothing. Raises what
    building it raises.
    """
    uuid = str(table.head.metadata.table_uuid)
    intent = Intent(
        request.changes,
        request.schema_id,
        uuid,
        request.transaction,
        request.summary,
        request.open_below_bytes,
    )
    rehearse(intent, table.head, table.log.manifest_files, table.log.environment, table.log.draft)
