"""Fills beside the stream, inside a task: the live rows of small files go into full ones, those of worn files
into others; nothing else is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from planners.model import InputFile, PartitionKey
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.cut_files import CutFiles
from streaming_sink.tasks.files.data_file_writer import DataFileWriter, GroupedFile
from streaming_sink.tasks.files.data_paths import new_data_path
from streaming_sink.tasks.files.delete_merging import (
    DeleteMerge,
    DeletesMerged,
    MergeOfDeletesSkipped,
    RunMerge,
    merge_deletes,
    merge_shared_deletes,
)
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.files.merged_rows import MergedRows
from streaming_sink.tasks.job import PartitionSource, SortedBy, WorkerJob
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.results import WrittenFile, encode_results
from streaming_sink.tasks.rows.merging import MERGE_GROUP_BYTES
from streaming_sink.tasks.spark_task import start_task
from timeline.names import data_file_name, rewritten_file_name


@dataclass(frozen=True, slots=True)
class Fill:
    """One merge of a pass: small files of one partition, or a file that is folded alone."""

    number: int
    partition: PartitionKey
    partition_by: tuple[PartitionSource, ...]
    """The fields of the spec that the files are of, which may be an older one of the table."""
    inputs: tuple[InputFile, ...]
    cuts: tuple[int, ...]
    """After so many live rows of the inputs a new file ends; the last one has what is left."""
    sorted_by: tuple[SortedBy, ...] = ()
    """The order of the rows of a file that is folded alone, for the footer."""
    keeps_order: bool = True
    """Whether the rows of a file that is folded alone stay in their order, as those of a sorted one must."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A merge that succeeded: `files` hold exactly the live rows of the inputs of that number; none, where
    there are none.
    """

    number: int
    files: tuple[WrittenFile, ...]
    deleted_rows: int = 0
    """How many rows the delete files of the inputs delete, by their content."""


@dataclass(frozen=True, slots=True)
class FillSkipped:
    """A merge that one of its inputs made impossible; it has left no file."""

    number: int
    culprit: str
    """That input. The reason may be one of its delete files."""
    reason: str


class FillTask:
    """The function that `DataFrame.mapInArrow` runs in each task of a pass. The rows that it gets are numbers
    of portions: the merges of one task, one after the other.
    """

    def __init__(self, job: WorkerJob, portions: Sequence[Sequence[Fill | DeleteMerge | RunMerge]]) -> None:
        self._job = job
        self._portions = portions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _, attempt = start_task(self._job.fast_workers)
        for batch in batches:
            for portion in batch.column(0).to_pylist():
                for each in self._portions[portion]:
                    yield encode_results([self._run(each, attempt)])

    def _run(
        self, each: Fill | DeleteMerge | RunMerge, attempt: int
    ) -> Filled | FillSkipped | DeletesMerged | MergeOfDeletesSkipped:
        if isinstance(each, DeleteMerge):
            return merge_deletes(self._job, each, attempt)
        if isinstance(each, RunMerge):
            return merge_shared_deletes(self._job, each, attempt)
        return execute_fill(self._job, each, attempt)


def execute_fill(job: WorkerJob, fill: Fill, attempt: int) -> Filled | FillSkipped:
    """Merge the inputs of one fill. It is skipped if one, or a delete file of one, is missing, damaged, or
    not what the table says; any other failure is raised. Neither leaves a file, as far as the store can be
    reached.
    """
    job = replace(job, partition_by=fill.partition_by)
    output = _NewFiles(job, fill, attempt)
    rows, path, deleted_rows = MergedRows(job), "", 0
    try:
        for given in fill.inputs:
            path = given.path
            in_order = len(fill.inputs) == 1 and fill.keeps_order
            deleted_rows += rows.add(given, output, output.cuts_left, in_order=in_order)
        return Filled(fill.number, output.close(), deleted_rows)
    except DataFileError as unfit:
        output.abort()
        return FillSkipped(fill.number, path, str(unfit))
    except BaseException:
        output.abort()
        raise


class _NewFiles(CutFiles):
    """The files of a fill, which end at its cuts."""

    def __init__(self, job: WorkerJob, fill: Fill, attempt: int) -> None:
        super().__init__(job.store, fill.partition, fill.number)
        self._job = job
        self._fill = fill
        self._attempt = attempt
        self._columns = leaves(job.schema)

    @property
    def cuts_left(self) -> tuple[int, ...]:
        written = sum(file.rows for file in self._closed) + self._rows
        return tuple(cut - written for cut in self._fill.cuts if cut > written)

    def _open(self) -> GroupedFile:
        def name(file_id: str) -> str:
            ids, inputs = self._job.ids, self._fill.inputs
            number = ids.app_id, ids.batch, self._fill.number, self._attempt
            if len(inputs) == 1:
                return rewritten_file_name(inputs[0].path, file_id, *number)
            return data_file_name(file_id, *number)

        path = new_data_path(self._job, self._fill.partition, name)
        choice = DictionaryChoice(self._columns)
        file = DataFileWriter(self._job, self._columns, choice, path, self._fill.sorted_by)
        return GroupedFile(file, min(self._job.parquet.row_group_bytes, MERGE_GROUP_BYTES))
