"""A checksum of rows as a multiset: it does not depend on their order or files."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.leaves import as_integers

_NULL = np.uint64(0x9E3779B97F4A7C15)
_Hashes = npt.NDArray[np.uint64]


def checksum(batches: Iterable[pa.RecordBatch]) -> int:
    """Return the sum, modulo 2 ** 64, of a hash of each row: of all its columns, in their order."""
    total = 0
    for batch in batches:
        rows = np.zeros(batch.num_rows, dtype=np.uint64)
        for column in batch.columns:
            # Not symmetric in the columns: values that changed columns change the sum.
            rows = _mix(rows * np.uint64(31) + _hashes(column))
        total += int(rows.sum(dtype=np.uint64))
    return total % 2**64


def _hashes(column: pa.Array) -> _Hashes:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    hashes = np.full(len(column), _NULL, dtype=np.uint64)
    present = column.drop_null()
    if not len(present):
        return hashes
    hashes[column.is_valid().to_numpy(zero_copy_only=False)] = _hash_values(present, kind)
    return hashes


def _hash_values(values: pa.Array, kind: pa.DataType) -> _Hashes:
    if pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        if pa.types.is_boolean(kind):
            values = values.cast(pa.uint8())
        plain: npt.NDArray[Any] = values.view(_INTEGERS[values.type.bit_width]).to_numpy(zero_copy_only=False)
        return _mix(plain.astype(np.uint64))
    if pa.types.is_nested(kind):
        return _digests(pickle.dumps(value) for value in as_integers(values).to_pylist())
    encoded = pc.dictionary_encode(values)
    different = _digests(str(value).encode() for value in encoded.dictionary.to_pylist())
    of_rows: _Hashes = different[encoded.indices.to_numpy()]
    return of_rows


_INTEGERS = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


def _digests(values: Iterable[bytes]) -> _Hashes:
    digests = b"".join(blake2b(value, digest_size=8).digest() for value in values)
    return np.frombuffer(digests, dtype=np.uint64)


def _mix(values: _Hashes) -> _Hashes:
    """Return the finaliser of splitmix64 of each value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    finalised: _Hashes = values ^ (values >> np.uint64(31))
    return finalised
