"""The task that registers source files: it checks and copies them, and no row is encoded again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from planners.ingestion.buffering import BufferedFile
from planners.model import PartitionKey, comparable
from streaming_sink.tasks.batches import conform_valid
from streaming_sink.tasks.files.data_file_reader import READ_ROWS
from streaming_sink.tasks.files.data_file_writer import split_offsets
from streaming_sink.tasks.files.data_paths import new_data_path
from streaming_sink.tasks.files.metrics import column_metrics, nan_counts
from streaming_sink.tasks.ingest.profile_task import SourceMisstated, SourceRejected
from streaming_sink.tasks.ingest.reading import (
    SourceFileError,
    check_unchanged,
    open_bytes,
    open_parquet,
    reading_errors,
)
from streaming_sink.tasks.ingest.sources import Sources, folder_of, identity_of_bytes
from streaming_sink.tasks.job import WorkerJob
from streaming_sink.tasks.leaves import Leaf, leaves
from streaming_sink.tasks.partitioning import split
from streaming_sink.tasks.results import TaskReport, TaskResult, WrittenFile, encode_results
from streaming_sink.tasks.row_groups.stated_values import GroupValues
from streaming_sink.tasks.spark_task import start_task_without_rows
from timeline.names import data_file_name
from timeline.stores.base import ListedObject

_COPIED_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceToRegister:
    """A source file whose footer lets it be a data file of the table."""

    number: int
    """In its work item."""
    file: BufferedFile
    partition: PartitionKey
    """Of all its rows."""
    rows: int
    stays: bool = False
    """Whether it becomes a data file where it is, by reference, and is not copied."""


class RegisterTask:
    """The function that Spark runs for some of the files of a work item."""

    def __init__(self, job: WorkerJob, sources: Sources, files: Iterable[SourceToRegister]) -> None:
        self._job, self._sources, self._files = job, sources, tuple(files)

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _, attempt = start_task_without_rows(rows, self._job.fast_workers)
        yield encode_results(register(self._job, self._sources, self._files, attempt))


def register(
    job: WorkerJob, sources: Sources, files: Iterable[SourceToRegister], attempt: int
) -> list[TaskResult | SourceRejected | SourceMisstated]:
    """Copy each file that does not stay to a closed, durable data file, and return the registered files.

    The rows of a file are read once, and written nowhere: a file with damaged pages, text that is not UTF-8,
    or other rows than its footer states is no file of a table, and is returned as rejected; one whose footer
    states other values than its rows have, so that queries would pass over these, as misstated.
    """
    started, rows = time.perf_counter(), 0
    columns = leaves(job.schema)
    results: list[TaskResult | SourceRejected | SourceMisstated] = []
    for source in files:
        try:
            results.append(_register(job, columns, sources, source, attempt))
            rows += source.rows
        except SourceFileError as failure:
            results.append(SourceRejected(source.number, str(failure)))
        except _MisstatedError as failure:
            results.append(SourceMisstated(source.number, str(failure)))
    return [*results, TaskReport(0, attempt, rows, time.perf_counter() - started, 0.0)]


class _MisstatedError(Exception):
    """The footer of a file states what its rows are not."""


def _register(
    job: WorkerJob, columns: tuple[Leaf, ...], sources: Sources, source: SourceToRegister, attempt: int
) -> WrittenFile:
    with open_bytes(sources, source.file) as data:
        file = open_parquet(data)
        by_name = {leaf.parquet_path: leaf for leaf in columns}
        found = tuple(by_name[name] for name in file.schema_arrow.names)
        nans = _check_rows(job, file, source, found)
        if source.stays:
            with reading_errors():
                sources.sync(source.file.path)
            check_unchanged(sources, source.file)
            location = source.file.path
        else:
            location = _copy(job, source, data, attempt, sources)
        metrics = column_metrics(file.metadata, found, job.metrics, nans)
        return WrittenFile(
            path=location,
            partition=source.partition,
            bucket=source.number,
            rows=source.rows,
            bytes=source.file.bytes,
            column_sizes=metrics.sizes,
            value_counts=metrics.values,
            null_counts=metrics.nulls,
            nan_counts=metrics.nans,
            lower_bounds=metrics.lower,
            upper_bounds=metrics.upper,
            split_offsets=split_offsets(file.metadata, source.file.bytes),
        )


def _check_rows(
    job: WorkerJob, file: pq.ParquetFile, source: SourceToRegister, columns: tuple[Leaf, ...]
) -> dict[int, int]:
    """Return the NaNs of each column of floats. SourceFileError where the rows are not those that the footer
    states; _MisstatedError where only their values are others.
    """
    floats = tuple(leaf for leaf in columns if pa.types.is_floating(leaf.type))
    rows, nans, misstated = 0, dict.fromkeys((leaf.field_id for leaf in floats), 0), ""
    for number in range(file.metadata.num_row_groups):
        values = GroupValues(columns)
        with reading_errors():
            for batch in file.iter_batches(READ_ROWS, row_groups=[number], use_threads=False):
                given = conform_valid(batch, job.schema)
                _check_partition(job, source, given)
                rows += given.num_rows
                values.add(given)
                for leaf, count in nan_counts(pa.Table.from_batches([given]), floats).items():
                    nans[leaf] += count
        misstated = misstated or values.why_misstated(file.metadata.row_group(number))
    if rows != source.rows:
        raise SourceFileError(f"it states {source.rows:,} rows, and holds {rows:,}; write it anew")
    if misstated:
        raise _MisstatedError(misstated)
    return nans


def _check_partition(job: WorkerJob, source: SourceToRegister, rows: pa.RecordBatch) -> None:
    keys = {comparable(key) for key, _ in split(rows, job.partition_by)}
    if keys - {comparable(source.partition)}:
        raise SourceFileError(
            "its statistics say that its rows are of one partition, and they are of several; write it anew"
        )


def _copy(job: WorkerJob, source: SourceToRegister, data: Any, attempt: int, sources: Sources) -> str:
    """Copy a source file to a data file, and return its location. SourceFileError where it was replaced.

    Where both are in one bucket the store copies it, if it can: then no byte is sent.
    """
    ids, (folder, original) = job.ids, folder_of(source.file.path)
    name = partial(data_file_name, app_id=ids.app_id, batch=ids.batch, bucket=source.number, attempt=attempt)
    path = new_data_path(job, source.partition, name)
    seen = ListedObject(original, source.file.bytes, identity_of_bytes(source.file.identity))
    if job.store.copy_from(sources.store(folder), seen, path):
        return job.store.uri(path)
    # What became of that name is not known: an object may come to be there yet.
    path, size = new_data_path(job, source.partition, name), 0
    data.seek(0)
    with job.store.open_output(path) as output:
        while chunk := data.read(_COPIED_BYTES):
            output.write(chunk)
            size += len(chunk)
        check_unchanged(sources, source.file)  # what was read of a large file came piece by piece
        if size != source.file.bytes:
            raise SourceFileError("it was replaced by other bytes after it was announced; announce it again")
    return job.store.uri(path)
