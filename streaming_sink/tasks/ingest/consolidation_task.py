"""The task that consolidates source files: it reads its share of a work item, and writes data files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import pyarrow as pa

from planners.ingestion.buffering import BufferedFile
from planners.model import PartitionKey, comparable
from streaming_sink.tasks.batches import conform_valid
from streaming_sink.tasks.ingest.opening import open_all
from streaming_sink.tasks.ingest.path_columns import path_columns, with_columns
from streaming_sink.tasks.ingest.profile_task import SourceRejected
from streaming_sink.tasks.ingest.reading import (
    SourceFileError,
    check_whole,
    read_rows,
    reading_errors,
)
from streaming_sink.tasks.ingest.source_groups import SourceGroup, SourceGroups
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import WorkerJob
from streaming_sink.tasks.results import TaskReport, TaskResult, encode_results
from streaming_sink.tasks.rows.write_task import TaskWriter
from streaming_sink.tasks.spark_task import start_task_without_rows

_BATCH_FILES = 256
_BATCH_BYTES = 16 * 1024 * 1024
"""Rows of so many files, or Arrow bytes, are written together: a small file costs more to hand over than to
decode.
"""


@dataclass(frozen=True, slots=True)
class Share:
    """What one task reads and writes."""

    sources: Sources
    files: tuple[tuple[int, BufferedFile], ...]
    """With the number of each in its work item."""
    only: Mapping[int, frozenset[PartitionKey]] = field(default_factory=dict)
    """Of a file that several tasks read, by its number: the partitions whose rows this task writes."""
    rows: Mapping[int, int] = field(default_factory=dict)
    """How many rows a file states to have, by its number."""
    copied: frozenset[int] = frozenset()
    """The files whose row groups may be copied, where no other task reads them."""


class ConsolidationTask:
    """The function that Spark runs for one share of a work item."""

    def __init__(self, job: WorkerJob, share: Share) -> None:
        self._job, self._share = job, share

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _, attempt = start_task_without_rows(rows, self._job.fast_workers)
        yield encode_results(consolidate(self._job, self._share, attempt))


def consolidate(job: WorkerJob, share: Share, attempt: int) -> list[TaskResult | SourceRejected]:
    """Write the share's rows to closed data files, and return what was written. Where a file cannot be read,
    nothing is written, and all files that cannot are returned: plan again without them.
    """
    started = time.perf_counter()
    writer = TaskWriter(job, 0, attempt)
    rejected: list[SourceRejected] = []
    try:
        for part, only in _parts(job, share, rejected):
            if rejected:
                continue
            if isinstance(part, SourceGroup):
                writer.copy(part.stored, part.number, part.batches)
            else:
                writer.write_some(part, only)
        results = [] if rejected else writer.finish()
    except BaseException:
        writer.abort()
        raise
    if rejected:
        writer.abort()
        return [*rejected]
    seconds = time.perf_counter() - started
    return [*results, TaskReport(0, attempt, writer.rows, seconds, 0.0, writer.spilled_bytes)]


def _parts(
    job: WorkerJob, share: Share, rejected: list[SourceRejected]
) -> Iterator[tuple[pa.RecordBatch | SourceGroup, frozenset[PartitionKey] | None]]:
    """Yield the rows of the files in the table's schema, those of many files together, or by row group where
    these may be copied. Files that cannot be read are added to `rejected`.
    """
    held: list[tuple[int, pa.Table]] = []
    size = 0
    groups = SourceGroups(job.schema, job.parquet)
    for number, file, opener in open_all(share.sources, share.files):
        try:
            with opener() as data:
                is_whole = number in share.copied and number not in share.only
                found = _groups(groups, share, number, file, data) if is_whole else None
                if found is not None:
                    yield from ((group, None) for group in found)
                    continue
                rows = _read(job, share, number, file, data)
        except SourceFileError as failure:
            rejected.append(SourceRejected(number, str(failure)))
            continue
        only = share.only.get(number)
        if only is not None:
            own = frozenset(comparable(key) for key in only)  # a NaN that was sent here equals no other one
            yield from ((batch, own) for batch in _joined(job, [(number, rows)], rejected))
            continue
        held.append((number, rows))
        size += rows.nbytes
        if len(held) >= _BATCH_FILES or size >= _BATCH_BYTES:
            yield from ((batch, None) for batch in _joined(job, held, rejected))
            held, size = [], 0
    yield from ((batch, None) for batch in _joined(job, held, rejected))


def _groups(
    groups: SourceGroups, share: Share, number: int, file: BufferedFile, data: pa.NativeFile
) -> Iterator[SourceGroup] | None:
    """Return the rows of a file by row group; None where it is to be read as all others."""
    with reading_errors():
        found = groups.read(data)
    return None if found is None else _checked(found, share, number, file)


def _checked(
    groups: Iterator[SourceGroup], share: Share, number: int, file: BufferedFile
) -> Iterator[SourceGroup]:
    rows = 0
    with reading_errors():
        for group in groups:
            rows += sum(batch.num_rows for batch in group.batches)
            yield group
        check_whole(share.sources, file, rows, share.rows.get(number))


def _read(job: WorkerJob, share: Share, number: int, file: BufferedFile, data: pa.NativeFile) -> pa.Table:
    stated = share.sources.stated(file.path)
    table = read_rows(file, data, job.schema, stated)
    table = with_columns(table, path_columns(stated, table.column_names, job.schema))
    check_whole(share.sources, file, table.num_rows, share.rows.get(number))
    return table


def _joined(
    job: WorkerJob, held: Sequence[tuple[int, pa.Table]], rejected: list[SourceRejected]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in the table's schema: files with the same columns one after another are one
    batch. Files whose rows do not fit are added to `rejected`.
    """
    for _, files in groupby(held, key=lambda each: each[1].schema):
        same = list(files)
        try:
            with reading_errors():
                rows = pa.concat_tables(table for _, table in same).combine_chunks()
                batches = [conform_valid(each, job.schema) for each in rows.to_batches() if each.num_rows]
        except SourceFileError as failure:
            if len(same) == 1:
                rejected.append(SourceRejected(same[0][0], str(failure)))
            else:  # one of them, or several
                for each in same:
                    yield from _joined(job, [each], rejected)
        else:
            yield from batches
