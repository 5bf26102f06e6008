"""A group cut into ranges of its order: several tasks sort one each, and agree where each of them ends."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.clustering.ordering import Key, Order, sorting


def first_rows(sample: pa.Table, order: Order, cuts: Sequence[float]) -> pa.Table:
    """Return the rows of the sample at which the second and later ranges begin.

    `cuts`: the parts of all rows, ascending, below 1, that come before each. The same sample gives the same
    rows. A sample without rows gives none: the first range then takes everything.
    """
    if not sample.num_rows:
        return sample
    places = sorting(order(sample))
    return sample.take(places.take([int(len(places) * cut) for cut in cuts]))


def range_numbers(rows: pa.Table, firsts: pa.Table, order: Order) -> npt.NDArray[np.intp]:
    """Return for each row the number of the range that it is in: how many of `firsts` it is not before.

    So each row is in exactly one range, whatever the order makes of its values.
    """
    together = pa.concat_tables([rows.select(firsts.column_names), firsts])
    keys = order(together)
    numbers = np.zeros(rows.num_rows, dtype=np.intp)
    for place in range(rows.num_rows, together.num_rows):
        numbers += ~_is_before(keys, place)[: rows.num_rows]
    return numbers


def digest(firsts: pa.Table) -> bytes:
    """Return what tells whether two tasks cut their group at the same rows."""
    return blake2b(repr(firsts.to_pylist()).encode(), digest_size=16).digest()


def _is_before(keys: Sequence[Key], place: int) -> npt.NDArray[np.bool_]:
    """Return which rows come before the one at `place`."""
    before = np.zeros(len(keys[0].values), dtype=np.bool_)
    alike = ~before
    for key in keys:
        value = key.values[place]
        if not value.is_valid:  # an earlier key has set apart the rows that have a value here
            continue
        compare = pc.greater if key.descending else pc.less
        before |= alike & _flags(compare(key.values, value))
        alike &= _flags(pc.equal(key.values, value))
    return before


def _flags(found: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = pc.fill_null(found, False).to_numpy()
    return flags
