"""Spark's schema to Iceberg's, Arrow's to Spark's, and the names that a batch may not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from streaming_sink.table.sql_names import cannot_be_passed, folded
from streaming_sink.tasks.batches import RESERVED_PREFIX
from timeline.errors import SchemaMismatchError

PRIMITIVES: dict[str, type[iceberg.PrimitiveType]] = {
    "boolean": iceberg.BooleanType,
    "byte": iceberg.IntegerType,
    "short": iceberg.IntegerType,
    "integer": iceberg.IntegerType,
    "long": iceberg.LongType,
    "float": iceberg.FloatType,
    "double": iceberg.DoubleType,
    "date": iceberg.DateType,
    "timestamp": iceberg.TimestamptzType,
    "timestamp_ntz": iceberg.TimestampType,
    "string": iceberg.StringType,
    "char": iceberg.StringType,
    "varchar": iceberg.StringType,
    "binary": iceberg.BinaryType,
    "time": iceberg.TimeType,
}

_MOST_DIGITS = 38
_ADVICE = {
    "void": "it holds only nulls: drop it, or cast it to the type that it will have",
    "variant": "cast it with to_json to a string",
    "interval": "cast it to a number (of days, months or microseconds)",
    "geometry": "convert it to binary (st_asbinary)",
    "geography": "convert it to binary (st_asbinary)",
}


def iceberg_schema(batch: spark.StructType) -> Schema:
    """Return the Iceberg schema of a new table for rows of this shape, with ids as Iceberg assigns them.

    Every column is optional, as Iceberg's own Spark tables made from a query: that one batch is known to hold
    no null says nothing of the next.

    Raises SchemaMismatchError for duplicate names, names that differ only in case, and types that Iceberg v2
    lacks; each names the column.
    """
    check_column_names(batch)
    if not batch.fields:
        raise SchemaMismatchError("the batch has no columns, so there is no table to make of it")
    ids = count(1)
    return Schema(*_fields(batch, "", ids))


def _fields(struct: spark.StructType, prefix: str, ids: count[int]) -> list[iceberg.NestedField]:
    numbered = [(next(ids), field) for field in struct.fields]
    return [
        iceberg.NestedField(
            number,
            field.name,
            iceberg_type(field.dataType, prefix + field.name, ids),
            required=False,
            doc=field.metadata.get("comment"),
        )
        for number, field in numbered
    ]


def iceberg_type(kind: spark.DataType, path: str, ids: count[int]) -> iceberg.IcebergType:
    if isinstance(kind, spark.StructType):
        if not kind.fields:
            raise SchemaMismatchError(
                f"Parquet has no struct without fields; drop the column, or cast it to a string: {path}"
            )
        return iceberg.StructType(*_fields(kind, path + ".", ids))
    if isinstance(kind, spark.ArrayType):
        number = next(ids)
        element = iceberg_type(kind.elementType, path + ".element", ids)
        return iceberg.ListType(number, element, element_required=False)
    if isinstance(kind, spark.MapType):
        key_id, value_id = next(ids), next(ids)
        key = iceberg_type(kind.keyType, path + ".key", ids)
        value = iceberg_type(kind.valueType, path + ".value", ids)
        return iceberg.MapType(key_id, key, value_id, value, value_required=False)
    if isinstance(kind, spark.DecimalType):
        return iceberg.DecimalType(kind.precision, kind.scale)
    found = PRIMITIVES.get(type_name(kind))
    if found is None:
        raise SchemaMismatchError(f"{_unsupported(kind)}: {path}")
    return found()


def type_name(kind: spark.DataType) -> str:
    if isinstance(kind, spark.TimestampNTZType):
        return "timestamp_ntz"
    name = kind.typeName()
    return "interval" if "interval" in name else name.partition("(")[0]


def _unsupported(kind: spark.DataType) -> str:
    advice = _ADVICE.get(type_name(kind), "cast it to a type that Iceberg has, or drop it")
    return f"Iceberg has no type for a column of Spark type {kind.simpleString()}; {advice}"


def cannot_be_column(name: str) -> bool:
    """Return whether no column of a batch may have that name, whichever the others are."""
    reserved = name.lower().startswith(RESERVED_PREFIX)
    return not name or reserved or "\0" in name or cannot_be_passed(name)


def check_column_names(batch: spark.StructType, prefix: str = "") -> None:
    """Raise SchemaMismatchError if two (nested) columns share a name, or differ only in case, or a column has
    a name that the sink's own columns have while rows travel.
    """
    for kind, what in ((str, "more than once"), (folded, "in spellings that differ only in case")):
        counts = Counter(kind(field.name) for field in batch.fields)
        for field in batch.fields:
            if counts[kind(field.name)] > 1:
                same = [repr(other.name) for other in batch.fields if kind(other.name) == kind(field.name)]
                inside = f" of {prefix[:-1]}" if prefix else ""
                raise SchemaMismatchError(
                    f"the batch holds a column{inside} {what}; rename or drop all but one: {', '.join(same)}"
                )
    for field in batch.fields:
        if not prefix and field.name.lower().startswith(RESERVED_PREFIX):
            raise SchemaMismatchError(
                f"names that begin with {RESERVED_PREFIX} belong to columns that the sink adds while rows"
                f" travel; rename the column: {field.name}"
            )
        if not prefix and cannot_be_passed(field.name):
            plain = field.name.replace(".", "_").replace("`", "_").replace("*", "_")
            raise SchemaMismatchError(
                "PySpark cannot pass a column to Python workers whose name is * or holds a dot or a backtick;"
                f" rename it, as in withColumnRenamed({field.name!r}, {plain!r}): {field.name}"
            )
        if "\0" in field.name:
            raise SchemaMismatchError(
                "readers refuse a table with a NUL character in a name; rename the column:"
                f" {prefix + field.name!r}"
            )
        for path, struct in _structs(field.dataType, prefix + field.name):
            check_column_names(struct, path + ".")


def _structs(kind: spark.DataType, path: str) -> Iterable[tuple[str, spark.StructType]]:
    if isinstance(kind, spark.StructType):
        yield path, kind
    elif isinstance(kind, spark.ArrayType):
        yield from _structs(kind.elementType, path + ".element")
    elif isinstance(kind, spark.MapType):
        yield from _structs(kind.keyType, path + ".key")
        yield from _structs(kind.valueType, path + ".value")


def spark_columns(schema: bytes) -> spark.StructType | str:
    """Return columns of Arrow, serialized, as Spark has them; why not, where Spark knows no such type."""
    columns = pa.ipc.read_schema(pa.BufferReader(schema))
    for column in columns:
        if (digits := _most_digits(column.type)) > _MOST_DIGITS:
            return f"column {column.name} has a decimal of {digits} digits; write at most {_MOST_DIGITS}"
    try:
        return from_arrow_schema(columns, prefer_timestamp_ntz=True)
    except Exception as unsupported:  # noqa: BLE001 - Spark raises several kinds
        return f"a column has a type that Spark does not know: {unsupported}"


def _most_digits(kind: pa.DataType) -> int:
    """Return the digits of the widest decimal that is in a type; 0 where none is."""
    inner = [_most_digits(kind.field(place).type) for place in range(kind.num_fields)]
    return max(inner, default=kind.precision if pa.types.is_decimal(kind) else 0)
