"""The type that a caller gives for JSON text: its keys are columns as those of the table are, also where no
text of a batch has them.
"""

from __future__ import annotations

from pyiceberg import types as iceberg
from pyspark.sql import types as spark

from streaming_sink.table.schema import iceberg_schema


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
