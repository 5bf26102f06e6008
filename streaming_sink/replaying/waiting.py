"""Quarantined rows that wait for a replay, as Spark reads them: no mark names them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.quarantine_table import check_has_no_deletes
from streaming_sink.spark.jobs import parallelism
from streaming_sink.spark.worker_python import map_in_arrow
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.files.read_task import ReadTask
from timeline.table import Table

_MARK = "replayed_row_id"
_TYPES: dict[str, spark.DataType] = {"batch": spark.LongType(), "quarantined_at": spark.TimestampType()}
_BROADCAST_ROWS = 1_000_000
"""Spark does not know how many rows a file has, and would send the marks of any number to every task."""


def waiting_rows(session: SparkSession, quarantine: Table, table_uuid: str) -> DataFrame:
    """Return the rows of the quarantine's known head that are for one table and were not replayed, in the
    quarantine's columns.

    ValueError where another writer has deleted rows of the quarantine: which ones is not read.
    """
    check_has_no_deletes(quarantine.head)
    rows = _read(session, quarantine)
    marks = (
        _read(session, quarantine, _MARK)
        .where(sf.col(_MARK).isNotNull())
        .select(sf.col(_MARK).alias("_mark"))
    )
    if sum(file.rows for file in quarantine.head.live_files()) > _BROADCAST_ROWS:
        marks = marks.hint("merge")
    own = rows.where((sf.col("table_uuid") == table_uuid) & sf.col(_MARK).isNull())
    return own.join(marks, own["row_id"] == marks["_mark"], "left_anti").drop(_MARK)


def _read(session: SparkSession, table: Table, *columns: str) -> DataFrame:
    schema = arrow_schema(table.head.schema)
    if columns:
        schema = pa.schema([schema.field(name) for name in columns])
    paths = [file.location for file in table.head.live_files()]
    numbers = session.range(0, len(paths), 1, max(1, min(len(paths), 4 * parallelism(session))))
    fields = [
        spark.StructField(field.name, _TYPES.get(field.name, spark.StringType()), field.nullable)
        for field in schema
    ]
    return map_in_arrow(numbers, ReadTask(table.store, paths, schema), spark.StructType(fields))
