"""The keys of a data file, read from its columns: the way to find rows in a file that no index covers. The
scope of a key is the table, or each of its partitions; then the hash depends on it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planners.model import PartitionKey, comparable
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.keys.hashing import check_key_type, coarse_words, hash_keys, key_seed
from streaming_sink.tasks.keys.probing import KeyEntries, KeyFilter, KeyProbe
from streaming_sink.tasks.keys.sequences import kind_of_sequences, sequence_values
from streaming_sink.tasks.leaves import field_id
from timeline.stores.base import Store

TABLE_SALT = bytes(16)
"""Leaves the hashes of keys as they are."""


def scope_salt(in_partitions: bool, partition: PartitionKey) -> bytes:
    """Return the salt of the keys of a partition, which are unique in it, or in the table."""
    return partition_salt(partition) if in_partitions else TABLE_SALT


def partition_salt(partition: PartitionKey) -> bytes:
    """Return what distinguishes the keys of a partition from the same ones in others."""
    return blake2b(repr(comparable(partition)).encode(), digest_size=16).digest()


def salted(hashes: np.ndarray, salt: bytes) -> np.ndarray:
    """Return the hashes of keys in a scope. Salted again, they are those of the keys alone."""
    return hashes if salt == TABLE_SALT else hashes ^ np.frombuffer(salt, np.uint64)


SCAN_ROWS = 256 * 1024
"""Rows of a batch: about 60 bytes each, beside their values."""


class KeyedFile(NamedTuple):
    """A data file of the table."""

    location: str
    """As manifests spell it."""
    rows: int
    """By its manifest; deleted rows count."""
    salt: bytes = TABLE_SALT
    """The scope of its keys; see `scope_salt`."""


class KeyMatches(NamedTuple):
    """Rows of one data file that have a key of a batch, deleted rows too. A key may be in several rows."""

    indexes: np.ndarray
    """Which hash of the probe the row has."""
    positions: np.ndarray
    """As in `KeyEntries`, and so the sequences."""
    sequences: np.ndarray | None

    @classmethod
    def none(cls, kind: np.dtype | None) -> KeyMatches:
        """Return no rows, of a key that has sequences of this kind, or none."""
        return cls(_NO_ROWS, _NO_ROWS, None if kind is None else np.empty(0, kind))

    @classmethod
    def concatenate(cls, parts: Sequence[KeyMatches]) -> KeyMatches:
        """Return the rows of several, which is one or more."""
        indexes, positions, sequences = zip(*parts, strict=True)
        with_sequences = parts[0].sequences is not None
        return cls(
            np.concatenate(indexes),
            np.concatenate(positions),
            np.concatenate(sequences) if with_sequences else None,
        )

    def take(self, chosen: np.ndarray) -> KeyMatches:
        """Return the rows at these places, or those that a mask has."""
        sequences = None if self.sequences is None else self.sequences[chosen]
        return KeyMatches(self.indexes[chosen], self.positions[chosen], sequences)


_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of a table that are its key, in their order, and the one that orders the changes of a key.

    They are top-level columns in the table's types, with field ids. TypeError for a type that is not allowed.
    """

    table_uuid: UUID
    keys: pa.Schema
    sequence: pa.Field | None = None
    needs_ids: bool = False
    """Whether a data file without field ids is refused, since a column may have been renamed."""

    @classmethod
    def of(
        cls, table_uuid: UUID, schema: pa.Schema, key: Iterable[str], by: str | None, *, needs_ids: bool
    ) -> KeyColumns:
        """Return the columns of these names, in the table's schema."""
        keys = pa.schema([schema.field(name) for name in key])
        return cls(table_uuid, keys, None if by is None else schema.field(by), needs_ids)

    def __post_init__(self) -> None:
        for column in self.keys:
            check_key_type(column.type)
        if self.sequence is not None:
            kind_of_sequences(self.sequence.type)

    @property
    def kind(self) -> np.dtype | None:
        """Of the sequences, `LONG` or `WIDE`; None for a key without a sequence column."""
        return None if self.sequence is None else kind_of_sequences(self.sequence.type)

    @property
    def seed(self) -> bytes:
        """The seed of the hashes of this key."""
        return key_seed(self.table_uuid, [field_id(column) for column in self.keys])

    @property
    def digest(self) -> str:
        """Identifies an index of these columns: 16 hexadecimal digits."""
        sequence = b"" if self.sequence is None else field_id(self.sequence).to_bytes(8, "little")
        return blake2b(self.seed + sequence, digest_size=8).hexdigest()


def scan_keys(
    store: Store,
    file: KeyedFile,
    columns: KeyColumns,
    wanted: KeyFilter | None = None,
) -> Iterator[KeyEntries]:
    """Yield the keys of the rows of a data file in their scope, by ascending position. A row whose key has a
    null is left out: it equals no other. So are most of those whose coarse words are not `wanted`.

    DataFileError if the file is missing or damaged, or does not have the rows that the table says.
    """
    keys = [column.with_nullable(True) for column in columns.keys]
    sequence = [] if columns.sequence is None else [columns.sequence.with_nullable(True)]
    start = 0
    with open_data_file(store, file.location, "a data file", needs_ids=columns.needs_ids) as reader:
        if reader.rows != file.rows:
            raise DataFileError(
                f"a data file has {reader.rows:,} rows, not {file.rows:,} as the table says: {file.location}"
            )
        for rows in reader.read(pa.schema([*keys, *sequence]), SCAN_ROWS):
            hashes, positions, sequences = _entries(rows, len(keys), columns.seed, start, wanted)
            yield KeyEntries(salted(hashes, file.salt), positions, sequences)
            start += rows.num_rows


def find_in_file(
    store: Store,
    file: KeyedFile,
    columns: KeyColumns,
    probe: KeyProbe,
    wanted: KeyFilter | None = None,
) -> KeyMatches:
    """Return the rows of a data file that have a key of the probe, deleted rows too, by ascending position.
    `wanted` has the coarse words of these keys. DataFileError as for `scan_keys`.
    """
    return find_in_entries(scan_keys(store, file, columns, wanted), columns, probe)


def find_in_entries(entries: Iterable[KeyEntries], columns: KeyColumns, probe: KeyProbe) -> KeyMatches:
    """Return those of the rows that have a key of the probe, in the same order."""
    found = [KeyMatches.none(columns.kind)]
    for hashes, positions, sequences in entries:
        indexes, rows = probe.match_rows(hashes)
        found.append(KeyMatches(indexes, positions[rows], None if sequences is None else sequences[rows]))
    return KeyMatches.concatenate(found)


def _entries(
    rows: pa.RecordBatch, keys: int, seed: bytes, start: int, wanted: KeyFilter | None
) -> KeyEntries:
    positions = np.arange(start, start + rows.num_rows)
    if any(column.null_count for column in rows.columns[:keys]):
        whole = rows.columns[0].is_valid()
        for column in rows.columns[1:keys]:
            whole = pc.and_(whole, column.is_valid())
        rows, positions = rows.filter(whole), positions[whole.to_numpy(zero_copy_only=False)]
    if wanted is not None and rows.num_rows:
        near = wanted.may_have(coarse_words(rows.columns[:keys]))
        rows, positions = rows.filter(pa.array(near)), positions[near]
    sequences = sequence_values(rows.columns[keys]) if rows.num_columns > keys else None
    return KeyEntries(hash_keys(rows.columns[:keys], seed), positions, sequences)
