"""The column `_column_sequences` of a table that is updated in part: at which sequence a column was last set,
by its field id, where that is not the sequence of the row. It is null where all are of the row's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

COLUMN_SEQUENCES = "_column_sequences"


def entries_of(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """Return the entries of all rows: the place of each one's row, its field id, and its sequence."""
    maps: pa.MapArray = column.combine_chunks()
    offsets = maps.offsets.to_numpy()
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    begin, count = (int(offsets[0]), len(rows)) if len(maps) else (0, 0)
    return rows, maps.keys.slice(begin, count).to_numpy(), maps.items.slice(begin, count)


def with_entries(
    kind: pa.MapType,
    rows: int,
    set_at: Mapping[int, tuple[np.ndarray, np.ndarray]],
    sequences: pa.ChunkedArray,
) -> pa.MapArray:
    """Return the column for so many rows. `set_at` has for each field id the places of the rows that have an
    entry for it, and where its sequence is among `sequences`.
    """
    ids = np.repeat(np.array(list(set_at), np.int32), [len(places) for places, _ in set_at.values()])
    none = np.empty(0, np.int64)
    places = np.concatenate([none, *(each for each, _ in set_at.values())])
    values = np.concatenate([none, *(each for _, each in set_at.values())])
    order = np.lexsort((ids, places))
    counts = np.bincount(places, minlength=rows)
    return pa.MapArray.from_arrays(
        pa.array(np.append(0, np.cumsum(counts)), pa.int32()),
        pa.array(ids[order], kind.key_type),
        sequences.take(pa.array(values[order])).combine_chunks().cast(kind.item_type),
        type=kind,
        mask=pa.array(counts == 0),
    )
