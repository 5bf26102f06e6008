"""Space-filling curves: one sort key per row from several columns, which keeps rows that are near in all
columns near each other.

Values are first normalised: each column's values become ranks among boundaries sampled from the column. Ranks
keep the order, map any type to unsigned integers, and give a skewed column as many distinct ranks as an even
one. Then the ranks of a row, spread over the same number of bits, are combined into its position on a curve:

* **z-order** interleaves their bits: cheap, with jumps between distant cells;
* **Hilbert** visits cell after neighbouring cell, so that a range falls into fewer pieces.

The only planner module that needs numpy; `planners` itself does not import it. It draws no samples: the
caller supplies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.uint64]

KEY_BITS = 64
"""The bits of a key, shared by the columns."""

_BLOCK_ROWS = 16_384


def bits_for(columns: int, boundaries: int) -> int:
    """Return the bits each of so many columns may use: enough for `ranks` of these boundaries and of nulls.

    Raise ValueError where the keys of all columns would not fit into `KEY_BITS`.
    """
    bits = max(1, (boundaries + 1).bit_length())
    _check_bits(columns, bits)
    return bits


def quantile_boundaries(sample: npt.ArrayLike, buckets: int) -> npt.NDArray[Any]:
    """Return at most `buckets` - 1 distinct values, ascending, that divide the sample into equal parts.

    A value that fills several buckets is one boundary. The sample holds no nulls; numbers, times, strings and
    `bytes` (in an object array) are all ordered as numpy orders them, NaN after all numbers.
    """
    if buckets < 1:
        raise ValueError(f"buckets must be at least 1: {buckets}")
    values = np.sort(np.asarray(sample))
    if not len(values):
        return values
    return np.unique(values[np.arange(1, buckets) * len(values) // buckets])


def ranks(
    values: npt.ArrayLike,
    boundaries: npt.NDArray[Any],
    *,
    nulls: npt.NDArray[np.bool_] | None = None,
    nulls_first: bool = True,
) -> Ranks:
    """Return each value's rank: the number of boundaries at or below it, from 0 to `len(boundaries)`.

    Ranks are monotonic in the values. With `nulls`, a mask, these rows get a rank of their own and their
    values are ignored: rank 0, with all other ranks one higher, or the rank after the last.
    """
    array = np.asarray(values)
    if nulls is None:
        return np.searchsorted(boundaries, array, side="right").astype(np.uint64)
    ranked = np.full(len(array), 0 if nulls_first else len(boundaries) + 1, dtype=np.uint64)
    present = ~nulls
    ranked[present] = np.searchsorted(boundaries, array[present], side="right").astype(np.uint64)
    if nulls_first:
        ranked[present] += np.uint64(1)
    return ranked


def spread(ranked: Ranks, boundaries: int, bits: int) -> Ranks:
    """Return ranks (of so many boundaries, nulls among them) spread over the 2 ** `bits` cells of a column.

    Curves compare the highest bits first: a column of few distinct values, left at its low ranks, would not
    count beside a column of many. More bits than `bits_for` asks for spread columns more evenly.
    """
    cells: Ranks = ranked * np.uint64((2**bits - 1) // (boundaries + 1))
    return cells


def zorder(columns: Sequence[Ranks], bits: int) -> Ranks:
    """Return each row's position on the z-order curve: the bits of its ranks in turn, the highest first.

    `columns` are one array of ranks per column, all below 2 ** `bits`; the first column has the highest bit.
    """
    return _in_blocks(_interleave, columns, bits)


def hilbert(columns: Sequence[Ranks], bits: int) -> Ranks:
    """Return each row's position on the Hilbert curve through the grid of 2 ** `bits` cells a column.

    Cells at consecutive positions differ by one in exactly one column. The algorithm is Skilling's
    ("Programming the Hilbert curve", AIP Conference Proceedings 707, 2004), over whole columns at once.
    """
    return _in_blocks(_hilbert_block, columns, bits)


def _in_blocks(curve: Callable[[Sequence[Ranks], int], Ranks], columns: Sequence[Ranks], bits: int) -> Ranks:
    """Apply a curve to a few thousand rows at a time, which fit into the processor's cache."""
    _check(columns, bits)
    keys = np.empty_like(columns[0])
    for start in range(0, len(keys), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        keys[block] = curve([column[block] for column in columns], bits)
    return keys


def _hilbert_block(columns: Sequence[Ranks], bits: int) -> Ranks:
    first, *others = (column.copy() for column in columns)
    for bit in range(bits - 1, 0, -1):
        low = np.uint64((1 << bit) - 1)
        first ^= _mask_where_set(first, bit, low)
        for axis in others:
            inverted = _mask_where_set(axis, bit, low)
            swapped = (first ^ axis) & (inverted ^ low)
            first ^= inverted | swapped
            axis ^= swapped
    axes = [first, *others]
    for before, axis in pairwise(axes):
        axis ^= before
    gray = np.zeros_like(first)
    for bit in range(bits - 1, 0, -1):
        gray ^= _mask_where_set(axes[-1], bit, np.uint64((1 << bit) - 1))
    return _interleave([axis ^ gray for axis in axes], bits)


def _mask_where_set(values: Ranks, bit: int, mask: np.uint64) -> Ranks:
    """Return the mask for values that have this bit set, 0 for the others."""
    masked: Ranks = ((values >> np.uint64(bit)) & np.uint64(1)) * mask
    return masked


def _interleave(columns: Sequence[Ranks], bits: int) -> Ranks:
    keys = np.zeros_like(columns[0])
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for column in columns:
            keys = (keys << one) | ((column >> np.uint64(bit)) & one)
    return keys


def _check(columns: Sequence[Ranks], bits: int) -> None:
    if not columns:
        raise ValueError("a curve needs at least one column")
    _check_bits(len(columns), bits)
    for place, column in enumerate(columns):
        if column.dtype != np.uint64:
            raise ValueError(f"ranks must be unsigned 64-bit integers: column {place} has {column.dtype}")
        if len(column) and int(column.max()) >> bits:
            raise ValueError(
                f"column {place} has rank {int(column.max())}, which needs more than {bits} bits"
            )


def _check_bits(columns: int, bits: int) -> None:
    if bits < 1 or columns * bits > KEY_BITS:
        raise ValueError(
            f"{columns} columns of {bits} bits do not fit into a key of {KEY_BITS} bits; "
            f"give each column 1 to {KEY_BITS // max(1, columns)} bits (fewer boundaries need fewer)"
        )
