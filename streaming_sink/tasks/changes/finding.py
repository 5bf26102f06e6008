"""Finds the live rows that have the keys of a batch: in an index where there is one, else by a scan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from streaming_sink.tasks.changes.live_positions import are_live
from streaming_sink.tasks.job import SearchedFile
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.scanned_keys import SCANNED_KEYS
from streaming_sink.tasks.keys.probing import KeyFilter, KeyProbe
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, KeyMatches
from streaming_sink.tasks.keys.sequences import LONG, no_sequences
from timeline.stores.base import Store


@dataclass(frozen=True)
class FoundRows:
    """Live rows with a key of the batch; in each array a place for each row."""

    change: np.ndarray
    """Which of the batch's hashes it has."""
    file: np.ndarray
    """The number of its file."""
    position: np.ndarray
    sequence: np.ndarray
    """The smallest one where it has none."""


def find_rows(
    store: Store,
    files: Sequence[SearchedFile],
    columns: KeyColumns,
    hashes: np.ndarray,
    *,
    indexed_from: int | None = None,
    salts: Collection[bytes] | None = None,
    wanted: KeyFilter | None = None,
) -> FoundRows:
    """Return the live rows of these files whose keys in their scope have one of the hashes. `salts`: the
    partitions of the keys, where a key is unique in each; no other is searched. `indexed_from`: look keys up
    in the table's index where so many rows are to be searched. `wanted` has the coarse words of the keys:
    with it a scan hashes few rows of other keys.

    DataFileError for a file that cannot be read: no row of the batch may land then.
    """
    searched = [
        number for number, file in enumerate(files) if len(hashes) and (salts is None or file.salt in salts)
    ]
    keyed = [KeyedFile(files[it].location, files[it].rows, files[it].salt) for it in searched]
    probe = KeyProbe(hashes)
    if indexed_from is not None and sum(file.rows for file in keyed) >= indexed_from:
        lookup = KeyIndex(store, columns).lookup(keyed, probe, wanted=wanted)
        places, rows = lookup.files, lookup.rows
    else:
        found = SCANNED_KEYS.find(store, keyed, columns, probe, wanted=wanted)
        places = np.repeat(np.arange(len(found)), [len(each.positions) for each in found])
        rows = KeyMatches.concatenate([KeyMatches.none(columns.kind), *found])
    numbers = np.array(searched, np.int64)[places]
    live = are_live(store, files, numbers, rows.positions)
    numbers, rows = numbers[live], rows.take(live)
    sequences = no_sequences(len(numbers), LONG) if rows.sequences is None else rows.sequences
    return FoundRows(rows.indexes, numbers, rows.positions, sequences)
