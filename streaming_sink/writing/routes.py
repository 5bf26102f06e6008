"""How the rows of a batch travel to their tasks. Public DataFrame API only, so that it runs on Connect too.

In a shuffle a row's task is a function of its values alone (R10): Spark may run a part of a stage again after
it has lost an executor, and a row that then went elsewhere would be written twice or not at all. Without one
a row is read and written by one task, so it may be any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from planners.routing import SLOTS, HotRoute, Routing
from streaming_sink.spark.jobs import map_in_arrow
from streaming_sink.table.conversions import fits
from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import key_text, source_type
from streaming_sink.tasks.rows.failures import FAILED
from streaming_sink.tasks.rows.key_task import KeyTask

_DAY_MICROS = 86_400_000_000
_HOUR_MICROS = 3_600_000_000


def routed(
    batch: DataFrame,
    routing: Routing | None,
    table: pa.Schema,
    fields: Sequence[PartitionSource],
    skips_unfit: bool = False,
) -> DataFrame:
    """Return `batch` with its rows in the tasks that `routing` says: Spark partition n is task n.

    Without a routing every task writes what it reads. `table` is the table's Arrow schema, `fields` its
    partition spec. `skips_unfit`: as `KeyTask` has it.
    """
    if routing is None:
        return batch
    if not routing.shuffled:
        return batch.coalesce(routing.tasks)
    keys, rows = _keys(batch, table, fields, skips_unfit)
    placed = rows.repartitionById(routing.tasks, _task(batch, routing, keys))
    return placed if rows is batch else placed.select(*(sf.col(quoted(name)) for name in batch.columns))


def routed_by_key(batch: DataFrame, tasks: int, columns: Sequence[str], table: Schema) -> DataFrame:
    """Return `batch` with all rows of a key in one of so many tasks; in a single one where values of the key
    are of another type than the table's. One key may have several spellings then, such as "7" and "07".
    """
    came = {field.name: field.dataType for field in batch.schema.fields}
    fit = all(name in came and fits(table.find_type(name), came[name]) for name in columns)
    if tasks == 1 or not fit:
        return batch.coalesce(1)
    return batch.repartition(tasks, *(sf.col(quoted(name)) for name in columns))


@dataclass(frozen=True, slots=True)
class _Key:
    """One field of the partition key of a row, as a Spark column; an Arrow stage brings it as text."""

    column: Column
    is_text: bool

    def equals(self, value: object) -> Column:
        return self.column.eqNullSafe(sf.lit(key_text(value) if self.is_text else value))


def _task(batch: DataFrame, routing: Routing, keys: Sequence[_Key]) -> Column:
    task = sf.lit(0)
    if keys and routing.cold_tasks > 1:
        task = sf.pmod(sf.xxhash64(*(key.column for key in keys)), sf.lit(routing.cold_tasks)).cast("int")
    # Only a partition that several tasks share needs the hash of all columns.
    row = row_hash(batch) if any(len(hot.slots) > 1 for hot in routing.hot) else None
    slot = None if row is None else sf.pmod(row, sf.lit(SLOTS))
    for hot in routing.hot:
        here = sf.lit(True)
        for key, value in zip(keys, hot.partition, strict=True):
            here = here & key.equals(value)
        task = sf.when(here, _share(hot, slot)).otherwise(task)
    if FAILED in batch.columns:
        # Rows that fail are few, and join no partition: one task makes one file of them.
        task = sf.when(sf.col(FAILED).isNotNull(), sf.lit(0)).otherwise(task)
    return task


def _share(hot: HotRoute, slot: Column | None) -> Column:
    """Return the task of a row of a hot partition. Rows that cannot be hashed all go to its first task."""
    if slot is None:
        return sf.lit(hot.slots[0][1])
    task = sf.lit(hot.slots[-1][1])
    for upto, earlier in reversed(hot.slots[:-1]):
        task = sf.when(slot < upto, sf.lit(earlier)).otherwise(task)
    return task


def row_hash(rows: DataFrame) -> Column | None:
    """Return a hash of a row's values; None where none of its columns can be hashed."""
    # xxhash64 takes neither maps nor variants
    columns = [sf.col(quoted(field.name)) for field in rows.schema.fields if _hashable(field.dataType)]
    return sf.xxhash64(*columns) if columns else None


def _hashable(kind: spark.DataType) -> bool:
    if isinstance(kind, spark.StructType):
        return all(_hashable(field.dataType) for field in kind.fields)
    if isinstance(kind, spark.ArrayType):
        return _hashable(kind.elementType)
    return not isinstance(kind, spark.MapType | spark.VariantType)


def _keys(
    batch: DataFrame, table: pa.Schema, fields: Sequence[PartitionSource], skips_unfit: bool
) -> tuple[list[_Key], DataFrame]:
    """Return the key of a row, and the rows to take it from: an Arrow stage adds what Spark has no expression
    for."""
    # A column that the batch lacks is null in every row; the Arrow stage knows how to say so.
    columns = [
        key_expression(field, source_type(table, field.source)) if _has(batch.schema, field.source) else None
        for field in fields
    ]
    missing = tuple(field for field, column in zip(fields, columns, strict=True) if column is None)
    if not missing:
        return [_Key(column, is_text=False) for column in columns if column is not None], batch
    stage = KeyTask(table, missing, skips_unfit)
    added = [spark.StructField(name, spark.StringType()) for name in stage.names]
    rows = map_in_arrow(batch, stage, spark.StructType([*batch.schema.fields, *added]))
    names = iter(stage.names)
    return [
        _Key(sf.col(next(names)), is_text=True) if column is None else _Key(column, is_text=False)
        for column in columns
    ], rows


def _has(struct: spark.StructType, source: Sequence[str]) -> bool:
    kind: spark.DataType = struct
    for name in source:
        if not isinstance(kind, spark.StructType) or name not in kind.names:
            return False
        kind = kind[name].dataType
    return True


def key_expression(field: PartitionSource, kind: pa.DataType) -> Column | None:
    """Return the partition field's value as a Spark expression, or None where Spark has none of the same
    meaning.

    `kind` is the source's type in the table. The session's time zone has no part in it.
    """
    name, _, size = field.transform.partition("[")
    if not field.source:
        return sf.lit(None).cast("int")
    column = sf.col(".".join(quoted(name) for name in field.source))
    if name == "identity":
        return _identity(column, kind)
    if name == "truncate":
        return _truncated(column, kind, int(size[:-1]))
    return _time_part(column, kind, name)


def _identity(column: Column, kind: pa.DataType) -> Column | None:
    if pa.types.is_date32(kind):
        return sf.unix_date(column)
    if pa.types.is_timestamp(kind) and kind.tz:
        return sf.unix_micros(column)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    return column


def _truncated(column: Column, kind: pa.DataType, width: int) -> Column | None:
    if pa.types.is_integer(kind):
        long = column.cast("long")
        return sf.try_subtract(long, sf.pmod(long, sf.lit(width).cast("long")))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return sf.substring(column, 1, width)
    return None


def _time_part(column: Column, kind: pa.DataType, name: str) -> Column | None:
    if pa.types.is_date32(kind):
        day = sf.unix_date(column)
        hour = None
    elif pa.types.is_timestamp(kind) and kind.tz:
        micros = sf.unix_micros(column)
        day = _floor(micros, _DAY_MICROS).cast("int")
        hour = _floor(micros, _HOUR_MICROS)
    elif pa.types.is_timestamp(kind):
        day = sf.unix_date(sf.to_date(column))
        hour = day * 24 + sf.hour(column)
    else:
        return None
    date = sf.date_from_unix_date(day)
    year = sf.year(date) - 1970
    return {"year": year, "month": year * 12 + sf.month(date) - 1, "day": day, "hour": hour}.get(name)


def _floor(number: Column, divisor: int) -> Column:
    by = sf.lit(divisor).cast("long")
    return sf.call_function("div", number - sf.pmod(number, by), by)
