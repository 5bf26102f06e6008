"""The task that profiles source files: their columns, and their rows by partition, from footers if it can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import split
from streaming_sink.tasks.results import encode_results
from streaming_sink.tasks.spark_task import start_task

_Parts = tuple[tuple[PartitionKey, int], ...]
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
    for number, file in job.files:
        try:
            columns, rows, parts, data_bytes = _profile_one(job, file)
        except SourceFileError as failure:
            found.append(SourceRejected(number, str(failure)))
            continue
        place = known.setdefault(columns, len(known))
        found.append(SourceProfile(number, place, rows, parts, data_bytes))
    return [*found, *(SourceColumns(number, schema) for schema, number in known.items())]


def _profile_one(job: ProfileJob, file: BufferedFile) -> tuple[bytes, int, _Parts, int]:
    with open_bytes(job.sources, file) as data:
        if file.format != "parquet":
            rows = read_rows(file, data, job.schema)
            rows = with_columns(rows, path_columns(file.path, rows.column_names, job.schema))
            return _serialized(rows.schema), rows.num_rows, _parts(job, rows), file.bytes
        footer = open_parquet(data)
        with unreadable():
            count = footer.metadata.num_rows
            stated = path_columns(file.path, footer.schema_arrow.names, job.schema)
            columns = _serialized(with_fields(footer.schema_arrow, stated))
            size = max(1, file.bytes - footer.metadata.serialized_size)
            if not job.partition_by or job.schema is None or not count:
                return columns, count, (((), count),) if count else (), size
            edges = _edges(footer, job.partition_by, stated)
            keys = [] if edges is None else [key for key, _ in _split(job, edges)]
            if len(keys) == 1:
                return columns, count, ((keys[0], count),), size
            wanted = [".".join(field.source) for field in job.partition_by]
            return columns, count, _parts(job, with_columns(footer.read(columns=wanted), stated)), size


def _serialized(schema: pa.Schema) -> bytes:
    plain = pa.schema([field.remove_metadata() for field in schema])
    return bytes(plain.serialize().to_pybytes())


def _edges(
    footer: pq.ParquetFile, fields: Sequence[PartitionSource], stated: Mapping[str, pa.Scalar]
) -> pa.Table | None:
    """Return the least and the greatest value of the partition's source columns, as two rows; None where the
    footer does not have them, or rows between them may be of another partition. `stated`: the columns that
    the file's path states, which have one value.
    """
    places = {footer.schema.column(place).path: place for place in range(len(footer.schema))}
    columns: dict[str, pa.Array] = {}
    for field in fields:
        if field.source[0] in stated:
            columns[field.source[0]] = pa.repeat(stated[field.source[0]], 2)
            continue
        place = places.get(".".join(field.source))
        if place is None or len(field.source) > 1:
            return None
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
        if low != high and not field.transform.startswith(_MONOTONIC):
            return None
        columns[field.source[0]] = pa.array([low, high], footer.schema_arrow.field(field.source[0]).type)
    return pa.table(columns)


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
