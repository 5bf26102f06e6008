"""What a user may get wrong, and what the sink says to it. After each refusal the table is as it was."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from planners import FileSizing
from streaming_sink import Checks, Delete, IcebergSink, SchemaContract, Upsert, ingest
from streaming_sink.errors import (
    CorruptTableError,
    SchemaMismatchError,
    StoreUnavailableError,
    TimelineError,
    UnsafeStoreError,
    WorkerEnvironmentError,
)
from streaming_sink.landing import outcomes
from streaming_sink.landing.landing import Landing
from streaming_sink.writing import target
from streaming_sink.writing.writer import write
from streaming_sink.zones.status import status
from tests.sinks import flat_sink
from tests.spark.streams import add_files, calling_as, drain, head_of, ids_of, metadata_file, source_ids

pytestmark = pytest.mark.spark


def _sink(location, **options):
    return flat_sink(location, app_id="app", **options)


def _rows(spark, *values, schema="id bigint, p string"):
    return spark.createDataFrame(list(values), schema)


def _refused(spark, location, batch, error=SchemaMismatchError, **options):
    """Assert that a batch is refused, and that neither table nor folder changed. Returns the message."""
    files = sorted(str(path) for path in Path(location).rglob("*"))
    with pytest.raises(error) as refusal:
        _sink(location, **options)(batch, 7)
    assert sorted(str(path) for path in Path(location).rglob("*")) == files
    if isinstance(refusal.value, TimelineError):
        raised = refusal.value
        assert (raised.location, raised.app_id, raised.batch) == (location, "app", 7)
    return str(refusal.value)


@pytest.fixture
def table(spark, location):
    """A table of two rows, (id bigint, p string, n int, at timestamp)."""
    _sink(location)(
        spark.createDataFrame([(1, "a", 1), (2, "b", 2)], "id bigint, p string, n int").withColumn(
            "at", sf.lit("2024-02-03").cast("timestamp")
        ),
        0,
    )
    return location


# ---------------------------------------------------------------------------- options, before a stream


def test_an_unknown_option_is_refused_with_the_nearest_name(location):
    with pytest.raises(TypeError, match="IcebergSink has no option 'partition'; did you mean 'partition_by'"):
        IcebergSink(location, partition=["p"])


def test_impossible_sizes_are_refused_with_both_values():
    with pytest.raises(
        ValueError, match=r"small_file_bytes must not exceed max_file_bytes.*'10MiB'.*'11MiB'"
    ):
        FileSizing(max_file_bytes="10MiB", small_file_bytes="11MiB")


# ---------------------------------------------------------------------------------------- locations


def _foreign(warehouse, location, version="2"):
    """Make a table of pyiceberg's own at the location, whose versions have other names than ours."""
    catalog = SqlCatalog("foreign", uri="sqlite:///:memory:", warehouse=f"file://{warehouse}")
    catalog.create_namespace("space")
    table = catalog.create_table(
        "space.table",
        pa.schema([("id", pa.int64())]),
        location=str(location),
        properties={"format-version": version},
    )
    catalog.close()
    return table


def test_a_batch_is_a_dataframe(location):
    with pytest.raises(
        TypeError, match=r"a batch must be a DataFrame of Spark, as foreachBatch gives it, not \[1\]"
    ):
        IcebergSink(location)([1], 0)


def test_a_table_of_another_writer_is_refused(spark, location, tmp_path):
    _foreign(tmp_path, location)
    said = _refused(spark, location, spark.range(3), CorruptTableError)
    assert "another writer" in said
    assert location in said


@pytest.mark.parametrize("second", ["quarantine", "changelog_table"])
def test_other_files_at_a_second_table_are_refused_at_once(spark, location, tmp_path, second):
    _rows(spark, (1, "a")).write.parquet(str(tmp_path / "plain"))
    given = {second: str(tmp_path / "plain")}
    if second == "quarantine":
        sink = IcebergSink(location, app_id="app", checks=Checks({"id > 1": "quarantine"}, **given))
    else:
        sink = IcebergSink(location, Upsert(key=["id"], **given), app_id="app")
    with pytest.raises(CorruptTableError, match="other Parquet files; nothing was written"):
        sink(_rows(spark, (1, "a")), 0)
    assert not Path(location).exists()


def test_a_rename_based_table_of_another_writer_is_refused(spark, location, tmp_path):
    table = _foreign(tmp_path, location)
    Path(table.metadata_location.removeprefix("file://")).rename(
        Path(location, "metadata", "v1.metadata.json")
    )
    said = _refused(spark, location, spark.range(3), CorruptTableError)
    assert "was not written by this sink" in said
    assert "location of its own" in said


def test_a_newer_format_version_is_refused(spark, table):
    path = Path(metadata_file(table))
    metadata = json.loads(path.read_text())
    path.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    said = _refused(spark, table, _rows(spark, (1, "a")), CorruptTableError)
    assert "format version 3" in said
    assert "writes format version 2 only" in said


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"{}"])
def test_a_corrupt_highest_version_is_an_error_and_never_a_step_back(spark, table, damage):
    path = Path(metadata_file(table))
    path.write_bytes(damage)
    said = _refused(spark, table, _rows(spark, (1, "a")), CorruptTableError)
    assert "cannot be read; nothing was changed. Restore metadata/v2.metadata.json from a copy" in said


def test_a_location_that_is_a_file_is_refused(spark, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(StoreUnavailableError, match=f"(?i)not a directory.*{path}"):
        _sink(str(path))(spark.range(3), 0)


# ---------------------------------------------------------------------------------------- partitions


def test_a_partition_column_that_the_batch_lacks_is_refused_where_the_table_is_to_be_made(spark, location):
    said = _refused(spark, location, spark.range(3), partition_by=["day(event_time)"])
    assert "event_time" in said
    assert "day(event_time)" in said


def test_rows_without_a_partition_value_land_in_the_null_partition_and_the_report_says_so(spark, location):
    sink = _sink(location, partition_by=["p"])
    sink(_rows(spark, (1, None), (2, None)), 0)
    assert sink.reports[0].why == "partition field p is null in every row of the batch"
    sink(_rows(spark, (3, "a"), (4, None)), 1)
    assert sink.reports[1].why == ""
    sink(spark.range(5, 6), 2)
    assert "partition field p is null in every row of the batch" in sink.reports[2].why
    assert ids_of(location) == Counter([1, 2, 3, 4, 5])


def test_another_partitioning_than_the_tables_is_refused(spark, table):
    said = _refused(spark, table, _rows(spark, (1, "a")), partition_by=["p"])
    assert "partitioned by nothing, and the sink says partition_by=['p']" in said
    assert "leave partition_by out" in said


# ---------------------------------------------------------------------------------------- columns


def test_duplicate_columns_are_refused(spark, location):
    batch = spark.range(3).select("id", sf.col("id").alias("id"))
    assert "holds a column more than once; rename or drop all but one: 'id', 'id'" in _refused(
        spark, location, batch
    )


def test_columns_that_differ_only_in_case_are_refused(spark, location):
    batch = spark.range(3).select("id", sf.col("id").alias("ID"))
    assert "differ only in case; rename or drop all but one: 'id', 'ID'" in _refused(spark, location, batch)


def test_a_column_in_another_case_than_the_tables_is_refused(spark, table):
    said = _refused(spark, table, _rows(spark, (1, "a"), schema="ID bigint, p string"))
    assert "spells a column of the table in another case; rename it: ID (table: id)" in said


def test_a_type_that_iceberg_lacks_is_refused_with_what_to_do(spark, location):
    batch = spark.range(3).select("id", sf.expr("interval 1 day").alias("lag"))
    assert "no type for a column of Spark type interval day; cast it to a number" in _refused(
        spark, location, batch
    )
    batch = spark.range(3).select("id", sf.lit(None).alias("nothing"))
    assert "holds only nulls: drop it, or cast it to the type that it will have: nothing" in _refused(
        spark, location, batch
    )


def test_a_nullable_column_that_the_batch_lacks_is_written_as_nulls(spark, table):
    _sink(table)(_rows(spark, ("c", 3), schema="p string, id bigint"), 1)
    rows = StaticTable.from_metadata(metadata_file(table)).scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["p"], row["n"], row["at"] is None) for row in rows] == [
        (1, "a", 1, False),
        (2, "b", 2, False),
        (3, "c", None, True),
    ]


def test_a_new_column_is_refused_with_what_to_do(spark, table):
    said = _refused(spark, table, _rows(spark, (1, "a", 2.0), schema="id bigint, p string, price double"))
    assert "a column that the table lacks" in said
    assert "drop it from the batch, or let the table grow with IcebergSink(..., contract=" in said
    assert "price" in said


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("id bigint, n bigint", (1, 2), "n is bigint in the batch and int in the table"),
        ("id bigint, n string", (1, "2"), "n is string in the batch and int in the table"),
        ("id decimal(20, 0)", (Decimal(1),), "id is decimal(20,0) in the batch and long in the table"),
        ("id bigint, at date", (1, None), "at is date in the batch and timestamptz in the table"),
    ],
)
def test_a_narrowing_is_refused(spark, table, schema, value, said):
    message = _refused(spark, table, _rows(spark, value, schema=schema))
    assert "does not take the batch's type as it is; cast the column" in message
    assert said in message


def test_a_stream_that_changes_its_columns_stops_with_the_reason_and_goes_on_when_mended(
    spark, tmp_path, location, checkpoint
):
    source = tmp_path / "source"
    add_files(source, range(2))
    drain(spark, source, _sink(location), checkpoint)
    add_files(source, [2])
    changed = _sink(location)
    with pytest.raises(StreamingQueryException, match=r"SchemaMismatchError.*drop it from the batch.*more"):
        drain(
            spark,
            source,
            lambda batch, number: changed(batch.withColumn("more", sf.lit(1)), number),
            checkpoint,
        )
    assert ids_of(location) == source_ids(2)
    drain(spark, source, changed, checkpoint)
    assert ids_of(location) == source_ids(3)


# ------------------------------------------------------------------------------------------ workers


def test_a_batch_that_must_be_counted_first_also_says_what_workers_lack(spark, location, monkeypatch):
    def fails(batches):
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    _sink(location, fill="inline")(
        spark.range(3), 0
    )  # a small file, for which the first batch of a run is counted
    monkeypatch.setattr("streaming_sink.writing.profile.CountTask", lambda *arguments: fails)
    with pytest.raises(WorkerEnvironmentError, match=r"lacks pyarrow.*PYSPARK_PYTHON"):
        _sink(location, fill="inline")(spark.range(3), 1)


# ------------------------------------------------------------------------------------------- stores


def test_a_store_that_fails_the_probe_while_the_batch_is_written_gets_no_table(spark, location, monkeypatch):
    written = threading.Event()

    def refuse(store):
        assert written.wait(60), "the probe holds up the batch"
        raise UnsafeStoreError("two writers won")

    def write_then_tell(*arguments):
        result = write(*arguments)
        written.set()
        return result

    monkeypatch.setattr("streaming_sink.writing.target.check_store", refuse)
    monkeypatch.setattr("streaming_sink.landing.row_writing.write", write_then_tell)
    sink = _sink(location)
    for _ in range(2):
        with pytest.raises(UnsafeStoreError, match="two writers won"):
            sink(spark.range(3), 0)
        assert metadata_file(location) is None
    monkeypatch.undo()
    sink(spark.range(3), 0)
    assert ids_of(location) == Counter(range(3))


# -------------------------------------------------------------------------------------------- disks


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_while_writing_fails_the_query_and_the_next_start_goes_on(
    spark, small_disk, tmp_path, checkpoint
):
    location, source = str(small_disk / "table"), tmp_path / "source"
    add_files(source, range(2))
    drain(spark, source, _sink(location), checkpoint)
    before = metadata_file(location)
    ballast = small_disk / "ballast"
    _fill(ballast, leave=40_000)
    add_files(source, [2], rows=20_000)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"StoreUnavailableError.*disk is full: free space"):
            drain(spark, source, _sink(location), checkpoint)
        assert metadata_file(location) == before
        assert ids_of(location) == source_ids(2)
        assert os.statvfs(small_disk).f_bavail > 0, "the failed write must leave no half a file"
    ballast.unlink()
    drain(spark, source, _sink(location), checkpoint)
    assert ids_of(location) == source_ids(2) + Counter(range(40_000, 60_000))


def test_a_disk_that_fills_up_while_committing_leaves_the_table_as_it_was(spark, small_disk, monkeypatch):
    location = str(small_disk / "table")
    sink = _sink(location)
    sink(spark.range(10), 0)
    ballast = small_disk / "ballast"
    real = Landing._commit

    def full_at_the_commit(*arguments):
        _fill(ballast, leave=0)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Landing, "_commit", full_at_the_commit)
        with pytest.raises(StoreUnavailableError, match="disk is full: free space"):
            sink(spark.range(10, 20), 1)
    assert ids_of(location) == Counter(range(10))
    ballast.unlink()
    sink(spark.range(10, 20), 1)
    assert ids_of(location) == Counter(range(20))


def _fill(path, leave):
    room = os.statvfs(path.parent)
    path.write_bytes(b"x" * max(0, room.f_bavail * room.f_frsize - leave))


def test_a_folder_that_becomes_read_only_fails_the_query_and_the_next_start_goes_on(
    spark, small_disk, tmp_path, checkpoint
):
    location, source = str(small_disk / "table"), tmp_path / "source"
    add_files(source, range(2))
    drain(spark, source, _sink(location), checkpoint)
    add_files(source, [2])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StreamingQueryException, match=r"StoreUnavailableError.*read-only: mount it writable"):
        drain(spark, source, _sink(location), checkpoint)
    assert ids_of(location) == source_ids(2)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    drain(spark, source, _sink(location), checkpoint)
    assert ids_of(location) == source_ids(3)


# ------------------------------------------------------------------------------------- empty batches


def test_an_empty_first_batch_makes_no_table(spark, location, monkeypatch):
    written, empty = threading.Event(), outcomes.empty

    def probe_until_the_batch_is_written(store):
        store.create("_timeline/probe/first", b"first")
        assert written.wait(60)
        time.sleep(0.5)
        store.delete(["_timeline/probe/first"])

    def report_empty(*arguments):
        written.set()
        return empty(*arguments)

    monkeypatch.setattr(target, "check_store", probe_until_the_batch_is_written)
    monkeypatch.setattr(outcomes, "empty", report_empty)
    for attempt in range(2):
        sink = _sink(location, partition_by=["p"])
        with calling_as(spark, "query", f"run-{attempt}"):
            sink(_rows(spark, schema="id bigint, p string"), 0)
        assert [report.outcome for report in sink.reports] == ["empty"]
        assert sink.reports[0].why == "the batch has no rows; nothing was published"
    assert metadata_file(location) is None
    assert not [path for path in Path(location).rglob("*") if path.is_file()]


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_an_empty_batch_publishes_and_records_nothing_and_its_replay_is_empty_again(
    spark, location, operation
):
    with calling_as(spark, "query", "run-1"):
        sink = _sink(location, operation=operation)
        sink(spark.range(3), 0)
        sink(spark.range(0), 1)
    assert sink.reports[1].outcome == "empty"
    assert head_of(location).transaction("app").batch == 0
    with calling_as(spark, "query", "run-2"):
        again = _sink(location, operation=operation)
        again(spark.range(0), 1)
        again(spark.range(3, 5), 2)
    assert [report.outcome for report in again.reports] == ["empty", "committed"]
    assert head_of(location).number == 3
    assert ids_of(location) == Counter(range(5))


# ------------------------------------------------------------------ what is refused before there is a table


@pytest.mark.parametrize("condition", ["opp = 'D'", "id", "rand() > 1", "op ="])
def test_a_condition_of_deletes_that_is_none_makes_no_table(spark, location, condition):
    batch = spark.sql("select 1 id, 1L at, 'I' op")
    upsert = Upsert(key=["id"], sequence_by="at", delete_where=condition, except_columns=["op"])
    with pytest.raises(SchemaMismatchError, match="delete_where") as refused:
        IcebergSink(location, upsert, app_id="app")(batch, 0)
    assert ("is of type int" in str(refused.value)) == (condition == "id")
    assert metadata_file(location) is None


def test_a_batch_without_a_column_of_its_key_or_sequence_is_refused(spark, location):
    keyed = {"key": ["id"], "sequence_by": "at"}
    sink = IcebergSink(location, Upsert(**keyed), app_id="app")
    sink(spark.sql("select 1 id, 5L at, 'a' name"), 0)
    for columns, said in (
        ("2 ID, 5L at", "no column 'id', which key names; it has 'ID', and case counts"),
        ("2 id, 'b' name", "no column 'at', which sequence_by names; it has id, name"),
        ("6L at", "no column 'id', which key names; it has at"),
    ):
        for by_key in (Upsert(**keyed), Delete(**keyed)):
            with pytest.raises(SchemaMismatchError, match=said):
                IcebergSink(location, by_key, app_id="other")(spark.sql(f"select {columns}"), 0)
    kept = IcebergSink(location, Upsert(**keyed), app_id="c", contract=SchemaContract(mismatch="drop"))
    assert kept(spark.sql("select 6L at"), 0).dropped == 1, "a row without a key, as the contract says"
    assert ids_of(location) == {1: 1}


def test_a_batch_without_columns_is_refused(spark, location):
    with pytest.raises(SchemaMismatchError, match="batch 0 of app has no columns"):
        _sink(location)(spark.range(3).select(), 0)


@pytest.mark.parametrize("batch", ["1 id, 'x' _rescued", "1 id, 'x' _Rescued"])
def test_a_batch_has_no_column_of_rescued_values_where_the_sink_writes_it(spark, location, batch):
    contract = SchemaContract(mismatch="rescue")
    with pytest.raises(SchemaMismatchError, match="the sink writes the column _rescued itself"):
        IcebergSink(location, contract=contract, app_id="app")(spark.sql(f"select {batch}"), 0)
    assert metadata_file(location) is None


def test_a_zone_whose_key_no_file_has_makes_no_table(spark, tmp_path):
    spark.sql("select 1 id").write.parquet(str(tmp_path / "files"))
    zone = ingest.BufferZone(tmp_path / "zone", tmp_path / "t", Upsert(key=["nope"]))
    zone.push(tmp_path / "files")
    assert ingest.run(spark, zone, available_now=True) == []
    (item,) = status(zone).open_items
    assert "no column 'nope', which key names; it has id" in item.reason
    assert metadata_file(str(tmp_path / "t")) is None


def test_a_column_of_nulls_alone_and_smaller_numbers_are_taken_as_spark_takes_them(spark, location):
    sink = _sink(location)
    sink(spark.sql("select 1 id, 'a' name, 1D d, 1F f, named_struct('x', 1D) s"), 0)
    sink(spark.sql("select 2 id, null name, 7 d, 3S f, named_struct('x', 2) s"), 1)
    rows = StaticTable.from_metadata(metadata_file(location)).scan().to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: row["id"])[1] == {
        "id": 2, "name": None, "d": 7.0, "f": 3.0, "s": {"x": 2.0},
    }  # fmt: skip
    for lossy in ("7L d", "7 f", "7D f"):
        with pytest.raises(SchemaMismatchError, match="does not take the batch's type"):
            sink(spark.sql(f"select 3 id, {lossy}"), 2)
