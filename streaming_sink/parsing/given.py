"""The type that a caller gives for JSON text: its keys are columns as those of the table are, also where no
text of a batch has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg import types as iceberg
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.rules import fit_value
from streaming_sink.parsing.columns import conversions_of
from streaming_sink.table.fitting import Misfit, Path
from streaming_sink.table.schema import iceberg_schema
from streaming_sink.tasks.batches import RESERVED_PREFIX

_NOT_OF_TYPE = RESERVED_PREFIX + "not_of_type"
_FROM_TEXT = (
    iceberg.BooleanType
    | iceberg.IntegerType
    | iceberg.LongType
    | iceberg.FloatType
    | iceberg.DoubleType
    | iceberg.DateType
    | iceberg.TimestampType
    | iceberg.TimestamptzType
)


def as_struct(as_type: spark.StructType | str) -> spark.StructType:
    """Return a type that is given as such, or as DDL: `"op STRING, after STRUCT<id: BIGINT>"`. ValueError
    for one that is no struct.
    """
    kind = spark.DataType.fromDDL(as_type) if isinstance(as_type, str) else as_type
    if not isinstance(kind, spark.StructType):
        raise ValueError(f"as_type must be the columns of an object, such as 'id BIGINT', not {as_type!r}")
    return kind


def known_columns(table: iceberg.StructType | None, given: spark.StructType) -> iceberg.StructType:
    """Return the columns of the table, and those that are given, which go before ones of their names."""
    own = iceberg_schema(given).fields
    names = {field.name for field in own}
    others = () if table is None else (field for field in table.fields if field.name not in names)
    return iceberg.StructType(*own, *others)


def with_keys(inferred: spark.StructType, given: spark.StructType) -> spark.StructType:
    """Return the type of the objects of a batch, with nulls alone for given keys that none of them has."""
    found = {field.name: field.dataType for field in inferred.fields}
    for field in given.fields:
        kind = found.setdefault(field.name, spark.NullType())
        if isinstance(kind, spark.StructType) and isinstance(field.dataType, spark.StructType):
            found[field.name] = with_keys(kind, field.dataType)
    return spark.StructType([spark.StructField(name, kind) for name, kind in found.items()])


def given_conversions(given: spark.StructType) -> dict[Path, Misfit]:
    """Return the columns and fields of a given type, each with the conversion from its text."""
    return conversions_of(iceberg_schema(given).as_struct(), _from_text) if given.fields else {}


def _from_text(kind: iceberg.IcebergType) -> Misfit | None:
    return Misfit("drop", spark.StringType(), kind) if isinstance(kind, _FROM_TEXT) else None


def not_of_type(value: Column, given: spark.StructType) -> Iterator[tuple[str, Column]]:
    """Yield whether a JSON text has a value that the given type does not hold, with where it is and the
    type there: for each column with fields or elements, then for what converts from text.
    """
    conversions = given_conversions(given)
    for field in given.fields:
        name, kind = field.name, field.dataType
        columns = [
            spark.StructField(name, _as_text(kind)),
            spark.StructField(_NOT_OF_TYPE, spark.StringType()),
        ]
        # Spark fills the column of corrupt records where objects or lists are not where the type has them.
        read = sf.from_json(value, spark.StructType(columns), {"columnNameOfCorruptRecord": _NOT_OF_TYPE})
        yield f"{name} is {kind.simpleString()}", read[_NOT_OF_TYPE].isNotNull()
        for path, unfit in fit_value(read[name], _as_text(kind), (name,), conversions).failing:
            yield f"{'.'.join(path)} is {conversions[path].into}", unfit


def _as_text(kind: spark.DataType) -> spark.DataType:
    """Return a type with the same objects and lists, all of whose values are text."""
    if isinstance(kind, spark.StructType):
        return spark.StructType(
            [spark.StructField(each.name, _as_text(each.dataType)) for each in kind.fields]
        )
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_as_text(kind.elementType))
    if isinstance(kind, spark.MapType):
        return spark.MapType(kind.keyType, _as_text(kind.valueType))
    return spark.StringType()
