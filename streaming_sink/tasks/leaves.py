"""The leaves of a table's Arrow schema: its columns of single values, by field id, as Parquet stores them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One primitive column of the Parquet file, in the file's order."""

    field_id: int
    type: pa.DataType
    path: tuple[int, ...]
    """Indexes from the top-level column down; they end at the list or map that the leaf is in."""
    parquet_path: str
    """Its name as Parquet spells it, through the groups that lists and maps put in between."""
    repeated: bool
    """It is inside a list or a map: it has counts but no bounds, as in Iceberg."""


def field_id(arrow_field: pa.Field) -> int:
    """Return the field's Iceberg id. KeyError if it has none."""
    return int((arrow_field.metadata or {})[FIELD_ID])


def leaves(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Return the primitive columns of `schema` in the order in which Parquet stores them."""
    found: list[Leaf] = []

    def visit(arrow_field: pa.Field, path: tuple[int, ...], name: str, repeated: bool) -> None:
        kind = arrow_field.type
        if pa.types.is_struct(kind):
            for index in range(kind.num_fields):
                child = kind.field(index)
                visit(child, (*path, index), f"{name}.{child.name}", repeated)
        elif pa.types.is_list(kind):
            visit(kind.value_field, path, f"{name}.list.element", True)
        elif pa.types.is_map(kind):
            visit(kind.key_field, path, f"{name}.key_value.key", True)
            visit(kind.item_field, path, f"{name}.key_value.value", True)
        else:
            found.append(Leaf(field_id(arrow_field), kind, path, name, repeated))

    for index, top in enumerate(schema):
        visit(top, (index,), top.name, False)
    return tuple(found)


def leaf_values(column: pa.ChunkedArray, leaf: Leaf) -> pa.ChunkedArray:
    """Return the values of a leaf outside of lists and maps, out of its top-level column, in a type that
    Arrow computes on (a UUID as its bytes); null where a struct around it is.
    """
    for index in leaf.path[1:]:
        column = pc.struct_field(column, [index])
    if isinstance(leaf.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], leaf.type.storage_type)
    return column


def as_integers(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return dates, times and timestamps, nested ones too, as the integers that Iceberg stores, of which
    Python has all; other values as they are.
    """
    kind = _integer_type(values.type)
    return values if kind == values.type else values.cast(kind)


def _integer_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_integer_type(each.type)) for each in kind])
    if pa.types.is_map(kind):
        key, item = (each.with_type(_integer_type(each.type)) for each in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_integer_type(kind.value_type)))
    return kind


def leaf_arrays(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Return the arrays of single values in a column, chunk by chunk, in Parquet's order."""
    for chunk in column.chunks:
        yield from _leaves_of(chunk)


def _leaves_of(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        parts = array.flatten()
    elif pa.types.is_map(array.type):
        parts = [array.keys, array.items]
    elif pa.types.is_nested(array.type):
        parts = [array.flatten()]
    else:
        yield array
        return
    for part in parts:
        yield from _leaves_of(part)
