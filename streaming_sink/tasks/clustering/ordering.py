"""Sort keys of rows: columns by direction and null order, in an order that is the same in every engine.

Values ascend as Iceberg orders them: numbers, NaN after all numbers, text by its bytes. A descending column
is the reverse of that; nulls come first or last, as its null order says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planners.clustering.sort_fields import SortField
from planners.suggestions import unknown_name
from streaming_sink.tasks.clustering.text_sort import sort_text_indices
from streaming_sink.tasks.leaves import Leaf, leaf_values, leaves
from streaming_sink.tasks.numpy_arrays import numbers_array


@dataclass(frozen=True, slots=True)
class Key:
    """One sort key of some rows, and whether it descends. Where it is null, an earlier key decides."""

    values: pa.ChunkedArray
    descending: bool = False


Order = Callable[[pa.Table], list[Key]]
"""Returns the keys of rows, most significant first. A row has the same keys in whichever table it is."""


def order_by_columns(schema: pa.Schema, sort_by: Sequence[SortField]) -> Order:
    """Return the order by these columns. ValueError if one has no order; see `sort_column`."""
    columns = [(sort_column(schema, field.column), field) for field in sort_by]
    tops = top_level_names(schema, [leaf for leaf, _ in columns])

    def order(rows: pa.Table) -> list[Key]:
        keys: list[Key] = []
        for top, (leaf, field) in zip(tops, columns, strict=True):
            values = leaf_values(rows.column(top), leaf)
            ranks = _null_ranks(values, field)
            if ranks is not None:
                keys.append(Key(ranks))
            keys.append(Key(values, field.descending))
        return keys

    return order


def sort_column(schema: pa.Schema, name: str) -> Leaf:
    """Return the column of this name to sort by; a dot separates a struct and its field.

    ValueError for a name that the schema lacks (with the nearest), or a column that has no order.
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


def top_level_names(schema: pa.Schema, columns: Sequence[Leaf]) -> list[str]:
    """Return the names of the table's columns that these leaves are, or are fields of."""
    return [schema.field(leaf.path[0]).name for leaf in columns]


def _null_ranks(values: pa.ChunkedArray, field: SortField) -> pa.ChunkedArray | None:
    """Return a negative rank for nulls and NaN before all other values, a positive one for those after, 0 for
    other values; None if there are only others.
    """
    has_nan = pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())
    if not values.null_count and not has_nan:
        return None
    ranks = pc.cast(pc.is_null(values), pa.int8())
    ranks = pc.multiply(ranks, numbers_array(np.array([-2 if field.nulls_first else 2], np.int8))[0])
    if has_nan:
        nans = pc.fill_null(pc.cast(pc.is_nan(values), pa.int8()), 0)
        ranks = pc.add(ranks, pc.negate(nans) if field.descending else nans)
    return ranks


def sort_indices(keys: Sequence[Key]) -> pa.Array:
    """Return the row numbers in the order of the keys; the sort is stable."""
    if not keys:
        raise ValueError("an order needs at least one key")
    if len(keys) == 1 and _is_text(keys[0].values.type):
        texts, direction = _in_one_piece(keys[0].values), _direction(keys[0])
        if (found := sort_text_indices(texts, direction)) is not None:
            return found
    columns = {str(place): _in_one_piece(key.values) for place, key in enumerate(keys)}
    directions = map(_direction, keys)
    # Arrow places nulls last, of a descending key too.
    return pc.sort_indices(pa.table(columns), sort_keys=list(zip(columns, directions, strict=True)))


def _in_one_piece(values: pa.ChunkedArray) -> pa.Array:
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()  # which copies one, too


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _direction(key: Key) -> str:
    return "descending" if key.descending else "ascending"
