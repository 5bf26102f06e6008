# ruff: noqa: DTZ001 - Arrow's timestamps without a zone are Python's naive datetimes
"""Counts and bounds of a written file, judged by pyiceberg's own reading of the same file."""

from __future__ import annotations

from datetime import date, datetime, time, timezone
from decimal import Decimal
from itertools import count, pairwise
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as iceberg
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema

from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.parquet_properties import ignored_properties, metrics_modes, parquet_settings
from streaming_sink.tasks.files import data_file_writer
from streaming_sink.tasks.files.data_file_writer import split_offsets
from streaming_sink.tasks.files.metrics import lower_bound, upper_bound
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.tasks.rows.write_task import TaskWriter
from timeline.stores.memory import MemoryStore

_NAMES = count()
SCHEMA = Schema(
    iceberg.NestedField(1, "flag", iceberg.BooleanType(), required=False),
    iceberg.NestedField(2, "int", iceberg.IntegerType(), required=False),
    iceberg.NestedField(3, "long", iceberg.LongType(), required=False),
    iceberg.NestedField(4, "float", iceberg.FloatType(), required=False),
    iceberg.NestedField(5, "double", iceberg.DoubleType(), required=False),
    iceberg.NestedField(6, "date", iceberg.DateType(), required=False),
    iceberg.NestedField(7, "time", iceberg.TimeType(), required=False),
    iceberg.NestedField(8, "at", iceberg.TimestampType(), required=False),
    iceberg.NestedField(9, "zoned", iceberg.TimestamptzType(), required=False),
    iceberg.NestedField(10, "text", iceberg.StringType(), required=False),
    iceberg.NestedField(11, "bytes", iceberg.BinaryType(), required=False),
    iceberg.NestedField(12, "fixed", iceberg.FixedType(3), required=False),
    iceberg.NestedField(13, "small_money", iceberg.DecimalType(9, 2), required=False),
    iceberg.NestedField(14, "money", iceberg.DecimalType(18, 2), required=False),
    iceberg.NestedField(15, "big_money", iceberg.DecimalType(38, 10), required=False),
    iceberg.NestedField(
        16,
        "struct",
        iceberg.StructType(
            iceberg.NestedField(17, "x", iceberg.DoubleType(), required=False),
            iceberg.NestedField(18, "y", iceberg.StringType(), required=False),
        ),
        required=False,
    ),
    iceberg.NestedField(19, "list", iceberg.ListType(20, iceberg.FloatType(), False), required=False),
    iceberg.NestedField(
        21, "map", iceberg.MapType(22, iceberg.StringType(), 23, iceberg.LongType(), False), required=False
    ),
    iceberg.NestedField(24, "uuid", iceberg.UUIDType(), required=False),
)
ARROW = arrow_schema(SCHEMA)
_TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def _optional(values):
    return st.none() | values


ROWS = st.fixed_dictionaries(
    {
        "flag": _optional(st.booleans()),
        "int": _optional(st.integers(-(2**31), 2**31 - 1)),
        "long": _optional(st.integers(-(2**63), 2**63 - 1)),
        "float": _optional(st.floats(width=32)),
        "double": _optional(st.floats()),
        "date": _optional(_TIMES.map(lambda at: at.date())),
        "time": _optional(_TIMES.map(lambda at: at.time())),
        "at": _optional(_TIMES),
        "zoned": _optional(_TIMES.map(lambda at: at.replace(tzinfo=timezone.utc))),
        "text": _optional(_TEXT),
        "bytes": _optional(st.binary(max_size=40)),
        "fixed": _optional(st.binary(min_size=3, max_size=3)),
        "small_money": _optional(st.decimals(Decimal("-9999999.99"), Decimal("9999999.99"), places=2)),
        "money": _optional(st.decimals(-(10**15), 10**15, places=2)),
        "big_money": _optional(st.decimals(-(10**15), 10**15, places=10)),
        "struct": _optional(st.fixed_dictionaries({"x": _optional(st.floats()), "y": _optional(_TEXT)})),
        "list": _optional(st.lists(_optional(st.floats(width=32)), max_size=3)),
        "map": _optional(
            st.dictionaries(_TEXT, _optional(st.integers(0, 9)), max_size=3).map(lambda d: list(d.items()))
        ),
        "uuid": _optional(st.uuids().map(lambda each: each.bytes)),
    }
)


def _write(rows, modes, group_bytes=1 << 20, schema=ARROW):
    store = MemoryStore(f"metrics-{next(_NAMES)}")
    job = WorkerJob(
        store=store,
        schema=schema,
        partition_by=(),
        parquet=ParquetSettings(row_group_bytes=group_bytes),
        metrics=modes,
        ids=FileIds(0, "app", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=10**6,
        max_file_bytes=1 << 30,
    )
    writer = TaskWriter(job, 0, 0)
    for row in rows:
        writer.write(pa.RecordBatch.from_pylist([row], schema=schema))
    [file] = writer.finish()
    return file, store.read(store.relative(file.path)).data


def _leaf_values(rows, path):
    for row in rows:
        value = row
        for name in path:
            value = value and value[name]
        yield value


@given(st.lists(ROWS, min_size=1, max_size=6), st.booleans())
def test_metrics_are_those_that_pyiceberg_reads_from_the_file(rows, many_groups):
    modes = metrics_modes(SCHEMA, {})
    with mock.patch.object(data_file_writer, "SPLIT_BYTES", 1):
        file, data = _write(rows, modes, group_bytes=1 if many_groups else 1 << 20)
    footer = pq.ParquetFile(pa.BufferReader(data)).metadata
    expected = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(SCHEMA, {}), parquet_path_to_id_mapping(SCHEMA)
    )
    assert file.rows == expected.record_count == len(rows)
    assert file.bytes == len(data)
    assert file.column_sizes == expected.column_sizes
    assert file.value_counts == expected.value_counts
    assert file.null_counts == expected.null_value_counts
    assert list(file.split_offsets) == expected.split_offsets
    for path, number in ((("float",), 4), (("double",), 5), (("struct", "x"), 17)):
        values = list(_leaf_values(rows, path))
        assert file.nan_counts[number] == sum(value is not None and value != value for value in values)
    assert set(file.nan_counts) == {4, 5, 17}


@given(st.lists(ROWS, min_size=1, max_size=6), st.booleans())
def test_bounds_hold_every_value_but_nulls_and_nans(rows, many_groups):
    file, _ = _write(rows, metrics_modes(SCHEMA, {}), group_bytes=1 if many_groups else 1 << 20)
    expected = {20, 22, 23, 24}  # a list's, a map's and a uuid's leaves have none
    assert not expected & {*file.lower_bounds, *file.upper_bounds}
    for number in range(1, 19):
        if number == 16:
            continue
        kind = SCHEMA.find_type(number)
        path = SCHEMA.find_column_name(number).split(".")
        present = [value for value in _leaf_values(rows, path) if value is not None]
        values = [value for value in present if value == value]
        if many_groups and len(values) < len(present) and number not in file.lower_bounds:
            assert number not in file.upper_bounds, "a row group of NaNs alone has no range, so no file of it"
            continue
        if not values:
            assert number not in file.lower_bounds
            assert number not in file.upper_bounds
            continue
        raw = [_comparable(kind, value) for value in values]
        lower = from_bytes(kind, file.lower_bounds[number])
        assert lower <= min(raw)
        if number in file.upper_bounds:
            upper = from_bytes(kind, file.upper_bounds[number])
            assert upper >= max(raw)
        else:
            assert isinstance(kind, iceberg.StringType | iceberg.BinaryType)
        if not isinstance(kind, iceberg.StringType | iceberg.BinaryType):
            assert (lower, upper) == (min(raw), max(raw))
            assert file.lower_bounds[number] == to_bytes(kind, min(raw)) or min(raw) == 0


def _comparable(kind, value):
    if isinstance(value, datetime):
        naive = value.replace(tzinfo=None) - datetime(1970, 1, 1)
        return (naive.days * 86_400 + naive.seconds) * 10**6 + naive.microseconds
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
    return value


@pytest.mark.parametrize(
    ("text", "upper"),
    [
        ("a" * 16, "a" * 16),
        ("a" * 17, "a" * 15 + "b"),
        ("a" * 15 + "\U0010ffff" + "z", "a" * 14 + "b"),
        ("\ud7ff" * 17, "\ud7ff" * 15 + "\ue000"),
        ("\U0010ffff" * 17, None),
        ("é" * 17, "é" * 15 + "ê"),
    ],
)
def test_a_truncated_upper_bound_is_the_next_text_of_that_length(text, upper):
    assert upper_bound(pa.string(), text.encode(), 16) == (None if upper is None else upper.encode())
    assert lower_bound(pa.string(), text.encode(), 16) == text[:16].encode()


def test_a_truncated_upper_bound_of_bytes_carries():
    assert upper_bound(pa.binary(), b"a" + b"\xff" * 20, 16) == b"b"
    assert upper_bound(pa.binary(), b"\xff" * 20, 16) is None


def test_a_text_too_long_for_the_footer_leaves_its_column_without_bounds():
    file, _ = _write([{"text": "x" * 10_000}, {"text": "a"}], {10: "truncate(16)"}, group_bytes=1)
    assert 10 not in file.lower_bounds
    assert file.value_counts == {10: 2}


def test_the_zeros_are_told_apart():
    """-0.0 is below 0.0 for Iceberg, and a bound must not hide it."""
    file, _ = _write([{"double": 0.0}, {"double": -0.0}], {5: "full"}, group_bytes=1)
    assert file.lower_bounds[5] == to_bytes(iceberg.DoubleType(), -0.0)
    assert file.upper_bounds[5] == to_bytes(iceberg.DoubleType(), 0.0)


def test_a_columns_own_mode_wins_over_the_default():
    modes = metrics_modes(
        SCHEMA,
        {
            "write.metadata.metrics.default": "counts",
            "write.metadata.metrics.column.text": "full",
            "write.metadata.metrics.column.struct.y": "none",
        },
    )
    file, _ = _write([{"text": "x" * 40, "int": 1, "struct": {"x": 1.0, "y": "a"}}], modes)
    assert file.lower_bounds == {10: b"x" * 40}
    assert file.value_counts[2] == 1
    assert 18 not in file.value_counts
    assert 18 in file.column_sizes


def test_only_the_first_hundred_columns_have_metrics_unless_a_default_is_set():
    wide = Schema(
        *(iceberg.NestedField(n, f"c{n}", iceberg.LongType(), required=False) for n in range(1, 131))
    )
    assert [n for n, mode in metrics_modes(wide, {}).items() if mode == "none"] == list(range(101, 131))
    limited = metrics_modes(wide, {"write.metadata.metrics.max-inferred-column-defaults": "3"})
    assert [n for n, mode in limited.items() if mode != "none"] == [1, 2, 3]
    assert set(metrics_modes(wide, {"write.metadata.metrics.default": "full"}).values()) == {"full"}


def test_an_unknown_metrics_mode_is_refused_by_name():
    with pytest.raises(ValueError, match=r"write.metadata.metrics.column.text must be .* 'truncate\(0\)'"):
        metrics_modes(SCHEMA, {"write.metadata.metrics.column.text": "truncate(0)"})


def test_parquet_properties_become_settings():
    assert parquet_settings({}) == ParquetSettings("zstd", None, 128 << 20, 1 << 20, 20_000, 2 << 20)
    told = {
        "write.parquet.compression-codec": "GZIP",
        "write.parquet.compression-level": "9",
        "write.parquet.row-group-size-bytes": "1000",
        "write.parquet.page-size-bytes": "2000",
        "write.parquet.page-row-limit": "30",
        "write.parquet.dict-size-bytes": "4000",
    }
    assert parquet_settings(told) == ParquetSettings("gzip", 9, 1000, 2000, 30, 4000)
    ignored = ignored_properties(told | {"write.parquet.page-version": "v2"}, SCHEMA)
    assert list(ignored) == ["write.parquet.page-version"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compression-codec", "lzo"),
        ("compression-level", "fast"),
        ("row-group-size-bytes", "0"),
        ("page-size-bytes", "1k"),
    ],
)
def test_a_parquet_property_that_cannot_be_honoured_is_refused_by_name(key, value):
    with pytest.raises(ValueError, match=f"write.parquet.{key}.*{value}"):
        parquet_settings({f"write.parquet.{key}": value})


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "brotli", "lz4", "uncompressed"])
def test_every_codec_writes_a_file(codec):
    settings = parquet_settings(
        {"write.parquet.compression-codec": codec, "write.parquet.compression-level": "2"}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"a": [1]}),
        sink,
        compression=settings.compression,
        compression_level=settings.compression_level,
    )
    assert pq.read_table(pa.BufferReader(sink.getvalue())).num_rows == 1


def test_a_uuid_is_written_as_parquets_uuid():
    value = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    _, data = _write([{"uuid": value.bytes}], {})
    schema = pq.ParquetFile(pa.BufferReader(data)).schema
    assert str(schema.column(len(schema.names) - 1).logical_type) == "UUID"


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(1, 5_000))
def test_no_part_of_a_file_is_smaller_than_what_a_delete_file_costs_a_reader(groups, least):
    """A part is weighed by 4 MiB for each delete file, and 20,000 rows may have 400 KB."""
    output = pa.BufferOutputStream()
    with pq.ParquetWriter(output, pa.schema([("id", pa.int64())]), compression="none") as writer:
        for rows in groups:
            writer.write_table(pa.table({"id": range(rows)}))
    data = output.getvalue()
    footer = pq.read_metadata(pa.BufferReader(data))
    with mock.patch.object(data_file_writer, "SPLIT_BYTES", 1):
        every = split_offsets(footer, data.size)
    with mock.patch.object(data_file_writer, "SPLIT_BYTES", least):
        found = split_offsets(footer, data.size)
    assert (len(every), found[0]) == (len(groups), every[0])
    assert set(found) <= set(every)
    parts = [end - begin for begin, end in pairwise((*found, data.size))]
    assert len(parts) == 1 or min(parts) >= least
    cut = [it for it in every if all(abs(it - other) >= least for other in (*found, data.size))]
    assert cut == [], "a part of twice the least or more, with a row group in the middle, is cut"
