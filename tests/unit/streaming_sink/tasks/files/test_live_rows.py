"""Live rows of data files: what fills and groups read of a file that has position deletes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.model import InputFile, PositionDeletes
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.delete_files import deleted_positions, leave_out, write_position_deletes
from streaming_sink.tasks.job import ParquetSettings
from timeline.stores import MemoryStore

DATA = "memory://lake/data/a.parquet"


@given(st.lists(st.integers(0, 7), max_size=9), st.sets(st.integers(0, 70)))
def test_the_rows_at_deleted_positions_are_left_out_whatever_the_batches(
    sizes: list[int], deleted: set[int]
) -> None:
    rows = list(range(sum(sizes)))
    batches, start = [], 0
    for size in sizes:
        batches.append(pa.RecordBatch.from_pydict({"id": pa.array(rows[start : start + size], pa.int64())}))
        start += size
    left = list(leave_out(batches, np.array(sorted(deleted), dtype=np.int64)))
    assert [row for each in left for row in each.column(0).to_pylist()] == [
        row for row in rows if row not in deleted
    ]
    assert all(each.num_rows for each in left)


def test_rows_of_nested_and_of_extension_types_are_left_out_too() -> None:
    schema = pa.schema([("s", pa.struct([("l", pa.list_(pa.int32()))])), ("u", pa.uuid())])
    batch = pa.RecordBatch.from_pydict(
        {"s": [{"l": [1]}, None, {"l": None}], "u": [bytes([at]) * 16 for at in range(3)]}, schema=schema
    )
    [left] = leave_out([batch], np.array([1], dtype=np.int64))
    assert left.schema == schema
    assert left.to_pylist() == [batch.to_pylist()[0], batch.to_pylist()[2]]


def _given(store: MemoryStore, *deletes: list[int], rows: int = 10, stated: int | None = None) -> InputFile:
    known = []
    for number, positions in enumerate(deletes):
        path = f"data/{number}-deletes.parquet"
        written, _ = write_position_deletes(
            store, path, DATA, pa.array(positions, pa.int64()), ParquetSettings()
        )
        known.append(PositionDeletes(store.uri(path), written if stated is None else stated))
    return InputFile(DATA, rows, tuple(known))


def test_positions_are_those_of_all_delete_files_each_once() -> None:
    """Two delete files of another engine may delete the same row."""
    store = MemoryStore()
    assert deleted_positions(store, _given(store)).tolist() == []
    assert deleted_positions(store, _given(store, [7], [0, 9, 7])).tolist() == [0, 7, 9]


@pytest.mark.parametrize("stated", [1, 3])
def test_deletes_of_more_or_fewer_rows_than_the_table_says_are_refused(stated: int) -> None:
    store = MemoryStore()
    with pytest.raises(DataFileError, match=rf"delete 2 rows, not {stated} to {stated} as the table says: "):
        deleted_positions(store, _given(store, [3, 4], stated=stated))


def test_deletes_of_rows_that_the_file_does_not_hold_are_refused() -> None:
    store = MemoryStore()
    with pytest.raises(DataFileError, match="its data file does not hold: positions 3 to 10 of 10 rows: "):
        deleted_positions(store, _given(store, [3, 10]))


def test_deletes_of_another_data_file_are_none_of_this_one() -> None:
    store = MemoryStore()
    table = pa.table({"file_path": ["s3://t/b"], "pos": pa.array([1])})
    written = pa.BufferOutputStream()
    pq.write_table(table, written)
    with store.open_output("data/other.parquet") as output:
        output.write(written.getvalue())
    other = PositionDeletes(store.uri("data/other.parquet"), 1)
    with pytest.raises(DataFileError, match="delete 0 rows, not 1 to 1"):
        deleted_positions(store, InputFile(DATA, 10, (other,)))
