"""Reads the rows of one data file in a table's current schema: columns are matched by field id, and in a file
without ids by name, as the table's name mapping says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_sink.tasks.batches import conform, match_field_id, match_name
from streaming_sink.tasks.errors import DataFileError, KeysError, RowsDoNotFitError
from streaming_sink.tasks.leaves import Leaf, field_id
from streaming_sink.tasks.whole_reads import check_count, check_groups
from timeline.stores.base import Store, open_by_name

if TYPE_CHECKING:
    from streaming_sink.tasks.encryption import Cipher

READ_ROWS = 64 * 1024
"""Rows of a batch, where memory allows."""


class DataFileReader:
    """A data file that is open for reading; see `open_data_file`."""

    def __init__(self, source: Any, cipher: Cipher | None) -> None:
        self.source: BinaryIO = source
        """The file itself, at any position."""
        keys = None if cipher is None else cipher.decryption()
        self._reader = pq.ParquetFile(
            pa.PythonFile(source, mode="r"), decryption_properties=keys, page_checksum_verification=True
        )
        check_groups(self._reader.metadata)
        fields = self._reader.schema_arrow
        # A file that was registered as it came has no ids. In a table of version files a name keeps its
        # meaning: no column is ever dropped or renamed. In a catalog others do both: see `needs_ids`.
        self._match = match_field_id if any(map(match_field_id, fields)) else match_name
        self._names = {self._match(field): field.name for field in fields}

    @property
    def has_all_ids(self) -> bool:
        """Whether every top-level column can be matched: not where some of them alone have field ids."""
        return None not in self._names

    @property
    def has_nested_ids(self) -> bool:
        """Whether every column has a field id, nested ones too."""
        return all(map(_has_ids, self._reader.schema_arrow))

    def holds(self, field: pa.Field) -> bool:
        """Return whether the file has a column of the table."""
        return self._match(field) in self._names

    def holds_leaf(self, leaf: Leaf, field: pa.Field) -> bool:
        """Return whether the file has a leaf of a column of the table: by its id, if it has any, since a file
        without spells its lists and maps in ways of its own.
        """
        return leaf.field_id in self._leaf_ids if self._match is match_field_id else self.holds(field)

    @cached_property
    def _leaf_ids(self) -> frozenset[int]:
        return frozenset(_ids_of_leaves(self._reader.schema_arrow))

    @property
    def footer(self) -> pq.FileMetaData:
        """The footer as pyarrow reads it."""
        return self._reader.metadata

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

    def read(
        self, schema: pa.Schema, batch_rows: int = READ_ROWS, groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, of these row groups alone where they are given, in `schema`: columns that the file
        lacks are null, its others are not read.
        """
        names = [self._names[self._match(field)] for field in schema if self.holds(field)]
        footer = self._reader.metadata
        wanted = range(footer.num_row_groups) if groups is None else groups
        rows = 0
        for batch in self._reader.iter_batches(batch_rows, row_groups=groups, columns=names):
            rows += batch.num_rows
            yield conform(batch, schema, self._match)
        check_count(rows, sum(footer.row_group(group).num_rows for group in wanted))

    def read_at(self, schema: pa.Schema, positions: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Yield the rows at these positions, which are ascending. Reads the row groups that hold one."""
        names = [self._names[self._match(field)] for field in schema if self.holds(field)]
        footer, begin, found = self._reader.metadata, 0, 0
        for group in range(footer.num_row_groups):
            end = begin + footer.row_group(group).num_rows
            first, last = np.searchsorted(positions, [begin, end])
            if first < last:
                rows = self._reader.read_row_group(group, columns=names)
                check_count(rows.num_rows, end - begin)
                found += last - first
                for batch in rows.take(positions[first:last] - begin).combine_chunks().to_batches():
                    yield conform(batch, schema, self._match)
            begin = end
        if found != len(positions):
            raise pa.ArrowInvalid(f"it has {begin:,} rows, and one at {positions[-1]:,} is asked for")


@contextmanager
def open_data_file(
    store: Store, path: str, what: str, cipher: Cipher | None = None, *, needs_ids: bool = False
) -> Iterator[DataFileReader]:
    """Open the data file that manifests name `path`; `cipher` decrypts it. `needs_ids`: a column may have
    been renamed since the file was written, so its names say nothing.

    DataFileError, also for what reading in the block meets, if the file is missing or damaged, holds values
    that do not fit the table, has field ids of some columns alone or none where they are needed, or its keys
    are not available. Its text begins with `what`: the part that the file has in the work.
    """
    try:
        source: Any = _open(store, path, what)
        try:
            reader = DataFileReader(source, cipher)
            if not reader.has_all_ids:
                raise DataFileError(f"{what} has columns with and without field ids: {path}")
            if needs_ids and not reader.has_nested_ids:
                raise DataFileError(
                    f"{what} has no field ids, and the table's columns may have been renamed since: {path}"
                )
            yield reader
        finally:
            source.close()
    except FileNotFoundError as missing:
        raise DataFileError(f"{what} is missing: {path}") from missing
    except (pa.ArrowException, OSError, KeysError, RowsDoNotFitError, UnicodeDecodeError) as damage:
        raise DataFileError(f"{what} cannot be read: {path}: {damage}") from damage


def _nested(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):  # whose entries are a struct without an id
        return [kind.key_field, kind.item_field]
    return [kind.field(place) for place in range(kind.num_fields)]


def _has_ids(field: pa.Field) -> bool:
    return match_field_id(field) is not None and all(map(_has_ids, _nested(field.type)))


def _ids_of_leaves(fields: Iterable[pa.Field]) -> Iterator[int]:
    for field in fields:
        if pa.types.is_nested(field.type):
            yield from _ids_of_leaves(_nested(field.type))
        elif match_field_id(field) is not None:
            yield field_id(field)


def _open(store: Store, path: str, what: str) -> BinaryIO:
    try:
        return open_by_name(store, path)
    except ValueError as elsewhere:
        raise DataFileError(f"{what} is in another kind of store than the table: {path}") from elsewhere
