"""Arrow arrays of plain values, without `pa.array`: that imports pandas to see whether it was given some, and
takes longer for it than a small task.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc


def bytes_array(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Return an array of `kind`, binary or string, without nulls."""
    ends = array("i", accumulate(map(len, values), initial=0))
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def text_array(values: Iterable[str | None]) -> pa.Array:
    """Return an array of strings; None, and an empty one, is null."""
    texts = bytes_array([(value or "").encode(errors="replace") for value in values], pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def places_array(places: Sequence[int]) -> pa.Array:
    """Return the places of rows, as `RecordBatch.take` wants them."""
    data = pa.py_buffer(array("i", places).tobytes())
    return pa.Array.from_buffers(pa.int32(), len(places), [None, data])
