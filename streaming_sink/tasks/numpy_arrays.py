"""Arrow's arrays as numpy's, and the other way, without what imports pandas: `pa.array`, `pa.scalar` and
`to_numpy` do, which takes a new worker longer than a small task.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def numbers_array(numbers: npt.NDArray[Any]) -> pa.Array:
    """Return an array of these numbers, which are contiguous, and which it shares."""
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def plain_numbers(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return numbers or booleans, of which none is null, as numpy has them. They are not to be changed."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_boolean(whole.type):
        return np.from_dlpack(whole.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(whole)


def true_flags(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which of the booleans are true, and so not null."""
    valid = values.is_valid()
    return plain_numbers(pc.if_else(valid, values, valid))
