"""The task that profiles source files: their columns, and their rows by partition, from footers if it can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from planners.ingestion.buffering import BufferedFile
from planners.ingestion.registering import is_large_enough, why_rewritten
from planners.model import PartitionKey
from planners.sizing import FileSizing
from streaming_sink.tasks.ingest.calendars import is_hybrid
from streaming_sink.tasks.ingest.footers import describe_footer, table_columns
from streaming_sink.tasks.ingest.layouts import Layout, Layouts, serialized, split_rows
from streaming_sink.tasks.ingest.opening import Opener, open_all
from streaming_sink.tasks.ingest.parquet import plain_columns
from streaming_sink.tasks.ingest.path_columns import path_columns, with_columns
from streaming_sink.tasks.ingest.reading import (
    SourceFileError,
    open_parquet,
    read_rows,
    reading_errors,
)
from streaming_sink.tasks.ingest.source_groups import SourceGroups
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import ParquetSettings, PartitionSource
from streaming_sink.tasks.partitioning import source_columns
from streaming_sink.tasks.results import encode_results
from streaming_sink.tasks.row_groups.conditions import may_be_asked
from streaming_sink.tasks.row_groups.footer import FooterError, read_row_groups
from streaming_sink.tasks.spark_task import start_task_without_rows

_LEAST_PAGE_BYTES = 8
_MOST_ROWS_OF_A_PAGE = 2**31
_Parts = tuple[tuple[PartitionKey, int], ...]


@dataclass(frozen=True, slots=True)
class ProfileJob:
    """What a task needs to profile files for a table."""

    sources: Sources
    files: tuple[tuple[int, BufferedFile], ...]
    """With the number of each in its work item."""
    schema: pa.Schema | None
    """The table's; None while there is no table: then only the columns of files are asked for."""
    partition_by: tuple[PartitionSource, ...]
    registers: FileSizing | None = None
    """The sizes of files, where those that are large enough may be registered; None where all are rewritten.
    """
    copies: ParquetSettings | None = None
    """How files of the table are written, where row groups may be copied into them; None where none is."""
    fast_workers: bool = True
    careful: bool = False
    """Whether each footer is looked at before pyarrow is asked for statistics, as `may_be_asked`: dear for
    small files, and of use after a worker was lost.
    """


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
    rewritten: str | None = None
    """Why it is not registered as it is; None where it is."""
    copied: bool = False
    """Whether its row groups may be copied, and are of one partition."""


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


@dataclass(frozen=True, slots=True)
class SourceMisstated:
    """One file that cannot be registered, since its footer states other values than its rows have."""

    number: int
    reason: str


class ProfileTask:
    """The function that Spark runs for some of the files of a work item."""

    def __init__(self, job: ProfileJob) -> None:
        self._job = job

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_task_without_rows(rows, self._job.fast_workers)
        yield encode_results(profile(self._job))


def profile(job: ProfileJob) -> list[SourceProfile | SourceColumns | SourceRejected]:
    """Return what the files hold. StoreUnavailableError where the store does not answer."""
    known: dict[bytes, int] = {}
    found: list[SourceProfile | SourceColumns | SourceRejected] = []
    layouts = Layouts(job.schema, job.partition_by)
    groups = None
    if job.copies is not None and job.schema is not None:
        groups = SourceGroups(job.schema, job.copies)
    for number, file, opener in open_all(job.sources, job.files):
        try:
            columns, profiled = _profile_one(job, layouts, groups, number, file, opener)
        except SourceFileError as failure:
            found.append(SourceRejected(number, str(failure)))
            continue
        found.append(replace(profiled, columns=known.setdefault(columns, len(known))))
    return [*found, *(SourceColumns(number, schema) for schema, number in known.items())]


def _profile_one(
    job: ProfileJob,
    layouts: Layouts,
    groups: SourceGroups | None,
    number: int,
    file: BufferedFile,
    opener: Opener,
) -> tuple[bytes, SourceProfile]:
    """Return the columns of a file, and its profile without their number."""
    stated = job.sources.stated(file.path)
    with opener() as data:
        if file.format != "parquet":
            rows = read_rows(file, data, job.schema, stated)
            rows = with_columns(rows, path_columns(stated, rows.column_names, job.schema))
            parts = _parts(job, rows)
            columns = serialized(plain_columns(rows.schema, job.schema))
            return columns, SourceProfile(number, 0, rows.num_rows, parts, file.bytes, "it is no Parquet")
        footer = open_parquet(data)
        with reading_errors():
            layout = layouts.of(footer, stated)
            _check_rows(footer.metadata, file.bytes)
            count, size = footer.metadata.num_rows, max(1, file.bytes - footer.metadata.serialized_size)
            parts = _parts_of(job, footer, layout, data)
            rewritten = _why_rewritten(job, file, footer, data, len(parts), layout.stated)
            copied = (
                groups is not None
                and rewritten is not None
                and len(parts) == 1
                and groups.may_copy(footer, file.bytes)
            )
            return layout.columns, SourceProfile(number, 0, count, parts, size, rewritten, copied)


def _check_rows(footer: pq.FileMetaData, size: int) -> None:
    """Raise SourceFileError for a footer that states rows which its file cannot have: plans would."""
    rows = footer.num_rows
    groups = sum(footer.row_group(place).num_rows for place in range(footer.num_row_groups))
    if rows != groups or not 0 <= rows <= size // _LEAST_PAGE_BYTES * _MOST_ROWS_OF_A_PAGE:
        raise SourceFileError(f"its footer states {rows:,} rows, and {groups:,} in row groups; write it anew")


def _why_rewritten(
    job: ProfileJob,
    file: BufferedFile,
    footer: pq.ParquetFile,
    data: pa.NativeFile,
    partitions: int,
    stated: Iterable[str],
) -> str | None:
    if job.registers is None or job.schema is None or not is_large_enough(file.bytes, job.registers):
        return "it is not of a size that is registered"
    if is_hybrid(footer.metadata.metadata):
        return "its dates and times are of the hybrid calendar"
    if not _may_be_asked(job, data):
        return "the statistics of a column are not of its type"
    own = set(footer.schema_arrow.names)
    given = (name for name in stated if name in job.schema.names)
    absent = [*given, *(name for name in source_columns(job.partition_by) if name not in own)]
    try:
        described = describe_footer(footer, file.bytes, partitions, absent)
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as unusual:
        return f"its footer is unusual: {unusual}"  # its rows may be read all the same
    return why_rewritten(described, table_columns(job.schema), job.registers)


def _may_be_asked(job: ProfileJob, data: pa.NativeFile) -> bool:
    try:
        return may_be_asked(read_row_groups(cast(BinaryIO, data)).footer)
    except FooterError:
        return not job.careful  # of what is not understood there, such as encryption


def _parts_of(job: ProfileJob, footer: pq.ParquetFile, layout: Layout, data: pa.NativeFile) -> _Parts:
    """Return the rows of a file by partition: by the footer, where that says it; else by the columns."""
    count = footer.metadata.num_rows
    if not job.partition_by or job.schema is None or not count:
        return (((), count),) if count else ()
    key = layout.key(footer) if not job.careful or _may_be_asked(job, data) else None
    if key is not None:
        return ((key, count),)
    wanted = [".".join(field.source) for field in job.partition_by if field.source]
    return _parts(job, with_columns(footer.read(columns=wanted, use_threads=False), layout.stated))


def _parts(job: ProfileJob, rows: pa.Table) -> _Parts:
    if not job.partition_by or job.schema is None:
        return (((), rows.num_rows),) if rows.num_rows else ()
    with reading_errors():
        counts: dict[PartitionKey, int] = {}
        for key, part in split_rows(rows, job.schema, job.partition_by):
            counts[key] = counts.get(key, 0) + part.num_rows
        return tuple(counts.items())
