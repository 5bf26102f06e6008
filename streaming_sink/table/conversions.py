"""Types of Spark and of Iceberg beside each other: which hold each other's values, which convert."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg import types as iceberg
from pyspark.sql import types as spark

from streaming_sink.table.schema import PRIMITIVES, type_name
from timeline.errors import SchemaMismatchError
from timeline.versions.evolution import holds

_WIDER = {
    "int": {"byte", "short", "integer"},
    "long": {"byte", "short", "integer", "long"},
    "float": {"byte", "short", "float"},
    "double": {"byte", "short", "integer", "float", "double"},
    "uuid": {"string", "char", "varchar"},
}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_TOO_MANY = 39
"""A decimal has at most 38 digits."""
_TEXT = {"string", "char", "varchar"}
_NUMBERS = {"byte", "short", "integer", "long", "float", "double", "decimal"}
_FROM_TEXT = (
    iceberg.BooleanType,
    iceberg.DateType,
    iceberg.TimestampType,
    iceberg.TimestamptzType,
)
_TO_NUMBER = (
    iceberg.IntegerType,
    iceberg.LongType,
    iceberg.FloatType,
    iceberg.DoubleType,
    iceberg.DecimalType,
)
_SPARK: dict[str, type[spark.DataType]] = {
    "boolean": spark.BooleanType,
    "int": spark.IntegerType,
    "long": spark.LongType,
    "float": spark.FloatType,
    "double": spark.DoubleType,
    "date": spark.DateType,
    "timestamp": spark.TimestampNTZType,
    "timestamptz": spark.TimestampType,
    "string": spark.StringType,
    "uuid": spark.StringType,
    "time": spark.TimeType,
}


def fits(table: iceberg.IcebergType, kind: spark.DataType) -> bool:
    """Return whether a column of the table holds each value of the batch's type, as the sink writes it."""
    if isinstance(table, iceberg.DecimalType):
        if isinstance(kind, spark.DecimalType):
            digits, scale = kind.precision - kind.scale, kind.scale
        else:
            digits, scale = _DIGITS.get(type_name(kind), _TOO_MANY), 0
        return scale <= table.scale and digits <= table.precision - table.scale
    if isinstance(table, iceberg.FixedType):
        return isinstance(kind, spark.BinaryType)
    if not isinstance(table, iceberg.PrimitiveType):
        return False
    if str(table) in _WIDER:
        return type_name(kind) in _WIDER[str(table)]
    same = PRIMITIVES.get(type_name(kind))
    return same is not None and isinstance(table, same)


def wider_type(table: iceberg.IcebergType, kind: spark.DataType) -> iceberg.IcebergType | None:
    """Return the batch's type if a column of the table's type can be widened to it (Iceberg v2)."""
    if isinstance(kind, spark.DecimalType):
        batch: iceberg.IcebergType = iceberg.DecimalType(kind.precision, kind.scale)
    elif (primitive := PRIMITIVES.get(type_name(kind))) is not None:
        batch = primitive()
    else:
        return None
    return batch if table.is_primitive and holds(batch, table) else None


def converts(table: iceberg.IcebergType, kind: spark.DataType) -> bool:
    """Return whether some values of the batch's type convert to the table's without loss: text and numbers to
    each other, text to times, booleans and dates to text, text that is valid UTF-8 to text. What depends on a
    time zone alone does not.
    """
    name = type_name(kind)
    if name in _TEXT:
        return isinstance(table, (*_FROM_TEXT, *_TO_NUMBER, iceberg.StringType))
    if name in _NUMBERS:
        return isinstance(table, (*_TO_NUMBER, iceberg.StringType))
    return name in {"boolean", "date"} and isinstance(table, iceberg.StringType)


def is_text(kind: spark.DataType) -> bool:
    return type_name(kind) in _TEXT


def spark_type(kind: iceberg.IcebergType) -> spark.DataType:
    """Return the Spark type of a table's column, all nullable."""
    if isinstance(kind, iceberg.StructType):
        return spark.StructType(
            [spark.StructField(field.name, spark_type(field.field_type)) for field in kind.fields]
        )
    if isinstance(kind, iceberg.ListType):
        return spark.ArrayType(spark_type(kind.element_type))
    if isinstance(kind, iceberg.MapType):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.value_type))
    if isinstance(kind, iceberg.DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    return _SPARK.get(str(kind), spark.BinaryType)()


def type_text(kind: spark.DataType) -> str:
    """Return the name of a type for people: of times as Iceberg has it, whose `timestamp` has no zone."""
    name = kind.simpleString()
    return {"timestamp": "timestamptz", "timestamp_ntz": "timestamp"}.get(name, name)


def refusal_of_type(
    table: iceberg.IcebergType, kind: spark.DataType, path: Sequence[str], what: str
) -> SchemaMismatchError:
    """Return what to raise for a column whose type the table's does not take."""
    advice = (
        f"cast {what}" if what else 'cast the column, or widen the table\'s: SchemaContract(widening="widen")'
    )
    return SchemaMismatchError(
        f"the table's column does not take the batch's type as it is; {advice}: {'.'.join(path)} is"
        f" {type_text(kind)} in the batch and {table} in the table"
    )
