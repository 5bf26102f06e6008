"""The type that a caller gives for JSON text: its keys are columns as those of the table are, also where no
text of a batch has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count

from pyiceberg import types as iceberg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.rules import JsonText, fit_value
from streaming_sink.parsing.columns import conversions_of
from streaming_sink.table.fitting import Misfit, Path
from streaming_sink.table.schema import iceberg_schema, iceberg_type
from streaming_sink.table.sql_names import folded, quoted
from streaming_sink.tasks.batches import RESERVED_PREFIX

_NOT_OF_TYPE = RESERVED_PREFIX + "not_of_type"
_EXACT = (spark.ByteType, spark.ShortType, spark.BinaryType)
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
    """Return the columns of the table, and those that are given, which go before ones of their names, in any
    case.
    """
    own = iceberg_schema(given).fields
    names = {folded(field.name) for field in own}
    others = () if table is None else (field for field in table.fields if folded(field.name) not in names)
    return iceberg.StructType(*own, *others)


def without_other_cases(
    known: iceberg.StructType | None,
    table: iceberg.StructType | None,
    given: spark.StructType,
    keys: Collection[str],
) -> iceberg.StructType | None:
    """Return the known columns, without those of the table that are keys of the texts in another case, where
    a column is given that the table lacks: the texts are envelopes then, whose own keys are no columns, such
    as `ts_ms` beside a column `TS_MS` of the source.
    """
    own = set() if table is None else {field.name for field in table.fields}
    if known is None or own.issuperset(given.fieldNames()):
        return known
    spelled = {folded(key) for key in keys}
    return iceberg.StructType(
        *(each for each in known.fields if each.name in keys or folded(each.name) not in spelled)
    )


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
    if not given.fields:
        return {}
    return conversions_of(iceberg_schema(given).as_struct(), _from_text) | dict(_exact(given, ()))


def _from_text(kind: iceberg.IcebergType) -> Misfit | None:
    return Misfit("drop", spark.StringType(), kind) if isinstance(kind, _FROM_TEXT) else None


def _exact(kind: spark.DataType, path: Path) -> Iterator[tuple[Path, JsonText]]:
    """Yield the columns and fields of a given type that are `_EXACT`."""
    if isinstance(kind, spark.StructType):
        for field in kind.fields:
            yield from _exact(field.dataType, (*path, field.name))
    elif isinstance(kind, spark.ArrayType):
        yield from _exact(kind.elementType, (*path, "element"))
    elif isinstance(kind, spark.MapType):
        yield from _exact(kind.valueType, (*path, "value"))
    elif isinstance(kind, _EXACT):
        yield path, JsonText("drop", spark.StringType(), iceberg_type(kind, "", count(1)), kind)


def as_given(rows: DataFrame, given: spark.StructType) -> DataFrame:
    """Return rows with their numbers of a byte or two in the types that are given: Iceberg has int alone."""
    if not any(_exact(given, ())):
        return rows
    kinds = {field.name: field.dataType for field in given.fields}
    found = {
        field.name: _narrowed(field.dataType, kinds[field.name])
        for field in rows.schema.fields
        if field.name in kinds
    }
    return rows.select(
        *(
            sf.col(quoted(field.name)).cast(found[field.name]).alias(field.name, metadata=field.metadata)
            if found.get(field.name, field.dataType) != field.dataType
            else sf.col(quoted(field.name))
            for field in rows.schema.fields
        )
    )


def _narrowed(kind: spark.DataType, given: spark.DataType) -> spark.DataType:
    """Return a type with the given bytes and shorts in the place of ints."""
    if isinstance(kind, spark.StructType) and isinstance(given, spark.StructType):
        kinds = {field.name: field.dataType for field in given.fields}
        return spark.StructType(
            [
                spark.StructField(
                    each.name, _narrowed(each.dataType, kinds.get(each.name, each.dataType)), each.nullable
                )
                for each in kind.fields
            ]
        )
    if isinstance(kind, spark.ArrayType) and isinstance(given, spark.ArrayType):
        return spark.ArrayType(_narrowed(kind.elementType, given.elementType), kind.containsNull)
    if isinstance(kind, spark.MapType) and isinstance(given, spark.MapType):
        return spark.MapType(kind.keyType, _narrowed(kind.valueType, given.valueType), kind.valueContainsNull)
    whole = isinstance(kind, spark.IntegerType) and isinstance(given, spark.ByteType | spark.ShortType)
    return given if whole else kind


def not_of_type(value: Column, given: spark.StructType) -> Iterator[tuple[str, Column]]:
    """Yield whether a JSON text has a value that the given type does not hold, with where it is and the
    type there: for each column with fields or elements, then for what converts from text.
    """
    conversions = given_conversions(given)
    for field in given.fields:
        name, kind = field.name, field.dataType
        columns = [
            spark.StructField(name, _as_text(kind, but=spark.BinaryType)),
            spark.StructField(_NOT_OF_TYPE, spark.StringType()),
        ]
        # Spark fills the column of corrupt records where objects or lists are not where the type has them,
        # and where numbers or booleans are in the place of bytes.
        read = sf.from_json(value, spark.StructType(columns), {"columnNameOfCorruptRecord": _NOT_OF_TYPE})
        yield f"{name} is {kind.simpleString()}", read[_NOT_OF_TYPE].isNotNull()
        texts = sf.from_json(value, spark.StructType([spark.StructField(name, _as_text(kind))]))
        for path, unfit in fit_value(texts[name], _as_text(kind), (name,), conversions).failing:
            yield f"{'.'.join(path)} is {_named(conversions[path])}", unfit


def _named(conversion: Misfit) -> str:
    return conversion.exact.simpleString() if isinstance(conversion, JsonText) else str(conversion.into)


def _as_text(kind: spark.DataType, but: type[spark.DataType] = spark.StringType) -> spark.DataType:
    """Return a type with the same objects and lists, all of whose values are text but those of one type."""
    if isinstance(kind, spark.StructType):
        return spark.StructType(
            [spark.StructField(each.name, _as_text(each.dataType, but)) for each in kind.fields]
        )
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_as_text(kind.elementType, but))
    if isinstance(kind, spark.MapType):
        return spark.MapType(kind.keyType, _as_text(kind.valueType, but))
    return kind if isinstance(kind, but) else spark.StringType()
