"""A fill beside the stream, inside a task: exact rows, cuts, and nothing left behind where it fails."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planners.model import InputFile, PositionDeletes
from streaming_sink.tasks.files.delete_files import write_position_deletes
from streaming_sink.tasks.files.merged_rows import MergedRows
from streaming_sink.tasks.job import (
    FileIds,
    ParquetSettings,
    PartitionSource,
    SortedBy,
    TaskBuckets,
    WorkerJob,
)
from streaming_sink.tasks.rows.fill_task import Fill, Filled, FillSkipped, execute_fill
from streaming_sink.tasks.rows.write_task import TaskWriter
from timeline.names import clustered_file_name, clustering_of, order_digest, ulid
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
    return InputFile(file.path, file.rows)


def _ids(job, file):
    data = job.store.read(job.store.relative(file.path)).data
    return pq.read_table(pa.BufferReader(data))["id"].to_pylist()


def _paths(job):
    return {job.store.uri(listed.path) for listed in job.store.list_below("data")}


def test_the_rows_of_all_inputs_are_in_one_file_in_their_order(job):
    inputs = tuple(_small(job, start, 100) for start in (0, 100, 200))
    done = execute_fill(job, Fill(3, (1,), job.partition_by, inputs, ()), attempt=5)
    assert isinstance(done, Filled)
    [file] = done.files
    assert (done.number, file.rows, file.partition, _ids(job, file)) == (3, 300, (1,), list(range(300)))
    assert "/p=1/" in file.path
    assert file.path.endswith("-fill-0-3-5.parquet")


def test_files_of_an_older_spec_are_merged_by_its_columns_and_not_by_the_tables(job):
    """The table is partitioned by a column that came later, which their files lack."""
    inputs = tuple(_small(job, start, 100) for start in (0, 100))
    shop = _field("shop", pa.string(), 3)
    later = replace(
        job, schema=SCHEMA.append(shop), partition_by=(PartitionSource("shop", ("shop",), "identity"),)
    )
    done = execute_fill(later, Fill(0, (1,), job.partition_by, inputs, ()), attempt=0)
    assert [_ids(job, file) for file in done.files] == [list(range(200))]
    missing = execute_fill(later, Fill(0, (1,), later.partition_by, inputs, ()), attempt=0)
    assert isinstance(missing, FillSkipped)
    assert missing.reason.startswith("a file to fill keeps a partition column only in its path: ")


@pytest.mark.parametrize(("cuts", "rows"), [((250,), [250, 50]), ((100, 200), [100] * 3), ((), [300])])
def test_a_file_ends_at_each_cut_and_the_last_has_the_rest(job, cuts, rows):
    inputs = tuple(_small(job, start, 100) for start in (0, 100, 200))
    done = execute_fill(job, Fill(0, (1,), job.partition_by, inputs, cuts), attempt=0)
    assert [file.rows for file in done.files] == rows
    assert [each for file in done.files for each in _ids(job, file)] == list(range(300))


def _deletes(job, given, *positions):
    """The file with one more delete file."""
    path = f"data/{len(given.deletes)}-{given.path.rpartition('/')[2]}"
    rows, _ = write_position_deletes(
        job.store, path, given.path, pa.array(positions, pa.int64()), job.parquet
    )
    return replace(given, deletes=(*given.deletes, PositionDeletes(job.store.uri(path), rows)))


@pytest.mark.parametrize("cuts", [(), (120,)])
def test_deleted_rows_are_left_out_and_counted(job, cuts):
    first, second, third = (_small(job, start, 100) for start in (0, 100, 200))
    inputs = (_deletes(job, _deletes(job, first, 0, 99), 50), second, _deletes(job, third, *range(100)))
    done = execute_fill(job, Fill(0, (1,), job.partition_by, inputs, cuts), attempt=0)
    left = [row for row in range(200) if row not in (0, 50, 99)]
    assert [each for file in done.files for each in _ids(job, file)] == left
    assert [file.rows for file in done.files] == ([197] if not cuts else [120, 77])
    assert done.deleted_rows == 103


def test_a_file_without_live_rows_becomes_no_file(job):
    given = _deletes(job, _small(job, 0, 5), *range(5))
    before = _paths(job)
    assert execute_fill(job, Fill(0, (1,), job.partition_by, (given,), ()), attempt=0) == Filled(0, (), 5)
    assert _paths(job) == before


def test_a_file_that_is_folded_alone_keeps_its_order_by_its_name_and_its_footer(job):
    plain = _small(job, 0, 100)
    name = clustered_file_name(ulid(1, 1), "sort(id)", 2, 0, 0, 0)
    data = job.store.read(job.store.relative(plain.path)).data
    with job.store.open_output(f"data/p=1/{name}") as output:
        output.write(data)
    given = _deletes(job, InputFile(job.store.uri(f"data/p=1/{name}"), 100), 7)
    order = (SortedBy(1, descending=False, nulls_first=True),)
    done = execute_fill(job, Fill(4, (1,), job.partition_by, (given,), (), order), attempt=9)
    [file] = done.files
    assert clustering_of(file.path) == clustering_of(given.path) == (order_digest("sort(id)"), 2)
    assert file.path.endswith("-0-4-9.parquet")
    footer = pq.read_metadata(pa.BufferReader(job.store.read(job.store.relative(file.path)).data))
    assert [it.column_index for it in footer.row_group(0).sorting_columns] == [0]
    plain = execute_fill(job, Fill(4, (1,), job.partition_by, (_deletes(job, plain, 7),), ()), attempt=9)
    assert plain.files[0].path.endswith("-fill-0-4-9.parquet")


def _missing(job, path):
    job.store.delete([job.store.relative(path)])
    return InputFile(path, 100)


def _damaged(job, path):
    job.store.overwrite(job.store.relative(path), b"PAR1 and so on")
    return InputFile(path, 100)


def _of_other_rows(job, path):
    return InputFile(path, 99)


def _of_another_engine(job, ids):
    rows = pa.table({"id": ids, "p": pa.array([1] * len(ids), pa.int32())})
    with job.store.open_output("data/theirs.parquet") as output:
        pq.write_table(rows, pa.PythonFile(output, mode="w"))
    return InputFile(job.store.uri("data/theirs.parquet"), len(ids))


def _of_values_that_do_not_fit(job, path):
    return _of_another_engine(job, ["one"] * 100)


def _of_lists(job, path):
    return _of_another_engine(job, [[1]] * 100)


def _without_its_deletes(job, path):
    return InputFile(path, 100, (PositionDeletes(job.store.uri("data/gone.parquet"), 1),))


def _deleted_beyond_its_end(job, path):
    return _deletes(job, InputFile(path, 100), 100)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_missing, "a file to fill is missing: "),
        (_damaged, "a file to fill cannot be read: "),
        (_of_other_rows, "a file to fill holds more or fewer rows than the table says: 100 != 99: "),
        (_of_values_that_do_not_fit, "a file to fill cannot be read: "),
        (_of_lists, "a file to fill cannot be read: "),
        (_without_its_deletes, "a delete file is missing: "),
        (_deleted_beyond_its_end, "a delete file deletes rows that its data file does not hold: "),
    ],
)
def test_an_input_that_is_not_what_the_table_says_is_named_and_no_file_is_left(job, spoil, reason):
    """The first new file is complete by then, and goes too."""
    good, bad = _small(job, 0, 100), _small(job, 100, 100)
    bad = spoil(job, bad.path)
    before = _paths(job)
    done = execute_fill(job, Fill(0, (1,), job.partition_by, (good, bad), (60,)), attempt=0)
    assert isinstance(done, FillSkipped)
    assert done.culprit == bad.path
    assert done.reason.startswith(reason)
    assert bad.path in done.reason or bad.deletes[0].path in done.reason
    assert _paths(job) == before


def test_any_other_failure_is_raised_and_leaves_no_file(job, monkeypatch):
    inputs = (_small(job, 0, 100), _small(job, 100, 100))
    before = _paths(job)
    add = MergedRows.add

    def fail_at_the_second(self, given, *args, **named):
        if given == inputs[1]:
            raise MemoryError
        return add(self, given, *args, **named)

    monkeypatch.setattr(MergedRows, "add", fail_at_the_second)
    with pytest.raises(MemoryError):
        execute_fill(job, Fill(0, (1,), job.partition_by, inputs, (60,)), attempt=0)
    assert _paths(job) == before
