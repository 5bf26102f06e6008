"""Partial updates: columns that are null in a change keep that of an older change, or of the stored row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.data_file_reader import open_data_file
from streaming_sink.tasks.job import SearchedFile
from streaming_sink.tasks.keys.finding import FoundRows
from streaming_sink.tasks.keys.held_changes import HeldChanges, Newest
from streaming_sink.tasks.keys.sequences import largest_sequences
from streaming_sink.tasks.keys.tombstones import DeletedUntil
from timeline.stores.base import Store

_NONE = -1


def merged_rows(
    store: Store,
    files: Sequence[SearchedFile],
    held: HeldChanges,
    newest: Newest,
    lands: np.ndarray,
    found: FoundRows,
    until: DeletedUntil,
    columns: Collection[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the newest changes that `lands` has, each of `columns` with the newest value of its
    key that is not null: of the batch's changes since the key was deleted last, else of the stored row.
    Changes that are older than that row, or than a delete that the table remembers, bring nothing.

    Holds all rows of the task in memory. DataFileError for a file that cannot be read.
    """
    chosen = np.flatnonzero(lands & ~newest.deletes)
    if not len(chosen):
        return
    rows = held.all_rows()
    first, ends, deleted_before = _since_last_delete(newest, _late_changes(newest, found, until))
    stored, places = _stored_rows(store, files, rows.schema, columns, found, lands & ~deleted_before)
    arrays = []
    for name in rows.schema.names:
        column = rows.column(name).combine_chunks()
        if name not in columns:
            arrays.append(column.take(newest.places[chosen]))
            continue
        sources = _newest_values(column, newest, first, ends)
        values = column.take(pa.array(sources[chosen]))
        if stored is not None:
            older = stored.column(name).combine_chunks()
            older = older.take(pa.array(places[chosen], mask=places[chosen] == _NONE))
            values = pc.if_else(values.is_valid(), values, older)
        arrays.append(values)
    yield from pa.Table.from_arrays(arrays, schema=rows.schema).to_batches()


def _late_changes(newest: Newest, found: FoundRows, until: DeletedUntil) -> np.ndarray:
    """Return how many changes of each key are older than its stored row, or than its delete: its first ones,
    as those of a key are in the order of their sequences.
    """
    counts = np.diff(np.append(newest.starts, len(newest.all_places)))
    key = np.repeat(np.arange(len(counts)), counts)
    stored = largest_sequences(len(counts), found.change, found.sequence)
    late = (newest.all_sequences < stored[key]) | until.covers(key, newest.all_sequences)
    return np.bincount(key[late], minlength=len(counts))


def _since_last_delete(newest: Newest, late: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each key, the first and the last of its changes since the batch has deleted it, without the
    late ones, by their places in `newest.all_places`; and whether the batch has.
    """
    starts, ends = newest.starts + late, np.append(newest.starts[1:], len(newest.all_places)) - 1
    at = np.arange(len(newest.all_places))
    last_delete = np.maximum.accumulate(np.where(newest.all_places < 0, at, _NONE))[ends]
    deleted = last_delete >= starts
    return np.where(deleted, last_delete + 1, starts), ends, deleted


def _newest_values(column: pa.Array, newest: Newest, first: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return, for each key, the place of the row whose value of a column counts: that of its newest change
    where all are null.
    """
    has_value = np.append(column.is_valid().to_numpy(zero_copy_only=False), False)  # of a delete, at -1
    at = np.arange(len(newest.all_places))
    latest = np.maximum.accumulate(np.where(has_value[newest.all_places], at, _NONE))[ends]
    return np.where(latest >= first, newest.all_places[latest], newest.places)


def _stored_rows(
    store: Store,
    files: Sequence[SearchedFile],
    schema: pa.Schema,
    columns: Collection[str],
    found: FoundRows,
    wanted: np.ndarray,
) -> tuple[pa.Table | None, np.ndarray]:
    """Return the stored values of the keys that are wanted, and for each key the place of its row among them,
    `_NONE` for none.
    """
    places = np.full(len(wanted), _NONE)
    kept = np.flatnonzero(wanted[found.change])
    if not len(kept):
        return None, places
    order = kept[np.lexsort((found.position[kept], found.file[kept]))]
    projected = pa.schema([field for field in schema if field.name in columns])
    read: list[pa.RecordBatch] = []
    for number in np.unique(found.file[order]):
        with open_data_file(store, files[number].location, "a data file") as reader:
            read += reader.read_at(projected, found.position[order][found.file[order] == number])
    places[found.change[order]] = np.arange(len(order))
    return pa.Table.from_batches(read, projected), places
