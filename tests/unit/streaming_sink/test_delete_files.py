"""Position-delete files as tasks write them: sorted, each row once, with Iceberg's field ids."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks.delete_files import write_position_deletes
from streaming_sink.tasks.job import ParquetSettings
from timeline.stores import MemoryStore

PATH = "data/01JXT21Q000000000000000001-app-1-0-0-deletes.parquet"


def test_a_delete_file_is_sorted_by_position_and_has_each_once() -> None:
    store = MemoryStore()
    positions = pa.array([9, 2**40, 0, 9], pa.int64())
    rows, size = write_position_deletes(store, PATH, "s3://t/data/a.parquet", positions, ParquetSettings())
    data = store.read(PATH).data
    assert (rows, size) == (3, len(data))
    read = pq.read_table(io.BytesIO(data))
    assert read["pos"].to_pylist() == [0, 9, 2**40]
    assert set(read["file_path"].to_pylist()) == {"s3://t/data/a.parquet"}


def test_its_columns_are_required_and_have_the_ids_that_iceberg_reserves() -> None:
    store = MemoryStore()
    write_position_deletes(store, PATH, "s3://t/a", pa.array([1], pa.int64()), ParquetSettings())
    fields = pq.read_schema(io.BytesIO(store.read(PATH).data))
    assert [(f.name, f.nullable, f.metadata[b"PARQUET:field_id"]) for f in fields] == [
        ("file_path", False, b"2147483546"),
        ("pos", False, b"2147483545"),
    ]


@pytest.mark.parametrize("positions", [[], [3, -1]], ids=["none", "negative"])
def test_positions_that_are_none_are_refused(positions: list[int]) -> None:
    with pytest.raises(ValueError, match="not the positions of deleted rows"):
        write_position_deletes(
            MemoryStore(), PATH, "s3://t/a", pa.array(positions, pa.int64()), ParquetSettings()
        )
