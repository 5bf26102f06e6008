"""Rebuilds rows from the quarantine's JSON: with the types that they had, chosen and repaired by SQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pyiceberg import types as iceberg
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from planners.suggestions import unknown_name
from streaming_sink.table.conversions import spark_type
from streaming_sink.table.row_expressions import summarize_error
from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.batches import RESERVED_PREFIX
from streaming_sink.tasks.rows.failures import REPLAYED

Fix = Callable[[DataFrame], DataFrame]

_READ_ALL_OR_FAIL = {"mode": "FAILFAST", "columnNameOfCorruptRecord": RESERVED_PREFIX + "corrupt"}
"""By default `from_json` makes nulls of what it cannot read, and takes a column of that name for its own."""


def rebuilt(waiting: DataFrame, schema: str, table: iceberg.StructType) -> DataFrame:
    """Return the waiting rows of one schema; `row` is a struct of the values that came.

    What the quarantine holds by a detour has the table's form again: a map with keys that are no strings, and
    text that is not valid UTF-8.
    """
    # Spark computes what conditions share before it tests the first of them, so that a filter would not keep
    # rows of other schemas from this one's parser.
    parsed = sf.when(sf.col("schema") == schema, sf.from_json("row", schema, _READ_ALL_OR_FAIL))
    rows = waiting.withColumn("row", parsed).where(sf.col("row").isNotNull())
    kind = rows.schema["row"].dataType
    return rows.withColumn("row", _restored(sf.col("row"), kind, table))


def _differs(kind: spark.DataType, table: iceberg.IcebergType | None) -> bool:
    """Return whether values of a type came by a detour on the way to the table's form."""
    if isinstance(kind, spark.BinaryType):
        return isinstance(table, iceberg.StringType)
    if isinstance(kind, spark.StructType) and isinstance(table, iceberg.StructType):
        types = {field.name: field.field_type for field in table.fields}
        return any(_differs(field.dataType, types.get(field.name)) for field in kind.fields)
    if isinstance(kind, spark.ArrayType) and isinstance(table, iceberg.MapType):
        entry = kind.elementType
        return isinstance(entry, spark.StructType) and entry.names == ["key", "value"]
    if isinstance(kind, spark.ArrayType) and isinstance(table, iceberg.ListType):
        return _differs(kind.elementType, table.element_type)
    if isinstance(kind, spark.MapType) and isinstance(table, iceberg.MapType):
        return _differs(kind.valueType, table.value_type)
    return False


def _restored(value: Column, kind: spark.DataType, table: iceberg.IcebergType | None) -> Column:
    """Return a value in the table's form. Each level is built once: a list within lists would take twice as
    long for every level.
    """
    if not _differs(kind, table):
        return value
    if isinstance(kind, spark.StructType) and isinstance(table, iceberg.StructType):
        types = {field.name: field.field_type for field in table.fields}
        parts = [
            _restored(value.getField(field.name), field.dataType, types.get(field.name)).alias(field.name)
            for field in kind.fields
        ]
        return sf.when(value.isNotNull(), sf.struct(*parts))
    if isinstance(kind, spark.ArrayType) and isinstance(table, iceberg.MapType):
        return sf.map_from_entries(_restored_elements(value, kind.elementType, _entry_of(table)))
    if isinstance(kind, spark.ArrayType) and isinstance(table, iceberg.ListType):
        return _restored_elements(value, kind.elementType, table.element_type)
    if isinstance(kind, spark.MapType) and isinstance(table, iceberg.MapType):
        inside, into = kind.valueType, table.value_type
        return sf.transform_values(value, lambda _, each: _restored(each, inside, into))
    return value.cast("string")


def _restored_elements(value: Column, kind: spark.DataType, table: iceberg.IcebergType) -> Column:
    if not _differs(kind, table):
        return value
    return sf.transform(value, lambda each: _restored(each, kind, table))


def _entry_of(table: iceberg.MapType) -> iceberg.StructType:
    return iceberg.StructType(
        iceberg.NestedField(table.key_id, "key", table.key_type, required=True),
        iceberg.NestedField(table.value_id, "value", table.value_type, required=False),
    )


def row_fields(rows: DataFrame) -> list[spark.StructField]:
    """Return the columns that rebuilt rows had."""
    kind = rows.schema["row"].dataType
    assert isinstance(kind, spark.StructType)
    return kind.fields


def chosen(rows: DataFrame, where: str | None, elsewhere: Mapping[str, spark.DataType]) -> DataFrame:
    """Return the rebuilt rows that meet a condition, as they came, with the column `REPLAYED`.

    The condition sees the quarantine's columns, and the row's own by their names; one that is called as a
    column of the quarantine is `row.name`. Fields that only rows of other schemas have (`elsewhere`) are
    null. ValueError for what is no condition.
    """
    if where is not None:
        fields = row_fields(rows)
        names = [field.name for field in fields]
        taken = {name.lower() for name in rows.columns}
        own = [sf.col("row").getField(name).alias(name) for name in names if name.lower() not in taken]
        seen = rows.select("*", *own, *_nulls(elsewhere, [*rows.columns, *names]))
        try:
            rows = seen.where(sf.expr(where))
            _ = rows.schema
        except PySparkException as error:
            raise ValueError(
                "where must be an SQL condition over the quarantine's columns"
                f" ({', '.join(rows.columns)}) and the row's own ({_spelled(fields)}):"
                f" {where}: {summarize_error(error)}"
            ) from error
    return rows.select(sf.col("row_id").alias(REPLAYED), sf.col("row.*"))


def assigned(
    rows: DataFrame,
    values: Mapping[str, str],
    elsewhere: Mapping[str, spark.DataType],
    table: iceberg.StructType,
) -> DataFrame:
    """Return rows with columns set to SQL expressions, all over the row as it came. A column that the rows
    lack is added where the table has it, in the place of one whose name differs in case alone: expressions
    mean that one by either name. ValueError for what is no expression.
    """
    columns = {field.name: field.field_type for field in table.fields}
    have = [name for name in rows.columns if name != REPLAYED]
    wanted = {name: text for name, text in values.items() if name in have or name in columns}
    seen = rows.select("*", *_nulls(elsewhere, have))
    new = {name: _value(seen, name, text) for name, text in wanted.items()}
    for name, value in new.items():
        if isinstance(seen.select(value).schema.fields[0].dataType, spark.NullType):
            kind = rows.schema[name].dataType if name in have else spark_type(columns[name])
            new[name] = value.cast(kind)
    added = {name: value.alias(name) for name, value in new.items() if name not in rows.columns}
    replaced = {name.lower() for name in added}
    kept = [name for name in rows.columns if name.lower() not in replaced]
    return seen.select(*(new.get(name, sf.col(quoted(name))).alias(name) for name in kept), *added.values())


def _nulls(elsewhere: Mapping[str, spark.DataType], taken: Collection[str]) -> list[Column]:
    """Return nulls for fields that only rows of other schemas have. They suit any type; only those of structs
    have one, so that expressions may name what is in it.
    """
    lower = {name.lower() for name in taken}
    absent = {name: kind for name, kind in elsewhere.items() if name.lower() not in lower}
    return [
        (sf.lit(None).cast(kind) if isinstance(kind, spark.StructType) else sf.lit(None)).alias(name)
        for name, kind in absent.items()
    ]


def _spelled(fields: Collection[spark.StructField]) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)


def _value(rows: DataFrame, name: str, text: str) -> Column:
    try:
        # In a `when` beside a column, since an aggregate and a generator are no values of a row.
        first = sf.col(quoted(rows.columns[0]))
        _ = rows.select(first, sf.when(sf.lit(True), sf.expr(text))).schema
    except PySparkException as error:
        raise ValueError(
            f"set must be SQL expressions over the row's columns ({_spelled(rows.schema.fields)}):"
            f" {name} = {text}: {summarize_error(error)}"
        ) from error
    return sf.expr(text)


def check_columns(values: Mapping[str, str], known: Collection[str]) -> None:
    """Raise TypeError for what maps no columns to texts, ValueError for a column that neither a row nor the
    table has.
    """
    given: Any = values
    if not isinstance(given, Mapping) or not all(
        isinstance(it, str) for pair in given.items() for it in pair
    ):
        raise TypeError(
            f"set must map columns to SQL expressions, such as {{'price': 'abs(price)'}}, not {given!r}"
        )
    for name in values:
        if name not in known:
            raise unknown_name("column", name, sorted(known))


def without(rows: DataFrame, names: Collection[str]) -> DataFrame:
    """Return rows without columns of these very names: `DataFrame.drop` takes a name in any case."""
    return rows.select([sf.col(quoted(name)) for name in rows.columns if name not in names])


def fixed(rows: DataFrame, fix: Fix, values: Mapping[str, str]) -> DataFrame:
    """Return what `fix` made of rows. TypeError or ValueError where it lost the column `REPLAYED`, or one
    that `values` have set.
    """
    repaired = fix(rows)
    if not isinstance(repaired, DataFrame):
        raise TypeError(f"fix must return a DataFrame, not {repaired!r}")
    if REPLAYED not in repaired.columns:
        raise ValueError(
            f"fix must keep the column {REPLAYED} as it is: it says which quarantined row each row was, so"
            f" that none is replayed twice; fix has returned {', '.join(repaired.columns)}"
        )
    if not isinstance(repaired.schema[REPLAYED].dataType, spark.StringType):
        raise ValueError(f"fix must keep the column {REPLAYED} as it is, text")
    if lost := [name for name in values if name in rows.columns and name not in repaired.columns]:
        raise ValueError(
            f"fix has lost what set says: {', '.join(lost)}. DataFrame.drop takes a name in any case; leave"
            f" out of set what fix drops, or select the columns to keep: {', '.join(repaired.columns)}"
        )
    return repaired
