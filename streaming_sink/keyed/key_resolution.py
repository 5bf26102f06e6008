"""Which live rows the changes of a batch replace: looked for by tasks in the files of one head, and again by
the driver in what other writers have committed since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from streaming_sink.table.arrow_types import arrow_schema, needs_field_ids
from streaming_sink.table.table_keys import check_no_deletes_by_value, check_spec, position_deletes_of
from streaming_sink.tasks.changes.finding import FoundRows, find_rows, stored_texts
from streaming_sink.tasks.files.delete_files import read_deletes_of
from streaming_sink.tasks.job import KeyJob
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, scan_keys, scope_salt
from streaming_sink.tasks.keys.sequences import LONG, no_sequences
from streaming_sink.tasks.keys.tombstones import deleted_until
from streaming_sink.tasks.leaves import field_id
from streaming_sink.writing.writer import WriteResult
from timeline.errors import MissingMetadataError, RowsChangedError
from timeline.manifests.entries import LiveFile
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.keys import Looked
from timeline.versions.tombstones import tombstones_of

_NOWHERE = -1
_NO_ROWS = np.empty(0, np.int64)
MOST_ROWS = 5_000_000
"""Rows of files that others have added, which the driver looks at: a second or two. Tasks look at more."""


@dataclass(frozen=True)
class Resolution:
    """The rows that leave the table by a batch, as its live rows are at one head."""

    head: Head
    looked: Looked
    """The files of the head."""
    tombstones: frozenset[str]
    """The locations of the files of deleted keys."""
    positions: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Location of a data file, maybe of one that the batch adds → the positions of the rows that leave it."""
    live: Mapping[str, LiveFile] = field(default_factory=dict)
    """Those of these data files that are live at the head, by their locations."""
    withdrawn: np.ndarray | None = None
    """Which changes of the batch count no more, at a second look: others have committed newer ones since its
    tasks looked.
    """

    @property
    def withdrawn_count(self) -> int:
        """How many changes these are."""
        return 0 if self.withdrawn is None else int(self.withdrawn.sum())

    @property
    def applied(self) -> frozenset[str]:
        """The delete files that those data files have."""
        files = (self.live[path] for path in self.positions if path in self.live)
        return frozenset(each for file in files for each in position_deletes_of(self.head, file))

    def leaving(self, positions: Mapping[str, np.ndarray]) -> Resolution:
        """Return it with the rows that tasks have found in its files. RowsChangedError where manifests of the
        head were deleted since.
        """
        try:
            live = self.head.find_all_live(positions, once=True)
        except MissingMetadataError as gone:
            raise RowsChangedError(
                "a manifest of the head that the batch was planned on was deleted; nothing of the batch is"
                f" live, write it again: {gone}",
                **self.head.where,
            ) from gone
        return replace(self, positions=positions, live=live)


def look(head: Head) -> Resolution:
    """Return what a look at a head sees, before a row is found."""
    tombstones = frozenset(file.location for file in tombstones_of(head.properties))
    return Resolution(head, Looked.at(head), tombstones)


def found_by_tasks(result: WriteResult) -> dict[str, np.ndarray]:
    """Return the positions that leave each data file. RowsChangedError where two tasks had the same row: the
    changes of its key came to both, and both have written a row.
    """
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    for deleted in result.deleted:
        parts[deleted.data_file].append(np.frombuffer(deleted.positions, np.int64))
    found = {path: np.sort(np.concatenate(arrays)) for path, arrays in parts.items()}
    for path, positions in found.items():
        if len(np.unique(positions)) < len(positions):
            raise RowsChangedError(
                "two tasks had changes of one key, which came in two spellings; nothing of the batch is live:"
                f" {path}",
                files=[path],
            )
    return found


@dataclass(frozen=True)
class BatchKeys:
    """The keys of a batch that was written, each once, and where its rows are."""

    job: KeyJob
    hashes: np.ndarray
    sequences: np.ndarray
    files: Sequence[str]
    """The locations of the files that were written."""
    file: np.ndarray
    """The number of the file that has the key's row; -1 where the batch deletes the key."""
    position: np.ndarray
    schema: pa.Schema
    """The table's, as the batch knows it."""

    @classmethod
    def of(cls, store: Store, job: KeyJob, schema: pa.Schema, result: WriteResult) -> BatchKeys:
        """Read the keys of new rows from their files, in a schema of the table's; those of deletes were
        reported.
        """
        columns = _key_columns(job, schema)
        none, unordered = np.empty(0, np.int64), np.empty(0, columns.kind or LONG)
        parts = [(np.empty((0, 2), np.uint64), unordered, none, none)]
        for number, file in enumerate(result.new):
            written = KeyedFile(file.path, file.rows, scope_salt(job.in_partitions, file.partition))
            for hashes, positions, known in scan_keys(store, written, columns):
                sequences = no_sequences(len(hashes), LONG) if known is None else known
                parts.append((hashes, sequences, np.full(len(hashes), number), positions))
        for gone in result.deleted_keys:
            hashes = np.frombuffer(gone.hashes, np.uint64).reshape(-1, 2)
            nowhere = np.full(len(hashes), _NOWHERE)
            parts.append((hashes, np.frombuffer(gone.sequences, gone.kind), nowhere, nowhere))
        hashes, sequences, files, positions = map(np.concatenate, zip(*parts, strict=True))
        paths = [file.path for file in result.new]
        return cls(job, hashes, sequences, paths, files, positions, schema)

    def schema_at(self, head: Head) -> pa.Schema:
        """Return the columns of a head, by the names that the batch knows them by. Others may have widened or
        renamed them.
        """
        known = {field_id(column): column.name for column in self.schema}
        now = arrow_schema(head.schema)
        return pa.schema([column.with_name(known.get(field_id(column), column.name)) for column in now])


def _keyed_file(head: Head, file: LiveFile, in_partitions: bool) -> KeyedFile:
    check_spec(head, in_partitions, file.spec_id, file.location)
    return KeyedFile(file.location, file.rows, scope_salt(in_partitions, file.partition))


def _key_columns(job: KeyJob, schema: pa.Schema) -> KeyColumns:
    return KeyColumns.of(job.table_uuid, schema, job.columns, job.sequence_by, needs_ids=job.needs_ids)


def resolve_again(store: Store, before: Resolution, head: Head, keys: BatchKeys) -> Resolution:
    """Return the rows that leave the table at a newer head. What others have not touched is as before; rows
    that they have moved are in files that they have added, where the keys are looked for.

    Where another writer's change of a key is newer than the batch's, the batch's is withdrawn for good: it
    replaces no row, and its own is deleted at its position in the file that it adds. RowsChangedError where
    more was added than the driver looks at: write the batch again.
    """
    now = look(head)
    check_no_deletes_by_value(head)
    schema = keys.schema_at(head)
    columns = replace(_key_columns(keys.job, schema), needs_ids=needs_field_ids(head))
    added = before.looked.find_added(head)
    files = [_keyed_file(head, file, keys.job.in_partitions) for file in added.values()]
    if sum(file.rows for file in files) > MOST_ROWS:
        raise RowsChangedError(
            f"more than {MOST_ROWS:,} rows were added since the batch's keys were looked for; nothing of the"
            " batch is live, write it again",
            files=list(added),
        )
    # What made a change late may be forgotten since, and an older row have come: that one stays, or the key
    # would have none.
    withdrawn = np.zeros(len(keys.hashes), bool) if before.withdrawn is None else before.withdrawn.copy()
    if before.looked.was_set_back(head):
        _check_no_row_is_back(before.looked, now.looked)
        _check_nothing_is_withdrawn(withdrawn, head)
    now = replace(now, live={**head.find_all_live(before.positions, once=True), **added})
    positions = _still_live(store, before, now)
    deletes = {path: position_deletes_of(head, file) for path, file in added.items()}
    found = find_rows(store, files, columns, keys.hashes, deletes=deletes)
    fresh = sorted(now.tombstones - before.tombstones)
    until = deleted_until(store, fresh, keys.hashes, columns.kind or LONG)
    moved = any(len(positions.get(path, _NO_ROWS)) < len(old) for path, old in before.positions.items())
    if keys.job.partial and (len(found.change) or moved or until.deleted.any()):
        raise RowsChangedError(
            "rows that partial updates have taken values from were changed, moved or deleted; nothing of the"
            " batch is live, write it again",
            files=list(added),
        )
    if columns.sequence is not None:
        late = _are_older(store, keys, schema, found, columns.needs_ids)
        withdrawn[found.change[late]] = True
        withdrawn |= until.covers(np.arange(len(keys.hashes)), keys.sequences)
    leaves = ~withdrawn[found.change]
    for number in np.unique(found.file[leaves]):
        positions[found.files[number].location] = np.sort(found.position[(found.file == number) & leaves])
    own = np.flatnonzero(withdrawn & (keys.file != _NOWHERE))
    for number in np.unique(keys.file[own]):
        positions[keys.files[number]] = np.sort(keys.position[own[keys.file[own] == number]])
    return replace(now, positions=positions, withdrawn=withdrawn)


def _are_older(
    store: Store,
    keys: BatchKeys,
    schema: pa.Schema,
    found: FoundRows,
    needs_ids: bool,
) -> np.ndarray:
    """Return, for each row that was found, whether the batch's change of its key is older."""
    mine = keys.sequences[found.change]
    late: np.ndarray = found.sequence > mine
    tied = np.flatnonzero((found.sequence == mine) & (keys.file[found.change] != _NOWHERE))
    for place in tied:  # hardly ever one
        change = found.change[place]
        theirs, own = (
            stored_texts(store, location, schema, np.array([position]), needs_ids=needs_ids)
            for location, position in (
                (found.files[found.file[place]].location, found.position[place]),
                (keys.files[keys.file[change]], keys.position[change]),
            )
        )
        late[place] = theirs >= own
    return late


def _still_live(store: Store, before: Resolution, now: Resolution) -> dict[str, np.ndarray]:
    """Return those of the positions that are not deleted since then, in the files that are live. Delete files
    may have been merged.
    """
    fresh, left = dict[str, list[str]](), dict[str, list[str]]()
    positions = {path: these for path, these in before.positions.items() if path in now.live}
    for path in positions:
        applies, applied = (position_deletes_of(it.head, it.live[path]) for it in (now, before))
        fresh[path], left[path] = _without(applies, applied), _without(applied, applies)
    deleted, gone = read_deletes_of(store, fresh), read_deletes_of(store, left)
    for path, known in gone.items():
        if len(np.setdiff1d(known, deleted[path])):
            raise RowsChangedError(
                "rows that were deleted are live again; nothing of the batch is live, write it again:"
                f" {left[path][0]}",
                files=[path],
            )
    still = {
        path: np.setdiff1d(these, deleted[path]) if fresh[path] else these
        for path, these in positions.items()
    }
    return {path: these for path, these in still.items() if len(these)}


def _check_no_row_is_back(before: Looked, now: Looked) -> None:
    """Raise RowsChangedError where main was set back, maybe to before rows were deleted of a file that was
    seen.
    """
    if gone := sorted(before.deletes - now.deletes):
        raise RowsChangedError(
            "the table was set back, and rows that were deleted are live again; nothing of the batch is live,"
            f" write it again: {gone[0]} has left",
            files=gone,
        )


def _check_nothing_is_withdrawn(withdrawn: np.ndarray, head: Head) -> None:
    """Raise RowsChangedError where main was set back after a change was withdrawn: the row that made it late
    may have left, and the older one that the change replaces would leave too, so that the key had none.
    """
    if withdrawn.any():
        raise RowsChangedError(
            "the table was set back, and maybe to before the rows for which changes of the batch were"
            " withdrawn; nothing of the batch is live, write it again",
            **head.where,
        )


def _without(these: Iterable[str], others: Iterable[str]) -> list[str]:
    known = set(others)
    return [each for each in these if each not in known]
