"""A fill inside a task: the rows of small files and the new rows, in one file."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from planners.model import Bucket
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.files.data_file_writer import GroupedFile
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.files.merged_rows import MergedRows
from streaming_sink.tasks.job import WorkerJob
from streaming_sink.tasks.results import Merge, MergeSkipped, WrittenFile
from streaming_sink.tasks.rows.task_state import TaskState

MERGE_GROUP_BYTES = 64 * 1024 * 1024
"""Arrow bytes of a row group of a merged file. With the batches that feed it, this is what a merge holds."""


def merge_files(
    task: TaskState,
    bucket: Bucket,
    index: int,
    new: WrittenFile,
    rows: list[pa.RecordBatch] | None,
    path: str,
) -> Merge | MergeSkipped:
    """Write the live rows of `bucket.inputs`, then the rows of `new`, to `path`. The merge is skipped if an
    input or one of its delete files is missing, damaged, or not what the table describes.

    `rows` are the rows of `new` if they are still in memory; otherwise they are read back from the store.
    """
    job = task.job
    file = task.open_file(path, DictionaryChoice(task.columns))
    output = GroupedFile(file, min(job.parquet.row_group_bytes, MERGE_GROUP_BYTES))
    inputs, deleted_rows = tuple(given.path for given in bucket.inputs), 0
    reading = ""
    merged_rows = MergedRows(job)
    try:
        for given in bucket.inputs:
            reading = given.path
            deleted_rows += merged_rows.add(given, output)
    except DataFileError as unfit:
        file.abort()
        task.open_files.discard(file)
        return MergeSkipped(inputs, new.path, str(unfit), reading)
    for batch in _rows_of_new(job, new) if rows is None else rows:
        output.write(batch)
    merged = output.close(new.partition, index)
    task.open_files.discard(file)
    applied = tuple(each.path for given in bucket.inputs for each in given.deletes)
    return Merge(inputs, new.path, merged, applied, deleted_rows)


def _rows_of_new(job: WorkerJob, new: WrittenFile) -> Iterable[pa.RecordBatch]:
    with open_data_file(job.store, new.path, "a file that this task has just written") as file:
        yield from file.read(job.schema)
