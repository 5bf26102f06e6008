"""Descriptors of written files as manifest entries, through pyiceberg's own manifest writer and reader."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.schema import Schema

from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import data_file
from streaming_sink.table.spec import partition_sources, partition_spec
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.tasks.rows.write_task import TaskWriter
from timeline.stores import LocalStore

SCHEMA = Schema(
    iceberg.NestedField(1, "at", iceberg.TimestamptzType(), required=False),
    iceberg.NestedField(2, "name", iceberg.StringType(), required=False),
    iceberg.NestedField(3, "price", iceberg.DecimalType(10, 2), required=False),
    iceberg.NestedField(4, "id", iceberg.UUIDType(), required=False),
    iceberg.NestedField(5, "day", iceberg.DateType(), required=False),
)
SPEC = partition_spec(
    ["day(at)", "bucket(4, name)", "truncate(10, price)", "id", "day", "truncate(2, name)", "hour(at)"],
    SCHEMA,
)


def test_what_a_task_reports_survives_a_manifest_and_keys_come_back_equal(tmp_path):
    """The planner compares a batch's partition keys with those read from manifests: they must be equal."""
    store = LocalStore(str(tmp_path))
    schema = arrow_schema(SCHEMA)
    job = WorkerJob(
        store=store,
        schema=schema,
        partition_by=partition_sources(SCHEMA, SPEC),
        parquet=ParquetSettings(),
        metrics={1: "full"},
        ids=FileIds(0, "app", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=10,
        max_file_bytes=1 << 20,
    )
    writer = TaskWriter(job, 0, 0)
    at = datetime(1969, 5, 6, 7, tzinfo=timezone.utc)
    full = {"at": at, "name": "naïve", "price": Decimal("-1.28"), "id": b"\xff" * 16, "day": at.date()}
    writer.write(pa.RecordBatch.from_pylist([full, dict.fromkeys(full)], schema=schema))
    files = writer.finish()
    assert {None, -240} == {file.partition[0] for file in files}

    io = PyArrowFileIO()
    target = io.new_output(str(tmp_path / "manifest.avro"))
    with write_manifest(2, SPEC, SCHEMA, target, 1, "null") as manifest:
        for file in files:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=data_file(file, SPEC)
            )
            manifest.add_entry(entry)
    read = [entry.data_file for entry in manifest.to_manifest_file().fetch_manifest_entry(io)]
    for file, back in zip(files, read, strict=True):
        assert tuple(back.partition) == file.partition
        assert (back.file_path, back.record_count, back.file_size_in_bytes) == (file.path, 1, file.bytes)
        assert back.column_sizes == file.column_sizes
        assert (back.lower_bounds or {}) == file.lower_bounds
        assert tuple(back.split_offsets) == file.split_offsets
        assert back.sort_order_id == 0
        assert (tmp_path / store.relative(file.path)).stat().st_size == file.bytes


def test_a_column_whose_name_holds_a_dot_is_told_from_a_nested_one():
    inner = iceberg.StructType(iceberg.NestedField(3, "b", iceberg.LongType(), required=False))
    schema = Schema(
        iceberg.NestedField(1, "a.c", iceberg.LongType(), required=False),
        iceberg.NestedField(2, "a", inner, required=False),
    )
    sources = partition_sources(schema, partition_spec(["a.c", "a.b"], schema))
    assert [field.source for field in sources] == [("a.c",), ("a", "b")]
