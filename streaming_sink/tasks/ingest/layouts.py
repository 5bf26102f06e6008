"""What many source files have in common, looked up once a task: columns, and the partitions of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from planners.model import PartitionKey
from streaming_sink.tasks.batches import conform_valid
from streaming_sink.tasks.ingest.parquet import footer_columns
from streaming_sink.tasks.ingest.path_columns import path_columns, with_fields
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import source_columns, split

_Edges = dict[str, tuple[Any, Any]]
_MONOTONIC = ("identity", "year", "month", "day", "hour", "truncate")
_HOURLY = ("year", "month", "day", "hour")
"""Transforms that are the same for all times of an hour."""
_TRUNCATED = 16
"""Some writers cut longer texts in statistics, and so may have one for all of many."""


class Layouts:
    """The layouts of a task's Parquet files: nearly all have the columns of the file before.

    `schema`: the table's; None while there is no table.
    """

    def __init__(self, schema: pa.Schema | None, partition_by: Sequence[PartitionSource]) -> None:
        self._schema, self._partition_by = schema, partition_by
        self._known: dict[tuple[tuple[tuple[str, str], ...], bytes], list[Layout]] = {}

    def of(self, footer: pq.ParquetFile, stated: Mapping[str, str]) -> Layout:
        """Return the layout of a file with this footer and path. SourceFileError as `path_columns`."""
        arrow = (footer.metadata.metadata or {}).get(b"ARROW:schema", b"")
        same = self._known.setdefault((tuple(stated.items()), arrow), [])
        for layout in same:
            # The schemas of two Parquet files are equal where their leaves are, in whichever columns.
            if layout.schema.equals(footer.schema) and layout.types.equals(footer.schema_arrow):
                return layout
        constants = path_columns(stated, footer.schema_arrow.names, self._schema)
        same.append(Layout(footer, constants, self._schema, self._partition_by))
        return same[-1]


class Layout:
    """What files with the same columns, in folders that state the same, have in common."""

    def __init__(
        self,
        footer: pq.ParquetFile,
        stated: Mapping[str, pa.Scalar],
        schema: pa.Schema | None,
        partition_by: Sequence[PartitionSource],
    ) -> None:
        self.schema = footer.schema
        self.stated = stated
        """The columns that the path states, which have one value."""
        self.columns = serialized(with_fields(footer_columns(footer, schema), stated))
        """All columns, as Arrow serializes a schema."""
        self._table_schema, self._partition_by = schema, partition_by
        others = source_columns(field for field in partition_by if field.transform not in _HOURLY)
        self._by_hour = set(source_columns(partition_by)).difference(others)
        self.types = footer.schema_arrow
        self._places = {self.schema.column(place).path: place for place in range(len(self.schema))}
        self._keys: dict[str, PartitionKey | None] = {}

    def key(self, footer: pq.ParquetFile) -> PartitionKey | None:
        """Return the one partition of all rows; None where the footer does not show that there is one."""
        if not source_columns(self._partition_by):
            return (None,) * len(self._partition_by)
        edges = self._edges(footer)
        if edges is None or self._table_schema is None:
            return None
        known = repr(edges)  # equal values of several types have partitions of their own
        if known not in self._keys:
            rows = split_rows(self._table(edges), self._table_schema, self._partition_by)
            found = [key for key, _ in rows]
            self._keys[known] = found[0] if len(found) == 1 else None
        return self._keys[known]

    def _edges(self, footer: pq.ParquetFile) -> _Edges | None:
        """Return the least and the greatest value of each source column of the partition that the file has;
        None where the footer does not have them, or rows between them may be of another partition.
        """
        edges: _Edges = {}
        for field in (it for it in self._partition_by if it.source):
            name = field.source[0]
            if name in self.stated:
                continue
            place = self._places.get(".".join(field.source))
            if place is None or len(field.source) > 1:
                return None
            if pa.types.is_floating(self.types.field(name).type):
                return None  # no statistics know of NaN
            found = _range(footer, place)
            if found is None or (found[0] != found[1] and not field.transform.startswith(_MONOTONIC)):
                return None
            edges[name] = (_hour_of(found[0]), _hour_of(found[1])) if name in self._by_hour else found
        return edges

    def _table(self, edges: _Edges) -> pa.Table:
        """Return the edges as two rows."""
        found = {name: pa.array(both, self.types.field(name).type) for name, both in edges.items()}
        return pa.table(found | {name: pa.repeat(value, 2) for name, value in self.stated.items()})


def _hour_of(value: Any) -> Any:
    """Return the beginning of a time's hour in UTC, so that files of an hour have their partition looked up
    once; what is no such time stays as it is.
    """
    if not isinstance(value, datetime) or value.utcoffset():
        return value
    return value.replace(minute=0, second=0, microsecond=0)


def _range(footer: pq.ParquetFile, place: int) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column; None where it has nulls, or no such statistics."""
    low = high = None
    for group in range(footer.metadata.num_row_groups):
        found = footer.metadata.row_group(group).column(place).statistics
        if found is None or not found.has_min_max or found.null_count != 0:
            return None
        try:
            least, most = found.min, found.max
        except (OverflowError, ValueError):  # a date or time that Python does not have
            return None
        if isinstance(least, (str, bytes)) and len(least) >= _TRUNCATED:
            return None
        low = least if low is None else min(low, least)
        high = most if high is None else max(high, most)
    return low, high


def split_rows(
    rows: pa.Table, schema: pa.Schema, partition_by: Sequence[PartitionSource]
) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """Yield the rows of each partition of a table with this schema: the columns of its partitions alone.
    InvalidTextError for text in these that is not valid UTF-8, which would end the process in a transform.
    """
    needed = pa.schema([schema.field(name) for name in source_columns(partition_by)])
    for batch in rows.combine_chunks().to_batches():
        # A batch without columns would have no rows either.
        yield from split(conform_valid(batch, needed) if needed.names else batch, partition_by)


def serialized(schema: pa.Schema) -> bytes:
    """Return a schema without metadata, as Arrow serializes it."""
    plain = pa.schema([field.remove_metadata() for field in schema])
    return bytes(plain.serialize().to_pybytes())
