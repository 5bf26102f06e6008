"""Finds the live rows that have the keys of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streaming_sink.tasks.delete_files import read_position_deletes
from streaming_sink.tasks.job import SearchedFile
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import NO_SEQUENCE, KeyColumns, KeyedFile, find_in_file
from streaming_sink.tasks.keys.scopes import salted
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
    """`NO_SEQUENCE` where it has none."""


def find_rows(
    store: Store, files: Sequence[SearchedFile], columns: KeyColumns, hashes: np.ndarray
) -> FoundRows:
    """Return the live rows of these files whose keys in their scope have one of the hashes.

    DataFileError for a file that cannot be read: no row of the batch may land then.
    """
    if not len(hashes):
        files = ()
    probes = {salt: KeyProbe(salted(hashes, salt)) for salt in {file.salt for file in files}}
    found = [_find_in(store, file, number, columns, probes[file.salt]) for number, file in enumerate(files)]
    arrays = zip(*found, strict=True) if found else [[np.empty(0, np.int64)]] * 4
    return FoundRows(*(np.concatenate(list(each)) for each in arrays))


def _find_in(
    store: Store, file: SearchedFile, number: int, columns: KeyColumns, probe: KeyProbe
) -> tuple[np.ndarray, ...]:
    matches = find_in_file(store, KeyedFile(file.location, file.rows), columns, probe)
    live = np.ones(len(matches.positions), bool)
    if file.deletes and len(live):
        live = ~np.isin(matches.positions, read_position_deletes(store, file.deletes, file.location))
    count = int(live.sum())
    unknown = np.full(count, NO_SEQUENCE)
    sequences = unknown if matches.sequences is None else matches.sequences[live]
    return matches.indexes[live], np.full(count, number), matches.positions[live], sequences
