"""Position-delete files: as tasks write them, and as they read those of any writer."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.delete_files import read_position_deletes, write_position_deletes
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


def _store_deletes(store: MemoryStore, path: str, rows: list[tuple[str, int]]) -> str:
    table = pa.table({"file_path": [row[0] for row in rows], "pos": pa.array([row[1] for row in rows])})
    written = pa.BufferOutputStream()
    pq.write_table(table, written)
    with store.open_output(path) as output:
        output.write(written.getvalue())
    return store.uri(path)


def test_positions_of_one_data_file_are_read_from_all_that_name_it() -> None:
    store = MemoryStore()
    first = _store_deletes(store, "data/1.parquet", [("s3://t/a", 7), ("s3://t/b", 1), ("s3://t/a", 3)])
    second = _store_deletes(store, "data/2.parquet", [("s3://t/a", 7), ("s3://t/a", 2**40)])
    assert read_position_deletes(store, [first, second], "s3://t/a").tolist() == [3, 7, 2**40]
    assert read_position_deletes(store, [first, second], "s3://t/c").tolist() == []
    assert read_position_deletes(store, [], "s3://t/a").tolist() == []


@pytest.mark.parametrize("bit", range(8))
def test_no_damaged_byte_of_a_page_deletes_other_rows(bit: int) -> None:
    store, wanted = MemoryStore(), [*range(3, 60, 4)]
    write_position_deletes(store, PATH, "s3://t/a", pa.array(wanted), ParquetSettings(compression="none"))
    data = store.read(PATH).data
    pages = pq.read_metadata(io.BytesIO(data)).row_group(0)
    end = 4 + sum(pages.column(place).total_compressed_size for place in (0, 1))
    found = list[int]()
    for at in range(4, end):
        store.overwrite(PATH, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        try:
            assert read_position_deletes(store, [store.uri(PATH)], "s3://t/a").tolist() == wanted, at
        except DataFileError:
            found.append(at)
    assert {*range(end - 8 * len(wanted), end)} <= {*found}  # the positions themselves


@pytest.mark.parametrize(
    "columns",
    [
        {"file_path": pa.array([b"s3://t/a"], pa.binary()), "pos": [1]},
        {"file_path": ["s3://t/a"], "pos": pa.array([None], pa.int64())},
        {"file_path": ["s3://t/a"], "pos": [1.5]},
        {"file_path": pa.array([None], pa.string()), "pos": [1]},
        {"path": ["s3://t/a"], "pos": [1]},
    ],
)
def test_columns_that_are_no_paths_and_positions_are_damage(columns: dict[str, object]) -> None:
    """Paths that are taken for bytes name no data file, and its deleted rows would come back."""
    store, written = MemoryStore(), pa.BufferOutputStream()
    pq.write_table(pa.table(columns), written)
    with store.open_output(PATH) as output:
        output.write(written.getvalue())
    with pytest.raises(DataFileError, match="a delete file cannot be read"):
        read_position_deletes(store, [store.uri(PATH)], "s3://t/a")


def test_a_delete_file_that_is_missing_or_damaged_is_no_empty_one() -> None:
    store = MemoryStore()
    with pytest.raises(DataFileError, match="a delete file is missing"):
        read_position_deletes(store, [store.uri("data/none.parquet")], "s3://t/a")
    with store.open_output("data/bad.parquet") as output:
        output.write(b"PAR1")
    with pytest.raises(DataFileError, match="a delete file cannot be read"):
        read_position_deletes(store, [store.uri("data/bad.parquet")], "s3://t/a")
