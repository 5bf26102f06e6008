"""A micro-batch, or a replay's rows, as the source of a landing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streaming_sink.checks.row_checks import REPLAY_APP, came_schema
from streaming_sink.landing.checking import check_is_a_replay
from streaming_sink.landing.row_writing import RowWriting
from streaming_sink.landing.source import SinkParts, commit
from streaming_sink.landing.stages import CommitRequest, Fitted, Settled, Written
from streaming_sink.reports.reporting import Steps
from streaming_sink.writing.target import Target, is_committed
from timeline.errors import SchemaMismatchError
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction


@dataclass(frozen=True)
class BatchRows:
    """The rows of one DataFrame under the number of a batch."""

    batch: DataFrame
    transaction: Transaction
    named: Mapping[str, str]
    """Entries of its snapshot that name it."""
    tried_before: bool
    """Whether it may be in the table by an earlier try of the same caller."""
    writing: RowWriting
    is_recorded_empty: bool = False
    shares_its_name: bool = False

    @property
    def name(self) -> str:
        return f"batch {self.transaction.batch} of {self.transaction.app_id}"

    def open(self, parts: SinkParts, *, fresh: bool) -> Target | Settled:
        """Return the table, or what the batch's columns make of one."""
        return self._settled(parts.destination.target(self._columns(parts), fresh))

    def fit(self, parts: SinkParts, target: Target | None, steps: Steps) -> Fitted | Settled:
        """Return the table once its schema and partitioning are as the batch's columns need them."""
        assert target is not None  # as `open` has made it
        came = self._columns(parts)
        if not self._is_replay:
            parts.operation.check_batch(self.batch, target)
        with steps("head"):
            if parts.options.checks.expectations:  # refused before the schema evolves, if they are none
                parts.rules.of(self.batch, target.schema, parts.destination.misfits(target, came))
            fitting = self._settled(parts.destination.fit(target, came, self.transaction))
            if isinstance(fitting, Settled):  # by a twin of this query
                return fitting
            rules = parts.rules.of(self.batch, fitting.schema, fitting.misfits)
            return Fitted(target=fitting, rules=rules)

    def write(self, parts: SinkParts, fitted: Fitted, steps: Steps) -> Written:
        """Write the batch's rows."""
        return self.writing.write(self.batch, parts, fitted, steps)

    def check(self, written: Written) -> None:
        """A batch comes without a number of rows to compare with."""

    def check_is_a_replay(self, head: Head, written: Written | None) -> None:
        """Raise ValueError where another call of this very run has committed the batch."""
        if not self.tried_before:
            check_is_a_replay(head, self.transaction, None if written is None else written.result)

    def summary(self, written: Written) -> Mapping[str, str]:  # noqa: ARG002
        """Return the entries that name the batch."""
        return self.named

    def publish(self, table: Table, request: CommitRequest) -> Committed | AlreadyCommitted:
        """Commit the request."""
        return commit(table, request)

    def learn(self, written: Written, steps: Steps) -> None:
        """Let the next batches be planned by this one."""
        self.writing.learn(written, steps)

    def _columns(self, parts: SinkParts) -> StructType:
        """Return the columns that the table gets."""
        if not self.batch.columns:
            raise SchemaMismatchError(f"{self.name} has no columns, so its rows have nothing to write")
        came = came_schema(self.batch) if self._is_replay else self.batch.schema
        return parts.operation.written_schema(came)

    @property
    def _is_replay(self) -> bool:
        """Whether rows may have the column that marks them as replayed: for others it is a reserved name."""
        return self.transaction.app_id.startswith(REPLAY_APP)

    def _settled(self, target: Target) -> Target | Settled:
        """Return the target, or what it is where the table has the batch."""
        if target.table is None or not is_committed(target, self.transaction):
            return target
        return Settled(target.table)
