"""Source files whose row groups become part of data files as they are: which, and what else is refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planners.ingestion.consolidation import SourceRows, plan_consolidation
from planners.sizing import FileSizing, FillPolicy
from streaming_sink.tasks.batches import conform_valid
from streaming_sink.tasks.files.data_file_writer import DataFileWriter
from streaming_sink.tasks.ingest.consolidation_task import Share, consolidate
from streaming_sink.tasks.ingest.profile_task import ProfileJob, SourceProfile, SourceRejected, profile
from streaming_sink.tasks.ingest.source_groups import SourceGroups
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds, ParquetSettings, PartitionSource, TaskBuckets, WorkerJob
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.row_groups.compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Values,
    decode_struct,
    encode_struct,
)
from streaming_sink.tasks.row_groups.footer import read_row_groups
from streaming_sink.tasks.row_groups.page_headers import with_pages
from streaming_sink.tasks.rows import partition_files
from streaming_sink.tasks.rows.task_state import TaskState
from streaming_sink.tasks.rows.write_task import TaskWriter
from tests.unit.streaming_sink.ingest.lying_footers import lying
from tests.unit.streaming_sink.tasks.row_groups.joined_files import walk
from timeline.stores import open_store

SOURCES = Sources(("/",))
BY_DAY = PartitionSource("day", ("day",), "identity")
NEVER = 1 << 40


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema([field("id", pa.int64(), 1), field("day", pa.string(), 2), field("x", pa.float64(), 3)])


def rows(first: int, count: int = 100, day: str = "mon") -> pa.Table:
    ids = range(first, first + count)
    xs = [float("nan") if it % 9 == 0 else None if it % 7 == 0 else it / 4 for it in ids]
    return pa.table({"id": pa.array(ids), "day": [day] * count, "x": xs})


def job_of(
    folder: Path, schema: pa.Schema, by: tuple[PartitionSource, ...], parquet: ParquetSettings
) -> WorkerJob:
    return WorkerJob(
        store=open_store(str(folder / f"table-{parquet.copied_from_bytes}")),
        schema=schema,
        partition_by=by,
        parquet=parquet,
        metrics={leaf.field_id: "full" for leaf in leaves(schema)},
        ids=FileIds(1_700_000_000_000, "ingest", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1 << 30,
        max_file_bytes=1 << 30,
    )


def landed(
    folder: Path,
    paths: Sequence[Path],
    schema: pa.Schema = SCHEMA,
    copied_from: int = 1,
    by: tuple[PartitionSource, ...] = (BY_DAY,),
    bytes_per_row: int = 1,
    max_bytes: int = 1 << 30,
) -> list[object]:
    """Profile, plan and consolidate files in one task, as a worker does."""
    found, _ = SOURCES.find([str(path) for path in paths], 0)
    files, parquet = tuple(enumerate(found)), ParquetSettings(copied_from_bytes=copied_from)
    profiles = [
        each
        for each in profile(ProfileJob(SOURCES, files, schema, by, copies=parquet))
        if isinstance(each, SourceProfile)
    ]
    sources = [SourceRows(it.number, key, count, it.copied) for it in profiles for key, count in it.parts]
    sizing = FileSizing(max_file_bytes=max_bytes, small_file_bytes=0)
    planned = plan_consolidation(
        sources, (), sizing, bytes_per_row=bytes_per_row, policy=FillPolicy.NEVER, parallelism=1
    )
    job = replace(
        job_of(folder, schema, by, parquet),
        rows_per_new_file=planned.plan.rows_per_new_file,
        max_file_bytes=max_bytes,
    )
    results: list[object] = []
    for share in planned.tasks:
        own = TaskBuckets(tuple((place, planned.plan.buckets[place]) for place in share.buckets))
        numbers = dict.fromkeys(source.file for source in share.sources)
        stated = {it.number: it.rows for it in profiles}
        of_task = Share(
            SOURCES,
            tuple((number, found[number]) for number in numbers),
            rows={number: stated[number] for number in numbers},
            copied=frozenset(it.number for it in profiles if it.copied),
        )
        results += consolidate(replace(job, shared=own), of_task, 0)
    return results


def files_of(results: Sequence[object]) -> list[WrittenFile]:
    return [each for each in results if isinstance(each, WrittenFile)]


def ids_in(files: Sequence[WrittenFile]) -> list[list[int]]:
    return [pq.ParquetFile(file.path).read()["id"].to_pylist() for file in files]


def pages_of(path: Path | str) -> list[bytes]:
    """The bytes of the row groups of a file, one after the other."""
    data, footer = Path(path).read_bytes(), pq.read_metadata(path)
    found = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        columns = [group.column(place) for place in range(group.num_columns)]
        first = columns[0].dictionary_page_offset or columns[0].data_page_offset
        found.append(data[first : first + sum(it.total_compressed_size for it in columns)])
    return found


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **{"compression": "zstd", **options})
    return path


def test_row_groups_are_copied_and_stated_as_decoded_ones_are(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{number}.parquet", rows(100 * number)) for number in range(3)]
    pq.write_table(rows(900, 5), tmp_path / "few.parquet", compression="snappy")
    every = [*paths, tmp_path / "few.parquet"]
    (copied,), (decoded,) = (files_of(landed(tmp_path, every, copied_from=it)) for it in (1, NEVER))
    assert pages_of(copied.path)[:3] == [page for path in paths for page in pages_of(path)]
    assert ids_in([copied]) == ids_in([decoded])
    for name in ("rows", "value_counts", "null_counts", "nan_counts", "lower_bounds", "upper_bounds"):
        assert getattr(copied, name) == getattr(decoded, name), name
    assert copied.nan_counts[3] > 0
    assert (copied.partition, copied.bytes) == (("mon",), Path(copied.path).stat().st_size)
    assert copied.split_offsets == decoded.split_offsets == (4,)
    footer = pq.ParquetFile(copied.path).schema_arrow
    assert [field.metadata for field in footer] == [field.metadata for field in SCHEMA]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_copied_row_group_says_where_its_pages_are(tmp_path: Path, indexed: bool, version: str) -> None:
    options = {"write_page_index": indexed, "data_page_version": version, "data_page_size": 64}
    options |= {"max_rows_per_page": 30, "write_batch_size": 10}
    paths = [write(tmp_path / f"{at}.parquet", rows(at, 200), **options) for at in (0, 200)]
    (file,) = files_of(landed(tmp_path, paths))
    assert pages_of(file.path) == [page for path in paths for page in pages_of(path)]
    pages = [*walk(Path(file.path).read_bytes())]
    assert all(walked == stated for walked, stated in pages)
    assert min(len(walked) for walked, _ in pages) > 1
    by_pyarrow = write(tmp_path / "b.parquet", rows(0, 200), **options | {"write_page_index": True})
    assert first_rows(file.path) == first_rows(by_pyarrow) * 2


def first_rows(path: str | Path) -> list[list[int]]:
    """The first row of each page, by the offset indexes of a file."""
    data = Path(path).read_bytes()
    footer, _ = decode_struct(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    chunks = [chunk for group in footer[4].value.items for chunk in group[1].value.items]
    indexes = [decode_struct(data, chunk[4].value)[0] for chunk in chunks]
    return [[page[3].value for page in index[1].value.items] for index in indexes]


_ELEMENT = field("element", pa.int32(), 3)
NESTED = pa.schema([field("id", pa.int64(), 1), field("l", pa.list_(_ELEMENT), 2)])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_lists_are_decoded(tmp_path: Path, version: str) -> None:
    """A list more, by damaged levels, would be read as one of the next row group."""
    lists = pa.array([[number] * (number % 3) for number in range(50)], pa.list_(pa.int32()))
    table = pa.table({"id": [*range(50)], "l": lists})
    source = write(tmp_path / "a.parquet", table, data_page_version=version)
    (file,) = files_of(landed(tmp_path, [source], NESTED, by=()))
    assert pages_of(file.path) != pages_of(source)
    assert pq.ParquetFile(file.path).read().to_pylist() == table.to_pylist()


def swapped(table: pa.Table) -> pa.Table:
    return table.select(["x", "day", "id"])


def narrow(table: pa.Table) -> pa.Table:
    return table.set_column(0, "id", table["id"].cast(pa.int32()))


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (swapped, {}),
        (narrow, {}),
        (lambda table: table.drop_columns(["x"]), {}),
        (lambda table: table.cast(table.schema.set(0, pa.field("id", pa.int64(), nullable=False))), {}),
        (lambda table: table, {"compression": "snappy"}),
        (lambda table: table, {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}}),
        (lambda table: table, {"write_statistics": False}),
        (lambda table: table, {"bloom_filter_options": {"id": {"ndv": 100, "fpp": 0.1}}}),
        (lambda table: table.set_column(1, "day", [["mon", "tue"] * 50]), {}),
    ],
)  # fmt: skip
def test_others_are_decoded(tmp_path: Path, change: Any, options: Any) -> None:
    given = change(rows(0))
    source = write(tmp_path / "a.parquet", given, **options)
    files = files_of(landed(tmp_path, [source]))
    assert not {*pages_of(source)} & {page for file in files for page in pages_of(file.path)}
    found = [row for file in files for row in pq.ParquetFile(file.path).read().to_pylist()]
    whole = given if "x" in given.column_names else given.append_column("x", pa.nulls(100, pa.float64()))
    assert sorted(map(repr, found)) == sorted(map(repr, whole.select(SCHEMA.names).to_pylist()))


def test_row_groups_that_are_not_worth_keeping_are_decoded(tmp_path: Path) -> None:
    source = write(tmp_path / "a.parquet", rows(0, 3000), row_group_size=2900)
    first, second = pages_of(source)
    (file,) = files_of(landed(tmp_path, [source], copied_from=len(first)))
    copied, decoded = pages_of(file.path)
    assert (copied, decoded != second, ids_in([file])) == (first, True, [[*range(3000)]])


def test_files_of_spark_2_and_of_writers_that_were_not_tested_are_decoded(tmp_path: Path) -> None:
    hybrid = rows(0).replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    other = write(tmp_path / "other.parquet", rows(200))
    data = other.read_bytes()
    other.write_bytes(data.replace(b"parquet-cpp-arrow version", b"parquet-cpp-other version"))
    for source in (write(tmp_path / "hybrid.parquet", hybrid), other):
        (file,) = files_of(landed(tmp_path, [source]))
        assert pages_of(file.path) != pages_of(source)
        assert len(*ids_in([file])) == 100


@pytest.mark.parametrize("copied_from", [1, NEVER])
def test_a_column_that_only_the_path_has_is_not_taken_for_another_of_its_type(
    tmp_path: Path, copied_from: int
) -> None:
    """The contract ignores the file's own column."""
    folder = tmp_path / "day=mon"
    folder.mkdir()
    given = rows(0).rename_columns(["id", "note", "x"])
    files = files_of(landed(tmp_path, [write(folder / "a.parquet", given)], copied_from=copied_from))
    assert [(file.partition, file.rows) for file in files] == [(("mon",), 100)]
    assert pq.ParquetFile(files[0].path).read()["day"].to_pylist() == ["mon"] * 100


@pytest.mark.parametrize("copied_from", [1, NEVER])
def test_nanoseconds_of_int96_are_refused(tmp_path: Path, copied_from: int) -> None:
    schema = pa.schema([field("at", pa.timestamp("us"), 1)])
    times = {"whole": [1000, None], "finer": [1001, None]}
    paths = [
        write(tmp_path / f"{name}.parquet", pa.table({"at": pa.array(at, pa.timestamp("ns"))}),
              use_deprecated_int96_timestamps=True)
        for name, at in times.items()
    ]  # fmt: skip
    (whole,) = files_of(landed(tmp_path, paths[:1], schema, copied_from, by=()))
    assert pq.ParquetFile(whole.path).read()["at"].cast(pa.int64()).to_pylist() == [1, None]
    (refused,) = landed(tmp_path, paths, schema, copied_from, by=())
    assert isinstance(refused, SourceRejected)
    assert (refused.number, "INT96 with nanoseconds" in refused.reason) == (1, True)


def test_a_row_group_that_does_not_fit_into_a_file_is_decoded(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{number}.parquet", rows(100 * number)) for number in range(5)]
    files = files_of(landed(tmp_path, paths, max_bytes=1 << 20, bytes_per_row=(1 << 20) // 250))
    assert sorted(file.rows for file in files) == [250, 250]
    assert sorted(one for ids in ids_in(files) for one in ids) == [*range(500)]
    kept = {page for file in files for page in pages_of(file.path)}
    assert [{*pages_of(path)} <= kept for path in paths].count(True) == 4


@pytest.mark.parametrize(("before", "copied"), [(0, True), (600, False)])
def test_rows_that_wait_to_be_encoded_take_room_of_a_file(tmp_path: Path, before: int, copied: bool) -> None:
    (page,) = pages_of(source := write(tmp_path / "a.parquet", rows(0, 3000)))
    job = replace(job_of(tmp_path, SCHEMA, (), ParquetSettings()), max_file_bytes=len(page) + 4096)
    writer = TaskWriter(job, 0, 0)
    for batch in rows(3000, before).to_batches():
        writer.write_some(conform_valid(batch, SCHEMA), None)
    with source.open("rb") as data:
        batches = [conform_valid(batch, SCHEMA) for batch in rows(0, 3000).to_batches()]
        writer.copy(with_pages(read_row_groups(data)), 0, batches)
        files = files_of(writer.finish())
    assert (page in [each for file in files for each in pages_of(file.path)]) is copied
    assert sorted(one for ids in ids_in(files) for one in ids) == [*range(3000 + before)]


def test_a_file_is_as_large_as_its_bytes_say_and_not_as_the_plan_does(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{number}.parquet", rows(9000 * number, 9000)) for number in range(6)]
    size = paths[0].stat().st_size
    files = files_of(landed(tmp_path, paths, max_bytes=3 * size))
    assert len(files) > 1
    assert all(file.bytes < 3.2 * size for file in files)
    assert sorted(one for ids in ids_in(files) for one in ids) == [*range(54000)]


def test_many_partitions_leave_no_more_files_open_than_a_task_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the files of a partition some are copied, and others decoded, which come last."""
    monkeypatch.setattr(partition_files, "MAX_OPEN_FILES", 2)
    opened, open_file = list[int](), TaskState.open_file

    def noted(task: TaskState, *given: Any) -> DataFileWriter:
        opened.append(len(task.open_files) + 1)
        return open_file(task, *given)

    monkeypatch.setattr(TaskState, "open_file", noted)
    tables = [rows(100 * number, day=f"d{number % 4}") for number in range(16)]
    tables = [*tables[:12], *map(narrow, tables[12:])]
    paths = [write(tmp_path / f"{number}.parquet", table) for number, table in enumerate(tables)]
    files = files_of(landed(tmp_path, paths))
    assert len(files) == 4
    assert sorted(one for ids in ids_in(files) for one in ids) == [*range(1600)]
    kept = {page for file in files for page in pages_of(file.path)}
    assert [{*pages_of(path)} <= kept for path in paths].count(True) == 2 * 3
    assert opened[:2] == [1, 2]


def test_rows_of_many_partitions_are_not_copied_whatever_the_profile_said(tmp_path: Path) -> None:
    mixed = rows(0).set_column(1, "day", [["mon", "tue"] * 50])
    source = write(tmp_path / "a.parquet", mixed)
    found, _ = SOURCES.find([str(source)], 0)
    share = Share(SOURCES, tuple(enumerate(found)), copied=frozenset([0]))
    job = job_of(tmp_path, SCHEMA, (BY_DAY,), ParquetSettings(copied_from_bytes=1))
    files = files_of(consolidate(job, share, 0))
    assert {file.partition: ids_in([file])[0][0] for file in files} == {("mon",): 0, ("tue",): 1}


@pytest.mark.parametrize("copied", [(), (0,)])
def test_each_row_of_a_file_that_several_tasks_read_is_written_once(
    tmp_path: Path, copied: tuple[int, ...]
) -> None:
    """A profile says of no such file that it may be copied; the tasks do not depend on that."""
    mixed = rows(0).set_column(1, "day", [["mon", "tue"] * 50])
    found, _ = SOURCES.find([str(write(tmp_path / "a.parquet", mixed))], 0)
    parquet = ParquetSettings(copied_from_bytes=1)
    profiles = profile(ProfileJob(SOURCES, tuple(enumerate(found)), SCHEMA, (BY_DAY,), copies=parquet))
    assert [it.copied for it in profiles if isinstance(it, SourceProfile)] == [False]
    job, files = job_of(tmp_path, SCHEMA, (BY_DAY,), parquet), list[WrittenFile]()
    for day in ("mon", "tue"):
        only = {0: frozenset([(day,)])}
        share = Share(SOURCES, tuple(enumerate(found)), only, {0: 100}, frozenset(copied))
        files += files_of(consolidate(job, share, 0))
    assert sorted(one for ids in ids_in(files) for one in ids) == [*range(100)]


def test_a_copied_file_with_other_rows_than_its_profile_said_is_refused(tmp_path: Path) -> None:
    found, _ = SOURCES.find([str(write(tmp_path / "a.parquet", rows(0)))], 0)
    share = Share(SOURCES, tuple(enumerate(found)), rows={0: 99}, copied=frozenset([0]))
    (refused,) = consolidate(job_of(tmp_path, SCHEMA, (), ParquetSettings(copied_from_bytes=1)), share, 0)
    assert isinstance(refused, SourceRejected)
    assert "it states 99 rows, and holds 100" in refused.reason


@pytest.mark.parametrize(("version", "copied"), [("1.0", True), ("2.0", False)])
def test_booleans_are_copied_as_every_reader_decodes_them(tmp_path: Path, version: str, copied: bool) -> None:
    schema = pa.schema([field("ok", pa.bool_(), 1)])
    source = write(tmp_path / "a.parquet", pa.table({"ok": [True, False] * 50}), data_page_version=version)
    (file,) = files_of(landed(tmp_path, [source], schema, by=()))
    assert (pages_of(file.path) == pages_of(source)) is copied


def spoiled(path: Path, number: int) -> Path:
    """Damage the values of a page in the middle of a file."""
    data = bytearray(path.read_bytes())
    [(begin, size), *_], _ = [*walk(bytes(data))][number]
    at = begin + size // 2
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)
    return path


def test_damaged_pages_and_text_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet", rows(0))
    damaged = spoiled(
        write(tmp_path / "damaged.parquet", rows(100), write_page_index=True, use_dictionary=False), 2
    )
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 1)), pa.py_buffer(b"\xff")]
    )
    bad = pa.table({"id": [1], "day": text, "x": [0.5]})
    results = landed(tmp_path, [good, damaged, write(tmp_path / "text.parquet", bad)], by=())
    refused = {each.number: each.reason for each in results if isinstance(each, SourceRejected)}
    assert refused.keys() == {1, 2}
    assert "UTF-8" in refused[2]
    assert not [*tmp_path.glob("table-1/**/*.parquet")]


def test_pages_that_lead_elsewhere_are_not_copied(tmp_path: Path) -> None:
    """The index of its first column says that a page ends a byte before it does; pyarrow does not look."""
    source = write(
        tmp_path / "a.parquet", rows(0, 200), write_page_index=True, max_rows_per_page=50, write_batch_size=10
    )
    data = source.read_bytes()
    footer, _ = decode_struct(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    at = footer[4].value.items[0][1].value.items[0][4].value
    index, end = decode_struct(data, at)
    page = index[1].value.items[1]
    page[2] = Field(I32, page[2].value - 1)
    index[1].value.items[2][1] = Field(I64, index[1].value.items[2][1].value - 1)
    index[1].value.items[2][2] = Field(I32, index[1].value.items[2][2].value + 1)
    source.write_bytes(data[:at] + encode_struct(index) + data[end:])
    (file,) = files_of(landed(tmp_path, [source]))
    assert pages_of(file.path) != pages_of(source)
    assert ids_in([file]) == [[*range(200)]]


def of_a_wrong_length(meta: Any) -> None:
    meta[16] = Field(STRUCT, {3: Field(LIST, Values(I64, [0, 0, 5, 0]))})


def of_text(meta: Any) -> None:
    meta[16] = Field(STRUCT, {1: Field(I64, 5)})


def of_a_wrong_width(meta: Any) -> None:
    meta[12].value[6] = Field(BINARY, b"\1\2\3")


@pytest.mark.parametrize("change", [of_a_wrong_length, of_text, of_a_wrong_width])
@pytest.mark.parametrize("asks", ["registers", "copies"])
def test_statistics_of_another_type_end_no_process(tmp_path: Path, change: Any, asks: str) -> None:
    """pyarrow aborts once it is asked for such a column."""
    schema = pa.schema([field("id", pa.int64(), 1), field("x", pa.float64(), 3)])
    numbers = np.random.default_rng(0)
    table = pa.table({"id": numbers.integers(0, 2**62, 120_000), "x": numbers.random(120_000)})
    path = lying(write(tmp_path / "a.parquet", table, row_group_size=10**6), change)
    found, _ = SOURCES.find([str(path)], 0)
    job = ProfileJob(SOURCES, tuple(enumerate(found)), schema, ())
    if asks == "registers":
        job = replace(job, registers=FileSizing(max_file_bytes="2500KiB", small_file_bytes=0))
    else:
        job = replace(job, copies=ParquetSettings(copied_from_bytes=1))
    profiled = next(it for it in profile(job) if isinstance(it, SourceProfile))
    assert profiled.rows == 120_000
    if asks == "registers":
        assert profiled.rewritten == "the statistics of a column are not of its type"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of_a_wrong_length, "histogram size mismatch"),
        (of_text, "does not support INT64"),
        (of_a_wrong_width, "Unexpected end of stream"),
    ],
)
def test_a_careful_profile_rejects_a_file_whose_statistics_end_the_process(
    tmp_path: Path, change: Any, reason: str
) -> None:
    """After a worker was lost. Without care pyarrow ends this process; nor does it read such rows."""
    schema = pa.schema([field("id", pa.int64(), 1)])
    paths = [write(tmp_path / f"{at}.parquet", pa.table({"id": [at] * 10})) for at in range(2)]
    lying(paths[0], change)
    found, _ = SOURCES.find([str(path) for path in paths], 0)
    by = (PartitionSource("id", ("id",), "identity"),)
    results = profile(ProfileJob(SOURCES, tuple(enumerate(found)), schema, by, careful=True))
    [rejected] = [it for it in results if isinstance(it, SourceRejected)]
    assert (rejected.number, reason in rejected.reason) == (0, True)
    assert [it.parts for it in results if isinstance(it, SourceProfile)] == [(((1,), 10),)]


def of_a_wrong_length_beside_what_is_not_known(meta: Any) -> None:
    of_a_wrong_length(meta)
    meta[23] = Field(I64, 1)


def test_a_footer_that_is_not_understood_is_asked_for_no_statistics_with_care(tmp_path: Path) -> None:
    schema = pa.schema([field("id", pa.int64(), 1)])
    path = lying(
        write(tmp_path / "a.parquet", pa.table({"id": [7] * 10})), of_a_wrong_length_beside_what_is_not_known
    )
    found, _ = SOURCES.find([str(path)], 0)
    by = (PartitionSource("id", ("id",), "identity"),)
    results = profile(ProfileJob(SOURCES, tuple(enumerate(found)), schema, by, careful=True))
    assert [it.reason for it in results if isinstance(it, SourceRejected)]


@pytest.mark.parametrize("stated", [-1, 10**12, 2**62])
def test_a_file_that_states_rows_which_it_cannot_have_is_rejected(tmp_path: Path, stated: int) -> None:
    """A plan for them would have as many files."""
    path = write(tmp_path / "a.parquet", pa.table({"id": [7] * 10}))
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode_struct(data[-8 - length : -8])
    footer[3] = footer[4].value.items[0][3] = Field(I64, stated)
    spoiled = encode_struct(footer)
    path.write_bytes(data[: -8 - length] + spoiled + struct.pack("<I", len(spoiled)) + b"PAR1")
    found, _ = SOURCES.find([str(path)], 0)
    results = profile(
        ProfileJob(SOURCES, tuple(enumerate(found)), pa.schema([field("id", pa.int64(), 1)]), ())
    )
    [rejected] = results
    assert isinstance(rejected, SourceRejected)


@pytest.mark.parametrize("stated", [None, 99])
def test_a_footer_that_states_a_row_less_changes_no_row_of_another_file(
    tmp_path: Path, stated: int | None
) -> None:
    """The row that it hides was read in the place of one of the next row group."""
    schema = pa.schema([field("id", pa.int64(), 1), field("x", pa.int64(), 2)])

    def table(first: int) -> pa.Table:
        return pa.table({"id": range(first, first + 100), "x": range(first, first + 100)})

    def values(meta: Any) -> None:
        if stated is not None:
            meta[5] = Field(I64, stated)

    path = write(tmp_path / "a.parquet", table(0), write_page_index=True, use_dictionary=False)
    data = lying(path, values).read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode_struct(data[-8 - length : -8])
    footer[3] = footer[4].value.items[0][3] = Field(I64, 99)
    spoiled = encode_struct(footer)
    path.write_bytes(data[: -8 - length] + spoiled + struct.pack("<I", len(spoiled)) + b"PAR1")
    other = write(tmp_path / "b.parquet", table(100), write_page_index=True, use_dictionary=False)
    results = landed(tmp_path, [path, other], schema, by=())
    if stated is not None:  # then its pages contradict its footer
        [refused] = results
        assert isinstance(refused, SourceRejected)
        assert "its pages" in refused.reason.replace("the pages", "its pages")
        return
    [file] = files_of(results)
    ids = [it for batch in pq.ParquetFile(file.path).iter_batches(64) for it in batch["id"].to_pylist()]
    assert sorted(ids) == [*range(99), *range(100, 200)]


def test_a_row_group_that_states_more_rows_than_its_lists_are_is_not_copied(tmp_path: Path) -> None:
    """Lists have other values than rows, so that no page's values say how many there are."""
    lists = pa.array([[1, 2], [3]] * 15, pa.list_(pa.int32()))
    path = write(tmp_path / "a.parquet", pa.table({"l": lists}))
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode_struct(data[-8 - length : -8])
    footer[3] = footer[4].value.items[0][3] = Field(I64, 35)
    spoiled = encode_struct(footer)
    path.write_bytes(data[: -8 - length] + spoiled + struct.pack("<I", len(spoiled)) + b"PAR1")
    schema = pa.schema([pa.field("l", pa.list_(_ELEMENT), metadata={"PARQUET:field_id": "1"})])
    read = SourceGroups(schema, ParquetSettings(copied_from_bytes=1)).read(pa.OSFile(str(path)))
    assert read is not None
    [group] = read
    assert (sum(batch.num_rows for batch in group.batches), group.stored) == (30, None)


def test_a_footer_with_other_nulls_than_its_rows_is_not_copied(tmp_path: Path) -> None:
    schema = pa.schema([field("id", pa.int64(), 1)])

    def all_null(meta: Any) -> None:
        meta[12].value[3] = Field(I64, 100)

    path = lying(write(tmp_path / "a.parquet", pa.table({"id": range(100)})), all_null)
    [file] = files_of(landed(tmp_path, [path], schema, by=()))
    assert file.null_counts == {1: 0}
