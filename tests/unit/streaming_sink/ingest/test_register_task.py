"""Files that are registered without Spark: what is copied, what manifests say of it, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planners.ingestion.buffering import PlannedItem
from planners.sizing import FileSizing
from streaming_sink.ingest.registering import Registering
from streaming_sink.tasks.ingest import profile_task, register_task
from streaming_sink.tasks.ingest.profile_task import ProfileJob, SourceProfile, SourceRejected, profile
from streaming_sink.tasks.ingest.register_task import SourceToRegister, register
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds, ParquetSettings, PartitionSource, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import WrittenFile
from timeline.stores import open_store

SOURCES = Sources(("/",))
ANY_SIZE = FileSizing(max_file_bytes="1GiB", small_file_bytes=1)


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema(
    [
        field("id", pa.int64(), 1),
        field("day", pa.string(), 2),
        field("at", pa.timestamp("us", "UTC"), 3),
        field("x", pa.float64(), 4),
    ]
)
BY_DAY = PartitionSource("day", ("day",), "identity")


def job(folder: Path, *partition_by: PartitionSource) -> WorkerJob:
    return WorkerJob(
        store=open_store(str(folder / "table")),
        schema=SCHEMA,
        partition_by=partition_by,
        parquet=ParquetSettings(),
        metrics=dict.fromkeys(range(1, 5), "truncate(16)"),
        ids=FileIds(1_700_000_000_000, "ingest", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1000,
        max_file_bytes=1 << 30,
    )


def rows(**columns: Any) -> pa.Table:
    return pa.table({"id": pa.array([1, 2, 3]), "day": ["mon"] * 3, **columns})


def profiled(path: Path, *partition_by: PartitionSource) -> SourceProfile:
    files = tuple(enumerate(SOURCES.find([str(path)], 0)[0]))
    (found,) = (
        each
        for each in profile(ProfileJob(SOURCES, files, SCHEMA, partition_by, ANY_SIZE))
        if isinstance(each, SourceProfile)
    )
    return found


def registered(folder: Path, path: Path, *partition_by: PartitionSource) -> Sequence[object]:
    found = profiled(path, *partition_by)
    assert found.rewritten is None
    (file,), _ = SOURCES.find([str(path)], 0)
    source = SourceToRegister(0, file, found.parts[0][0], found.rows)
    return register(job(folder, *partition_by), SOURCES, [source], 0)


def made(results: Sequence[object]) -> WrittenFile:
    (found,) = (each for each in results if isinstance(each, WrittenFile))
    return found


def test_a_copy_has_the_bytes_of_the_file_and_its_statistics(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(rows(x=[0.5, float("nan"), None]).select(["x", "id", "day"]), path)
    file = made(registered(tmp_path, path, BY_DAY))
    assert Path(file.path).read_bytes() == path.read_bytes()
    assert (file.rows, file.bytes, file.partition) == (3, path.stat().st_size, ("mon",))
    assert file.path.startswith(f"{tmp_path}/table/data/day=mon/")
    assert file.value_counts == {4: 3, 1: 3, 2: 3}
    assert (file.null_counts, file.nan_counts) == ({4: 1, 1: 0, 2: 0}, {4: 1})
    assert file.lower_bounds[1] == (1).to_bytes(8, "little")
    assert file.upper_bounds[2] == b"mon"
    assert file.split_offsets == (4,)


def test_a_row_group_whose_numbers_have_no_range_leaves_the_file_without_one(tmp_path: Path) -> None:
    """DuckDB states no range of a row group that has a NaN, and still its other numbers are there."""
    path = tmp_path / "a.parquet"
    numbers = "CASE WHEN i = 5 THEN 'nan'::DOUBLE ELSE i END AS x"
    copied = f"COPY (SELECT i AS id, {numbers} FROM range(4096) t(i)) TO '{path}' (ROW_GROUP_SIZE 2048)"
    duckdb.connect().execute(copied)
    ranges = [pq.read_metadata(path).row_group(at).column(1).statistics.has_min_max for at in (0, 1)]
    (file,), _ = SOURCES.find([str(path)], 0)
    found = made(register(job(tmp_path), SOURCES, [SourceToRegister(0, file, (), 4096)], 0))
    assert (ranges, found.nan_counts) == ([False, True], {4: 1})
    assert (found.lower_bounds.keys(), found.upper_bounds.keys()) == ({1}, {1})


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ({"extra": [1, 2, 3]}, {}, "the table does not have a column of it: extra"),
        ({"At": pa.array([0, 0, 0], pa.timestamp("us", "UTC"))}, {}, "does not have a column of it: At"),
        ({"at": pa.array([0, 0, 0], pa.timestamp("us"))}, {}, "the table's is not: at"),
        ({"at": pa.array([0, 0, 0], pa.timestamp("ms", "UTC"))}, {}, "the table's is not: at"),
        ({"at": pa.array([0, 0, 0], pa.timestamp("us", "Europe/Berlin"))}, {}, "Berlin"),
        (
            {"at": pa.array([0, 0, 0], pa.timestamp("us", "UTC"))},
            {"use_deprecated_int96_timestamps": True},
            "INT96",
        ),
        ({"x": pa.array([0.5] * 3, pa.float32())}, {}, "the table's is not: x"),
        ({"x": pa.array(["a"] * 3).dictionary_encode()}, {}, "the table's is not: x"),
        ({"x": pa.array([[0.5]] * 3)}, {}, "nested values"),
        ({"x.y": [1, 2, 3], "x": pa.array([{"y": 1}] * 3)}, {}, "does not have a column of it: x.y"),
        ({"x": [0.5] * 3}, {"write_statistics": ["id"]}, "no statistics"),
        ({"x": [0.5] * 3}, {"compression": "lz4"}, "compressed by LZ4"),
        ({}, {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}}, "DELTA"),
        ({"x": pa.nulls(3)}, {}, "the table's is not: x"),
    ],
)
def test_a_file_that_a_reader_would_read_otherwise_is_rewritten(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(rows(**columns), path, **options)
    assert why in (profiled(path).rewritten or "")


def test_field_ids_of_another_table_have_a_file_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(rows().cast(pa.schema([field("id", pa.int64(), 2), field("day", pa.string(), 1)])), path)
    assert "other field ids" in (profiled(path).rewritten or "")
    pq.write_table(rows().cast(pa.schema([SCHEMA.field("id"), SCHEMA.field("day")])), path)
    assert profiled(path).rewritten is None


@pytest.mark.parametrize(
    ("transform", "source", "values", "partitions"),
    [
        ("identity", "day", ["mon"] * 3, 1),
        ("identity", "day", ["mon", "mon", "tue"], 2),
        ("identity", "day", ["mon", "mon", None], 2),
        ("identity", "day", [None] * 3, 1),
        ("identity", "day", ["a" * 40 + end for end in "xxy"], 2),
        ("truncate[2]", "day", ["monday", "month", "mo"], 1),
        ("bucket[16]", "id", [7, 7, 7], 1),
        ("bucket[16]", "id", [7, 8, 7], 2),
        ("day", "at", [0, 86_399_999_999, 1], 1),
        ("day", "at", [0, 86_400_000_000, 1], 2),
        ("hour", "at", [0, 3_599_999_999, 1], 1),
        ("month", "at", [0, 30 * 86_400_000_000, 1], 1),
        ("year", "at", [-1, 0, 1], 2),
        ("identity", "x", [1.0, 1.0, float("nan")], 2),
    ],
)
def test_rows_of_one_partition_alone_are_registered(
    tmp_path: Path, transform: str, source: str, values: list[Any], partitions: int
) -> None:
    path, column = tmp_path / "a.parquet", pa.array(values, SCHEMA.field(source).type)
    by = PartitionSource("p", (source,), transform)
    pq.write_table(rows(**{source: column}), path)
    found = profiled(path, by)
    assert len(found.parts) == partitions
    assert (found.rewritten is None) == (partitions == 1)
    if partitions == 1:
        assert made(registered(tmp_path, path, by)).partition == found.parts[0][0]


def test_a_file_without_a_column_of_the_partition_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "day=mon" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(rows().drop_columns(["day"]), path)
    assert "by which it is partitioned: day" in (profiled(path, BY_DAY).rewritten or "")


def refused(folder: Path, results: Sequence[object]) -> str:
    """The reason, where no file was made."""
    (found,) = (each for each in results if isinstance(each, SourceRejected))
    assert not [*(folder / "table").rglob("*.parquet")]
    return found.reason


def test_statistics_of_one_partition_over_rows_of_several_reject_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(rows(day=["mon", "tue", "mon"]), path)
    (file,), _ = SOURCES.find([str(path)], 0)
    results = register(job(tmp_path, BY_DAY), SOURCES, [SourceToRegister(0, file, ("mon",), 3)], 0)
    assert "of one partition, and they are of several" in refused(tmp_path, results)


def test_damaged_pages_and_text_that_is_not_utf_8_reject_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    broken = pa.array([b"\xff", b"\xfe", b"\xfd"], pa.binary())
    text = pa.StringArray.from_buffers(3, broken.buffers()[1], broken.buffers()[2])
    pq.write_table(rows(day=text), path)
    assert "UTF-8" in refused(tmp_path, registered(tmp_path, path))
    pq.write_table(rows(), path, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[data.index((2).to_bytes(8, "little"))] ^= 0xFF
    path.write_bytes(data)
    assert "checksum" in refused(tmp_path, registered(tmp_path, path)).lower()


def test_a_file_that_is_replaced_while_it_is_copied_is_rejected_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "a.parquet", register_task.new_data_path
    pq.write_table(rows(), path)

    def replace_first(*given: Any) -> str:
        pq.write_table(rows(x=[1.0, 2.0, 3.0]), path)
        return real(*given)

    monkeypatch.setattr(register_task, "new_data_path", replace_first)
    assert "replaced by other bytes" in refused(tmp_path, registered(tmp_path, path))


def test_a_footer_that_cannot_be_described_keeps_a_file_from_nothing_but_being_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("odd")

    pq.write_table(rows(), tmp_path / "a.parquet")
    monkeypatch.setattr(profile_task, "describe_footer", fail)
    found = profiled(tmp_path / "a.parquet")
    assert (found.rows, found.rewritten) == (3, "its footer is unusual: 'odd'")


def test_a_file_by_reference_outlives_a_power_cut_before_the_table_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner may not have synced it; a file that is copied is synced as all data files are."""
    path = tmp_path / "drop" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(rows(), path)
    found, synced = profiled(path), list[str]()
    (file,), _ = SOURCES.find([str(path)], 0)
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    source = SourceToRegister(0, file, found.parts[0][0], found.rows, stays=True)
    assert made(register(job(tmp_path), SOURCES, [source], 0)).path == str(path)
    assert synced == [str(path), str(path.parent)]


def test_a_file_that_was_staged_in_the_zone_is_copied_by_whichever_name(tmp_path: Path) -> None:
    """It is deleted after it has landed, by a process that calls the zone as its stream does."""
    zone, alias = tmp_path / "zone", tmp_path / "alias"
    alias.symlink_to(zone)
    paths = [each / "staged" / "clicks" / "a.parquet" for each in (zone, alias)]
    paths[0].parent.mkdir(parents=True)
    pq.write_table(rows(), paths[0])
    registering = Registering(str(tmp_path / "table"), str(zone), by_reference=True)
    found = [profiled(path) for path in paths]
    items = [PlannedItem(1, tuple(SOURCES.find([str(path)], 0)[0]), "files") for path in paths]
    made = [registering.files(item, [it]) for item, it in zip(items, found, strict=True)]
    assert [each.stays for files in made for each in files] == [False, False]
