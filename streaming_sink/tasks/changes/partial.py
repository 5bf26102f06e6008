"""Partial updates: which row the changes of a key leave, decided by column.

A column that is updated in part has the value of the newest change that is not null in it, and of changes of
one sequence the value that is the larger text. All other columns are of the newest change of the row, as a
whole. Changes that are not newer than a delete of their key bring nothing. So a row is the largest of what
its changes bring, column by column: in which order they come, in which batches, and how often, decides
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.changes.column_sequences import COLUMN_SEQUENCES, entries_of, with_entries
from streaming_sink.tasks.changes.finding import Decided, FoundRows, value_texts
from streaming_sink.tasks.changes.held_changes import HeldChanges, Newest
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.job import KeyJob
from streaming_sink.tasks.keys.sequences import sequence_values
from streaming_sink.tasks.keys.tombstones import DeletedUntil
from streaming_sink.tasks.leaves import field_id
from streaming_sink.tasks.results import ChangeCounts
from timeline.stores.base import Store

_NONE = -1


def decide_by_column(
    store: Store, keys: KeyJob, held: HeldChanges, newest: Newest, found: FoundRows, until: DeletedUntil
) -> Decided:
    """Return what the changes of a task make of their keys, together with the rows that the table holds.

    Holds all rows of the task in memory, and the live rows of their keys. DataFileError for a file that
    cannot be read.
    """
    changes = held.all_rows()
    order = np.lexsort((found.position, found.file))
    stored = _stored_rows(store, keys, changes.schema, found, order)
    key = np.append(found.change[order], _keys_of_rows(newest, changes.num_rows))
    rows = pa.concat_tables([stored, changes])
    deletes = _Deletes.of(newest)
    return _Merge(keys, rows, stored.num_rows, key, newest, deletes, until).decide()


def _stored_rows(
    store: Store, keys: KeyJob, schema: pa.Schema, found: FoundRows, order: np.ndarray
) -> pa.Table:
    read: list[pa.RecordBatch] = []
    for number in np.unique(found.file):
        location = found.files[number].location
        with open_data_file(store, location, "a data file", needs_ids=keys.needs_ids) as reader:
            read += reader.read_at(schema, found.position[order][found.file[order] == number])
    return pa.Table.from_batches(read, schema)


def _keys_of_changes(newest: Newest) -> np.ndarray:
    counts = np.diff(np.append(newest.starts, len(newest.all_places)))
    return np.repeat(np.arange(len(counts)), counts)


def _keys_of_rows(newest: Newest, count: int) -> np.ndarray:
    """Return the key of each row that was added."""
    has_row = newest.all_places >= 0
    keys = np.empty(count, np.int64)
    keys[newest.all_places[has_row]] = _keys_of_changes(newest)[has_row]
    return keys


@dataclass(frozen=True)
class _Deletes:
    """The newest delete that the batch has of each key."""

    deleted: np.ndarray
    sequences: np.ndarray
    """Of keys that the batch does not delete, any."""

    @classmethod
    def of(cls, newest: Newest) -> _Deletes:
        at = np.flatnonzero(newest.all_places < 0)
        keys = _keys_of_changes(newest)[at]
        last = np.append(keys[1:] != keys[:-1], True)[: len(keys)]  # they are in the order of their sequences
        deleted = np.zeros(len(newest.hashes), bool)
        sequences = newest.sequences.copy()
        deleted[keys[last]], sequences[keys[last]] = True, newest.all_sequences[at[last]]
        return cls(deleted, sequences)


@dataclass(frozen=True)
class _Chosen:
    """Which row counts in a column; in each array but the last a place for each key that has rows."""

    row: np.ndarray
    """`_NONE` for none."""
    lost: np.ndarray
    """Whether the batch brings something, and all of it is older than what counts, or the smaller text."""
    set_at: np.ndarray
    """Of each row, where the sequence is at which it has set the column."""


class _Merge:
    """The rows that the table holds of some keys, and after them those of the changes."""

    def __init__(
        self,
        keys: KeyJob,
        rows: pa.Table,
        stored: int,
        key: np.ndarray,
        newest: Newest,
        deletes: _Deletes,
        until: DeletedUntil,
    ) -> None:
        self._keys = keys
        self._rows = rows
        self._stored = stored
        self._newest = newest
        self._deletes = deletes
        self._order = np.argsort(key, kind="stable")
        ordered = key[self._order]
        begins = np.append(True, ordered[1:] != ordered[:-1])[: len(key)]
        self._starts = np.flatnonzero(begins)
        self._key = ordered[self._starts]
        self._group = np.cumsum(begins) - 1
        self._came = self._order >= stored
        self._rank(until)

    def _rank(self, until: DeletedUntil) -> None:
        """Number all sequences in their order: those of rows and of their columns, of deletes and of what the
        table remembers of them.
        """
        by, count = self._keys.sequence_by, self._rows.num_rows
        gone, known = self._deletes, until
        self._deleted = np.full(len(gone.deleted), _NONE)
        self._known = np.full(len(gone.deleted), _NONE)
        if by is None:  # what comes is newer than what is there
            self._ranks = (np.arange(count) >= self._stored).astype(np.int64)
            self._deleted[gone.deleted] = 1
            return
        self._sequences = self._rows.column(by)
        self._entries = entries_of(self._rows.column(COLUMN_SEQUENCES))
        values = self._entries[2].cast(self._sequences.type)
        self._sequences = pa.chunked_array([*self._sequences.chunks, values], self._sequences.type)
        ranked = [
            sequence_values(self._sequences),
            gone.sequences[gone.deleted],
            known.sequences[known.deleted],
        ]
        ranks = np.unique(np.concatenate(ranked), return_inverse=True)[1]
        ends = np.cumsum([len(each) for each in ranked])
        self._ranks = ranks[: ends[0]]
        self._deleted[gone.deleted] = ranks[ends[0] : ends[1]]
        self._known[known.deleted] = ranks[ends[1] :]

    @cached_property
    def _columns(self) -> dict[str, _Chosen]:
        """What counts in each of the columns that are updated in part."""
        return {name: self._choose([name], name) for name in self._keys.partial}

    @cached_property
    def _row(self) -> _Chosen:
        """What counts in all others."""
        apart = {*self._keys.columns, self._keys.sequence_by, COLUMN_SEQUENCES, *self._keys.partial}
        return self._choose([name for name in self._rows.column_names if name not in apart], None)

    def _choose(self, texts: list[str], name: str | None) -> _Chosen:
        count = self._rows.num_rows
        set_at = np.arange(count)
        brings = np.ones(count, bool)
        if name is not None:
            set_at = self._set_at(name)
            brings = self._is_valid(name)
        rank, brings = self._ranks[set_at][self._order], brings[self._order]
        deleted, known = self._deleted[self._key][self._group], self._known[self._key][self._group]
        # Deletes that the table remembers were applied to the rows that it holds when these were written.
        counts = brings & (rank > np.where(self._came, np.maximum(deleted, known), deleted))
        largest = np.maximum.reduceat(np.where(counts, rank, _NONE), self._starts)
        counts &= rank == largest[self._group]
        several = np.add.reduceat(counts.astype(np.int64), self._starts) > 1
        tied = np.flatnonzero(counts & several[self._group])
        if len(tied) and texts:
            counts[tied] = self._are_largest(texts, tied)
        first = np.minimum.reduceat(np.where(counts, np.arange(count), count), self._starts)
        row = np.append(self._order, _NONE)[first]
        lost = self._any(self._came & brings & (rank > deleted)) & ~self._any(self._came & counts)
        return _Chosen(row, lost & bool(texts), set_at)

    def _set_at(self, name: str) -> np.ndarray:
        """Return, for each row, where the sequence is at which it has set a column."""
        set_at = np.arange(self._rows.num_rows)
        if self._keys.sequence_by is not None:
            rows, ids, _ = self._entries
            own = np.flatnonzero(ids == field_id(self._rows.schema.field(name)))
            set_at[rows[own]] = self._rows.num_rows + own
        return set_at

    def _is_valid(self, name: str) -> np.ndarray:
        valid: np.ndarray = self._rows.column(name).is_valid().to_numpy()
        return valid

    def _are_largest(self, columns: list[str], tied: np.ndarray) -> np.ndarray:
        """Return which of some rows have the largest values, as texts, of their key."""
        rows = self._rows.select(columns).take(pa.array(self._order[tied]))
        texts = [text for batch in rows.to_batches() for text in value_texts(batch)]
        groups = self._group[tied].tolist()
        largest: dict[int, str] = {}
        for group, text in zip(groups, texts, strict=True):
            largest[group] = max(largest.get(group, ""), text)
        return np.array([text == largest[group] for group, text in zip(groups, texts, strict=True)])

    def _any(self, rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.logical_or.reduceat(rows, self._starts)
        return found

    def decide(self) -> Decided:
        """Return what becomes of the keys."""
        keys = len(self._newest.hashes)
        held, there, written, lost = (np.zeros(keys, bool) for _ in range(4))
        new = self._rows.slice(0, 0)
        if len(self._key):
            exists = self._row.row != _NONE
            changed = exists & ~self._is_as_stored()
            held[self._key] = self._any(~self._came)
            there[self._key], written[self._key] = exists, changed
            lost[self._key] = np.logical_or.reduce(
                [each.lost for each in (self._row, *self._columns.values())]
            )
            new = self._new_rows(np.flatnonzero(changed))
        gone = held & ~there
        fresh = self._deletes.deleted & (self._deleted > self._known)
        idle = ~written & ~gone
        only_deleted = idle & (
            np.bincount(_keys_of_changes(self._newest)[self._newest.all_places >= 0], minlength=keys) == 0
        )
        absent = idle & ~there & fresh
        late = idle & ~absent & (lost | ~there | only_deleted)
        counts = ChangeCounts(
            inserted=int((written & ~held).sum()),
            updated=int((written & held).sum()),
            deleted=int(gone.sum()),
            absent=int(absent.sum()),
            late=int(late.sum()),
            unchanged=int((idle & ~absent & ~late).sum()),
            superseded=self._newest.superseded,
            tied=self._newest.tied,
        )
        return Decided(new.to_batches(), written | gone, fresh | gone, self._deletes.sequences, counts)

    def _is_as_stored(self) -> np.ndarray:
        """Return whether the row that counts is the one that the table holds; of each key that has rows."""
        first = self._order[self._starts]
        is_same: np.ndarray = self._row.row == first
        for name, column in self._columns.items():
            is_same &= (column.row == first) | ((column.row == _NONE) & ~self._is_valid(name)[first])
        is_same &= np.add.reduceat((~self._came).astype(np.int64), self._starts) == 1
        return is_same

    def _new_rows(self, groups: np.ndarray) -> pa.Table:
        """Return the rows of some keys, by their places among those that have rows."""
        rows = self._row.row[groups]
        set_at: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
        for name in self._rows.column_names:
            if name not in self._columns:
                arrays[name] = self._rows.column(name).take(pa.array(rows))
                continue
            chosen = self._columns[name]
            sources = chosen.row[groups]
            arrays[name] = self._rows.column(name).take(pa.array(sources, mask=sources == _NONE))
            sequence = chosen.set_at[sources]
            apart = np.flatnonzero((sources != _NONE) & (self._ranks[sequence] != self._ranks[rows]))
            set_at[field_id(self._rows.schema.field(name))] = apart, sequence[apart]
        if self._keys.sequence_by is not None:
            kind = self._rows.schema.field(COLUMN_SEQUENCES).type
            arrays[COLUMN_SEQUENCES] = with_entries(kind, len(groups), set_at, self._sequences)
        return pa.Table.from_arrays(list(arrays.values()), schema=self._rows.schema)
