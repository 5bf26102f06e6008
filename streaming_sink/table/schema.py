"""Spark's schema to Iceberg's, and whether a batch fits a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from planners.suggestions import nearest_name
from streaming_sink.tasks.batches import RESERVED_PREFIX
from timeline.errors import SchemaMismatchError

_PRIMITIVES: dict[str, type[iceberg.PrimitiveType]] = {
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
    no null
    says nothing of the next.

    Raises SchemaMismatchError for duplicate names, names that differ only in case, and types that Iceberg v2
    lacks; each names the column.
    """
    check_names(batch)
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
            _iceberg_type(field.dataType, prefix + field.name, ids),
            required=False,
            doc=field.metadata.get("comment"),
        )
        for number, field in numbered
    ]


def _iceberg_type(kind: spark.DataType, path: str, ids: count[int]) -> iceberg.IcebergType:
    if isinstance(kind, spark.StructType):
        return iceberg.StructType(*_fields(kind, path + ".", ids))
    if isinstance(kind, spark.ArrayType):
        number = next(ids)
        element = _iceberg_type(kind.elementType, path + ".element", ids)
        return iceberg.ListType(number, element, element_required=False)
    if isinstance(kind, spark.MapType):
        key_id, value_id = next(ids), next(ids)
        key = _iceberg_type(kind.keyType, path + ".key", ids)
        value = _iceberg_type(kind.valueType, path + ".value", ids)
        return iceberg.MapType(key_id, key, value_id, value, value_required=False)
    if isinstance(kind, spark.DecimalType):
        return iceberg.DecimalType(kind.precision, kind.scale)
    found = _PRIMITIVES.get(_name(kind))
    if found is None:
        raise SchemaMismatchError(f"{_unsupported(kind)}: {path}")
    return found()


def _name(kind: spark.DataType) -> str:
    if isinstance(kind, spark.TimestampNTZType):
        return "timestamp_ntz"
    name = kind.typeName()
    return "interval" if "interval" in name else name.partition("(")[0]


def _unsupported(kind: spark.DataType) -> str:
    advice = _ADVICE.get(_name(kind), "cast it to a type that Iceberg has, or drop it")
    return f"Iceberg has no type for a column of Spark type {kind.simpleString()}; {advice}"


def check_names(batch: spark.StructType, prefix: str = "") -> None:
    """Raise SchemaMismatchError if two (nested) columns share a name, or differ only in case, or a column has
    a name that the sink's own columns have while rows travel.
    """
    for kind, what in ((str, "more than once"), (str.lower, "in spellings that differ only in case")):
        counts = Counter(kind(field.name) for field in batch.fields)
        for field in batch.fields:
            if counts[kind(field.name)] > 1:
                same = [repr(other.name) for other in batch.fields if kind(other.name) == kind(field.name)]
                inside = f" of {prefix[:-1]}" if prefix else ""
                raise SchemaMismatchError(
                    f"the batch holds a column{inside} {what}; rename or drop all but one: {', '.join(same)}"
                )
    for field in batch.fields:
        if not prefix and field.name.startswith(RESERVED_PREFIX):
            raise SchemaMismatchError(
                f"names that begin with {RESERVED_PREFIX} belong to columns that the sink adds while rows"
                f" travel; rename the column: {field.name}"
            )
        if not prefix and ("." in field.name or "`" in field.name):
            plain = field.name.replace(".", "_").replace("`", "_")
            raise SchemaMismatchError(
                "PySpark cannot pass a column whose name holds a dot or a backtick to Python workers; rename "
                f"it, as in withColumnRenamed({field.name!r}, {plain!r}): {field.name}"
            )
        for path, struct in _structs(field.dataType, prefix + field.name):
            check_names(struct, path + ".")


def _structs(kind: spark.DataType, path: str) -> Iterable[tuple[str, spark.StructType]]:
    if isinstance(kind, spark.StructType):
        yield path, kind
    elif isinstance(kind, spark.ArrayType):
        yield from _structs(kind.elementType, path + ".element")
    elif isinstance(kind, spark.MapType):
        yield from _structs(kind.keyType, path + ".key")
        yield from _structs(kind.valueType, path + ".value")


def check_batch(schema: Schema, batch: spark.StructType) -> None:
    """Raise SchemaMismatchError unless rows of `batch` can be written to a table of `schema` without loss.

    A nullable column that the batch lacks is written as nulls. Columns match by name, in any order.
    Whether a nullable column of the batch that the table requires holds nulls shows only while writing.
    """
    check_names(batch)
    _check_struct(schema.as_struct(), batch, "")


def _check_struct(table: iceberg.StructType, batch: spark.StructType, prefix: str) -> None:
    given = {field.name: field for field in batch.fields}
    known = {field.name: field for field in table.fields}
    for name in given:
        if name not in known:
            raise SchemaMismatchError(_new_column(name, prefix, list(known)))
    for name, field in known.items():
        if name in given:
            _check_type(field.field_type, given[name].dataType, prefix + name)
        elif field.required:
            raise SchemaMismatchError(f"the table requires a column that the batch lacks: {prefix}{name}")


def _new_column(name: str, prefix: str, known: list[str]) -> str:
    same = [other for other in known if other.lower() == name.lower()]
    if same:
        said = "the batch spells a column of the table in another case; rename it"
        return f"{said}: {prefix}{name} (table: {same[0]})"
    near = nearest_name(name, known)
    hint = f" (did you mean {near}?)" if near else ""
    return (
        "the batch has a column that the table lacks, and this sink does not change a table's schema; drop it"
        f" from the batch, or write to a new table: {prefix}{name}{hint}"
    )


def _check_type(table: iceberg.IcebergType, kind: spark.DataType, path: str) -> None:
    if isinstance(table, iceberg.StructType) and isinstance(kind, spark.StructType):
        _check_struct(table, kind, path + ".")
    elif isinstance(table, iceberg.ListType) and isinstance(kind, spark.ArrayType):
        _check_type(table.element_type, kind.elementType, path + ".element")
    elif isinstance(table, iceberg.MapType) and isinstance(kind, spark.MapType):
        _check_type(table.key_type, kind.keyType, path + ".key")
        _check_type(table.value_type, kind.valueType, path + ".value")
    elif not _fits(table, kind):
        raise SchemaMismatchError(
            f"the batch's type does not fit the table's without loss; cast the column: {path} is "
            f"{kind.simpleString()} in the batch and {table} in the table"
        )


_WIDER = {
    "int": {"byte", "short", "integer"},
    "long": {"byte", "short", "integer", "long"},
    "double": {"float", "double"},
    "uuid": {"string", "char", "varchar"},
}


def _fits(table: iceberg.IcebergType, kind: spark.DataType) -> bool:
    if isinstance(table, iceberg.DecimalType):
        if not isinstance(kind, spark.DecimalType):
            return False
        return kind.scale == table.scale and kind.precision <= table.precision
    if isinstance(table, iceberg.FixedType):
        return isinstance(kind, spark.BinaryType)
    if not isinstance(table, iceberg.PrimitiveType):
        return False
    if str(table) in _WIDER:
        return _name(kind) in _WIDER[str(table)]
    same = _PRIMITIVES.get(_name(kind))
    return same is not None and isinstance(table, same)
