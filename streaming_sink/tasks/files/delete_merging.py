"""Merges delete files inside a task: their positions go into fewer new files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from planners.model import InputFile, PartitionKey, PositionDeletes
from planners.shared_deletes import share_delete_files
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_paths import new_data_path
from streaming_sink.tasks.files.delete_files import deleted_positions, read_deletes_in, write_shared_deletes
from streaming_sink.tasks.job import PartitionSource, WorkerJob
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


class SharingFile(NamedTuple):
    """A live data file of which a shared delete file may delete rows."""

    rows: int
    """All that it holds."""
    own_from: int | None
    """From so many positions on it gets a delete file of its own; None for never."""


@dataclass(frozen=True, slots=True)
class RunMerge:
    """One merge of a pass: runs of shared delete files of a partition."""

    number: int
    partition: PartitionKey
    partition_by: tuple[PartitionSource, ...]
    deletes: tuple[PositionDeletes, ...]
    into: int
    """The most shared files that they become."""
    files: Mapping[str, SharingFile]
    """All live data files of the partition, by their locations."""


class NewDeletes(NamedTuple):
    """A delete file that a merge has written."""

    path: str
    """Its absolute name, as manifests spell it."""
    rows_of: dict[str, int]
    """How many rows of which data files it deletes."""
    bytes: int


@dataclass(frozen=True, slots=True)
class DeletesMerged:
    """A merge that succeeded: files of exactly the positions of those of that number, but for those of data
    files that have left the table.
    """

    number: int
    files: tuple[NewDeletes, ...]
    forgotten: Mapping[str, int]
    """How many positions of which data files were left out."""
    of_runs: bool
    """Whether it is a `RunMerge`."""


@dataclass(frozen=True, slots=True)
class MergeOfDeletesSkipped:
    """A merge that one of its delete files made impossible; it has left no file."""

    number: int
    culprit: str
    """The data file, or the shared delete file."""
    reason: str


def merge_deletes(job: WorkerJob, merge: DeleteMerge, attempt: int) -> DeletesMerged | MergeOfDeletesSkipped:
    """Write the positions of the delete files of one merge into one. It is skipped if one is missing,
    damaged, or not what the table says.
    """
    try:
        positions = deleted_positions(job.store, merge.file)
    except DataFileError as unfit:
        return MergeOfDeletesSkipped(merge.number, merge.file.path, str(unfit))
    new = _write(job, merge, {merge.file.path: positions}, attempt)
    return DeletesMerged(merge.number, (new,), {}, of_runs=False)


def merge_shared_deletes(
    job: WorkerJob, merge: RunMerge, attempt: int
) -> DeletesMerged | MergeOfDeletesSkipped:
    """Write the positions of runs of shared delete files: those of a data file that has many into a delete
    file of its own, the others into shared ones. Skipped as `merge_deletes`.
    """
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    for deletes in merge.deletes:
        try:
            _read_into(parts, job, merge, deletes)
        except DataFileError as unfit:
            return MergeOfDeletesSkipped(merge.number, deletes.path, str(unfit))
    positions = {path: np.unique(np.concatenate(arrays)) for path, arrays in parts.items()}
    forgotten = {path: len(positions.pop(path)) for path in positions.keys() - merge.files.keys()}
    alone = [path for path in positions if _is_worth_its_own(merge.files[path], len(positions[path]))]
    shared = share_delete_files(dict.fromkeys(positions.keys() - set(alone)), merge.into)
    new = tuple(
        _write(job, merge, {path: positions[path] for path in group}, attempt)
        for group in [*((path,) for path in sorted(alone)), *shared]
    )
    return DeletesMerged(merge.number, new, forgotten, of_runs=True)


def _read_into(
    parts: dict[str, list[np.ndarray]], job: WorkerJob, merge: RunMerge, deletes: PositionDeletes
) -> None:
    found = read_deletes_in(job.store, deletes.path)
    if (rows := sum(map(len, found.values()))) != deletes.rows:
        said = f"{rows} rows, not {deletes.rows} as the table says"
        raise DataFileError(f"a delete file deletes {said}: {deletes.path}")
    for path, positions in found.items():
        file = merge.files.get(path)
        if file is not None and not 0 <= positions.min() <= positions.max() < file.rows:
            raise DataFileError(
                f"a delete file deletes rows that its data file does not hold, of {file.rows}: {path}"
            )
        parts[path].append(positions)


def _is_worth_its_own(file: SharingFile, positions: int) -> bool:
    return file.own_from is not None and positions >= file.own_from


def _write(
    job: WorkerJob, merge: DeleteMerge | RunMerge, positions: Mapping[str, np.ndarray], attempt: int
) -> NewDeletes:
    def name(file_id: str) -> str:
        return delete_file_name(file_id, job.ids.app_id, job.ids.batch, merge.number, attempt)

    path = new_data_path(replace(job, partition_by=merge.partition_by), merge.partition, name)
    arrays = {data_file: pa.array(these, pa.int64()) for data_file, these in positions.items()}
    rows_of, size = write_shared_deletes(job.store, path, arrays, job.parquet)
    return NewDeletes(job.store.uri(path), rows_of, size)
