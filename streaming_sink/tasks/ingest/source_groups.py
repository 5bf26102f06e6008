"""Row groups of source files that become part of data files as they are: found by footers, and read once, to
be sure of their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_sink.tasks.batches import conform_valid
from streaming_sink.tasks.ingest.calendars import is_hybrid
from streaming_sink.tasks.ingest.parquet import has_int96, open_footer
from streaming_sink.tasks.ingest.reading import SourceFileError
from streaming_sink.tasks.job import ParquetSettings
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.row_groups.choosing import choose_row_groups
from streaming_sink.tasks.row_groups.conditions import (
    FileLayout,
    is_tested,
    layout_of,
    why_none_is_copied,
)
from streaming_sink.tasks.row_groups.footer import (
    DamagedPagesError,
    FooterError,
    StoredGroups,
    read_row_groups,
)
from streaming_sink.tasks.row_groups.page_headers import with_pages
from streaming_sink.tasks.row_groups.stated_values import GroupValues

_SAME = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
"""Types that a file may ask Arrow for, beside those that are read of the same bytes without."""


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """The rows of a row group in the table's schema, which were checked."""

    batches: tuple[pa.RecordBatch, ...]
    number: int
    stored: StoredGroups | None
    """The file, where the row group may be copied."""


class SourceGroups:
    """Says of the Parquet files of a task which row groups may be copied into files of a table."""

    def __init__(self, schema: pa.Schema, parquet: ParquetSettings) -> None:
        self._schema, self._parquet = schema, parquet
        self._from_bytes = parquet.copied_from_bytes
        self._known: FileLayout | None = None
        self._columns = leaves(schema)

    def may_copy(self, file: pq.ParquetFile, size: int) -> bool:
        """Return whether a row group of a file may be copied, by what is known before its pages are read."""
        return self._may_fit(file, size) and any(
            file.metadata.row_group(number).total_byte_size >= self._from_bytes  # no less than is stored
            for number in range(file.metadata.num_row_groups)
        )

    def read(self, data: pa.NativeFile) -> Iterator[SourceGroup] | None:
        """Return the rows of a file by row group; None for a file that has other columns than the table, or
        values that pyarrow changes. Raises what pyarrow does on damaged bytes, and the rows as
        `conform_valid`.
        """
        file = open_footer(data)
        return self._read(data, file) if self._may_fit(file, data.size()) else None

    def _read(self, data: pa.NativeFile, file: pq.ParquetFile) -> Iterator[SourceGroup]:
        stored, copied = self._choose(data)
        for number in range(file.metadata.num_row_groups):
            rows = file.read_row_group(number, use_threads=False).combine_chunks()
            batches = tuple(conform_valid(batch, self._schema) for batch in rows.to_batches())
            may_copy = stored is not None and number in copied
            if stored is not None and may_copy:
                may_copy = self._is_as_stated(file, stored, number, batches)
            yield SourceGroup(batches, number, stored if may_copy else None)

    def _is_as_stated(
        self, file: pq.ParquetFile, stored: StoredGroups, number: int, batches: Sequence[pa.RecordBatch]
    ) -> bool:
        """Return whether a row group states what its rows are: a copy would state the same."""
        found, group = GroupValues(self._columns), stored.footer.groups[number]
        found.add_pages(pa.Table.from_batches(batches, self._schema), group)
        misstated = found.why_misstated(file.metadata.row_group(number))
        return not misstated and not found.misstates_a_page(stored, group)

    def _choose(self, data: pa.NativeFile) -> tuple[StoredGroups | None, Collection[int]]:
        try:
            stored = read_row_groups(cast(BinaryIO, data))
            if self._layout.needs_checksums or why_none_is_copied(stored.footer, self._layout):
                return None, ()  # hardly a source file has checksums
            known = with_pages(stored)
        except DamagedPagesError as damage:
            raise SourceFileError(f"it is damaged: {damage}; write it anew") from damage
        except FooterError:
            return None, ()  # what can be read of it at all, pyarrow reads
        return known, choose_row_groups(known, self._layout, self._from_bytes).copied

    def _may_fit(self, file: pq.ParquetFile, size: int) -> bool:
        footer = file.metadata
        return (
            size >= self._from_bytes
            and is_tested(footer.created_by)
            and file.schema_arrow.names == self._schema.names
            and [_SAME.get(kind, kind) for kind in file.schema_arrow.types] == self._schema.types
            and not is_hybrid(footer.metadata)
            and not has_int96(file)
        )

    @property
    def _layout(self) -> FileLayout:
        if self._known is None:
            self._known = layout_of(self._schema, self._parquet, by_names=True)
        return self._known
