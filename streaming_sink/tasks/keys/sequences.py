"""Sequences of changes as numpy arrays that compare in the order of the numbers: of a column of integers,
dates or times signed 64-bit integers, of a decimal one (up to 38 digits) texts of 16 bytes.

Either kind is indexed, compared, sorted and joined as any array, and the kinds are never mixed: the type of a
table's sequence column is never promoted from one to the other. The bytes are those of two words, the larger
one first, with the sign inverted; they are also what runs of the key index and tombstones hold.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.leaves import as_integers

LONG = np.dtype(np.int64)
WIDE = np.dtype("S16")
"""numpy takes zeros at the end for padding, which decides nothing between texts of one length."""
NO_SEQUENCE = -(2**63)
"""The sequence of a row whose sequence column is null: it is older than any row that has one. Of wide ones it
is 16 zeros.
"""
_SIGN = np.uint64(1 << 63)


def kind_of_sequences(column: pa.DataType) -> np.dtype:
    """Return which of the two kinds the sequences of a column are. TypeError for a type that orders none."""
    types = pa.types
    if types.is_decimal128(column) and column.scale == 0:
        return WIDE
    microseconds = types.is_timestamp(column) and column.unit == "us"
    if not (types.is_signed_integer(column) or types.is_date32(column) or microseconds):
        raise TypeError(
            f"a column of type {column} cannot order changes; integers, decimals without fraction, dates and"
            " timestamps in microseconds can"
        )
    return LONG


def sequence_values(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return the sequences of a column; of a null the one that `no_sequences` gives."""
    if kind_of_sequences(column.type) == WIDE:
        return _wide(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    values: np.ndarray = pc.fill_null(as_integers(column).cast(pa.int64()), NO_SEQUENCE).to_numpy()
    return values


def no_sequences(count: int, kind: np.dtype) -> np.ndarray:
    """Return so many times the sequence that is smaller than any."""
    return np.full(count, b"" if kind == WIDE else NO_SEQUENCE, kind)


def largest_sequences(count: int, places: np.ndarray, sequences: np.ndarray) -> np.ndarray:
    """Return for each place below `count` the largest of its sequences, the smallest there is where it has
    none. `places` says whose each sequence is, in any order.
    """
    found = no_sequences(count, sequences.dtype)
    order = np.lexsort((sequences, places))
    last = np.append(places[order][1:] != places[order][:-1], True)[: len(order)]
    found[places[order[last]]] = sequences[order[last]]
    return found


def sequences_to_arrow(sequences: np.ndarray) -> pa.Array:
    """Return sequences as a file holds them: integers, or 16 bytes each."""
    if sequences.dtype == WIDE:
        data = pa.py_buffer(np.ascontiguousarray(sequences))
        return pa.Array.from_buffers(pa.binary(WIDE.itemsize), len(sequences), [None, data])
    return pa.array(sequences)


def sequences_from_arrow(column: pa.ChunkedArray) -> np.ndarray:
    """Return what `sequences_to_arrow` was given, from a column without nulls."""
    if pa.types.is_fixed_size_binary(column.type):
        parts = [_texts(chunk) for chunk in column.chunks]
        return np.concatenate([np.empty(0, WIDE), *parts])
    values: np.ndarray = column.to_numpy()
    return values


def _texts(chunk: pa.Array) -> np.ndarray:
    data = chunk.buffers()[1] if len(chunk) else b""
    return np.frombuffer(data, WIDE)[chunk.offset : chunk.offset + len(chunk)]


def _wide(column: pa.Array) -> np.ndarray:
    # A slice has the buffers of its whole, and an empty array may have none.
    data = column.buffers()[1] if len(column) else b""
    low, high = np.frombuffer(data, "<u8").reshape(-1, 2)[column.offset : column.offset + len(column)].T
    words = np.empty((len(column), 2), ">u8")
    words[:, 0], words[:, 1] = high ^ _SIGN, low
    if column.null_count:
        words[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return words.view(WIDE).reshape(-1)
