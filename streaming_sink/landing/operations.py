"""What the rows of a sink do to its table: they are inserted, or they change rows by key."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from planners.model import TablePartition
from streaming_sink.keyed.by_key import ChangesByKey, KeyedWrite
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.tasks.job import FileIds
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import WriteResult
from timeline.changes.changes import Append, Change
from timeline.changes.key_changes import AllowDuplicates
from timeline.errors import KeyConflictError
from timeline.table import Table
from timeline.versions.keys import key_of

OutcomeT = TypeVar("OutcomeT")


class Operation(Protocol):
    """How the rows of a batch land. `ChangesByKey` says what each method raises."""

    def written_schema(self, came: StructType) -> StructType:
        """Return the columns of a batch that the table gets."""

    def check_batch(self, batch: DataFrame, target: Target) -> None:
        """Raise SchemaMismatchError where a batch cannot say what its rows do, before it makes a table."""

    def changes(self, batch: DataFrame, target: Target) -> DataFrame:
        """Return the batch with what its rows are to do, where not all of them are rows of the table."""

    def check(self, target: Target) -> None:
        """Raise KeyConflictError or SchemaMismatchError where this sink may not write to the table."""

    def begin(self, target: Target) -> KeyedWrite | None:
        """Return how a batch finds the rows that it replaces; None where it replaces none."""

    def forget_index(self) -> None:
        """Read the table's key index anew for the next batch."""

    def commit(
        self,
        table: Table,
        target: Target,
        write: KeyedWrite | None,
        result: WriteResult,
        added: tuple[DataFile, ...],
        ids: FileIds,
        publish: Callable[[list[Change], int], OutcomeT],
    ) -> tuple[OutcomeT, Collection[TablePartition]]:
        """Publish what a batch has written, with how many of its changes were withdrawn; also return the
        partitions that rows left.
        """

    def after_commit(self, table: Table, touched: Collection[TablePartition]) -> None:
        """Keep, beside the stream, what batches as this one need."""

    def finish(self, timeout_seconds: float | None) -> None:
        """Wait for what is kept beside the stream. TimeoutError if it takes longer."""


class Inserts:
    """Rows are added as they come, without a look at keys."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def written_schema(self, came: StructType) -> StructType:
        """Return the batch's columns."""
        return came

    def check_batch(self, batch: DataFrame, target: Target) -> None:
        """All rows are added."""

    def changes(self, batch: DataFrame, target: Target) -> DataFrame:  # noqa: ARG002 - as the protocol
        """Return the batch."""
        return batch

    def check(self, target: Target) -> None:
        """Raise KeyConflictError where the table has a key, unless rows may be inserted beside it."""
        head = target.head
        declared = None if head is None else key_of(head.properties)
        if declared is not None and head is not None and not self._options.allow_duplicates:
            raise KeyConflictError(
                f"the table has the key {declared.describe(head.schema)}, and this sink inserts rows"
                " without a look at their keys: give it an Upsert with that key, or"
                f" Append(allow_duplicates=True) if its keys are new: {self._options.location}",
                location=self._options.location,
                version=head.number,
            )

    def begin(self, target: Target) -> None:
        """Rows that are inserted replace none."""

    def forget_index(self) -> None:
        """There is none."""

    def commit(
        self,
        table: Table,  # noqa: ARG002 - as the protocol
        target: Target,  # noqa: ARG002
        write: KeyedWrite | None,  # noqa: ARG002
        result: WriteResult,
        added: tuple[DataFile, ...],
        ids: FileIds,  # noqa: ARG002
        publish: Callable[[list[Change], int], OutcomeT],
    ) -> tuple[OutcomeT, Collection[TablePartition]]:
        """Publish an append of the files. No row leaves a partition."""
        allows = [AllowDuplicates()] if self._options.allow_duplicates else []
        # Rows that are all quarantined have a snapshot that says so; an item without rows has none.
        appends = [Append(added)] if added or result.all_rows else []
        return publish([*appends, *allows], 0), ()

    def after_commit(self, table: Table, touched: Collection[TablePartition]) -> None:
        """There is no index to keep."""

    def finish(self, timeout_seconds: float | None) -> None:
        """Nothing runs."""


def operation_of(options: SinkOptions) -> Operation:
    """Return what the rows of a sink with these options do."""
    return Inserts(options) if options.keys is None else ChangesByKey(options, options.keys)
