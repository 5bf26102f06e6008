"""Merges of delete files, inside a task: exactly the same positions, or no file."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from planners.model import InputFile, PositionDeletes
from streaming_sink.tasks.files.delete_files import (
    read_deletes_in,
    read_position_deletes,
    write_position_deletes,
    write_shared_deletes,
)
from streaming_sink.tasks.files.delete_merging import (
    DeleteMerge,
    DeletesMerged,
    MergeOfDeletesSkipped,
    RunMerge,
    SharingFile,
    merge_deletes,
    merge_shared_deletes,
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
    [new] = done.files
    assert (done.number, done.forgotten, new.rows_of) == (3, {}, {DATA: 4})
    assert read_position_deletes(job.store, [new.path], DATA).tolist() == [3, 4, 50, 99]
    path = job.store.relative(new.path)
    assert path.startswith("data/p=7/")
    assert path.endswith("-fill-0-3-5-deletes.parquet")
    assert names.written_id(path) is not None, "the orphan cleaner knows it"
    assert new.bytes == len(job.store.read(path).data)


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


# ------------------------------------------------------------------------------------------ shared ones

A, B, C, D = (f"memory://lake/data/p=7/{name}.parquet" for name in "abcd")


def _runs(job: WorkerJob, *deletes: dict[str, list[int]], **told: object) -> RunMerge:
    known = []
    for number, positions in enumerate(deletes):
        path = f"data/p=7/{number}-deletes.parquet"
        arrays = {data_file: pa.array(these, pa.int64()) for data_file, these in positions.items()}
        rows, _ = write_shared_deletes(job.store, path, arrays, job.parquet)
        known.append(PositionDeletes(job.store.uri(path), sum(rows.values()), run=number))
    files = {A: SharingFile(100, 5), B: SharingFile(100, 5), C: SharingFile(100, None)}
    return RunMerge(3, (7,), BY_P, tuple(known), 1, told.get("files", files))  # type: ignore[arg-type]


def _found(job: WorkerJob, done: DeletesMerged) -> list[dict[str, list[int]]]:
    return [
        {data_file: these.tolist() for data_file, these in read_deletes_in(job.store, new.path).items()}
        for new in done.files
    ]


def test_runs_become_one_and_files_of_their_own_for_data_files_with_many_positions(job: WorkerJob) -> None:
    """C is rewritten by the same pass, and D has left the table."""
    merge = _runs(job, {A: [1, 2], B: [4], C: [1, 2, 3]}, {A: [9, 3, 50], C: [4, 5], D: [1, 2]})
    done = merge_shared_deletes(job, merge, attempt=5)
    assert isinstance(done, DeletesMerged)
    assert _found(job, done) == [{A: [1, 2, 3, 9, 50]}, {B: [4], C: [1, 2, 3, 4, 5]}]
    assert [new.rows_of for new in done.files] == [{A: 5}, {B: 1, C: 5}]
    assert (done.of_runs, done.number, done.forgotten) == (True, 3, {D: 2})
    for new in done.files:
        path = job.store.relative(new.path)
        assert path.startswith("data/p=7/")
        assert names.written_id(path) is not None, "the orphan cleaner knows it"
        assert new.bytes == len(job.store.read(path).data)


def test_runs_of_data_files_that_have_all_left_become_nothing(job: WorkerJob) -> None:
    done = merge_shared_deletes(job, _runs(job, {D: [1, 2]}, {D: [3]}), attempt=5)
    assert isinstance(done, DeletesMerged)
    assert (done.files, done.forgotten) == ((), {D: 3})


def test_a_merge_of_runs_makes_no_more_shared_files_than_it_may(job: WorkerJob) -> None:
    data = {f"memory://lake/data/p=7/{number:03}.parquet": [number] for number in range(50)}
    files = {path: SharingFile(100, 5) for path in data}
    merge = _runs(job, data, dict(list(data.items())[:9]), files=files)
    done = merge_shared_deletes(job, merge, attempt=5)
    assert isinstance(done, DeletesMerged)
    assert _found(job, done) == [data]
    again = merge_shared_deletes(job, replace(merge, into=7), attempt=6)
    assert isinstance(again, DeletesMerged)
    assert [len(each) for each in _found(job, again)] == [7] * 6 + [8]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("missing", "a delete file is missing: "),
        ("damaged", "a delete file cannot be read: "),
        ("beyond", "a delete file deletes rows that its data file does not hold, of 9: "),
        ("replaced", "a delete file deletes 1 rows, not 3 as the table says: "),
    ],
)
def test_a_shared_delete_file_that_is_not_what_the_table_says_leaves_all_as_they_are(
    job: WorkerJob, spoil: str, reason: str
) -> None:
    files = {A: SharingFile(9 if spoil == "beyond" else 100, 5), B: SharingFile(100, 5)}
    merge = _runs(job, {A: [1]}, {A: [9, 3], B: [4]}, files=files)
    path = job.store.relative(merge.deletes[1].path)
    if spoil == "missing":
        job.store.delete([path])
    elif spoil == "damaged":
        job.store.overwrite(path, b"PAR1")
    elif spoil == "replaced":
        job.store.overwrite(path, job.store.read("data/p=7/0-deletes.parquet").data)
    before = {listed.path for listed in job.store.list_below("data")}
    done = merge_shared_deletes(job, merge, attempt=5)
    assert isinstance(done, MergeOfDeletesSkipped)
    assert (done.culprit, done.reason.startswith(reason)) == (merge.deletes[1].path, True)
    assert {listed.path for listed in job.store.list_below("data")} == before
