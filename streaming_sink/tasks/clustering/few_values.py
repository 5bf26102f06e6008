"""Takes rows of text in another order by way of its different values, where these are few: four times as
fast, since numbers are moved in memory instead of texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.numpy_arrays import numbers_array

_SAMPLED = 512
_MOST = 64
"""Different values of a sample, up to which the values of all rows are likely to be near in memory."""
_LONGER = 2
"""How many times as long as the texts of the rows their different values may be on average: Arrow reserves so
much for each row that it decodes, and one value of a megabyte among millions of rows is nowhere near.
"""


def encode_few_values(columns: list[pa.ChunkedArray]) -> None:
    """Put dictionaries in the place of columns of text that seem to have few different values. Each takes the
    place of its column before the next one is made.
    """
    for place, values in enumerate(columns):
        if _has_few_values(values):
            encoded = values.dictionary_encode()
            if _is_decoded_as_large(encoded, values):
                columns[place] = encoded


def decode_values(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows in `schema`: dictionaries become the values of their rows."""
    columns = [
        values.cast(field.type) if pa.types.is_dictionary(values.type) else values
        for field, values in zip(schema, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _has_few_values(values: pa.ChunkedArray) -> bool:
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)) or len(values) <= _SAMPLED:
        return False
    places = numbers_array(np.linspace(0, len(values) - 1, _SAMPLED).astype(np.int64))
    different: int = pc.count_distinct(values.take(places), mode="only_valid").as_py()
    return 0 < different <= _MOST


def _is_decoded_as_large(encoded: pa.ChunkedArray, values: pa.ChunkedArray) -> bool:
    """Return whether Arrow reserves about what the rows have, and not many times as much, to decode them."""
    different = [chunk.dictionary for chunk in encoded.chunks]
    return all(_mean_bytes([each]) <= _LONGER * _mean_bytes(values.chunks) for each in different)


def _mean_bytes(arrays: Sequence[pa.Array]) -> float:
    """Return the mean bytes of a text, with its offset."""
    size: int = sum(each.nbytes for each in arrays)
    return size / max(1, sum(map(len, arrays)))
