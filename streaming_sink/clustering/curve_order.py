"""Orders along space-filling curves, over columns of any type: ranks among quantiles that a sample shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from planners import curves
from streaming_sink.clustering.ordering import Key, Order, sortable, values_of
from streaming_sink.clustering.rows import GroupRows
from streaming_sink.metrics import Leaf

_SAMPLED_ROWS = 65_536
_RANKED_ROWS = 1024
"""Text is ranked so many rows at a time, which bounds the copies that this takes."""
_SAMPLE_SHARE = 32
"""The sample takes at most this part of the task's memory as Arrow: wide values are sampled less often."""
_BUCKETS = 1024
"""Quantiles of a column. A group makes tens of files: finer ranks would not change what is in which."""
_EVEN_BITS = 16
"""Bits of a column where the key has room, so that few ranks of one weigh as much as many of another."""

_CURVES = {"zorder": curves.zorder, "hilbert": curves.hilbert}


def along_curve(group: GroupRows, curve: str) -> Order:
    """Return the order along "zorder" or "hilbert" through the group's columns.

    Reads these columns once for a sample of rows, the same in every attempt. A curve has no direction, so
    that only the place of nulls counts of a `SortField`. ValueError for more columns than a key has room for.
    """
    columns = [sortable(group.schema, field.column) for field in group.sort_by]
    nulls_first = [field.nulls_first for field in group.sort_by]
    bits = max(_EVEN_BITS, curves.bits_for(len(columns), _BUCKETS - 1))
    bits = min(bits, curves.KEY_BITS // len(columns))
    boundaries = [
        curves.quantile_boundaries(_comparable(column.drop_null()), _BUCKETS)
        for column in _sample(group, columns)
    ]

    def keys(rows: pa.Table) -> list[Key]:
        ranks = [
            curves.spread(_ranks(values_of(rows, leaf), known, first), len(known), bits)
            for leaf, known, first in zip(columns, boundaries, nulls_first, strict=True)
        ]
        return [Key(pa.chunked_array([pa.array(_CURVES[curve](ranks, bits))]))]

    return keys


def _sample(group: GroupRows, columns: Sequence[Leaf]) -> list[pa.ChunkedArray]:
    """Return the columns of rows from all over the group, at random places that a retry chooses again."""
    random = np.random.default_rng(0)
    share = min(1.0, _SAMPLED_ROWS / max(1, group.rows))
    names = {group.schema.field(leaf.path[0]).name for leaf in columns}
    kept = [group.schema.field(name) for name in group.schema.names if name in names]
    places = {group.schema.get_field_index(field.name): at for at, field in enumerate(kept)}
    here = [
        Leaf(leaf.field_id, leaf.type, (places[leaf.path[0]], *leaf.path[1:]), leaf.parquet_path, False)
        for leaf in columns
    ]
    rows = pa.schema(kept).empty_table()
    for batch in group.read(names):
        chosen = batch.take(np.flatnonzero(random.random(batch.num_rows) < share))
        rows = pa.concat_tables([rows, pa.Table.from_batches([chosen])])
        while rows.nbytes > group.memory_bytes // _SAMPLE_SHARE and rows.num_rows > 1:
            rows = rows.take(np.flatnonzero(random.random(rows.num_rows) < 0.5))
            share /= 2
    return [values_of(rows, leaf) for leaf in here]


def _ranks(values: pa.ChunkedArray, boundaries: npt.NDArray[Any], nulls_first: bool) -> curves.Ranks:
    nulls = values.is_null().to_numpy() if values.null_count else np.zeros(len(values), dtype=np.bool_)
    found = np.zeros(len(values), dtype=np.uint64)
    present = values.drop_null()
    if boundaries.dtype == object and len(present):
        found[~nulls] = np.concatenate(
            [
                _ranks_of_different(present.slice(start, _RANKED_ROWS), boundaries)
                for start in range(0, len(present), _RANKED_ROWS)
            ]
        )
    elif len(present):
        found[~nulls] = curves.ranks(_comparable(present), boundaries)
    if nulls_first:
        found += np.uint64(1)
        found[nulls] = 0
    else:
        found[nulls] = len(boundaries) + 1
    return found


def _ranks_of_different(values: pa.ChunkedArray, boundaries: npt.NDArray[Any]) -> curves.Ranks:
    """Rank each different value once: Python compares objects one by one."""
    encoded = pc.dictionary_encode(values.combine_chunks())
    ranked: curves.Ranks = curves.ranks(_comparable(encoded.dictionary), boundaries)
    of_rows: curves.Ranks = ranked[encoded.indices.to_numpy()]
    return of_rows


def _comparable(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return values without nulls as numpy compares them, in the order of their type."""
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif pa.types.is_string(kind):
        values = values.cast(pa.binary())  # text is ordered by its bytes
    if pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        return np.array(values.to_pylist(), dtype=object)
    plain: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return plain
