"""What one task writes: cuts, rolls, fills, spills, and what it leaves behind when it fails."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.model import Bucket, InputFile, PositionDeletes
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.delete_files import write_position_deletes
from streaming_sink.tasks.job import FileIds, ParquetSettings, PartitionSource, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import Merge, MergeSkipped, WrittenFile
from streaming_sink.tasks.rows import partition_files, write_task
from streaming_sink.tasks.rows.write_task import TaskWriter
from timeline.stores import LocalStore
from timeline.stores.memory import MemoryStore


def _field(name, kind, number, nullable=True):
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema([_field("id", pa.int64(), 1), _field("p", pa.int32(), 2), _field("text", pa.string(), 3)])
BY_P = (PartitionSource("p", ("p",), "identity"),)


def _job(store, planned=(), *, partition_by=(), rows_per_new_file=1000, max_file_bytes=1 << 30, **more):
    return WorkerJob(
        store=store,
        schema=SCHEMA,
        partition_by=partition_by,
        parquet=more.pop("parquet", ParquetSettings()),
        metrics={1: "full", 2: "full", 3: "full"},
        ids=FileIds(1_700_000_000_000, "my-app-id-long", 7),
        tasks={0: TaskBuckets(tuple(enumerate(planned)))},
        shared=TaskBuckets(),
        rows_per_new_file=rows_per_new_file,
        max_file_bytes=max_file_bytes,
        first_free_bucket=len(planned),
        **more,
    )


def _rows(start, count, partitions=1, text="x"):
    ids = range(start, start + count)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(ids, pa.int64()),
            "p": pa.array([each % partitions for each in ids], pa.int32()),
            "text": pa.array([f"{text}{each}" for each in ids]),
        }
    )


def _noise(seed):
    return Random(seed).randbytes(200).hex()


def _wide_rows():
    """50,000 rows that hardly compress, as 40 batches: 400 bytes each where the plans reckon with 10."""
    for start in range(0, 20_000, 500):
        text = pa.array([_noise(each)[:200] for each in range(start, start + 500)])
        yield _rows(start, 500).set_column(2, SCHEMA.field("text"), text)


def _run(job, batches, task=0):
    writer = TaskWriter(job, task, attempt=5)
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def _files(results):
    return [each for each in results if isinstance(each, WrittenFile)]


def _read(store, path):
    with store.open_input(store.relative(path)) as source:
        return pq.read_table(pa.BufferReader(source.read()))


def _ids(store, files):
    return [row for file in files for row in _read(store, file.path).column("id").to_pylist()]


def _row_groups(store, file):
    return pq.ParquetFile(pa.BufferReader(store.read(store.relative(file.path)).data)).num_row_groups


_NAMES = count()


def _fresh_store():
    return MemoryStore(f"task-writer-{next(_NAMES)}")  # stores of one name share their objects


@pytest.fixture
def store():
    return _fresh_store()


def test_rows_are_cut_exactly_where_the_plan_says_and_then_by_the_size_of_new_files(store):
    job = _job(store, [Bucket((), 30), Bucket((), 50)], rows_per_new_file=40)
    files = _files(_run(job, [_rows(0, 70), _rows(70, 100)]))
    assert [file.rows for file in files] == [30, 50, 40, 40, 10]
    assert [file.bucket for file in files] == [0, 1, 2, 3, 4]
    assert _ids(store, files) == list(range(170))


def test_fewer_rows_than_planned_make_one_shorter_file(store):
    files = _files(_run(_job(store, [Bucket((), 30), Bucket((), 50)]), [_rows(0, 20)]))
    assert [file.rows for file in files] == [20]


def test_the_last_bucket_of_a_partition_takes_as_many_rows_as_fit(store):
    job = _job(store, [Bucket((), 30, max_rows=99), Bucket((), 50, max_rows=60)], rows_per_new_file=40)
    assert [file.rows for file in _files(_run(job, [_rows(0, 200)]))] == [30, 60, 40, 40, 30]


def test_a_bucket_that_stands_by_takes_rows_only_at_the_end_of_its_partition(store):
    standby = Bucket((), 0, max_rows=20)
    job = _job(store, [standby, Bucket((), 30), standby], rows_per_new_file=40)
    assert [file.rows for file in _files(_run(job, [_rows(0, 60)]))] == [30, 20, 10]
    assert _files(_run(_job(store, [Bucket((), 30), standby]), [_rows(0, 30)]))[0].rows == 30


def test_no_rows_make_no_file(store):
    assert _run(_job(store, [Bucket((), 30)]), [_rows(0, 0)]) == []


def test_a_partition_that_was_not_foreseen_gets_files_of_its_own(store):
    job = _job(store, [Bucket((0,), 10)], partition_by=BY_P)
    files = _files(_run(job, [_rows(0, 30, partitions=3)]))
    assert {file.partition: file.rows for file in files} == {(0,): 10, (1,): 10, (2,): 10}


def test_another_tasks_buckets_are_not_used(store):
    files = _files(_run(_job(store, [Bucket((), 10)]), [_rows(0, 30)], task=1))
    assert [(file.rows, file.bucket) for file in files] == [(30, 1)]


def test_shared_buckets_belong_to_whichever_task_meets_their_partition(store):
    job = replace(
        _job(store, partition_by=BY_P), shared=TaskBuckets(((4, Bucket((1,), 2)),)), first_free_bucket=9
    )
    files = _files(_run(job, [_rows(0, 6, partitions=2)], task=3))
    assert {(file.partition, file.bucket): file.rows for file in files} == {
        ((0,), 9): 3,
        ((1,), 4): 2,
        ((1,), 10): 1,
    }


def test_a_file_is_named_by_its_driver_time_application_batch_bucket_and_attempt(store):
    file = _files(_run(_job(store, partition_by=BY_P), [_rows(0, 1)]))[0]
    folder, _, name = store.relative(file.path).rpartition("/")
    assert folder == "data/p=0"
    assert name.startswith("01HF7YAT00")
    assert name.endswith("-myappidl-7-0-5.parquet")


def test_a_file_rolls_when_its_encoded_size_reaches_the_maximum(store):
    """Rows that turn out wider than planned do not make a file much larger than the maximum."""
    limit = 300_000
    job = _job(store, [Bucket((), 10**6)], max_file_bytes=limit)
    wide = _wide_rows()
    files = _files(_run(job, wide))
    assert sum(file.rows for file in files) == 20_000
    assert len(files) > 3
    assert all(file.bytes <= limit * 1.1 for file in files)
    assert all(file.bytes > limit * 0.5 for file in files[:-1])


def test_one_batch_wider_than_a_file_is_cut_too(store):
    job = _job(store, rows_per_new_file=10**6, max_file_bytes=100_000)
    rows = _rows(0, 8_000).set_column(
        2, SCHEMA.field("text"), pa.array([_noise(each) for each in range(8_000)])
    )
    files = _files(_run(job, [rows]))
    assert len(files) > 15
    assert sum(file.rows for file in files) == 8_000
    assert all(file.bytes <= 110_000 for file in files)


def test_row_groups_are_flushed_as_they_fill(store):
    job = _job(store, rows_per_new_file=10**6, parquet=ParquetSettings(row_group_bytes=100_000))
    [file] = _files(_run(job, [_rows(start, 1000) for start in range(0, 40_000, 1000)]))
    assert _row_groups(store, file) > 3
    assert file.split_offsets == (4,), "none is worth a part of its own"


def test_sizes_are_exact_and_field_ids_are_in_the_file(store):
    [file] = _files(_run(_job(store), [_rows(0, 10)]))
    data = store.read(store.relative(file.path)).data
    assert len(data) == file.bytes
    read = pq.read_schema(pa.BufferReader(data))
    assert [field.metadata[b"PARQUET:field_id"] for field in read] == [b"1", b"2", b"3"]


def _small_file(store, start, count):
    [file] = _files(_run(_job(store), [_rows(start, count)]))
    return file


def _fill(*small, rows=1000, min_rows=1):
    return Bucket(
        (),
        rows,
        tuple(InputFile(f.path, f.rows) for f in small),
        sum(f.bytes for f in small),
        sum(f.rows for f in small),
        min_rows,
    )


def test_a_fill_writes_the_new_rows_and_a_file_of_the_old_and_the_new(store):
    small = [_small_file(store, 0, 10), _small_file(store, 10, 20)]
    new, merge = _run(_job(store, [_fill(*small)]), [_rows(30, 40)])
    assert isinstance(merge, Merge)
    assert (merge.inputs, merge.new) == ((small[0].path, small[1].path), new.path)
    assert _ids(store, [new]) == list(range(30, 70))
    assert _ids(store, [merge.merged]) == list(range(70))
    assert merge.merged.rows == 70
    assert merge.merged.bytes == len(store.read(store.relative(merge.merged.path)).data)


def test_a_fill_leaves_out_the_rows_that_are_deleted_of_its_inputs(store):
    first, second = _small_file(store, 0, 10), _small_file(store, 10, 20)
    positions = pa.array([0, 9], pa.int64())
    write_position_deletes(store, "data/d.parquet", first.path, positions, ParquetSettings())
    deletes = (PositionDeletes(store.uri("data/d.parquet"), 2),)
    bucket = _fill(first, second)
    bucket = replace(bucket, inputs=(replace(bucket.inputs[0], deletes=deletes), bucket.inputs[1]))
    _, merge = _run(_job(store, [bucket]), [_rows(30, 40)])
    assert _ids(store, [merge.merged]) == [*range(1, 9), *range(10, 70)]
    assert (merge.applied, merge.deleted_rows, merge.merged.rows) == ((deletes[0].path,), 2, 68)
    store.delete(["data/d.parquet"])
    _, skipped = _run(_job(store, [bucket]), [_rows(30, 40)])
    assert isinstance(skipped, MergeSkipped)
    assert skipped.reason.startswith("a delete file is missing: ")


def test_a_fill_of_rows_that_were_flushed_already_reads_them_back(store):
    small = _small_file(store, 0, 10)
    job = _job(store, [_fill(small, rows=10**6)], parquet=ParquetSettings(row_group_bytes=20_000))
    new, merge = _run(job, [_rows(start, 1000) for start in range(10, 20_010, 1000)])
    assert _row_groups(store, new) > 1
    assert _ids(store, [merge.merged]) == list(range(20_010))


def test_a_fill_that_too_few_rows_join_writes_only_those(store):
    small = _small_file(store, 0, 10)
    new, skipped = _run(_job(store, [_fill(small, rows=60, min_rows=50)]), [_rows(10, 40)])
    assert new.rows == 40
    assert skipped == MergeSkipped((small.path,), new.path, skipped.reason)
    assert "40 < 50" in skipped.reason


def test_a_fill_whose_input_is_gone_keeps_the_new_rows_and_leaves_nothing_half_written(store):
    kept, gone = _small_file(store, 0, 10), _small_file(store, 10, 10)
    store.delete([store.relative(gone.path)])
    new, skipped = _run(_job(store, [_fill(kept, gone)]), [_rows(20, 40)])
    assert isinstance(skipped, MergeSkipped)
    assert skipped.reason == f"a file to fill is missing: {gone.path}"
    assert skipped.culprit == gone.path
    assert {item.path for item in store.list_folder("data")} == {
        store.relative(file.path) for file in (kept, new)
    }


def test_a_task_that_cannot_read_its_own_file_back_fails_and_leaves_nothing(store, monkeypatch):
    """The file is among the results already: to skip the fill would commit a file that is not there."""
    small = _small_file(store, 0, 10)
    inputs = {store.relative(small.path)}
    opened = store.open_input

    def open_input(path):
        if path not in inputs:
            raise FileNotFoundError(path)
        return opened(path)

    monkeypatch.setattr(store, "open_input", open_input)
    job = _job(store, [_fill(small, rows=10**6)], parquet=ParquetSettings(row_group_bytes=20_000))
    writer = TaskWriter(job, 0, attempt=5)
    writer.write(_rows(10, 5000))
    with pytest.raises(DataFileError, match="that this task has just written is missing"):
        writer.finish()
    writer.abort()
    assert {item.path for item in store.list_folder("data")} == inputs


def test_a_fill_whose_input_holds_other_rows_than_the_table_says_is_skipped(store):
    small = _small_file(store, 0, 10)
    bucket = replace(_fill(small), inputs=(InputFile(small.path, 11),))
    _, skipped = _run(_job(store, [bucket]), [_rows(20, 40)])
    assert isinstance(skipped, MergeSkipped)
    assert len(store.list_folder("data")) == 2


def test_a_column_that_an_input_lacks_is_null_in_the_merged_file_and_a_renamed_one_is_found_by_its_id(store):
    old = pa.schema([_field("was", pa.int32(), 1), _field("p", pa.int32(), 2)])
    job = replace(_job(store), schema=old)
    batch = pa.RecordBatch.from_pydict({"was": pa.array([1], pa.int32()), "p": pa.array([0], pa.int32())})
    [small] = _files(_run(job, [batch]))
    _, merge = _run(_job(store, [_fill(small)]), [_rows(2, 1)])
    assert _read(store, merge.merged.path).to_pylist() == [
        {"id": 1, "p": 0, "text": None},
        {"id": 2, "p": 0, "text": "x2"},
    ]


def _fill_of_another_file(store, table):
    with store.open_output("data/other.parquet") as out:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        out.write(sink.getvalue())
    bucket = Bucket((), 100, (InputFile(store.uri("data/other.parquet"), 1),), 10, 1)
    _, result = _run(_job(store, [bucket]), [_rows(2, 1)])
    return result


def test_an_input_with_field_ids_of_some_columns_is_not_merged(store):
    partly = pa.schema([_field("id", pa.int64(), 1), pa.field("p", pa.int32())])
    skipped = _fill_of_another_file(store, pa.table({"id": [1], "p": [0]}, partly))
    assert "field ids" in skipped.reason


def test_the_columns_of_an_input_without_field_ids_are_found_by_name(store):
    merge = _fill_of_another_file(store, pa.table({"text": ["a"], "id": [1], "other": [9], "p": [0]}))
    assert _read(store, merge.merged.path).to_pylist() == [
        {"id": 1, "p": 0, "text": "a"},
        {"id": 2, "p": 0, "text": "x2"},
    ]


def test_the_rest_of_a_fill_that_outgrew_the_maximum_is_a_new_file(store):
    limit = 600_000
    [small] = _files(_run(_job(store, rows_per_new_file=10**6), list(_wide_rows())[:4]))
    assert 200_000 < small.bytes < 400_000
    results = _run(_job(store, [_fill(small, rows=10**6)], max_file_bytes=limit), _wide_rows())
    [merge] = [each for each in results if isinstance(each, Merge)]
    assert merge.merged.bytes <= limit * 1.1
    assert sum(file.rows for file in _files(results)) == 20_000


def test_thousands_of_partitions_stay_within_the_bound_and_spill(store, monkeypatch):
    monkeypatch.setattr(partition_files, "BUFFER_BYTES", 200_000)
    monkeypatch.setattr(write_task, "BUFFER_BYTES", 200_000)
    monkeypatch.setattr(write_task, "MAX_OPEN_FILES", 4)
    job = _job(store, [Bucket((7,), 5)], partition_by=BY_P, rows_per_new_file=10**6)
    writer = TaskWriter(job, 0, attempt=0)
    most = 0
    for start in range(0, 30_000, 1000):
        writer.write(_rows(start, 1000, partitions=500))
        most = max(most, writer.held_bytes)
    results = writer.finish()
    assert most <= 200_000
    assert writer.spilled_bytes > 0
    files = _files(results)
    assert Counter(file.partition for file in files) == {(p,): 2 if p == 7 else 1 for p in range(500)}
    assert sorted(_ids(store, files)) == list(range(30_000))
    assert [file.rows for file in files if file.partition == (7,)] == [5, 55]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 60), max_size=8),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50)), max_size=6),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_every_row_is_written_exactly_once(batches, planned, rows_per_new_file, partitions):
    store = _fresh_store()
    job = _job(
        store,
        [Bucket((p,), rows) for p, rows in planned],
        partition_by=BY_P,
        rows_per_new_file=rows_per_new_file,
        parquet=ParquetSettings(row_group_bytes=300),
    )
    start, rows = 0, []
    for size in batches:
        rows.append(_rows(start, size, partitions))
        start += size
    files = _files(_run(job, rows))
    assert sorted(_ids(store, files)) == list(range(start))
    limits = dict(enumerate(planned))
    for file in files:
        allowed = limits[file.bucket][1] if file.bucket in limits else rows_per_new_file
        assert 0 < file.rows <= allowed


def test_a_failing_task_deletes_its_half_written_files(store):
    job = _job(store, rows_per_new_file=10**6, parquet=ParquetSettings(row_group_bytes=1000))
    writer = TaskWriter(job, 0, attempt=0)
    writer.write(_rows(0, 1000))
    writer.abort()
    assert store.list_folder("data") == []


def test_a_failing_task_deletes_the_files_that_it_had_finished(store):
    writer = TaskWriter(_job(store, rows_per_new_file=100), 0, attempt=0)
    writer.write(_rows(0, 1000))
    assert len(store.list_folder("data")) == 10
    writer.abort()
    assert store.list_folder("data") == []


def test_a_fill_whose_input_is_damaged_keeps_the_new_rows_and_names_the_file(store):
    kept, damaged = _small_file(store, 0, 10), _small_file(store, 10, 10)
    store.overwrite(store.relative(damaged.path), b"PAR1 but not for long")
    new, skipped = _run(_job(store, [_fill(kept, damaged)]), [_rows(20, 40)])
    assert isinstance(skipped, MergeSkipped)
    assert new.rows == 40
    assert "cannot be read" in skipped.reason
    assert damaged.path in skipped.reason


def test_a_bucket_that_stands_by_is_not_reported_when_it_does_not_merge(store):
    small = _small_file(store, 0, 10)
    results = _run(_job(store, [_fill(small, rows=40, min_rows=50)]), [_rows(10, 40)])
    assert [type(result) for result in results] == [WrittenFile]


def test_rows_that_suddenly_compress_worse_do_not_make_a_giant_file(store):
    random = Random(5)
    alike = [_rows(start, 10_000, text="x" * 50) for start in range(0, 50_000, 10_000)]
    noise = [
        pa.RecordBatch.from_pydict(
            {
                "id": pa.array(range(50_000 + at * 2_000, 52_000 + at * 2_000), pa.int64()),
                "p": pa.array([0] * 2_000, pa.int32()),
                "text": pa.array([random.randbytes(100).hex() for _ in range(2_000)]),
            }
        )
        for at in range(20)
    ]
    most = 256 * 1024
    files = _files(_run(_job(store, rows_per_new_file=1 << 60, max_file_bytes=most), [*alike, *noise]))
    assert max(file.bytes for file in files) <= 4 * most
    assert sum(file.rows for file in files) == 90_000


def test_a_partition_of_nan_finds_the_bucket_that_was_planned_for_it(store):
    """The plan's NaN came through a pickle, and is another object than the task's own."""
    field = PartitionSource("p", ("p",), "identity")
    schema = pa.schema([_field("id", pa.int64(), 1), _field("p", pa.float64(), 2)])
    planned = [Bucket((float("nan"),), 30), Bucket((float("nan"),), 70)]
    job = replace(_job(store, planned, partition_by=(field,)), schema=schema, metrics={})
    rows = pa.RecordBatch.from_pydict({"id": list(range(100)), "p": [float("nan")] * 100})
    assert [file.rows for file in _files(_run(job, [rows]))] == [30, 70]


WITHOUT_PANDAS = """
import pickle, sys
sys.modules["pandas"] = None
from pathlib import Path
import pyarrow as pa
from streaming_sink.tasks.results import decode_result, encode_results
from streaming_sink.tasks.rows.write_task import TaskWriter

class Trap:
    def find_spec(self, name, *_):
        assert name != "pandas", "pandas is imported"

del sys.modules["pandas"]
sys.meta_path.insert(0, Trap())
job, rows = pickle.loads(Path(sys.argv[1]).read_bytes())
writer = TaskWriter(job, 0, 0)
for batch in pa.ipc.open_stream(rows):
    writer.write(batch)
results = writer.finish()
assert [decode_result(one.as_py()) for one in encode_results(results).column(0)] == results
print(sum(file.rows for file in results))
"""


@pytest.mark.parametrize("partition_by", [(), BY_P], ids=["unpartitioned", "partitioned"])
def test_a_task_of_a_new_worker_does_not_import_pandas(tmp_path, partition_by):
    """Arrow imports it for a list that becomes an array: longer than a small batch takes to write."""
    rows = pa.BufferOutputStream()
    batch = _rows(0, 100, partitions=3)
    with pa.ipc.new_stream(rows, batch.schema) as stream:
        stream.write_batch(batch)
    job = _job(LocalStore(str(tmp_path)), partition_by=partition_by)
    given = tmp_path / "job"
    given.write_bytes(pickle.dumps((job, rows.getvalue().to_pybytes())))
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS, str(given)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, "100\n"), run.stderr
