"""Merges of delete files, inside a task: exactly the same positions, or no file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planners import InputFile, PositionDeletes
from streaming_sink.tasks.delete_files import read_position_deletes, write_position_deletes
from streaming_sink.tasks.delete_merging import (
    DeleteMerge,
    DeletesMerged,
    MergeOfDeletesSkipped,
    merge_deletes,
)
from streaming_sink.tasks.job import FileIds, ParquetSettings, PartitionSource, TaskBuckets, WorkerJob
from timeline import names
from timeline.stores import MemoryStore

SCHEMA = pa.schema([pa.field("p", pa.int32(), metadata={"PARQUET:field_id": "1"})])
BY_P = (PartitionSource("p", ("p",), "identity"),)
DATA = "memory://lake/data/p=7/a.parquet"


@pytest.fixture
def job() -> WorkerJob:
    return WorkerJob(
        store=MemoryStore(),
        schema=SCHEMA,
        partition_by=(),
        parquet=ParquetSettings(),
        metrics={},
        ids=FileIds(1_700_000_000_000, "fill", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1,
        max_file_bytes=1,
    )


def _merge(job: WorkerJob, *deletes: list[int], rows: int = 100) -> DeleteMerge:
    known = []
    for number, positions in enumerate(deletes):
        path = f"data/p=7/{number}-deletes.parquet"
        written, _ = write_position_deletes(
            job.store, path, DATA, pa.array(positions, pa.int64()), job.parquet
        )
        known.append(PositionDeletes(job.store.uri(path), written))
    return DeleteMerge(3, (7,), BY_P, InputFile(DATA, rows, tuple(known)))


def test_the_new_file_has_the_positions_of_all_and_lies_beside_them(job: WorkerJob) -> None:
    done = merge_deletes(job, _merge(job, [50, 3], [99], [3, 4]), attempt=5)
    assert isinstance(done, DeletesMerged)
    assert (done.number, done.rows) == (3, 4)
    assert read_position_deletes(job.store, [done.path], DATA).tolist() == [3, 4, 50, 99]
    path = job.store.relative(done.path)
    assert path.startswith("data/p=7/")
    assert path.endswith("-fill-0-3-5-deletes.parquet")
    assert names.written_id(path) is not None, "the orphan cleaner knows it"
    assert done.bytes == len(job.store.read(path).data)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("missing", "a delete file is missing: "),
        ("damaged", "a delete file cannot be read: "),
        ("beyond", "a delete file deletes rows that its data file does not hold: "),
    ],
)
def test_a_delete_file_that_is_not_what_the_table_says_leaves_all_as_they_are(
    job: WorkerJob, spoil: str, reason: str
) -> None:
    merge = _merge(job, [50, 3], [99], rows=99 if spoil == "beyond" else 100)
    path = job.store.relative(merge.file.deletes[1].path)
    if spoil == "missing":
        job.store.delete([path])
    elif spoil == "damaged":
        job.store.overwrite(path, b"PAR1")
    before = {listed.path for listed in job.store.list_below("data")}
    done = merge_deletes(job, merge, attempt=5)
    assert isinstance(done, MergeOfDeletesSkipped)
    assert (done.culprit, done.reason.startswith(reason)) == (DATA, True)
    assert {listed.path for listed in job.store.list_below("data")} == before
