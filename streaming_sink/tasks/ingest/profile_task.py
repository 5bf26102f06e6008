"""The task that profiles source files: their columns, and their rows by partition, from footers if it can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from planners.buffering import BufferedFile
from planners.model import PartitionKey
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.ingest.path_columns import path_columns, with_columns, with_fields
from streaming_sink.tasks.ingest.reading import (
    SourceFileError,
    open_bytes,
    open_parquet,
    read_rows,
    unreadable,
)
from streaming_sink.tasks.ingest.sources import Sources, partition_of
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import split
from streaming_sink.tasks.results import encode_results
from streaming_sink.tasks.spark_task import start_task

_Parts = tuple[tuple[PartitionKey, int], ...]
_Edges = dict[str, tuple[Any, Any]]
_MONOTONIC = ("identity", "year", "month", "day", "hour", "truncate")


@dataclass(frozen=True, slots=True)
class ProfileJob:
    """What a task needs to profile files for a table."""

    sources: Sources
    files: tuple[tuple[int, BufferedFile], ...]
    """With the number of each in its work item."""
    schema: pa.Schema | None
    """The table's; None while there is no table: then only the columns of files are asked for."""
    partition_by: tuple[PartitionSource, ...]
    fast_workers: bool = True


@dataclass(frozen=True, slots=True)
class SourceProfile:
    """One file that can be read."""

    number: int
    columns: int
    """Which of the task's `SourceColumns` it has."""
    rows: int
    parts: tuple[tuple[PartitionKey, int], ...]
    """Its rows by partition of the table."""
    data_bytes: int
    """Its size without the footer, which says what its rows take in a larger file: rather less."""


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns that files of one task have."""

    number: int
    schema: bytes
    """Arrow's, serialized."""


@dataclass(frozen=True, slots=True)
class SourceRejected:
    """One file that cannot land, and why."""

    number: int
    reason: str


class ProfileTask:
    """The function that Spark runs for some of the files of a work item."""

    def __init__(self, job: ProfileJob) -> None:
        self._job = job

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        del rows  # of a stage that only starts the task
        start_task(self._job.fast_workers)
        yield encode_results(profile(self._job))


def profile(job: ProfileJob) -> list[SourceProfile | SourceColumns | SourceRejected]:
    """Return what the files hold. StoreUnavailableError where the store does not answer."""
    known: dict[bytes, int] = {}
    found: list[SourceProfile | SourceColumns | SourceRejected] = []
    layouts = _Layouts(job)
    for number, file in job.files:
        try:
            columns, rows, parts, data_bytes = _profile_one(job, layouts, file)
        except SourceFileError as failure:
            found.append(SourceRejected(number, str(failure)))
            continue
        place = known.setdefault(columns, len(known))
        found.append(SourceProfile(number, place, rows, parts, data_bytes))
    return [*found, *(SourceColumns(number, schema) for schema, number in known.items())]


def _profile_one(job: ProfileJob, layouts: _Layouts, file: BufferedFile) -> tuple[bytes, int, _Parts, int]:
    with open_bytes(job.sources, file) as data:
        if file.format != "parquet":
            rows = read_rows(file, data, job.schema)
            rows = with_columns(rows, path_columns(file.path, rows.column_names, job.schema))
            return _serialized(rows.schema), rows.num_rows, _parts(job, rows), file.bytes
        footer = open_parquet(data)
        with unreadable():
            layout = layouts.of(footer, file.path)
            count = footer.metadata.num_rows
            size = max(1, file.bytes - footer.metadata.serialized_size)
            if not job.partition_by or job.schema is None or not count:
                return layout.columns, count, (((), count),) if count else (), size
            key = layout.key(job, footer)
            if key is not None:
                return layout.columns, count, ((key, count),), size
            wanted = [".".join(field.source) for field in job.partition_by]
            rows = with_columns(footer.read(columns=wanted, use_threads=False), layout.stated)
            return layout.columns, count, _parts(job, rows), size


def _serialized(schema: pa.Schema) -> bytes:
    plain = pa.schema([field.remove_metadata() for field in schema])
    return bytes(plain.serialize().to_pybytes())


class _Layouts:
    """The layouts of a task's files: nearly all have the columns of the file before."""

    def __init__(self, job: ProfileJob) -> None:
        self._job = job
        self._known: dict[tuple[str, bytes], list[_Layout]] = {}

    def of(self, footer: pq.ParquetFile, path: str) -> _Layout:
        """Return the layout of a file with this footer. SourceFileError as `path_columns`."""
        arrow = (footer.metadata.metadata or {}).get(b"ARROW:schema", b"")
        same = self._known.setdefault((partition_of(path), arrow), [])
        for layout in same:
            if layout.schema.equals(footer.schema):
                return layout
        stated = path_columns(path, footer.schema_arrow.names, self._job.schema)
        same.append(_Layout(footer, stated))
        return same[-1]


class _Layout:
    """What files with the same columns, in folders that state the same, have in common.

    `stated`: the columns that the path states, which have one value.
    """

    def __init__(self, footer: pq.ParquetFile, stated: Mapping[str, pa.Scalar]) -> None:
        self.schema, self.stated = footer.schema, stated
        self.columns = _serialized(with_fields(footer.schema_arrow, stated))
        self._types = footer.schema_arrow
        self._places = {self.schema.column(place).path: place for place in range(len(self.schema))}
        self._keys: dict[str, PartitionKey | None] = {}

    def key(self, job: ProfileJob, footer: pq.ParquetFile) -> PartitionKey | None:
        """Return the one partition of all rows; None where the footer does not show that there is one."""
        edges = self._edges(footer, job.partition_by)
        if edges is None:
            return None
        # Not by the values themselves: -0.0 equals 0.0, and is of a partition of its own.
        known = repr(edges)
        if known not in self._keys:
            found = [key for key, _ in _split(job, self._table(edges))]
            self._keys[known] = found[0] if len(found) == 1 else None
        return self._keys[known]

    def _edges(self, footer: pq.ParquetFile, fields: Sequence[PartitionSource]) -> _Edges | None:
        """Return the least and the greatest value of each source column of the partition that the file has;
        None where the footer does not have them, or rows between them may be of another partition.
        """
        edges: _Edges = {}
        for field in fields:
            if field.source[0] in self.stated:
                continue
            place = self._places.get(".".join(field.source))
            if place is None or len(field.source) > 1:
                return None
            found = _range(footer, place)
            if found is None or (found[0] != found[1] and not field.transform.startswith(_MONOTONIC)):
                return None
            edges[field.source[0]] = found
        return edges

    def _table(self, edges: _Edges) -> pa.Table:
        found = {name: pa.array(both, self._types.field(name).type) for name, both in edges.items()}
        return pa.table(found | {name: pa.repeat(value, 2) for name, value in self.stated.items()})


def _range(footer: pq.ParquetFile, place: int) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column; None where nulls or no statistics are there."""
    low = high = None
    for group in range(footer.metadata.num_row_groups):
        found = footer.metadata.row_group(group).column(place).statistics
        if found is None or not found.has_min_max or found.null_count != 0:
            return None
        try:
            least, most = found.min, found.max
        except (OverflowError, ValueError):  # a date or time that Python does not have
            return None
        low = least if low is None else min(low, least)
        high = most if high is None else max(high, most)
    return low, high


def _split(job: ProfileJob, rows: pa.Table) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    assert job.schema is not None
    names = dict.fromkeys(field.source[0] for field in job.partition_by)
    needed = pa.schema([job.schema.field(name) for name in names])
    for batch in rows.combine_chunks().to_batches():
        yield from split(conform(batch, needed), job.partition_by)


def _parts(job: ProfileJob, rows: pa.Table) -> _Parts:
    if not job.partition_by or job.schema is None:
        return (((), rows.num_rows),) if rows.num_rows else ()
    with unreadable():
        counts: dict[PartitionKey, int] = {}
        for key, part in _split(job, rows):
            counts[key] = counts.get(key, 0) + part.num_rows
        return tuple(counts.items())
