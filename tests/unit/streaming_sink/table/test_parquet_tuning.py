"""Row groups, page index, sort order and bloom filters of data files, as other readers see them."""

from __future__ import annotations

import struct
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql.types import StructType

from planners.model import Bucket, InputFile
from streaming_sink import PathTable
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.parquet_properties import ignored_properties, parquet_settings
from streaming_sink.tasks.files.data_file_writer import DataFileWriter
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.job import BloomFilter, FileIds, ParquetSettings, SortedBy, TaskBuckets, WorkerJob
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.results import Merge, WrittenFile
from streaming_sink.tasks.rows import partition_files
from streaming_sink.tasks.rows.write_task import TaskWriter
from streaming_sink.writing.target import Destination
from timeline.stores import LocalStore
from timeline.table import Table

BLOOM = "write.parquet.bloom-filter-"
SCHEMA = Schema(
    iceberg.NestedField(1, "id", iceberg.LongType(), required=False),
    iceberg.NestedField(2, "text", iceberg.StringType(), required=False),
    iceberg.NestedField(3, "ok", iceberg.BooleanType(), required=False),
    iceberg.NestedField(
        4,
        "place",
        iceberg.StructType(iceberg.NestedField(5, "town", iceberg.StringType(), required=False)),
        required=False,
    ),
    iceberg.NestedField(
        6, "tags", iceberg.ListType(element_id=7, element=iceberg.StringType()), required=False
    ),
    iceberg.NestedField(8, "score", iceberg.DoubleType(), required=False),
    iceberg.NestedField(9, "key", iceberg.UUIDType(), required=False),
)
ARROW = arrow_schema(SCHEMA)


def _rows(start, count):
    return pa.Table.from_pylist(
        [
            {
                "id": each,
                "text": f"text {each}",
                "ok": each % 2 == 0,
                "place": {"town": f"town {each}"},
                "tags": [f"tag {each}"],
                "score": each / 3,
                "key": struct.pack(">QQ", 0, each),
            }
            for each in range(start, start + count)
        ],
        schema=ARROW,
    )


def _job(store, settings):
    return WorkerJob(
        store=store,
        schema=ARROW,
        partition_by=(),
        parquet=settings,
        metrics={},
        ids=FileIds(1_700_000_000_000, "app", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1 << 40,
        max_file_bytes=1 << 30,
    )


def _written(folder, settings, tables, sorted_by=()):
    """Return the path of a file that holds each of these tables as one row group."""
    columns = leaves(ARROW)
    job = _job(LocalStore(str(folder)), settings)
    file = DataFileWriter(job, columns, DictionaryChoice(columns), "data/file.parquet", sorted_by)
    for table in tables:
        file.write(table)
    file.close((), 0)
    return f"{folder}/data/file.parquet"


def _sql(query, *parameters):
    with duckdb.connect() as connection:
        return connection.execute(query, parameters).fetchall()


def _filtered_columns(path):
    """Return the columns that have a bloom filter in every row group, as DuckDB reads the footer."""
    found = _sql(
        "SELECT path_in_schema FROM parquet_metadata($1) GROUP BY 1 HAVING bool_and(bloom_filter_offset > 0)",
        path,
    )
    return {column for (column,) in found}


def _excluded(path, column, values):
    """Return how many values DuckDB's reading of the filters rules out of every row group."""
    probe = "SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe($1, $2, $3)"
    with duckdb.connect() as connection:
        return sum(connection.execute(probe, (path, column, value)).fetchone()[0] for value in values)


# ---------------------------------------------------------------------------------------- bloom filters


def test_a_filter_that_the_table_asks_for_is_read_by_duckdb(tmp_path):
    asked = {f"{BLOOM}enabled.column.{name}": "true" for name in ("id", "text", "place.town", "tags.element")}
    path = _written(
        tmp_path,
        parquet_settings(asked | {f"{BLOOM}enabled.column.score": "false"}, SCHEMA),
        [_rows(0, 500), _rows(500, 500)],
    )
    assert _filtered_columns(path) == {"id", "text", "place, town", "tags, list, element"}
    assert _excluded(path, "text", [f"text {each}" for each in range(0, 1000, 50)]) == 0
    assert _excluded(path, "id", range(0, 1000, 50)) == 0
    assert _excluded(path, "text", [f"other {each}" for each in range(50)]) > 45


def test_without_the_property_there_is_no_filter(tmp_path):
    assert not _filtered_columns(_written(tmp_path, parquet_settings({}, SCHEMA), [_rows(0, 10)]))


def _filter_bytes(folder, rows, **asked):
    named = {f"{BLOOM}{name.replace('_', '-')}.column.id": value for name, value in asked.items()}
    if most := named.pop(f"{BLOOM}max-bytes.column.id", None):
        named[f"{BLOOM}max-bytes"] = most
    path = _written(folder, parquet_settings(named | {f"{BLOOM}enabled.column.id": "true"}, SCHEMA), [rows])
    ((size,),) = _sql(
        "SELECT bloom_filter_length FROM parquet_metadata($1) WHERE path_in_schema = 'id'", path
    )
    return size - size % 32  # beside the bits there is a small header


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ({}, 2048),  # 1000 values at 9.7 bits
        ({"fpp": "0.0001"}, 4096),
        ({"ndv": "1000000"}, 2048),
        ({"ndv": "100"}, 128),
        ({"ndv": "1000000", "max_bytes": "1024"}, 1024),
        ({"max_bytes": "1024"}, 1024),
        ({"max_bytes": "1023"}, 512),
        ({"max_bytes": "32"}, 32),
    ],
)
def test_a_filter_is_sized_by_its_values_and_bounded(tmp_path, asked, size):
    assert _filter_bytes(tmp_path, _rows(0, 1000), **asked) == size


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enabled.column.id", "yes"),
        ("fpp.column.id", "1"),
        ("fpp.column.id", "little"),
        ("ndv.column.id", "0"),
        ("max-bytes", "31"),
    ],
)
def test_what_a_filter_cannot_be_is_refused_by_name_before_a_table_is_known(key, value):
    with pytest.raises(ValueError, match=f"{BLOOM}{key} must be .* not '{value}'"):
        parquet_settings({f"{BLOOM}enabled.column.id": "true", f"{BLOOM}{key}": value})


def test_a_filter_on_a_column_that_cannot_have_one_is_left_aside_and_said():
    asked = {
        f"{BLOOM}enabled.column.id": "true",
        f"{BLOOM}fpp.column.id": "0.1",
        f"{BLOOM}max-bytes": "1000",
        f"{BLOOM}enabled.column.txet": "true",
        f"{BLOOM}enabled.column.place": "true",
        f"{BLOOM}enabled.column.ok": "true",
        f"{BLOOM}adaptive-enabled": "true",
    }
    assert parquet_settings(asked, SCHEMA).bloom_filters == {1: BloomFilter(0.1)}
    said = ignored_properties(asked, SCHEMA)
    assert set(said) == {key for key in asked if key.rpartition(".")[2] in ("txet", "place", "ok")} | {
        f"{BLOOM}adaptive-enabled"
    }
    assert "did you mean 'text'" in said[f"{BLOOM}enabled.column.txet"]
    assert "booleans" in said[f"{BLOOM}enabled.column.ok"]


_FLOATS = {"flt": iceberg.FloatType(), "dbl": iceberg.DoubleType()}
_HIDING = {**_FLOATS, "bin": iceberg.BinaryType(), "fix": iceberg.FixedType(3)}


def test_a_filter_that_would_hide_rows_is_left_aside_and_said_at_any_depth():
    inside = [iceberg.NestedField(10 + at, name, kind) for at, (name, kind) in enumerate(_HIDING.items())]
    tags = iceberg.ListType(element_id=30, element=iceberg.BinaryType())
    schema = Schema(
        *(iceberg.NestedField(1 + at, name, kind) for at, (name, kind) in enumerate(_HIDING.items())),
        iceberg.NestedField(20, "place", iceberg.StructType(*inside)),
        iceberg.NestedField(21, "tags", tags),
        iceberg.NestedField(22, "key", iceberg.UUIDType()),
    )
    names = [*_HIDING, *(f"place.{name}" for name in _HIDING), "tags.element", "key"]
    asked = {f"{BLOOM}enabled.column.{name}": "true" for name in names}
    assert parquet_settings(asked, schema).bloom_filters == {22: BloomFilter()}
    said = ignored_properties(asked, schema)
    assert set(said) == set(asked) - {f"{BLOOM}enabled.column.key"}
    assert all(("-0.0" if key.endswith(("flt", "dbl")) else "hide rows") in why for key, why in said.items())


def test_a_sink_says_once_which_filter_it_leaves_aside_and_why(tmp_path, caplog):
    key = f"{BLOOM}enabled.column.score"
    Table.create(LocalStore(str(tmp_path)), SCHEMA, table_properties={key: "true"}, store_is_checked=True)
    destination = Destination(SinkOptions(table=PathTable(str(tmp_path))))
    for _ in range(2):
        destination.target(StructType(), fresh=True)
    (said,) = [each.getMessage() for each in caplog.records if key in each.getMessage()]
    assert "-0.0 and 0.0 are equal" in said


def test_a_sinks_own_file_has_its_filters_in_every_row_group(tmp_path):
    settings = parquet_settings({f"{BLOOM}enabled.column.id": "true"}, SCHEMA)
    store = LocalStore(str(tmp_path))
    task = TaskWriter(_job(store, settings), 0, 0)
    for batch in _rows(0, partition_files.EARLY_ROWS * 2).to_batches(
        max_chunksize=partition_files.EARLY_ROWS
    ):
        task.write(batch)
    (file,) = [each for each in task.finish() if isinstance(each, WrittenFile)]
    path = f"{tmp_path}/{store.relative(file.path)}"
    assert pq.read_metadata(path).num_row_groups == 2
    assert _filtered_columns(path) == {"id"}


def test_a_filled_file_has_its_filters(tmp_path):
    settings = parquet_settings({f"{BLOOM}enabled.column.id": "true"}, SCHEMA)
    store = LocalStore(str(tmp_path))
    small = _job(store, settings)
    first = TaskWriter(small, 0, 0)
    first.write(_rows(0, 100).to_batches()[0])
    (old,) = [each for each in first.finish() if isinstance(each, WrittenFile)]
    bucket = Bucket((), 100, inputs=(InputFile(old.path, 100),), input_bytes=old.bytes, input_rows=100)
    second = TaskWriter(replace(small, tasks={0: TaskBuckets(((0, bucket),))}), 0, 1)
    second.write(_rows(100, 100).to_batches()[0])
    (merge,) = [each for each in second.finish() if isinstance(each, Merge)]
    path = f"{tmp_path}/{store.relative(merge.merged.path)}"
    assert _excluded(path, "id", range(0, 200, 9)) == 0
    assert _excluded(path, "id", range(1000, 1050)) > 45


# ------------------------------------------------------------------------------------ order and page index


def _said_order(path):
    """Return the order that the footer tells, by names of columns, if all row groups tell the same."""
    footer = pq.read_metadata(path)
    (order,) = {footer.row_group(index).sorting_columns for index in range(footer.num_row_groups)}
    return [
        (footer.schema.column(each.column_index).path, each.descending, each.nulls_first) for each in order
    ]


def test_the_footer_tells_the_order_of_the_rows_by_leaves(tmp_path):
    order = [SortedBy(5, True, False), SortedBy(1, False, True)]
    path = _written(tmp_path, ParquetSettings(), [_rows(0, 10), _rows(10, 10)], order)
    assert _said_order(path) == [("place.town", True, False), ("id", False, True)]


@pytest.mark.parametrize("field_id", [8, 9, 99], ids=["floats", "uuids", "gone"])
def test_an_order_is_told_up_to_the_first_column_that_readers_order_otherwise(tmp_path, field_id):
    order = [SortedBy(1, False, True), SortedBy(field_id, False, True), SortedBy(2, False, True)]
    path = _written(tmp_path, ParquetSettings(), [_rows(0, 10)], order)
    assert _said_order(path) == [("id", False, True)]


def test_without_an_order_the_footer_tells_none(tmp_path):
    assert _said_order(_written(tmp_path, ParquetSettings(), [_rows(0, 10)])) == []


def test_every_column_has_a_page_index(tmp_path):
    path = _written(tmp_path, ParquetSettings(page_rows=100), [_rows(0, 1000)])
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    assert all(chunk.has_column_index and chunk.has_offset_index for chunk in chunks)
    assert _sql("SELECT count(*), min(id), max(id) FROM read_parquet($1)", path) == [(1000, 0, 999)]


# ------------------------------------------------------------------------------------ what is left aside


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (
            "write.parqet.compression-codec",
            "Iceberg has no such property; did you mean write.parquet.compression-codec?",
        ),
        (
            "write.parquet.compresion-codec",
            "Iceberg has no such property; did you mean write.parquet.compression-codec?",
        ),
        ("write.parquet.row-group-check-min-record-count", "this writer does not know it"),
        ("write.parquet.stats-enabled.column.id", "this writer does not know it"),
        (
            "write.metadata.metrics.column.idd",
            "the table has no column 'idd' of single values; did you mean 'id'?",
        ),
        ("write.metadata.metrics.column.id", None),
        ("write.metadata.metrics.default", None),
        ("write.parquet.compression-codec", None),
        ("write.target-file-size-bytes", None),
        ("write.delete.mode", None),
        ("owner", None),
    ],
)
def test_a_property_of_writers_that_is_left_aside_is_named_with_the_nearest_name(
    key: str, why: str | None
) -> None:
    schema = Schema(iceberg.NestedField(1, "id", iceberg.LongType(), required=False))
    assert ignored_properties({key: "counts"}, schema).get(key) == why
