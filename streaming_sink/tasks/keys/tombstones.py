"""Files of deleted keys: the hash of each, the sequence of the change that deleted it, and when it landed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.sequences import largest_sequences, sequences_from_arrow, sequences_to_arrow
from streaming_sink.tasks.whole_reads import read_columns
from timeline.stores.base import Store

AT_COMMIT = 2**63 - 1
"""When a key was deleted by the batch that wrote the file: that commit was yet to come."""
_CACHED_BYTES = 128 * 1024 * 1024
"""What a process keeps of the files that it has read: they never change, and each batch asks for them."""

_NAMES = ["hash_high", "hash_low", "sequence", "deleted_at_ms"]


class Tombstones(NamedTuple):
    """Deleted keys; in each array a place for each."""

    hashes: np.ndarray
    """As `hash_keys` returns them."""
    sequences: np.ndarray
    """As `sequence_values` returns them."""
    deleted_at_ms: np.ndarray
    """The table's time when the delete landed; `AT_COMMIT` for those of the batch that wrote the file."""

    def landed(self, at_ms: int) -> Tombstones:
        """Return the same keys for a file whose commit landed at a time."""
        return self._replace(deleted_at_ms=np.minimum(self.deleted_at_ms, at_ms))


_cache: OrderedDict[str, Tombstones] = OrderedDict()


def write_tombstones(store: Store, path: str, tombstones: Tombstones) -> None:
    """Write a durable file under a path that no other writer uses."""
    columns = [
        pa.array(np.ascontiguousarray(tombstones.hashes[:, 0])),
        pa.array(np.ascontiguousarray(tombstones.hashes[:, 1])),
        sequences_to_arrow(tombstones.sequences),
        pa.array(tombstones.deleted_at_ms),
    ]
    schema = pa.schema(
        [pa.field(name, each.type, nullable=False) for name, each in zip(_NAMES, columns, strict=True)]
    )
    written = pa.BufferOutputStream()
    rows = pa.table(columns, schema=schema)
    pq.write_table(rows, written, compression="zstd", use_dictionary=False, write_page_checksum=True)
    with store.open_output(path) as output:
        output.write(written.getvalue())


def read_tombstones(store: Store, location: str) -> Tombstones:
    """Return the keys of one file. DataFileError where it is missing or damaged."""
    if (known := _cache.get(location)) is not None:
        _cache.move_to_end(location)
        return known
    try:
        with store.open_input(store.relative(location)) as source:
            table = read_columns(source, _NAMES)
        kinds = [table.schema.field(name).type for name in (*_NAMES[:2], _NAMES[3])]
        if kinds != [pa.uint64(), pa.uint64(), pa.int64()]:
            raise pa.ArrowInvalid(f"its columns are not hashes and times: {kinds}")
    except FileNotFoundError as missing:
        raise DataFileError(f"a file of deleted keys is missing: {location}") from missing
    except (pa.ArrowException, OSError) as damage:
        raise DataFileError(f"a file of deleted keys cannot be read: {location}: {damage}") from damage
    high, low, deleted_at = (table.column(name).to_numpy() for name in (*_NAMES[:2], _NAMES[3]))
    sequences = sequences_from_arrow(table.column(_NAMES[2]))
    found = _cache[location] = Tombstones(np.column_stack([high, low]), sequences, deleted_at)
    while sum(each.hashes.nbytes * 2 for each in _cache.values()) > _CACHED_BYTES and len(_cache) > 1:
        _cache.popitem(last=False)
    return found


class DeletedUntil(NamedTuple):
    """Which of a batch's keys were deleted, and until when; in each array a place for each key."""

    deleted: np.ndarray
    sequences: np.ndarray
    """The largest sequence of a change that deleted the key. Any number may be one, so none says "never"."""

    def covers(self, keys: np.ndarray, sequences: np.ndarray) -> np.ndarray:
        """Return which changes of the keys at these places are not newer than a delete."""
        covered: np.ndarray = self.deleted[keys] & (self.sequences[keys] >= sequences)
        return covered


def deleted_until(store: Store, locations: Iterable[str], hashes: np.ndarray, kind: np.dtype) -> DeletedUntil:
    """Return what files of deleted keys, with sequences of one kind, say of the keys with these hashes."""
    keys, sequences = [np.empty(0, np.intp)], [np.empty(0, kind)]
    probe = KeyProbe(hashes)
    for location in locations:
        tombstones = read_tombstones(store, location)
        indexes, rows = probe.match_rows(tombstones.hashes)
        keys.append(indexes)
        sequences.append(tombstones.sequences[rows])
    found = np.concatenate(keys)
    deleted = np.zeros(len(hashes), bool)
    deleted[found] = True
    return DeletedUntil(deleted, largest_sequences(len(hashes), found, np.concatenate(sequences)))


def merge_tombstones(parts: Iterable[Tombstones], oldest_ms: int) -> Tombstones:
    """Return the keys of several files, of each the largest sequence, without those deleted before a time."""
    held = list(parts)
    hashes = np.concatenate([each.hashes for each in held])
    sequences = np.concatenate([each.sequences for each in held])
    deleted_at = np.concatenate([each.deleted_at_ms for each in held])
    order = np.lexsort((sequences, hashes[:, 1], hashes[:, 0]))
    hashes, sequences, deleted_at = hashes[order], sequences[order], deleted_at[order]
    last = np.append((hashes[1:] != hashes[:-1]).any(axis=1), True) if len(hashes) else np.empty(0, bool)
    kept = last & (deleted_at >= oldest_ms)
    return Tombstones(hashes[kept], sequences[kept], deleted_at[kept])
