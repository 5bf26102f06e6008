"""Finds the live rows that have the keys of a batch: in an index where there is one, else by a scan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from streaming_sink.tasks.job import SearchedFile
from streaming_sink.tasks.keys.index import KeyIndex
from streaming_sink.tasks.keys.live_positions import are_live
from streaming_sink.tasks.keys.probing import KeyFilter, KeyProbe
from streaming_sink.tasks.keys.scanned_keys import SCANNED_KEYS
from streaming_sink.tasks.keys.scanning import NO_SEQUENCE, KeyColumns, KeyedFile, KeyMatches
from streaming_sink.tasks.keys.scopes import salted
from timeline.stores.base import Store

_Matches = tuple[np.ndarray, KeyMatches]
"""The number of each row's file, and the row."""


@dataclass(frozen=True)
class FoundRows:
    """Live rows with a key of the batch; in each array a place for each row."""

    change: np.ndarray
    """Which of the batch's hashes it has."""
    file: np.ndarray
    """The number of its file."""
    position: np.ndarray
    sequence: np.ndarray
    """`NO_SEQUENCE` where it has none."""


def find_rows(
    store: Store,
    files: Sequence[SearchedFile],
    columns: KeyColumns,
    hashes: np.ndarray,
    *,
    indexed: bool = False,
    salts: Collection[bytes] | None = None,
    wanted: KeyFilter | None = None,
) -> FoundRows:
    """Return the live rows of these files whose keys in their scope have one of the hashes. `indexed`: look
    them up in the table's index, which knows no scope but the table. `salts`: the partitions of the keys,
    where a key is unique in each; no other is searched. `wanted` has the coarse words of the keys: with
    it a scan hashes few rows of other keys.

    DataFileError for a file that cannot be read: no row of the batch may land then.
    """
    if not len(hashes):
        files = ()
    keyed = [KeyedFile(file.location, file.rows) for file in files]
    if indexed:
        lookup = KeyIndex(store, columns).lookup(keyed, KeyProbe(hashes), wanted=wanted)
        numbers, rows = lookup.files, lookup.rows
    else:
        searched = [number for number, file in enumerate(files) if salts is None or file.salt in salts]
        probes = {salt: KeyProbe(salted(hashes, salt)) for salt in {files[it].salt for it in searched}}
        found = SCANNED_KEYS.find(
            store,
            [keyed[it] for it in searched],
            columns,
            [probes[files[it].salt] for it in searched],
            wanted=wanted,
        )
        none = KeyMatches.none(columns.sequence is not None)
        rows = KeyMatches.concatenate([none, *found])
        counts = [len(each.positions) for each in found]
        numbers = np.repeat(np.array(searched, np.int64), counts)
    live = are_live(store, files, numbers, rows.positions)
    numbers, rows = numbers[live], rows.take(live)
    sequences = np.full(len(numbers), NO_SEQUENCE) if rows.sequences is None else rows.sequences
    return FoundRows(rows.indexes, numbers, rows.positions, sequences)
