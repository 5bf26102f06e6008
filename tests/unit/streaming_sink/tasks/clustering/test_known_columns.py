"""A task that shares a group reads the columns of the order first, and holds the rows of its range alone."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks.clustering import rows as group_rows
from streaming_sink.tasks.clustering.group_task import rewrite_group
from streaming_sink.tasks.clustering.job import GroupFailed
from streaming_sink.tasks.clustering.known_columns import KnownColumns
from tests.unit.streaming_sink.group_jobs import MIB, arrow_field, group_job, multiset, random_rows, written
from timeline.stores import LocalStore, MemoryStore

ID, TEXT = arrow_field("id", pa.int64(), 1), arrow_field("text", pa.string(), 2)
WHOLE = pa.schema([TEXT, ID])
KEYS = pa.schema([ID])


def _known(sizes):
    """Return the known ids of batches of so many rows, and all rows."""
    known, end, batches = KnownColumns(WHOLE, KEYS), 0, []
    for size in sizes:
        ids = range(end, end + size)
        batches.append(
            pa.RecordBatch.from_pydict({"text": [f"t{each}" for each in ids], "id": ids}, schema=WHOLE)
        )
        assert known.add(batches[-1].select(["id"]), sum(sizes), MIB)
        end += size
    return known, pa.Table.from_batches(batches, WHOLE)


@pytest.mark.parametrize("others", [1, 3, 7, 100])
def test_rows_are_completed_in_whatever_batches_the_other_columns_come(others):
    known, rows = _known([4, 0, 9, 1])
    texts = rows.select(["text"]).combine_chunks().to_batches(others)
    assert pa.Table.from_batches(known.complete(iter(texts)), WHOLE).equals(rows)


@pytest.mark.parametrize("wanted", [(), (0,), (13,), (3, 4, 12), tuple(range(14))], ids=str)
def test_of_the_other_columns_only_the_wanted_rows_are_taken(wanted, monkeypatch):
    monkeypatch.setattr("streaming_sink.tasks.clustering.known_columns.READ_ROWS", 5)
    known, rows = _known([4, 0, 9, 1])
    known.keep(lambda table: np.isin(table["id"].to_numpy(), wanted))
    texts = rows.select(["text"]).combine_chunks().to_batches(3)
    found = pa.Table.from_batches(known.complete(iter(texts)), WHOLE)
    assert found.equals(rows.take(pa.array(wanted, pa.int64())))


def test_other_columns_of_fewer_rows_are_refused():
    known, rows = _known([4, 9])
    with pytest.raises(ValueError, match="are of 9 rows, not of 13"):
        list(known.complete(iter(rows.select(["text"]).slice(4).to_batches())))


def test_columns_that_would_take_too_many_bytes_are_not_held():
    known = KnownColumns(WHOLE, KEYS)
    batch = pa.RecordBatch.from_pydict({"id": range(100)}, schema=KEYS)
    assert known.add(batch, 1_000, 8_000)
    assert not known.add(batch, 1_000, 7_999)


@pytest.mark.parametrize("strategy", ["sort", "hilbert"])
def test_a_group_is_cut_alike_whether_its_keys_fit_or_not(strategy, monkeypatch):
    """The sample is the same rows, and rows with equal keys stay in the order in which they came."""
    monkeypatch.setattr(group_rows, "_SAMPLED_ROWS", 100)
    completed = []
    complete = KnownColumns.complete
    monkeypatch.setattr(
        KnownColumns, "complete", lambda known, others: completed.append(1) or complete(known, others)
    )
    files = [random_rows(700, seed) for seed in range(3)]
    job = group_job(MemoryStore(), files, strategy=strategy, sort_by=["id"], checksum=False)
    results = []
    for memory_bytes, times in ((MIB, 3), (64 * 1024, 0)):
        completed.clear()
        shared = replace(job, memory_bytes=memory_bytes, range_ends=(0.3, 0.7))
        results.append([written(replace(shared, part=part)) for part in range(3)])
        assert len(completed) == times
    plenty, scarce = results
    assert {it.ranges for it, _ in plenty} == {it.ranges for it, _ in scarce}
    assert all(not it.spilled_bytes for it, _ in plenty)
    assert all(it.spilled_bytes for it, _ in scarce)
    found = [[repr(row) for _, each in of for t in each for row in t.to_pylist()] for of in results]
    assert found[0] == found[1]
    assert multiset(table for _, tables in plenty for table in tables) == multiset(
        pa.Table.from_batches([each]) for each in files
    )


@pytest.mark.parametrize("most", [0, 1, 256])
def test_files_that_do_not_stay_open_are_opened_again_and_none_is_left_open(most, monkeypatch):
    monkeypatch.setattr(group_rows, "_OPEN_FILES", most)
    store, opened, closed = MemoryStore(), [], set()
    job = group_job(
        store,
        [random_rows(50, seed) for seed in range(3)],
        sort_by=["id"],
        checksum=False,
        range_ends=(0.5,),
    )
    open_input = store.open_input

    class Watched(BytesIO):
        def close(self):
            closed.add(self)
            super().close()

    def watched(path):
        opened.append(Watched(open_input(path).getvalue()))
        return opened[-1]

    monkeypatch.setattr(store, "open_input", watched)
    assert not isinstance(rewrite_group(job, attempt=5), GroupFailed)
    assert len(opened) == 3 + max(0, 3 - most)
    assert set(opened) == closed
    opened.clear()
    closed.clear()
    with pytest.raises(RuntimeError) as failure:  # which holds the group
        rewrite_group(replace(job, strategy=_FailsAfterItsSample()), attempt=5)
    assert str(failure.value) == "sampled"
    assert len(opened) == 3
    assert set(opened) == closed


def test_open_files_of_a_wide_table_hold_no_more_than_their_part_of_the_memory():
    """Arrow takes 2.4 MB for the footer of a file of a thousand columns."""
    schema = pa.schema([arrow_field(f"column_{number}", pa.int64(), number + 1) for number in range(300)])
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2])] * 300, schema=schema)
    store, opened = MemoryStore(), []
    job = group_job(
        store, [rows] * 8, schema=schema, sort_by=["column_0"], checksum=False, range_ends=(0.5,), part=1
    )
    store.before = lambda verb, path: opened.append(path) if verb == "open" else None
    twice = []
    for memory_bytes in (512 * MIB, 16 * MIB, 2 * MIB):
        opened.clear()
        result, _ = written(replace(job, memory_bytes=memory_bytes))
        assert result.rows == 8
        twice.append(len(opened) - len(set(opened)))
    assert twice == [0, 6, 8]


class _FailsAfterItsSample:
    def rewrite(self, group):
        group.sample(["id"])
        raise RuntimeError("sampled")


def test_a_file_whose_other_columns_are_damaged_fails_the_group(tmp_path):
    store = LocalStore(str(tmp_path))
    schema = pa.schema([ID, TEXT])
    ids = list(range(1_000))
    rows = pa.RecordBatch.from_pydict(
        {"id": ids, "text": [f"{each * 7919:x}" for each in ids]}, schema=schema
    )
    job = group_job(store, [rows, rows], schema=schema, sort_by=["id"], range_ends=(0.5,))
    path = tmp_path / "data" / "in-1.parquet"
    data = bytearray(path.read_bytes())
    begin = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    data[begin : begin + 16] = b"\xff" * 16
    path.write_bytes(data)
    result = rewrite_group(job, attempt=0)
    assert isinstance(result, GroupFailed)
    assert "in-1.parquet" in result.reason
    assert sorted(each.name for each in (tmp_path / "data").iterdir()) == ["in-0.parquet", "in-1.parquet"]


MEASURED = """
import pickle, sys
from pathlib import Path
import pyarrow as pa
class Trap:
    def find_spec(self, name, *_):
        assert name != "pandas", "pandas is imported"
sys.meta_path.insert(0, Trap())
from streaming_sink.tasks.clustering.group_task import rewrite_group
result = rewrite_group(pickle.loads(Path(sys.argv[1]).read_bytes()), 0)
print(sum(file.rows for file in result.files), pa.default_memory_pool().max_memory())
"""


def _measured(job, folder):
    """Return the rows that a task of a new worker wrote, and the most bytes of Arrow that it held."""
    saved = folder / "job"
    saved.write_bytes(pickle.dumps(job))
    told = subprocess.run(
        [sys.executable, "-c", MEASURED, str(saved)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    return tuple(map(int, told.stdout.split()))


@pytest.mark.parametrize("sort_by", [["id desc"], ["text", "id"]], ids=str)
def test_a_task_holds_the_rows_of_its_range_alone(tmp_path, sort_by):
    count, wide = 4_000, 400
    schema = pa.schema([ID, TEXT, arrow_field("more", pa.string(), 3)])
    files = []
    for start in range(0, 8 * count, count):
        ids = [each * 2654435761 % 2**32 for each in range(start, start + count)]
        columns = {
            "id": ids,
            "text": [f"{each:x}" for each in ids],
            "more": [f"{each:0{wide}d}" for each in ids],
        }
        files.append(pa.RecordBatch.from_pydict(columns, schema=schema))
    job = group_job(
        LocalStore(str(tmp_path)),
        files,
        schema=schema,
        sort_by=sort_by,
        rows_per_file=count,
        checksum=False,
        range_ends=tuple(part / 8 for part in range(1, 8)),
        part=1,
    )
    rows, held = _measured(job, tmp_path)
    assert abs(rows - count) < count / 4
    assert held < 0.7 * sum(each.nbytes for each in files)


@pytest.mark.parametrize(
    ("strategy", "sort_by", "ends"),
    [
        ("sort", ["text", "id"], (0.5,)),
        ("sort", ["text"], ()),
        ("hilbert", ["id", "text"], (0.5,)),
        ("zorder", ["id", "text"], ()),
    ],
)
@pytest.mark.parametrize("memory_bytes", [64 * 1024, 512 * MIB])
def test_a_task_of_a_new_worker_does_not_import_pandas(tmp_path, strategy, sort_by, ends, memory_bytes):
    """Arrow imports it for arrays from and to numpy: half a second of processor time."""
    schema = pa.schema([ID, TEXT])
    columns = {"id": [*range(999), None], "text": [None, *(f"common {each % 30}" for each in range(999))]}
    rows = pa.RecordBatch.from_pydict(columns, schema=schema)
    job = group_job(
        LocalStore(str(tmp_path)),
        [rows, rows],
        schema=schema,
        strategy=strategy,
        sort_by=sort_by,
        checksum=False,
        range_ends=ends,
        memory_bytes=memory_bytes,
    )
    assert _measured(job, tmp_path)[0] > 600
