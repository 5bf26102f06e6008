"""The tasks of buffered ingestion without Spark: which rows of odd files they write, and what they refuse."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planners.ingestion.consolidation import SourceRows, TaskShare, partitions_of_shared_files
from planners.model import PartitionKey
from streaming_sink.tasks import spark_task
from streaming_sink.tasks.ingest import consolidation_task, read_task, reading
from streaming_sink.tasks.ingest.consolidation_task import ConsolidationTask, Share, consolidate
from streaming_sink.tasks.ingest.profile_task import (
    ProfileJob,
    ProfileTask,
    SourceColumns,
    SourceProfile,
    SourceRejected,
    profile,
)
from streaming_sink.tasks.ingest.read_task import ReadJob, SourceReadTask
from streaming_sink.tasks.ingest.reading import read_rows
from streaming_sink.tasks.ingest.register_task import RegisterTask
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds, ParquetSettings, PartitionSource, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import TaskReport
from streaming_sink.zones.landed import Landed, keep_rejections, summary_of, with_rejections
from timeline.stores import open_store

SOURCES = Sources(("/",))


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def job(folder: Path, schema: pa.Schema, *partition_by: PartitionSource) -> WorkerJob:
    return WorkerJob(
        store=open_store(str(folder / "table")),
        schema=schema,
        partition_by=partition_by,
        parquet=ParquetSettings(),
        metrics={},
        ids=FileIds(1_700_000_000_000, "ingest", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1000,
        max_file_bytes=1 << 30,
    )


def share(*paths: str, **given: object) -> Share:
    found, _ = SOURCES.find(paths, 0)
    return Share(SOURCES, tuple(enumerate(found)), **given)  # type: ignore[arg-type]


def rows_written(results: Sequence[object]) -> int:
    return sum(each.rows for each in results if isinstance(each, TaskReport))


def test_rows_of_nan_in_a_file_of_many_tasks_are_written(tmp_path: Path) -> None:
    """A NaN that is sent to another process equals no NaN there."""
    path = str(tmp_path / "nan.parquet")
    pq.write_table(pa.table({"f": [1.0, float("nan"), float("nan"), None]}), path)
    schema, by_f = pa.schema([field("f", pa.float64(), 1)]), PartitionSource("f", ("f",), "identity")
    files = share(path).files
    (profiled,) = (
        each
        for each in profile(ProfileJob(SOURCES, files, schema, (by_f,)))
        if isinstance(each, SourceProfile)
    )
    shares = [TaskShare((SourceRows(0, key, rows),), ()) for key, rows in profiled.parts]
    written = 0
    for each in shares:
        only: dict[int, frozenset[PartitionKey]] = dict(partitions_of_shared_files(each, shares))
        sent = pickle.loads(pickle.dumps(Share(SOURCES, files, only)))
        written += rows_written(consolidate(job(tmp_path, schema, by_f), sent, len(shares)))
    assert written == 4


def test_text_that_is_not_utf_8_rejects_its_file_alone(tmp_path: Path) -> None:
    good, bad = str(tmp_path / "good.parquet"), str(tmp_path / "bad.parquet")
    pq.write_table(pa.table({"s": ["x"]}), good)
    broken = pa.array([b"\xff\xfe"], pa.binary())
    text = pa.StringArray.from_buffers(1, broken.buffers()[1], broken.buffers()[2])
    pq.write_table(pa.table({"s": text}), bad)
    results = consolidate(job(tmp_path, pa.schema([field("s", pa.string(), 1)])), share(good, bad), 0)
    (rejected,) = results
    assert isinstance(rejected, SourceRejected)
    assert (rejected.number, "UTF-8" in rejected.reason) == (1, True)


def test_text_that_is_not_utf_8_is_found_before_a_transform_of_it(tmp_path: Path) -> None:
    """`truncate` of such text ended the process, and its item was set apart with all of its good files."""
    good, bad = str(tmp_path / "good.parquet"), str(tmp_path / "bad.parquet")
    pq.write_table(pa.table({"s": ["x"]}), good)
    broken = pa.array([b"\xff\xfe", b"ab\xff"], pa.binary())
    text = pa.StringArray.from_buffers(2, broken.buffers()[1], broken.buffers()[2])
    pq.write_table(pa.table({"s": text}), bad)
    schema, by_s = pa.schema([field("s", pa.string(), 1)]), PartitionSource("s", ("s",), "truncate[2]")
    results = profile(ProfileJob(SOURCES, share(good, bad).files, schema, (by_s,)))
    (rejected,) = (each for each in results if isinstance(each, SourceRejected))
    assert (rejected.number, "UTF-8" in rejected.reason) == (1, True)
    assert [each.rows for each in results if isinstance(each, SourceProfile)] == [1]


def test_files_of_several_layouts_are_written_whole_beside_one_that_does_not_fit(tmp_path: Path) -> None:
    """Files with the same columns are converted together: one that does not fit is found among them."""
    paths = [str(tmp_path / f"{number}.parquet") for number in range(6)]
    for number, path in enumerate(paths):
        columns = {"id": pa.array([number, number], pa.int32() if number % 3 else pa.int64())}
        metadata = {"written_by": f"{number}"}  # differs from file to file, as pandas' does
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    pq.write_table(pa.table({"id": pa.array([7, None], pa.int32())}), paths[5])
    required = pa.schema([field("id", pa.int64(), 1).with_nullable(False)])
    (rejected,) = consolidate(job(tmp_path, required), share(*paths), 0)
    assert isinstance(rejected, SourceRejected)
    assert (rejected.number, "id" in rejected.reason) == (5, True)
    results = consolidate(job(tmp_path, required), share(*paths[:5]), 0)
    assert rows_written(results) == 10
    files = [pq.ParquetFile(path) for path in (tmp_path / "table").rglob("*.parquet")]
    assert [each["id"] for file in files for each in file.read().to_pylist()] == [
        0, 0, 1, 1, 2, 2, 3, 3, 4, 4
    ]  # fmt: skip


def test_files_of_the_same_columns_in_other_folders_have_the_values_of_their_own(tmp_path: Path) -> None:
    schema = pa.schema([field("id", pa.int64(), 1), field("day", pa.int32(), 2)])
    paths = [str(tmp_path / f"day={day}" / "a.parquet") for day in (1, 2, 1)]
    paths[2] = paths[2].replace("a.parquet", "b.parquet")
    for path in paths:
        Path(path).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [1]}), path)
    by_day = PartitionSource("day", ("day",), "identity")
    files = share(*paths).files
    found = profile(ProfileJob(SOURCES, files, schema, (by_day,)))
    days = {files[each.number][1].path: each.parts for each in found if isinstance(each, SourceProfile)}
    assert days == dict(zip(paths, ((((1,), 1),), (((2,), 1),), (((1,), 1),)), strict=True))


@pytest.mark.parametrize(
    "columns",
    [
        [{"s": [{"a": 1}]}, {"t": [{"a": 1}]}],
        [{"s": [[1]]}, {"t": [[1]]}],
        [{"s": [{"a": 1, "b": 2}]}, {"s": [{"a": 1}], "t": [{"b": 2}]}],
        [{"s": [{"g": {"a": 1}}]}, {"s": [{"h": {"a": 1}}]}],
    ],
)
def test_files_whose_nested_columns_have_leaves_of_the_same_names_keep_their_own(
    tmp_path: Path, columns: list[dict[str, Any]]
) -> None:
    """Arrow takes two Parquet schemas for equal if their leaves are, whichever columns these are in."""
    tables = [pa.table(each) for each in columns]
    paths = [str(tmp_path / f"{number}.parquet") for number in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, store_schema=False)  # as programs without Arrow do
    found = profile(ProfileJob(SOURCES, tuple(enumerate(SOURCES.find(paths, 0)[0])), None, ()))
    known = {each.number: each.schema for each in found if isinstance(each, SourceColumns)}
    profiles = [each for each in found if isinstance(each, SourceProfile)]
    named = [pa.ipc.read_schema(pa.BufferReader(known[each.columns])) for each in profiles]
    assert [each.names for each in named] == [table.column_names for table in tables]
    assert not named[0].equals(named[1])


def test_a_file_with_other_rows_than_its_footer_states_is_rejected(tmp_path: Path) -> None:
    path, schema = str(tmp_path / "a.parquet"), pa.schema([field("id", pa.int64(), 1)])
    pq.write_table(pa.table({"id": [1, 2]}), path)
    (rejected,) = consolidate(job(tmp_path, schema), share(path, rows={0: 3}), 0)
    assert isinstance(rejected, SourceRejected)
    assert rejected.reason == "it states 3 rows, and holds 2; write it anew"


def test_a_large_file_that_is_replaced_while_it_is_read_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, schema = tmp_path / "a.parquet", pa.schema([field("id", pa.int64(), 1)])
    pq.write_table(pa.table({"id": [1, 2]}), path)
    monkeypatch.setattr(reading, "WHOLE_BYTES", 0)

    def read_and_replace(*given: Any) -> pa.Table:
        rows = read_rows(*given)
        pq.write_table(pa.table({"id": [3]}), path)
        return rows

    monkeypatch.setattr(consolidation_task, "read_rows", read_and_replace)
    (rejected,) = consolidate(job(tmp_path, schema), share(str(path)), 0)
    assert isinstance(rejected, SourceRejected)
    assert "it was replaced by other bytes" in rejected.reason


def test_reasons_outlive_a_worker_that_dies_after_its_commit(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    found = Landed(3, False, 7, rejected={"/a": "it is empty"}, rejected_places=(1,))
    kept = keep_rejections(store, found, "01")
    assert kept.rejected_in in summary_of("app", kept).values()
    expired = with_rejections(store, Landed(3, True, 9))
    for noted in (with_rejections(store, Landed(3, True, 7, 1, rejected_in=kept.rejected_in)), expired):
        assert noted.rejected == {"/a": "it is empty"}
        assert (noted.reason(0, "/a"), noted.reason(1, "/a")) == (None, "it is empty")
    assert with_rejections(store, Landed(4, True, 9)).rejected == {}


def test_dates_that_python_does_not_have_are_profiled(tmp_path: Path) -> None:
    path = str(tmp_path / "far.parquet")
    days = pa.array([-3_000_000, 3_000_000], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"d": days}), path)
    schema, by_year = pa.schema([field("d", pa.date32(), 1)]), PartitionSource("y", ("d",), "year")
    found = profile(ProfileJob(SOURCES, share(path).files, schema, (by_year,)))
    (profiled,) = (each for each in found if isinstance(each, SourceProfile))
    assert sorted(rows for _, rows in profiled.parts) == [1, 1]


def test_tasks_read_the_rows_that_start_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark ends a worker whose task has left some, and the next task waits for a new one."""
    for module in (spark_task, read_task):
        monkeypatch.setattr(module, "start_task", lambda fast_workers: (0, 0))
    schema = pa.schema([field("id", pa.int64(), 1)])
    tasks = [
        ProfileTask(ProfileJob(SOURCES, (), schema, ())),
        ConsolidationTask(job(tmp_path, schema), share()),
        RegisterTask(job(tmp_path, schema), SOURCES, ()),
        SourceReadTask(ReadJob(SOURCES, ((),), schema, schema)),
    ]
    for task in tasks:
        rows = iter([pa.RecordBatch.from_pydict({"id": [0]})] * 2)
        list(task(rows))
        assert list(rows) == [], type(task).__name__
