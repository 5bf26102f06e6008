"""Ranges of a group's order: several tasks sort one each, and agree where each range ends."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.clustering.ordering import Key, Order, sort_indices
from streaming_sink.tasks.leaves import as_integers
from streaming_sink.tasks.numpy_arrays import numbers_array, true_flags


def boundary_rows(sample: pa.Table, order: Order, range_ends: Sequence[float]) -> pa.Table:
    """Return the rows of the sample at which the second and later ranges begin.

    `range_ends`: the parts of all rows, ascending, below 1, at which the ranges before them end. The same
    sample gives the same rows. A sample without rows gives none: the first range then takes all rows.
    """
    if not sample.num_rows:
        return sample
    indices = sort_indices(order(sample))
    places = np.array([int(len(indices) * end) for end in range_ends])
    return sample.take(indices.take(numbers_array(places)))


def range_numbers(rows: pa.Table, firsts: pa.Table, order: Order) -> npt.NDArray[np.intp]:
    """Return for each row the number of its range: how many of `firsts` do not come after it.

    So each row is in exactly one range, for any order.
    """
    together = pa.concat_tables([rows.select(firsts.column_names), firsts])
    keys = order(together)
    numbers = np.zeros(rows.num_rows, dtype=np.intp)
    for place in range(rows.num_rows, together.num_rows):
        numbers += ~_is_before(keys, place)[: rows.num_rows]
    return numbers


def boundary_digest(firsts: pa.Table) -> bytes:
    """Return a digest that is equal if two tasks have the same boundary rows."""
    columns = [as_integers(column).to_pylist() for column in firsts.columns]
    return blake2b(repr(columns).encode(), digest_size=16).digest()


def _is_before(keys: Sequence[Key], place: int) -> npt.NDArray[np.bool_]:
    """Return which rows come before the one at index `place`."""
    before = np.zeros(len(keys[0].values), dtype=np.bool_)
    alike = ~before
    for key in keys:
        value = key.values[place]
        if not value.is_valid:  # an earlier key separates the rows that have a value here
            continue
        compare = pc.greater if key.descending else pc.less
        before |= alike & true_flags(compare(key.values, value))
        alike &= true_flags(pc.equal(key.values, value))
    return before
