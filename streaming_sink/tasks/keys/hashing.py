"""128-bit hashes of keys, which take the place of keys wherever the rows of keys are looked for.

A key is the values of one or several columns. Its message is the canonical encodings of these values, one
after the other, in 64-bit words:

    boolean, integer, date, time, timestamp    one word: the value as a signed 64-bit integer, so that an int
                                               and the long that its column was widened to are equal
    decimal                                    two words: the unscaled value, in any precision
    string, binary, fixed, uuid                32 bits of length, the bytes, zeros up to a whole word

The types of a key's columns are those of the table, so each encoding says where it ends: no two keys have
one message. Equal hashes are taken for equal keys, and no row is looked at. That is a question of numbers:
two keys collide with probability 2^-128. A table of 10^9 keys that takes 10^12 changes compares 10^21 pairs,
and one of them collides with probability 3 * 10^-18: an undetected error of memory is likelier. A producer of
keys does not know the seed, which follows from the table's uuid, and so cannot choose keys that collide.

These hashes are in files beside tables: they never change. Hashing takes a few MiB and a copy of the values
of 16,384 rows, beside the 16 bytes of each hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from uuid import UUID

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.keys.siphash import SEED_BYTES, SipHash
from streaming_sink.tasks.leaves import as_integers

_ROWS = 16 * 1024
"""Rows at a time: their states fit in a core's cache."""
_PERSON = b"streaming-keys"
_LENGTH_BYTES = 4
_WORD_BYTES = 8
_WIDEST_DECIMAL = 38
_ODD = np.uint64(0x9E3779B97F4A7C15)
"""The upper bits of its products depend on all bits of a word."""


def key_seed(table_uuid: UUID, field_ids: Sequence[int]) -> bytes:
    """Return the seed of the hashes of a table's keys: 16 bytes, other ones for another table and for a key
    of other columns, or in another order.
    """
    digest = blake2b(table_uuid.bytes, digest_size=SEED_BYTES, person=_PERSON)
    for field_id in field_ids:
        digest.update(field_id.to_bytes(8, "little"))
    return digest.digest()


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray], seed: bytes) -> np.ndarray:
    """Return the hashes of the keys whose values are in `columns`, in the table's types: an array of 64-bit
    words, with a row of two for each key. Keys are equal where their rows are.

    TypeError for a type that no key has: floating point, whose equal values may differ in bits, and nested
    types. ValueError for nulls, which equal nothing, for columns of different lengths, and for none.
    """
    if not columns or len({len(column) for column in columns}) > 1:
        raise ValueError(f"a key has columns of one length, not of {[len(column) for column in columns]}")
    for number, column in enumerate(columns):
        check_key_type(column.type)
        if column.null_count:
            raise ValueError(f"{column.null_count} values of column {number} of the key are null")
    parts = [_hash_rows(rows, seed) for rows in _slices(columns)]
    return np.concatenate([np.empty((0, 2), np.uint64), *parts])


def check_key_type(kind: pa.DataType) -> None:
    """Raise TypeError for the type of a column that cannot be part of a key."""
    kind = _plain(kind)
    if not (_is_integer(kind) or _is_decimal(kind) or _is_bytes(kind)):
        raise TypeError(
            f"a column of type {kind} cannot be part of a key; booleans, integers, decimals, dates, times,"
            " timestamps in microseconds, strings, binary values and uuids can"
        )


def coarse_words(columns: Sequence[pa.Array | pa.ChunkedArray]) -> np.ndarray:
    """Return a 64-bit word for each key, of columns as `hash_keys` takes them: the same for equal keys, and
    other ones for most others. It reads numbers, and of text and bytes the first and the last eight, so that
    it takes a fifth of the time of a hash; most other keys need none then.

    Words are for one process, and may change with any release. Keys whose values differ in the middle alone
    have one word.
    """
    parts = [_coarse(rows) for rows in _slices(columns)]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _coarse(columns: Sequence[pa.Array]) -> np.ndarray:
    words = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        for part in _ends_of(column) if _is_bytes(column.type) else _whole_words(column):
            words ^= part
            words *= _ODD
    return words


def _ends_of(column: pa.Array) -> Iterator[np.ndarray]:
    """Yield the first bytes of each value as a word, and the last ones."""
    words, starts, lengths = _bytes_of(column)
    size = np.minimum(lengths, _WORD_BYTES)
    for at in (starts, starts + lengths - size):
        word, shift = at // _WORD_BYTES, (at % _WORD_BYTES * 8).astype(np.uint64)
        found = words[word] >> shift | words[word + 1] << (np.uint64(64) - shift)
        unused = ((_WORD_BYTES - size) * 8).astype(np.uint64)
        yield np.where(size > 0, found << unused, np.uint64(0))


def _slices(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Iterator[list[pa.Array]]:
    for start in range(0, len(columns[0]), _ROWS):
        yield [_flat(column.slice(start, _ROWS)) for column in columns]


def _flat(rows: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a few rows as one array that is neither chunked, nor a dictionary, nor an extension."""
    array = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    if isinstance(array.type, pa.BaseExtensionType):
        return _flat(array.storage)
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def _hash_rows(columns: Sequence[pa.Array], seed: bytes) -> np.ndarray:
    count = len(columns[0])
    state = SipHash(count, seed)
    order = np.arange(count)
    for column in columns:
        if _is_bytes(column.type):
            order = _absorb_bytes(state, column, order)
        else:
            for words in _whole_words(column):
                state.absorb(words[order])
    digests = np.empty((count, 2), np.uint64)
    digests[order] = state.digests()
    return digests


def _whole_words(column: pa.Array) -> Iterator[np.ndarray]:
    if _is_decimal(column.type):
        column = column.cast(pa.decimal128(_WIDEST_DECIMAL, column.type.scale))
        halves = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset :]
        yield from halves[: 2 * len(column)].reshape(-1, 2).T
    else:
        yield as_integers(column).cast(pa.int64()).to_numpy().view(np.uint64)


def _absorb_bytes(state: SipHash, column: pa.Array, order: np.ndarray) -> np.ndarray:
    """Append the encoded values of `column` to the messages, of which that of row `order[i]` is at place i.
    Return their new order.
    """
    words, starts, lengths = _bytes_of(column)
    starts, lengths = starts[order], lengths[order]
    counts = (lengths + (_LENGTH_BYTES + _WORD_BYTES - 1)) // _WORD_BYTES
    if counts.min() != counts.max():
        longest_first = np.argsort(-counts, kind="stable")
        state.reorder(longest_first)
        order, starts, lengths, counts = (each[longest_first] for each in (order, starts, lengths, counts))
    longer = len(order) - np.cumsum(np.bincount(counts))
    for number, active in enumerate(longer[:-1].tolist()):
        state.absorb(_encoded(words, starts[:active], lengths[:active], number))
    return order


def _encoded(words: np.ndarray, starts: np.ndarray, lengths: np.ndarray, number: int) -> np.ndarray:
    """Return word `number` of the encodings of values that begin at byte `starts` of `words`."""
    at = starts + (number * _WORD_BYTES - _LENGTH_BYTES)
    word, shift = at // _WORD_BYTES, (at % _WORD_BYTES * 8).astype(np.uint64)
    found: np.ndarray = words[word] >> shift | words[word + 1] << (np.uint64(64) - shift)
    left = np.minimum(lengths + (_LENGTH_BYTES - number * _WORD_BYTES), _WORD_BYTES)
    found &= np.uint64(2**64 - 1) >> ((_WORD_BYTES - left) * 8).astype(np.uint64)
    if number == 0:
        found &= np.uint64(2**64 - 2**32)
        found |= lengths.astype(np.uint64)
    return found


def _bytes_of(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a copy of the values' bytes as words, with a word before and words after them; at which byte of
    them each value starts; and its length.
    """
    if pa.types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        offsets = np.arange(column.offset, column.offset + len(column) + 1, dtype=np.int64) * width
        data = column.buffers()[1]
    else:
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        _, index, data = column.buffers()
        offsets = np.frombuffer(index, np.int64 if large else np.int32)
        offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, end = int(offsets[0]), int(offsets[-1])
    words = np.zeros((end - first) // _WORD_BYTES + 3, np.uint64)
    if end > first:
        copied = np.frombuffer(data, np.uint8)[first:end]
        words.view(np.uint8)[_WORD_BYTES : _WORD_BYTES + end - first] = copied
    lengths = np.diff(offsets)
    if lengths.max() >= 2**32:
        raise ValueError(f"a value of a key has {lengths.max()} bytes; it may have less than 4 GiB")
    return words, offsets[:-1] - first + _WORD_BYTES, lengths


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of what `_flat` makes of a column of this type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_integer(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_timestamp(kind) or types.is_time64(kind):
        return bool(kind.unit == "us")
    return bool(types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_date32(kind))


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) and not pa.types.is_decimal256(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return bool(text or binary)
