"""Sorts whole numbers by numpy, which uses SIMD instructions: three times as fast as Arrow (0.10 s instead of
0.30 s for 1.7 million of 64 bits), except for numbers close together, where Arrow counts them (0.10 s instead
of 0.02 s).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_ROW_BITS = np.uint64(32)


def sort_number_indices(numbers: npt.NDArray[Any], descending: bool) -> npt.NDArray[np.uint64]:
    """Return the row numbers, below 2**32, in the order of the numbers; the sort is stable."""
    rows = np.argsort(~numbers if descending else numbers).view(np.uint64)
    in_order = numbers[rows]
    differs = np.append(False, in_order[1:] != in_order[:-1])
    if not differs[1:].all():  # numpy's sort is not stable: sort again by rank and row
        ranked = np.cumsum(differs, dtype=np.uint64) << _ROW_BITS | rows
        ranked.sort()
        rows = ranked & np.uint64(2**32 - 1)
    return rows
