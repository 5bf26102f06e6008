"""Changes by key, on the driver: which sinks may write to a keyed table, how a batch of changes is planned,
and how it is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TypeVar

from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from planners.inserts import plan_inserts
from planners.model import TablePartition
from planners.routing import Routing
from planners.sizing import FillPolicy, bytes_per_row
from streaming_sink.keyed.key_resolution import BatchKeys, Resolution, found_by_tasks, look, resolve_again
from streaming_sink.keyed.key_upkeep import KeyUpkeep, indexed_from, key_columns
from streaming_sink.keyed.row_deletes import RowDeletes, remember_deletes
from streaming_sink.keyed.searched_files import SearchedFiles
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.options.values.writes import WriteByKey
from streaming_sink.table.arrow_types import arrow_schema, needs_field_ids
from streaming_sink.table.keys import as_changes, check_has_key, written_schema
from streaming_sink.table.parquet_properties import parquet_settings
from streaming_sink.table.spec import partition_sources
from streaming_sink.table.table_keys import partial_columns, table_key
from streaming_sink.tasks.job import FileIds, KeyJob
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.partitioning import source_columns
from streaming_sink.writing.planning import Experience, Planned, commit_sizes
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import WriteResult
from timeline.changes.changes import Append, Change
from timeline.changes.key_changes import (
    DeclareKey,
    KeysResolved,
    check_key_has_its_columns,
    check_key_is,
)
from timeline.changes.row_deltas import RowDelta
from timeline.errors import KeyConflictError, RowsChangedError, SchemaMismatchError
from timeline.manifests.entries import added_file
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.keys import PARTITION_SCOPE, TableKey, key_of

_LOG = logging.getLogger("streaming_sink")
_LOOKS = 20
"""How often the driver looks at what others have committed before the batch is written again."""
_Outcome = TypeVar("_Outcome")


@dataclass(frozen=True)
class KeyedWrite:
    """A batch of changes that is written: its key, what its tasks get, and the rows that they see."""

    key: TableKey
    job: KeyJob
    resolution: Resolution
    declares: bool
    """Whether its commit declares the key."""

    @property
    def touched(self) -> set[TablePartition]:
        """The partitions that rows leave."""
        live = self.resolution.live
        files = [live[path] for path in self.resolution.positions if path in live]
        return {TablePartition(file.spec_id, file.partition) for file in files}


class ChangesByKey:
    """What a sink with a key does: its rows change those of the same key."""

    def __init__(self, options: SinkOptions, keys: WriteByKey) -> None:
        self._options = options
        self._keys = keys
        self._searched = SearchedFiles(
            in_partitions=keys.key_scope == PARTITION_SCOPE, indexed_from=indexed_from(keys)
        )
        self._upkeep = KeyUpkeep(keys, self._searched)

    def written_schema(self, came: spark.StructType) -> spark.StructType:
        """Return the columns of a batch that the table gets."""
        return written_schema(self._keys, came)

    def check_batch(self, batch: DataFrame, target: Target) -> None:
        """Raise SchemaMismatchError where a batch lacks a column of the key or the sequence, without which
        each of its rows is refused; and for a condition of deletes that is none, before a table is made.
        """
        contract = self._options.contract
        refuses = contract.mismatch == "refuse" and not contract.apart
        if refuses and self._keys.null_keys == "refuse":
            check_has_key(self._keys, batch.columns)
        if target.table is None:
            as_changes(self._keys, batch)

    def changes(self, batch: DataFrame, target: Target) -> DataFrame:
        """Return the batch with what its rows are to do, where not all of them are rows of the table.
        SchemaMismatchError for a batch of deletes that does not say in which partitions.
        """
        if self._keys.deletes_only and self._keys.key_scope == PARTITION_SCOPE:
            sources = source_columns(partition_sources(target.schema, target.spec))
            if missing := [name for name in sources if name not in batch.columns]:
                raise SchemaMismatchError(
                    f"the batch has no column {missing[0]!r}, by which the table is partitioned: a key is"
                    " unique in each partition, so a delete needs it to find its row"
                )
        return as_changes(self._keys, batch)

    def check(self, target: Target) -> None:
        """Raise KeyConflictError or SchemaMismatchError where this sink may not write to the table."""
        head = target.head
        declared = None if head is None else key_of(head.properties)
        if declared is not None and head is not None:
            check_key_has_its_columns(declared, head)
        key = self._key_for(target)
        if head is None:
            if self._keys.deletes_only:
                raise SchemaMismatchError(
                    f"there is no table to delete from, and Delete creates none: {self._options.location}"
                )
        elif declared is not None:
            check_key_is(declared, key, head)
        elif target.table is not None and target.table.on_head(_has_rows):
            which = "--catalog NAME --table db.t" if head.version.is_shared else "LOCATION"
            raise KeyConflictError(
                f"the table has rows and no key, and may hold a key twice; `streaming-sink key {which}"
                f" --columns ... --declare` checks that, and declares the key: {self._options.location}",
                location=self._options.location,
                version=head.number,
            )

    def begin(self, target: Target) -> KeyedWrite:
        """Return how a batch finds the rows that it replaces: in every live file of the known head."""
        assert target.table is not None  # it was created before
        columns = key_columns(target.table.head, self._keys, target.schema)
        index = KeyIndex(target.table.store, columns)
        resolution, found = target.table.on_head(lambda head: (look(head), self._searched.at(head, index)))
        head = resolution.head
        key = self._key_for(target)
        job = KeyJob(
            columns=tuple(self._keys.key),
            sequence_by=self._keys.sequence_by,
            table_uuid=head.metadata.table_uuid,
            files=found.files,
            covered=found.covered,
            deletes=found.deletes,
            tombstones=tuple(sorted(resolution.tombstones)),
            indexed_from=indexed_from(self._keys),
            in_partitions=self._keys.key_scope == PARTITION_SCOPE,
            partial=partial_columns(key, target.schema),
            inserts_null_keys=self._keys.null_keys == "insert",
            except_columns=tuple(self._keys.except_columns),
            needs_ids=needs_field_ids(head),
        )
        return KeyedWrite(key, job, resolution, declares=key_of(head.properties) is None)

    def _key_for(self, target: Target) -> TableKey:
        """Return the key that this sink means. Deletes bring no values: they leave the table's columns to be
        updated in part, or not, as they are.
        """
        key = table_key(self._keys, target.schema)
        declared = None if target.head is None else key_of(target.head.properties)
        if self._keys.deletes_only and declared is not None:
            return replace(key, partial=declared.partial)
        return key

    def after_commit(self, table: Table, touched: Collection[TablePartition]) -> None:
        """Have the key index kept beside the stream, where batches as this one need it, by the partitions
        that it has `touched`.
        """
        self._upkeep.after_commit(table.store, table.head, touched)

    def forget_index(self) -> None:
        """Read the table's key index anew for the next batch: a task could not read a run of it."""
        self._searched.forget_runs()

    def finish(self, timeout_seconds: float | None) -> None:
        """Wait for the upkeep of the index. TimeoutError if it takes longer."""
        self._upkeep.finish(timeout_seconds)

    def commit(
        self,
        table: Table,
        target: Target,
        write: KeyedWrite | None,
        result: WriteResult,
        added: tuple[DataFile, ...],
        ids: FileIds,
        publish: Callable[[list[Change], int], _Outcome],
    ) -> tuple[_Outcome, Collection[TablePartition]]:
        """Publish what a batch has written, with how many of its changes were withdrawn; also return the
        partitions that rows left.

        Where others have moved rows in the meantime, these are looked for again, and only these: what was
        written stays as it is. RowsChangedError where that cannot help; write the batch again.
        """
        if write is None:  # a work item of which no file is taken
            return publish([], 0), ()
        self._upkeep.suspect(each.path for each in result.damaged_runs)
        write = replace(write, resolution=write.resolution.leaving(found_by_tasks(result)))
        parquet = parquet_settings(target.properties, target.schema)
        deletes = RowDeletes(table.store, ids, parquet)
        keys: BatchKeys | None = None
        remembered = remember_deletes(table, write.job, result, ids)
        for _ in range(_LOOKS):
            try:
                changes = [*_to_commit(write, added, deletes), *remembered]
                return publish(changes, write.resolution.withdrawn_count), write.touched
            except RowsChangedError as changed:
                if not changed.files:  # rows came before the key was declared
                    raise
                _LOG.info("batch %d of %s looks for its keys again: %s", ids.batch, ids.app_id, changed)
                schema = arrow_schema(target.schema)
                keys = keys or BatchKeys.of(table.store, write.job, schema, result)
                table.refresh()
                write = replace(write, resolution=_look_again(table, write, keys))
        changes = [*_to_commit(write, added, deletes), *remembered]
        return publish(changes, write.resolution.withdrawn_count), write.touched


def _has_rows(head: Head) -> bool:
    return next(head.live_files(), None) is not None


def _look_again(table: Table, write: KeyedWrite, keys: BatchKeys) -> Resolution:
    def look_at(head: Head) -> Resolution:
        check_key_has_its_columns(write.key, head)
        return resolve_again(table.store, write.resolution, head, keys)

    return table.on_head(look_at)


def _to_commit(write: KeyedWrite, added: tuple[DataFile, ...], deletes: RowDeletes) -> list[Change]:
    """Return the changes of one try. Writes the delete files, one for each data file that rows leave."""
    resolution = write.resolution
    changes: list[Change] = [KeysResolved(write.key, resolution.looked, resolution.tombstones)]
    if write.declares:
        changes.append(DeclareKey(write.key))
    if not resolution.positions:
        return [Append(added), *changes] if added else changes
    of = {**resolution.live, **{file.file_path: added_file(file) for file in added}}
    files = deletes.write(of, resolution.positions)
    return [RowDelta(added, tuple(files), resolution.applied), *changes]


def changes_plan(
    head: Head | None, options: SinkOptions, parallelism: int, experience: Experience
) -> Planned:
    """Return the plan of a batch of changes: those of a key come to one task, which cuts files by size."""
    width = bytes_per_row(
        () if head is None else commit_sizes(head), max_file_bytes=options.sizing.max_file_bytes
    )
    plan = plan_inserts((), (), options.sizing, bytes_per_row=width, policy=FillPolicy.NEVER, exact=False)
    tasks = experience.changes.expected(parallelism)
    routing = Routing(tasks=tasks, cold_tasks=tasks, hot=(), cold_buckets=(), shuffled=tasks > 1)
    return Planned(plan, routing, "size")
