"""Takes rows of text in another order by way of its different values, where these are few: four times as
fast, since numbers are moved in memory instead of texts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.numpy_arrays import numbers_array

_SAMPLED = 512
_MOST = 64
"""Different values of a sample, up to which the values of all rows are likely to be near in memory."""


def encode_few_values(rows: pa.Table) -> pa.Table:
    """Return the rows with columns of text that seem to have few different values as dictionaries."""
    if rows.num_rows <= _SAMPLED:
        return rows
    places = numbers_array(np.linspace(0, rows.num_rows - 1, _SAMPLED).astype(np.int64))
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            values = rows.column(place)
            if pc.count_distinct(values.take(places), mode="only_valid").as_py() <= _MOST:
                rows = rows.set_column(place, field.name, values.dictionary_encode())
    return rows


def decode_values(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows in `schema`: dictionaries become the values of their rows."""
    columns = [
        values.cast(field.type) if pa.types.is_dictionary(values.type) else values
        for field, values in zip(schema, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
