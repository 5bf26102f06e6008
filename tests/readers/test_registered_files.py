"""Readers see the rows of files without field ids, registered as they came: copied, or where they lie."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from planners.sizing import FileSizing
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import data_file
from streaming_sink.table.parquet_properties import metrics_modes
from streaming_sink.tasks.ingest.profile_task import ProfileJob, SourceProfile, profile
from streaming_sink.tasks.ingest.register_task import SourceToRegister, register
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import WrittenFile
from tests.readers.judges import assert_all_readers_agree
from timeline.changes.changes import Append
from timeline.changes.references import AllowReferences
from timeline.changes.schema_changes import MergeSchema
from timeline.stores import LocalStore
from timeline.table import Table

SOURCES = Sources(("/",))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "count", IntegerType(), required=False),
    NestedField(4, "price", DecimalType(9, 2), required=False),
    NestedField(5, "x", DoubleType(), required=False),
    NestedField(6, "ok", BooleanType(), required=False),
    NestedField(7, "day", DateType(), required=False),
    NestedField(8, "at", TimestamptzType(), required=False),
    NestedField(9, "local", TimestampType(), required=False),
)
AT = dt.datetime.fromisoformat("2026-11-23 12:30:00.123456")


def rows(first: int) -> pa.Table:
    """Three rows in all columns of the table; the last is null in those that may be."""
    own = pa.schema([field.remove_metadata() for field in arrow_schema(SCHEMA)])
    full = [
        {
            "id": number,
            "name": f"é{number}",
            "count": number,
            "price": Decimal(number),
            "x": number / 4,
            "ok": number % 2 == 0,
            "day": AT.date(),
            "at": AT.replace(tzinfo=dt.timezone.utc),
            "local": AT,
        }
        for number in (first, first + 1)
    ]
    return pa.Table.from_pylist([*full, {"id": first + 2}], own)


def add(table: Table, path: Path, stays: bool = False) -> None:
    """Register a file as a worker does."""
    schema, head = arrow_schema(table.head.schema), table.head
    (file,), _ = SOURCES.find([str(path)], 0)
    sizing = FileSizing(max_file_bytes="1GiB", small_file_bytes=1)
    found = profile(ProfileJob(SOURCES, ((0, file),), schema, (), sizing))
    (profiled,) = (each for each in found if isinstance(each, SourceProfile))
    assert profiled.rewritten is None, path
    job = WorkerJob(
        table.store,
        schema,
        (),
        ParquetSettings(),
        metrics_modes(head.schema, head.properties),
        FileIds(1_800_000_000_000, "zone", 0),
        {},
        TaskBuckets(),
        1,
        1 << 30,
    )
    results = register(job, SOURCES, [SourceToRegister(0, file, (), profiled.rows, stays)], 0)
    made = [data_file(each, head.spec) for each in results if isinstance(each, WrittenFile)]
    assert len(made) == 1
    table.commit([Append(tuple(made))])


def by_duckdb(given: pa.Table, path: Path) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("given", given)
    connection.execute(f"COPY given TO '{path}' (FORMAT parquet, COMPRESSION zstd)")


def by_polars(given: pa.Table, path: Path) -> None:
    pl.DataFrame(given.drop_columns(["price"])).write_parquet(path)  # its decimals have 38 digits


def by_pyarrow(given: pa.Table, path: Path) -> None:
    backwards = given.select(list(reversed(given.column_names)))
    pq.write_table(backwards, path, store_decimal_as_integer=True, compression="gzip")


WRITERS: tuple[Callable[[pa.Table, Path], None], ...] = (by_duckdb, by_polars, by_pyarrow)


def test_readers_find_the_columns_of_registered_files_by_name(tmp_path: Path) -> None:
    table = Table.create(LocalStore(str(tmp_path / "t")), SCHEMA)
    expected = []
    for number, write in enumerate(WRITERS):
        path = tmp_path / f"{number}.parquet"
        write(rows(10 * number), path)
        add(table, path)
        expected.append(pa.Table.from_pylist(pq.read_table(path).to_pylist(), rows(0).schema))
    few = tmp_path / "few.parquet"
    pq.write_table(rows(90).select(["name", "id"]), few)
    add(table, few)
    expected.append(rows(90).select(["name", "id"]))
    assert_all_readers_agree(tmp_path / "t", pa.concat_tables(expected, promote_options="default"))
    elsewhere = tmp_path / "drop" / "by-reference.parquet"
    elsewhere.parent.mkdir()
    pq.write_table(rows(95).select(["x", "id"]), elsewhere)
    table.commit([AllowReferences()])
    add(table, elsewhere, stays=True)
    expected.append(rows(95).select(["x", "id"]))
    # The table grows a column and a wider type over them; no name ever gets another meaning.
    wider = StructType(
        NestedField(1, "count", LongType(), required=False),
        NestedField(2, "note", StringType(), required=False),
    )
    table.commit([MergeSchema(wider)])
    expected.append(pa.table({"id": [99], "count": pa.array([1 << 40]), "note": ["new"]}))
    pq.write_table(expected[-1], few)
    add(table, few)
    assert_all_readers_agree(tmp_path / "t", pa.concat_tables(expected, promote_options="permissive"))
