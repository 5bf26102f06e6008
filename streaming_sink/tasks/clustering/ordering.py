"""Sort keys of rows: columns by direction and place of nulls, in an order that is the same in every engine.

Values ascend as Iceberg orders them: numbers, NaN after all numbers, text by its bytes. A descending column
is the reverse of that; nulls stand where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planners.clustering.sort_fields import SortField
from planners.suggestions import unknown_name
from streaming_sink.tasks.clustering.number_sort import sorting_numbers
from streaming_sink.tasks.clustering.text_sort import sorting_text
from streaming_sink.tasks.metrics import Leaf, leaves


@dataclass(frozen=True, slots=True)
class Key:
    """One key of some rows, and whether it descends. Where it is null, an earlier key decides."""

    values: pa.ChunkedArray
    descending: bool = False


_NUMBERS = (pa.int64(), pa.uint64())
"""What `sorting_numbers` sorts: the places on a curve too."""

Order = Callable[[pa.Table], list[Key]]
"""The keys of rows, most important first. Of each row alone: the same row has the same keys in any table."""


def by_columns(schema: pa.Schema, sort_by: Sequence[SortField]) -> Order:
    """Return the order by these columns. ValueError if one cannot be sorted by; see `sortable`."""
    columns = [(sortable(schema, field.column), field) for field in sort_by]
    tops = top_names(schema, [leaf for leaf, _ in columns])

    def keys(rows: pa.Table) -> list[Key]:
        found: list[Key] = []
        for top, (leaf, field) in zip(tops, columns, strict=True):
            values = values_of(rows.column(top), leaf)
            placed = _places(values, field)
            if placed is not None:
                found.append(Key(placed))
            found.append(Key(values, field.descending))
        return found

    return keys


def sortable(schema: pa.Schema, name: str) -> Leaf:
    """Return the column of this name, a dot between a struct and its field.

    ValueError for a name that is not there (with the nearest), or a column that has no order.
    """
    known = {_name(schema, leaf): leaf for leaf in leaves(schema) if not leaf.repeated}
    if name in known:
        return known[name]
    if name in schema.names:
        raise ValueError(
            f"column {name!r} has no order to sort by: {schema.field(name).type}; sort by a column of single"
            " values, or by one field of a struct"
        )
    raise unknown_name("sort column", name, known)


def _name(schema: pa.Schema, leaf: Leaf) -> str:
    field = schema.field(leaf.path[0])
    names = [field.name]
    for index in leaf.path[1:]:
        field = field.type.field(index)
        names.append(field.name)
    return ".".join(names)


def top_names(schema: pa.Schema, columns: Sequence[Leaf]) -> list[str]:
    """Return the names of the table's columns that these are, or are fields of."""
    return [schema.field(leaf.path[0]).name for leaf in columns]


def values_of(column: pa.ChunkedArray, leaf: Leaf) -> pa.ChunkedArray:
    """Return the values of `leaf` out of its top-level column, in a type that Arrow sorts; null where a
    struct around it is.
    """
    for index in leaf.path[1:]:
        column = pc.struct_field(column, [index])
    if isinstance(leaf.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], leaf.type.storage_type)
    return column


def _places(values: pa.ChunkedArray, field: SortField) -> pa.ChunkedArray | None:
    """Return -1 for rows before all ordinary values, 1 for those behind, 0 for these; None if all are."""
    has_nan = pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())
    if not values.null_count and not has_nan:
        return None
    places = pc.cast(pc.is_null(values), pa.int8())
    places = pc.multiply(places, pa.scalar(-2 if field.nulls_first else 2, pa.int8()))
    if has_nan:
        nans = pc.fill_null(pc.cast(pc.is_nan(values), pa.int8()), 0)
        places = pc.add(places, pc.negate(nans) if field.descending else nans)
    return places


def sorting(keys: Sequence[Key]) -> pa.Array:
    """Return the row numbers in the order of the keys; rows that are alike stay in theirs."""
    if not keys:
        raise ValueError("an order needs at least one key")
    rows = _sorting_by(keys[-1].values.combine_chunks(), keys[-1].descending)
    for key in reversed(keys[:-1]):  # rows that are alike in it stay as later keys have put them
        values = key.values.take(rows).combine_chunks()
        rows = rows.take(_sorting_by(values, key.descending))
    return rows


def _sorting_by(values: pa.Array, descending: bool) -> pa.Array:
    """Nulls come last."""
    if values.null_count:
        rows, nulls = pa.array(np.arange(len(values), dtype=np.uint64)), values.is_null()
        places = _sorting_by(values.drop_null(), descending)
        return pa.concat_arrays([rows.filter(pc.invert(nulls)).take(places), rows.filter(nulls)])
    direction = "descending" if descending else "ascending"
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        by_text = sorting_text(values, direction)
        return pc.array_sort_indices(values, order=direction) if by_text is None else by_text
    if values.type in _NUMBERS:
        return pa.array(sorting_numbers(values.to_numpy(), descending))
    return pc.array_sort_indices(values, order=direction)
