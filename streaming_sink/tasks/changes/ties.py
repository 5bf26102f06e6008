"""Ties: a change and a stored row of the same key and sequence. The order of their values decides."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.rows.row_json import rows_as_json
from timeline.stores.base import Store


def value_texts(rows: pa.RecordBatch) -> list[str]:
    """Return the values of each row as a text. Of two rows the one with the larger text counts as newer, so
    that the order in which they come decides nothing, nor the order in which the table got its columns.
    """
    return rows_as_json(rows, by_name=True)[0]  # Python lacks some dates and times that a table may hold


def stored_texts(
    store: Store, location: str, schema: pa.Schema, positions: np.ndarray, *, needs_ids: bool = False
) -> list[str]:
    """Return the texts of the rows at these positions of a data file, which are ascending. DataFileError for
    a file that cannot be read; `needs_ids` as for `open_data_file`.
    """
    with open_data_file(store, location, "a data file", needs_ids=needs_ids) as reader:
        return [text for rows in reader.read_at(schema, positions) for text in value_texts(rows)]
