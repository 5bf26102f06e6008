"""Parquet files of other writers: their rows, and the types that Spark and Iceberg have for their columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.ingest.calendars import check_is_gregorian, is_hybrid
from streaming_sink.tasks.leaves import leaf_arrays

_INT96 = "INT96"
_OTHERS: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.uuid(): pa.string(),
    pa.json_(): pa.string(),
}
"""Types that Spark does not have → those that hold all of their values."""


def open_footer(data: pa.NativeFile) -> pq.ParquetFile:
    """Return a Parquet file with its footer read. INT96 has days and nanoseconds apart, and so holds times
    that nanoseconds since 1970 do not; it is read in microseconds.
    """
    return pq.ParquetFile(data, page_checksum_verification=True, coerce_int96_timestamp_unit="us")


def read_all(data: pa.NativeFile) -> pa.Table:
    """Return all rows. RowsDoNotFitError for an INT96 that microseconds do not hold, and for a date or time
    that means another one to Spark, since the file has them in the hybrid calendar.
    """
    # Other cores have tasks of their own, and threads cost more than a small file's rows.
    file = open_footer(data)
    rows = file.read(use_threads=False)
    if is_hybrid(file.metadata.metadata):
        check_is_gregorian(rows)
    places = _columns_of_int96(file, rows.schema.types)
    if places:
        data.seek(0)
        finer = pq.ParquetFile(data).read(columns=[rows.column_names[place] for place in places])
        for name in finer.column_names:
            _check_is_whole(name, rows.column(name), finer.column(name))
    return rows


def has_int96(file: pq.ParquetFile) -> bool:
    """Return whether a column of a file is of INT96, or holds some."""
    return bool(_columns_of_int96(file, file.schema_arrow.types))


def _columns_of_int96(file: pq.ParquetFile, kinds: Sequence[pa.DataType]) -> list[int]:
    """Return the places of the columns with an INT96 in them. `kinds`: the types in which they are read, a
    timestamp that is; so of other columns the physical types, which take long to get, are not looked at.
    """
    if not any(map(_may_be_int96, kinds)):
        return []
    found, leaf, leaves = [], 0, file.schema
    for place, kind in enumerate(kinds):
        count = _leaves(kind)
        inside = range(leaf, leaf + count)
        if _may_be_int96(kind) and any(leaves.column(each).physical_type == _INT96 for each in inside):
            found.append(place)
        leaf += count
    return found


def _may_be_int96(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_nested(kind))


def _physical_types(file: pq.ParquetFile) -> Iterator[str | None]:
    return (file.schema.column(place).physical_type for place in range(len(file.schema)))


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(each) for each in _inside(kind)) if pa.types.is_nested(kind) else 1


def _inside(kind: pa.DataType) -> Sequence[pa.DataType]:
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(place).type for place in range(kind.num_fields)]


def _check_is_whole(name: str, micros: pa.ChunkedArray, nanos: pa.ChunkedArray) -> None:
    for leaf, finer in zip(leaf_arrays(micros), leaf_arrays(nanos), strict=True):
        if not pa.types.is_timestamp(leaf.type) or leaf.type == finer.type:
            continue
        # Both wrap around where nanoseconds do not hold the time.
        whole = pc.equal(pc.multiply(leaf.cast(pa.int64()), 1000), finer.cast(pa.int64()))
        if pc.all(whole, min_count=0).as_py() is False:
            raise RowsDoNotFitError(
                f"column {name} has a timestamp of INT96 with nanoseconds, and Iceberg's have microseconds;"
                " round it"
            )


def footer_columns(file: pq.ParquetFile, known: pa.Schema | None) -> pa.Schema:
    """Return the columns of a Parquet file in types that Spark has. `known`: the table's; None where there is
    none.
    """
    return plain_columns(file.schema_arrow, known, _physical_types(file))


def plain_columns(
    columns: pa.Schema, known: pa.Schema | None, physical: Iterator[str | None] | None = None
) -> pa.Schema:
    """Return columns in types that Spark has, which hold all of their values. `physical`: Parquet's types of
    the leaves.

    An INT96 is an instant, as Spark writes and reads it. But it has no word on zones, and other writers have
    local times in it, so it also fits a column of the table without a zone.
    """
    physical = repeat(None) if physical is None else physical
    fields = []
    for field in columns:
        same = None if known is None or field.name not in known.names else known.field(field.name).type
        fields.append(field.with_type(_plain(field.type, same, physical)))
    return pa.schema(fields, columns.metadata)


def _plain(kind: pa.DataType, known: pa.DataType | None, physical: Iterator[str | None]) -> pa.DataType:
    if pa.types.is_struct(kind):
        fields = list(kind)
        inside = known if known is not None and pa.types.is_struct(known) else None
        same = [None if inside is None else _field_type(inside, field.name) for field in fields]
        return pa.struct(
            [each.with_type(_plain(each.type, one, physical)) for each, one in zip(fields, same, strict=True)]
        )
    if pa.types.is_map(kind):
        both = (
            (known.key_type, known.item_type) if known is not None and pa.types.is_map(known) else (None,) * 2
        )
        key = _plain(kind.key_type, both[0], physical)
        return pa.map_(key, kind.item_field.with_type(_plain(kind.item_type, both[1], physical)))
    if pa.types.is_nested(kind):
        element = known.value_type if known is not None and pa.types.is_list(known) else None
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type, element, physical)))
    if next(physical) == _INT96:
        is_local = known is not None and pa.types.is_timestamp(known) and known.tz is None
        return pa.timestamp("us", None if is_local else "UTC")
    if known is not None and pa.types.is_uint64(kind) and pa.types.is_int64(known):
        return known
    return _OTHERS.get(kind, kind)


def _field_type(struct: pa.StructType, name: str) -> pa.DataType | None:
    place = struct.get_field_index(name)
    return None if place < 0 else struct.field(place).type
