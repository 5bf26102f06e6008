"""Reads the rows of one data file in a table's current schema: columns are matched by field id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_sink.tasks.batches import conform, match_field_id
from streaming_sink.tasks.errors import DataFileError, KeysError
from streaming_sink.tasks.leaves import FIELD_ID
from timeline.stores.base import Store

if TYPE_CHECKING:
    from streaming_sink.tasks.encryption import Cipher

READ_ROWS = 64 * 1024
"""Rows of a batch, where memory allows."""


class DataFileReader:
    """A data file that is open for reading; see `open_data_file`."""

    def __init__(self, source: Any, cipher: Cipher | None) -> None:
        keys = None if cipher is None else cipher.decryption()
        self._reader = pq.ParquetFile(pa.PythonFile(source, mode="r"), decryption_properties=keys)
        fields = self._reader.schema_arrow
        self.names = {(field.metadata or {}).get(FIELD_ID): field.name for field in fields}
        """The names of the top-level columns by field id, as Arrow's metadata spells it."""

    @property
    def rows(self) -> int:
        """The number of rows by the footer."""
        return int(self._reader.metadata.num_rows)

    @property
    def row_bytes(self) -> int:
        """Uncompressed bytes of a row, in the row group with the widest rows."""
        footer = self._reader.metadata
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        return max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)

    def read(self, schema: pa.Schema, batch_rows: int = READ_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in `schema`: columns that the file lacks are null, its others are not read."""
        names = [self.names[key] for field in schema if (key := field.metadata[FIELD_ID]) in self.names]
        for batch in self._reader.iter_batches(batch_rows, columns=names):
            yield conform(batch, schema, match_field_id)

    def read_at(self, schema: pa.Schema, positions: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Yield the rows at these positions, which are ascending. Reads the row groups that hold one."""
        names = [self.names[key] for field in schema if (key := field.metadata[FIELD_ID]) in self.names]
        footer, begin = self._reader.metadata, 0
        for group in range(footer.num_row_groups):
            end = begin + footer.row_group(group).num_rows
            first, last = np.searchsorted(positions, [begin, end])
            if first < last:
                rows = self._reader.read_row_group(group, columns=names).take(positions[first:last] - begin)
                for batch in rows.combine_chunks().to_batches():
                    yield conform(batch, schema, match_field_id)
            begin = end


@contextmanager
def open_data_file(
    store: Store, path: str, what: str, cipher: Cipher | None = None
) -> Iterator[DataFileReader]:
    """Open the data file that manifests name `path`; `cipher` decrypts it.

    DataFileError, also for what reading in the block meets, if the file is missing or damaged, has no field
    ids, or its keys are not available. Its text begins with `what`: the part that the file has in the work.
    """
    try:
        source: Any = store.open_input(store.relative(path))
        try:
            reader = DataFileReader(source, cipher)
            if None in reader.names:
                raise DataFileError(f"{what} has columns without field ids: {path}")
            yield reader
        finally:
            source.close()
    except FileNotFoundError as missing:
        raise DataFileError(f"{what} is missing: {path}") from missing
    except (pa.ArrowException, OSError, KeysError) as damage:
        raise DataFileError(f"{what} cannot be read: {path}: {damage}") from damage
