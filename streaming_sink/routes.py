"""How the rows of a batch travel to the tasks that write them. Public DataFrame API only, so it runs on Connect too.

A row's task is a function of its values alone (R10): Spark may run a part of a stage again after it has lost an
executor, and a row that then went elsewhere would be written twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from planners.model import PartitionKey
from streaming_sink.partitioning import source_array, transformed
from streaming_sink.writejob import PartitionSource


@dataclass(frozen=True, slots=True)
class Unshuffled:
    """Tasks write what they read (`bulk_insert`)."""


@dataclass(frozen=True, slots=True)
class Coalesced:
    """All rows go to one task without a shuffle; everything upstream runs at that width too."""


@dataclass(frozen=True, slots=True)
class HotPartition:
    """A partition whose rows are spread over several tasks, or have one of their own."""

    partition: PartitionKey
    slots: tuple[int, ...]
    """Slot -> task: a row's slot is its hash modulo their number, so a task's share is its number of slots."""


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Rows go by value: those of `hot` partitions to their tasks, every other partition as a whole to one of `cold`."""

    tasks: int
    hot: tuple[HotPartition, ...]
    cold: tuple[int, ...]


Route = Unshuffled | Coalesced | Shuffled

_ROUTE = "__streaming_sink_route_{}"
_DAY_MICROS = 86_400_000_000
_HOUR_MICROS = 3_600_000_000


def routed(batch: DataFrame, route: Route, fields: Sequence[PartitionSource]) -> DataFrame:
    """Return `batch` with its rows in the tasks that `route` says; Spark partition n is task n."""
    if isinstance(route, Unshuffled):
        return batch
    if isinstance(route, Coalesced) or route.tasks == 1:
        return batch.coalesce(1)
    keys, rows = _key_columns(batch, fields)
    placed = rows.repartitionById(route.tasks, _task(rows, route, keys).cast("int"))
    return placed.select(*(F.col(_quoted(name)) for name in batch.columns))


def _task(rows: DataFrame, route: Shuffled, keys: list[Column]) -> Column:
    task = _pick(route.cold, F.xxhash64(*keys)) if keys and route.cold else F.lit(route.cold[0] if route.cold else 0)
    whole_row = _row_hash(rows)
    for hot in reversed(route.hot):
        share = _pick(hot.slots, whole_row) if whole_row is not None else F.lit(hot.slots[0])
        here = [key.eqNullSafe(_literal(value, key, texts)) for key, value in zip(keys, hot.partition, strict=True)]
    return task


def _pick(tasks: Sequence[int], hashed: Column) -> Column:
    if len(set(tasks)) == 1:
        return F.lit(tasks[0])
    slot = F.pmod(hashed, F.lit(len(tasks)))
    return F.get(F.array(*(F.lit(task) for task in tasks)), slot.cast("int"))


def _row_hash(rows: DataFrame) -> Column | None:
    # xxhash64 takes neither maps nor variants
    columns = [F.col(_quoted(field.name)) for field in rows.schema.fields if _hashable(field.dataType)]
    return F.xxhash64(*columns) if columns else None


def _hashable(kind: spark.DataType) -> bool:
    if isinstance(kind, spark.StructType):
        return all(_hashable(field.dataType) for field in kind.fields)
    if isinstance(kind, spark.ArrayType):
        return _hashable(kind.elementType)
    return not isinstance(kind, spark.MapType | spark.VariantType)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _source(field: PartitionSource) -> Column:
    return F.col(".".join(_quoted(name) for name in field.source))


def _key_columns(
    batch: DataFrame, table: pa.Schema, fields: Sequence[PartitionSource]
) -> tuple[list[Column], DataFrame]:
    """Return a column a partition field that holds the value of the partition key, and the rows that carry them.

    Where Spark has no expression of the same meaning, an Arrow stage adds the column.
    """
    columns = [key_expression(field, source_type(table, field.source)) for field in fields]
    missing = tuple(field for field, column in zip(fields, columns, strict=True) if column is None)
    if not missing:
        return [column for column in columns if column is not None], batch
    stage = AddKeys(table, missing)
    rows = batch.mapInArrow(stage, spark.StructType([*batch.schema.fields, *stage.spark_fields()]))
    added = iter(stage.names())
    return [F.col(next(added)) if column is None else column for column in columns], rows


def key_expression(field: PartitionSource, kind: pa.DataType) -> Column | None:
    """Return the partition field's value as a Spark expression, or None where Spark has none of the same meaning.

    `kind` is the source's type in the table. The session's time zone has no part in it.
    """
    column = F.col(".".join(_quoted(name) for name in field.source))
    name, _, size = field.transform.partition("[")
    if name == "void":
        return F.lit(None).cast("int")
    if name == "identity":
        return _identity(column, kind)
    if name == "truncate":
        return _truncated(column, kind, int(size[:-1]))
    return _time_part(column, kind, name)


def _identity(column: Column, kind: pa.DataType) -> Column | None:
    if pa.types.is_date32(kind):
        return F.unix_date(column)
    if pa.types.is_timestamp(kind) and kind.tz:
        return F.unix_micros(column)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    return column


def _truncated(column: Column, kind: pa.DataType, width: int) -> Column | None:
    if pa.types.is_integer(kind):
        long = column.cast("long")
        return F.try_subtract(long, F.pmod(long, F.lit(width).cast("long")))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return F.substring(column, 1, width)
    return None


def _time_part(column: Column, kind: pa.DataType, name: str) -> Column | None:
    if pa.types.is_date32(kind):
        day = F.unix_date(column)
        hour = None
    elif pa.types.is_timestamp(kind) and kind.tz:
        micros = F.unix_micros(column)
        day = _floor(micros, _DAY_MICROS).cast("int")
        hour = _floor(micros, _HOUR_MICROS)
    elif pa.types.is_timestamp(kind):
        day = F.unix_date(F.to_date(column))
        hour = day * 24 + F.hour(column)
    else:
        return None
    date = F.date_from_unix_date(day)
    year = F.year(date) - 1970
    return {"year": year, "month": year * 12 + F.month(date) - 1, "day": day, "hour": hour}.get(name)


def _floor(number: Column, divisor: int) -> Column:
    by = F.lit(divisor).cast("long")
    return F.call_function("div", number - F.pmod(number, by), by)


class AddKeys:
    """An Arrow stage that appends partition key columns, for `DataFrame.mapInArrow`."""

    def __init__(self, table: pa.Schema, fields: tuple[PartitionSource, ...]) -> None:
        self._fields = fields
        tops = dict.fromkeys(field.source[0] for field in fields)
        self._sources = pa.schema([table.field(name) for name in tops])

    def names(self) -> list[str]:
        """The names of the columns that it appends."""
        return [f"__streaming_sink_key_{index}" for index in range(len(self._fields))]

    def spark_fields(self) -> list[spark.StructField]:
        """The columns that it appends: text for what is not an integer."""
        return [spark.StructField(name, spark.StringType()) for name in self.names()]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sources = conform(batch, self._sources)
            keys = [key_text(sources, field) for field in self._fields]
            names = [*batch.schema.names, *self.names()]
            yield pa.RecordBatch.from_arrays([*batch.columns, *keys], names=names)
