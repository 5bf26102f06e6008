"""Finds the live rows that have the keys of a batch: in an index where there is one, else by a scan. Where a
change and a stored row have the same sequence, the order of their values decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.changes.live_positions import are_live
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.job import CoveredFiles, SearchedFile
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.scanned_keys import SCANNED_KEYS
from streaming_sink.tasks.keys.probing import KeyFilter, KeyProbe
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile
from streaming_sink.tasks.keys.sequences import LONG, no_sequences
from streaming_sink.tasks.results import ChangeCounts
from streaming_sink.tasks.rows.row_json import rows_as_json
from timeline.stores.base import Store

NO_DELETES: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True)
class FoundRows:
    """Live rows with a key of the batch; in each array a place for each row."""

    change: np.ndarray
    """Which of the batch's hashes it has."""
    file: np.ndarray
    """The number of its file, among `files`."""
    position: np.ndarray
    sequence: np.ndarray
    """The smallest one where it has none."""
    files: Sequence[SearchedFile]
    damaged: tuple[str, ...] = ()
    """The runs of the index that could not be read."""


def find_rows(
    store: Store,
    files: Sequence[KeyedFile],
    columns: KeyColumns,
    hashes: np.ndarray,
    *,
    covered: Sequence[CoveredFiles] = (),
    deletes: Mapping[str, Sequence[str]] = NO_DELETES,
    indexed_from: int | None = None,
    salts: Collection[bytes] | None = None,
    wanted: KeyFilter | None = None,
) -> FoundRows:
    """Return the live rows whose keys in their scope have one of the hashes, of these files and of those that
    runs of the table's index cover. `deletes`: the delete files of those that have some. `salts`: the
    partitions of the keys, where a key is unique in each; no other is searched, and where these have fewer
    rows than `indexed_from`, runs are not used. `wanted` has the coarse words of the keys: with it a scan
    hashes few rows of other keys.

    DataFileError for a file that cannot be read, UnusableRunError where a run was deleted: no row of the
    batch may land then.
    """
    index = KeyIndex(store, columns)
    searched = [it for it in files if len(hashes) and (salts is None or it.salt in salts)]
    parts = [index.part(it.run, it.live, salts) for it in covered if len(hashes)]
    if salts is not None and indexed_from is not None:
        held = [file for part in parts for file in part.files]
        if sum(it.rows for it in searched) + sum(it.rows for it in held) < indexed_from:
            searched, parts = [*searched, *held], []
    lookup = index.lookup(parts, searched, KeyProbe(hashes), known=SCANNED_KEYS, wanted=wanted)
    found = [SearchedFile(it.location, it.rows, tuple(deletes.get(it.location, ()))) for it in lookup.of]
    live = are_live(store, found, lookup.files, lookup.rows.positions)
    numbers, rows = lookup.files[live], lookup.rows.take(live)
    sequences = no_sequences(len(numbers), LONG) if rows.sequences is None else rows.sequences
    return FoundRows(rows.indexes, numbers, rows.positions, sequences, found, lookup.damaged)


def value_texts(rows: pa.RecordBatch) -> list[str]:
    """Return the values of each row as a text. Of two rows the one with the larger text counts as newer, so
    that the order in which they come decides nothing, nor the order in which the table got its columns.
    """
    return rows_as_json(rows, by_name=True)[0]  # Python lacks some dates and times that a table may hold


def stored_texts(
    store: Store, location: str, schema: pa.Schema, positions: np.ndarray, *, needs_ids: bool = False
) -> list[str]:
    """Return the texts of the rows at these positions of a data file, which are ascending. DataFileError for
    a file that cannot be read; `needs_ids` as for `open_data_file`.
    """
    with open_data_file(store, location, "a data file", needs_ids=needs_ids) as reader:
        return [text for rows in reader.read_at(schema, positions) for text in value_texts(rows)]


@dataclass(frozen=True)
class Decided:
    """The rows that a task writes, and which leave the table; in each array a place for each key."""

    rows: Iterable[pa.RecordBatch]
    """The new ones."""
    leaves: np.ndarray
    """Whether the live rows of the key leave."""
    remembered: np.ndarray
    """Whether the key has a delete that the table is to remember."""
    deleted_at: np.ndarray
    """The sequence of that delete."""
    counts: ChangeCounts
