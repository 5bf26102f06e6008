"""Merges delete files of one data file inside a task: their positions go into one new file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from planners.model import InputFile, PartitionKey
from streaming_sink.tasks.data_paths import new_data_path
from streaming_sink.tasks.delete_files import write_position_deletes
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.job import PartitionSource, WorkerJob
from streaming_sink.tasks.live_rows import deleted_positions
from timeline.names import delete_file_name


@dataclass(frozen=True, slots=True)
class DeleteMerge:
    """One merge of a pass: some delete files of a data file."""

    number: int
    partition: PartitionKey
    partition_by: tuple[PartitionSource, ...]
    """The fields of the spec that the data file is of."""
    file: InputFile
    """The data file, with those of its delete files that are merged."""


@dataclass(frozen=True, slots=True)
class DeletesMerged:
    """A merge that succeeded: one file of exactly the positions of those of that number."""

    number: int
    path: str
    """Its absolute name, as manifests spell it."""
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MergeOfDeletesSkipped:
    """A merge that one of its delete files made impossible; it has left no file."""

    number: int
    culprit: str
    """The data file."""
    reason: str


def merge_deletes(job: WorkerJob, merge: DeleteMerge, attempt: int) -> DeletesMerged | MergeOfDeletesSkipped:
    """Write the positions of the delete files of one merge into one. It is skipped if one is missing,
    damaged, or not what the table says.
    """
    try:
        positions = deleted_positions(job.store, merge.file)
    except DataFileError as unfit:
        return MergeOfDeletesSkipped(merge.number, merge.file.path, str(unfit))

    def name(file_id: str) -> str:
        return delete_file_name(file_id, job.ids.app_id, job.ids.batch, merge.number, attempt)

    path = new_data_path(replace(job, partition_by=merge.partition_by), merge.partition, name)
    rows, size = write_position_deletes(
        job.store, path, merge.file.path, pa.array(positions, pa.int64()), job.parquet
    )
    return DeletesMerged(merge.number, job.store.uri(path), rows, size)
