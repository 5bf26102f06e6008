"""Iceberg's partitioning over Arrow arrays: transforms, and the partition keys of rows.

Keys hold Iceberg's internal values, as pyiceberg reads them from a manifest: a date or day is the days since
1970, a timestamp its microseconds, a decimal a Decimal, a UUID a UUID.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from decimal import Context, Decimal
from math import isnan
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from planners.model import PartitionKey
from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.leaves import as_integers

_HOUR_MICROS = 3_600_000_000
_MOST_HOURS = 2**31 - 2
_YEARS = (-719_162, 2_932_896)
"""Days since 1970 from the year 1 to the year 9999. Python has no others, so that no summary of a snapshot
can name a partition outside of them, and no version that has one could be built.
"""
_WIDE = Context(prec=80)


def apply_transform(array: pa.Array, transform: str) -> pa.Array:
    """Return `array` after an Iceberg transform, named as metadata names it. Nulls stay null."""
    if transform == "identity":
        _check_is_named(array, array, transform)
        return array
    # The Rust library takes ten milliseconds to load; writing to an unpartitioned table does without.
    from pyiceberg_core import transform as rust

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_decimal(array.type):
        # Spark's buffers are aligned to 8 bytes, and Rust panics on decimals that are not aligned to 16.
        array = pa.concat_arrays([array, array.slice(0, 0)])
    name, _, rest = transform.partition("[")
    arguments = [int(rest[:-1])] if rest else []
    values: pa.Array = getattr(rust, name)(array, *arguments)
    _check_range(array, values, transform)
    _check_is_named(array, values, transform)
    return values


def _check_is_named(array: pa.Array, values: pa.Array, transform: str) -> None:
    """Refuse values of partitions by day, hour or the time itself that have no name."""
    if transform in ("day", "hour"):
        a_day = 24 if transform == "hour" else 1
    elif transform == "identity" and pa.types.is_date32(values.type):
        a_day = 1
    elif transform == "identity" and pa.types.is_timestamp(values.type):
        a_day = 24 * _HOUR_MICROS
    else:
        return
    ends = pc.min_max(as_integers(values))
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is not None and not _YEARS[0] * a_day <= least <= most < (_YEARS[1] + 1) * a_day:
        raise _too_far_out(array, transform)


def _check_range(array: pa.Array, values: pa.Array, transform: str) -> None:
    """Refuse what the transform cannot express: near the ends of its types it gives null, or wraps around,
    and a scan that prunes by the partition would not find the row.
    """
    wrong = values.null_count != array.null_count
    if pa.types.is_timestamp(array.type) and transform == "hour" and not wrong:
        hours = pc.divide(array.cast(pa.int64()), _HOUR_MICROS)
        wrong = bool(pc.any(pc.greater(pc.abs(hours), _MOST_HOURS)).as_py())
    if transform.startswith("truncate") and pa.types.is_integer(array.type) and not wrong:
        wrong = bool(pc.any(pc.greater(values, array)).as_py())
    if pa.types.is_decimal(array.type) and transform.startswith("truncate") and not wrong:
        most = Decimal(10**array.type.precision - 1).scaleb(-array.type.scale, _WIDE)
        wrong = bool(pc.any(pc.greater(pc.abs(values), pa.scalar(most, array.type))).as_py())
    if wrong:
        raise _too_far_out(array, transform)


def _too_far_out(array: pa.Array, transform: str) -> RowsDoNotFitError:
    numbers = as_integers(array)  # Python cannot print such dates
    hint = ", often a wrong unit of time" if pa.types.is_temporal(array.type) else ""
    return RowsDoNotFitError(
        f"a value is too far out for the partition transform {transform}{hint};"
        ' filter such rows out before the sink, or set them aside with SchemaContract(mismatch="quarantine"):'
        f" smallest {pc.min(numbers)}, largest {pc.max(numbers)}"
    )


def source_columns(fields: Iterable[PartitionSource]) -> list[str]:
    """Return the top-level columns from which the partition of a row is taken, each once."""
    return list(dict.fromkeys(field.source[0] for field in fields if field.source))


def source_array(batch: pa.RecordBatch, source: Sequence[str]) -> pa.Array:
    """Return the (nested) source column of a partition field; a null struct makes its fields null."""
    if not source:
        return pa.nulls(batch.num_rows, pa.int32())
    array = batch.column(source[0])
    for name in source[1:]:
        array = pc.struct_field(array, name)
    return array


def source_type(schema: pa.Schema, source: Sequence[str]) -> pa.DataType:
    """Return the Arrow type of a (nested) source column."""
    if not source:
        return pa.int32()
    kind = schema.field(source[0]).type
    for name in source[1:]:
        kind = kind.field(name).type
    return kind


def split(
    batch: pa.RecordBatch, fields: Sequence[PartitionSource]
) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """Yield the rows of each table partition in `batch`; rows keep their order within a partition.

    Where all rows are of one partition the batch itself is yielded; otherwise each part is a copy, so that no
    part keeps the memory of the others alive.
    """
    if not batch.num_rows:
        return
    if not fields:
        yield (), batch
        return
    encoded = [_encode(_values(batch, field)) for field in fields]
    choices = [
        _internal_values(each.dictionary, _is_uuid(batch, field))
        for each, field in zip(encoded, fields, strict=True)
    ]
    if all(len(each) == 1 for each in choices):  # rows of most batches of source files
        yield tuple(each[0] for each in choices), batch
        return
    groups = pc.dictionary_encode(_combine_codes([each.indices for each in encoded])).indices
    order = pc.sort_indices(groups)  # stable
    counts = sorted(pc.value_counts(groups).to_pylist(), key=lambda count: count["values"])
    start = 0
    for count in counts:
        rows = order.slice(start, count["counts"])
        start += count["counts"]
        first = rows[0].as_py()
        key = tuple(each[one.indices[first].as_py()] for each, one in zip(choices, encoded, strict=True))
        yield key, batch if len(counts) == 1 else batch.take(rows)


def key_texts(batch: pa.RecordBatch, field: PartitionSource) -> pa.Array:
    """Return `key_text` of every row's value of one partition field."""
    encoded = _encode(_values(batch, field))
    values = _internal_values(encoded.dictionary, _is_uuid(batch, field))
    return pa.array([key_text(value) for value in values], pa.string()).take(encoded.indices)


def _values(batch: pa.RecordBatch, field: PartitionSource) -> pa.Array:
    array = source_array(batch, field.source)
    return apply_transform(array, field.transform) if field.source else array


def key_text(value: Hashable) -> str | None:
    """Return a partition key's value as text: equal for equal values, null for null."""
    return None if value is None else str(value)


def _combine_codes(codes: list[pa.Array]) -> pa.Array:
    """Return one integer a row that is equal exactly where all of `codes` are."""
    combined = codes[0].cast(pa.int64())
    for each in codes[1:]:
        # encoding again keeps the numbers below the square of the rows of a batch
        combined = pc.dictionary_encode(combined).indices.cast(pa.int64())
        width = (pc.max(each).as_py() or 0) + 1
        combined = pc.add(pc.multiply(combined, width), each.cast(pa.int64()))
    return combined


def _encode(array: pa.Array) -> pa.DictionaryArray:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return pc.dictionary_encode(array, null_encoding="encode")


def _is_uuid(batch: pa.RecordBatch, field: PartitionSource) -> bool:
    return field.transform == "identity" and isinstance(source_array(batch, field.source), pa.ExtensionArray)


_NAN = float("nan")
"""One object for all: a NaN equals only itself, so every key must hold the same object."""
_NO_SIGN = 0.0
"""Added to -0.0 it gives 0.0: readers that compare bytes would search for one of them, and miss the other."""


def _internal_values(array: pa.Array, is_uuid: bool) -> list[Hashable]:
    values: list[Any] = as_integers(array).to_pylist()
    if is_uuid:
        return [None if value is None else UUID(bytes=value) for value in values]
    if pa.types.is_floating(array.type):
        return [None if value is None else _NAN if isnan(value) else value + _NO_SIGN for value in values]
    return values
