"""The task that reads source files whole, for rows that a shuffle takes to other tasks: changes by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from planners.ingestion.buffering import BufferedFile
from streaming_sink.tasks.batches import conform_valid
from streaming_sink.tasks.errors import SourceFailedError
from streaming_sink.tasks.ingest.opening import open_all
from streaming_sink.tasks.ingest.path_columns import path_columns, with_columns
from streaming_sink.tasks.ingest.reading import (
    SourceFileError,
    check_whole,
    read_rows,
    reading_errors,
)
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.spark_task import start_task


@dataclass(frozen=True, slots=True)
class ReadJob:
    """What the tasks read: the files of the shares whose numbers are their rows."""

    sources: Sources
    shares: tuple[tuple[tuple[int, BufferedFile, int], ...], ...]
    """Of each file its number in the work item, and the rows that it states to have."""
    typed: pa.Schema
    """The table's columns, which say how text is read."""
    schema: pa.Schema
    """The columns that the rows get."""
    fast_workers: bool = True


class SourceReadTask:
    """The function that Spark runs for rows that are numbers of shares."""

    def __init__(self, job: ReadJob) -> None:
        self._job = job

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_task(self._job.fast_workers)
        # Not Spark's number of the task: one that coalesces partitions runs this for each of them.
        for batch in rows:
            for share in batch.column(0).to_pylist():
                yield from read_share(self._job, share)


def read_share(job: ReadJob, share: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a share's files. SourceFailedError for a file that cannot be read."""
    besides = [field for field in job.schema if field.name not in job.typed.names]
    known = pa.schema([*job.typed, *besides])
    rows = {number: count for number, _, count in job.shares[share]}
    files = ((number, file) for number, file, _ in job.shares[share])
    for number, file, opener in open_all(job.sources, files):
        stated = job.sources.stated(file.path)
        try:
            with opener() as data:
                table = read_rows(file, data, job.typed, stated)
                table = with_columns(table, path_columns(stated, table.column_names, known))
                check_whole(job.sources, file, table.num_rows, rows[number])
                with reading_errors():
                    batches = [
                        conform_valid(each, job.schema) for each in table.to_batches() if each.num_rows
                    ]
        except SourceFileError as failure:
            raise SourceFailedError(number, str(failure)) from None
        yield from batches
