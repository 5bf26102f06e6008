"""Orders along space-filling curves over columns of any type, by ranks among the quantiles of a sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from planners.clustering import curves
from streaming_sink.tasks.clustering.ordering import Key, Order, sort_column, top_level_names
from streaming_sink.tasks.clustering.row_strategy import Group
from streaming_sink.tasks.leaves import as_integers, leaf_values
from streaming_sink.tasks.numpy_arrays import numbers_array, plain_numbers

_RANKED_ROWS = 1024
"""Text is ranked so many rows at a time, which bounds the copies that ranking makes."""
_BUCKETS = 1024
"""Quantiles of a column. A group makes tens of files: finer ranks would hardly change their rows."""
_EVEN_BITS = 16
"""Bits of a column if the key has room, so that few ranks of one column weigh as much as many of another."""

Curve = Callable[[Sequence[curves.Ranks], int], curves.Ranks]
"""Positions on a curve from the ranks of each column, such as `curves.zorder`."""


def order_along_curve(group: Group, curve: Curve) -> Order:
    """Return the order along a curve through the group's columns.

    Reads these columns once for a sample of rows, the same in every attempt. A curve has no direction: of a
    `SortField` only the null order counts. ValueError for more columns than a key has room for.
    """
    columns = [sort_column(group.schema, field.column) for field in group.sort_by]
    nulls_first = [field.nulls_first for field in group.sort_by]
    bits = bits_per_column(len(columns))
    tops = top_level_names(group.schema, columns)
    sample = group.sample(tops)
    boundaries = [
        curves.quantile_boundaries(_comparable(leaf_values(sample.column(top), leaf).drop_null()), _BUCKETS)
        for top, leaf in zip(tops, columns, strict=True)
    ]

    def order(rows: pa.Table) -> list[Key]:
        ranks = [
            curves.spread(_ranks(leaf_values(rows.column(top), leaf), known, first), len(known), bits)
            for top, leaf, known, first in zip(tops, columns, boundaries, nulls_first, strict=True)
        ]
        return [Key(pa.chunked_array([numbers_array(curve(ranks, bits))]))]

    return order


def bits_per_column(columns: int) -> int:
    """Return the bits that each of so many columns has of a key. ValueError for more than it has room for."""
    needed = curves.bits_for(1, _BUCKETS - 1)
    most = curves.KEY_BITS // needed
    if columns > most:
        raise ValueError(
            f"a curve goes through {most} columns at most, not {columns}: name the most selective"
        )
    return min(max(_EVEN_BITS, needed), curves.KEY_BITS // columns)


def _ranks(values: pa.ChunkedArray, boundaries: npt.NDArray[Any], nulls_first: bool) -> curves.Ranks:
    nulls = plain_numbers(values.is_null()) if values.null_count else np.zeros(len(values), dtype=np.bool_)
    ranks = np.zeros(len(values), dtype=np.uint64)
    present = values.drop_null()
    if boundaries.dtype == object and len(present):
        ranks[~nulls] = np.concatenate(
            [
                _rank_distinct(present.slice(start, _RANKED_ROWS), boundaries)
                for start in range(0, len(present), _RANKED_ROWS)
            ]
        )
    elif len(present):
        ranks[~nulls] = curves.ranks(_comparable(present), boundaries)
    if nulls_first:
        ranks += np.uint64(1)
        ranks[nulls] = 0
    else:
        ranks[nulls] = len(boundaries) + 1
    return ranks


def _rank_distinct(values: pa.ChunkedArray, boundaries: npt.NDArray[Any]) -> curves.Ranks:
    """Return ranks, computed once for each distinct value: Python compares objects one by one."""
    encoded = pc.dictionary_encode(values.combine_chunks())
    ranked: curves.Ranks = curves.ranks(_comparable(encoded.dictionary), boundaries)
    of_rows: curves.Ranks = ranked[plain_numbers(encoded.indices)]
    return of_rows


def _comparable(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return values without nulls as numpy compares them, in the order of their type."""
    values = as_integers(values)
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    elif pa.types.is_string(values.type):
        values = values.cast(pa.binary())  # text is ordered by its bytes
    if pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        return np.array(values.to_pylist(), dtype=object)
    if pa.types.is_primitive(values.type):
        return plain_numbers(values)
    plain: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return plain
