"""A fill beside the stream, inside a task: exact rows, cuts, and nothing left behind where it fails."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks import fill_task
from streaming_sink.tasks.fill_task import Fill, Filled, FillSkipped, carry_out
from streaming_sink.tasks.job import FileIds, ParquetSettings, PartitionSource, TaskBuckets, WorkerJob
from streaming_sink.tasks.write_task import TaskWriter
from timeline.stores.memory import MemoryStore


def _field(name, kind, number):
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema([_field("id", pa.int64(), 1), _field("p", pa.int32(), 2)])
BY_P = (PartitionSource("p", ("p",), "identity"),)


@pytest.fixture
def job():
    return WorkerJob(
        store=MemoryStore(),
        schema=SCHEMA,
        partition_by=BY_P,
        parquet=ParquetSettings(),
        metrics={1: "full", 2: "full"},
        ids=FileIds(1_700_000_000_000, "fill", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1 << 30,
        max_file_bytes=1 << 30,
    )


def _small(job, start, rows):
    writer = TaskWriter(job, 0, 0)
    ids = range(start, start + rows)
    writer.write(pa.RecordBatch.from_pydict({"id": list(ids), "p": [1] * rows}, schema=SCHEMA))
    [file] = writer.finish()
    return file.path, file.rows


def _ids(job, file):
    data = job.store.read(job.store.relative(file.path)).data
    return pq.read_table(pa.BufferReader(data))["id"].to_pylist()


def _paths(job):
    return {job.store.uri(listed.path) for listed in job.store.list_below("data")}


def test_the_rows_of_all_inputs_are_in_one_file_in_their_order(job):
    inputs = tuple(_small(job, start, 100) for start in (0, 100, 200))
    done = carry_out(job, Fill(3, (1,), job.partition_by, inputs, ()), attempt=5)
    assert isinstance(done, Filled)
    [file] = done.files
    assert (done.number, file.rows, file.partition, _ids(job, file)) == (3, 300, (1,), list(range(300)))
    assert "/p=1/" in file.path
    assert file.path.endswith("-fill-0-3-5.parquet")


@pytest.mark.parametrize(("cuts", "rows"), [((250,), [250, 50]), ((100, 200), [100] * 3), ((), [300])])
def test_a_file_ends_at_each_cut_and_the_last_has_the_rest(job, cuts, rows):
    inputs = tuple(_small(job, start, 100) for start in (0, 100, 200))
    done = carry_out(job, Fill(0, (1,), job.partition_by, inputs, cuts), attempt=0)
    assert [file.rows for file in done.files] == rows
    assert [each for file in done.files for each in _ids(job, file)] == list(range(300))


def _missing(job, path):
    job.store.delete([job.store.relative(path)])
    return path, 100


def _damaged(job, path):
    job.store.overwrite(job.store.relative(path), b"PAR1 and so on")
    return path, 100


def _of_other_rows(job, path):
    return path, 99


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_missing, "a file to fill is missing: "),
        (_damaged, "a file to fill cannot be read: "),
        (_of_other_rows, "a file to fill holds more or fewer rows than the table says: 100 != 99: "),
    ],
)
def test_an_input_that_is_not_what_the_table_says_is_named_and_no_file_is_left(job, spoil, reason):
    """The first new file is complete by then, and goes too."""
    good, bad = _small(job, 0, 100), _small(job, 100, 100)
    bad = spoil(job, bad[0])
    before = _paths(job)
    done = carry_out(job, Fill(0, (1,), job.partition_by, (good, bad), (60,)), attempt=0)
    assert isinstance(done, FillSkipped)
    assert done.culprit == bad[0]
    assert done.reason.startswith(f"{reason}{bad[0]}")
    assert _paths(job) == before


def test_any_other_failure_is_raised_and_leaves_no_file(job, monkeypatch):
    inputs = (_small(job, 0, 100), _small(job, 100, 100))
    before = _paths(job)
    read = fill_task.rows_of_small_file

    def fail_at_the_second(job, path):
        if path == inputs[1][0]:
            raise MemoryError
        return read(job, path)

    monkeypatch.setattr(fill_task, "rows_of_small_file", fail_at_the_second)
    with pytest.raises(MemoryError):
        carry_out(job, Fill(0, (1,), job.partition_by, inputs, (60,)), attempt=0)
    assert _paths(job) == before
