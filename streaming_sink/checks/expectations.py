"""Expectations of a sink: SQL conditions that every row must meet, each with what becomes of a row that
does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.row_checks import RowCheck
from streaming_sink.table.conversions import spark_type
from streaming_sink.table.row_expressions import summarize_error, type_of_value


def absent_columns(table: Schema, batch: spark.StructType) -> Mapping[str, spark.DataType]:
    """Return the columns of a table that a batch lacks: its rows have nulls there."""
    given = {name.lower() for name in batch.names}
    absent = (field for field in table.fields if field.name.lower() not in given)
    return {field.name: spark_type(field.field_type) for field in absent}


def respelled_columns(table: Schema, batch: spark.StructType) -> Mapping[str, iceberg.NestedField]:
    """Return the columns of a batch that a table has in another case: their values are not written there."""
    known = {field.name.lower(): field for field in table.fields}
    exact = {field.name for field in table.fields}
    return {name: known[name.lower()] for name in batch.names if name not in exact and name.lower() in known}


def expectation_checks(expectations: Mapping[str, str]) -> tuple[RowCheck, ...]:
    """Return a check for each expectation: a row fails where the condition is false of the values that are
    written, and passes where it is true or null.
    """
    return tuple(
        RowCheck(text, ~sf.expr(text), action, of_written=True) for text, action in expectations.items()
    )


def check_conditions(rows: DataFrame, expectations: Iterable[str]) -> None:
    """Analyse the conditions over rows as they are written; run no job.

    Raises ValueError for a condition that is no SQL, names an unknown column or is not true or false of one
    row.
    """
    for text in expectations:
        _check_condition(rows, text)


def _check_condition(rows: DataFrame, text: str) -> None:
    try:
        kind = type_of_value(rows, sf.expr(text))
    except PySparkException as error:
        raise ValueError(
            "an expectation is not an SQL condition of one row, the same whenever it is computed, over the"
            f" columns of the batch ({', '.join(rows.columns)}): {text}: {summarize_error(error)}"
        ) from error
    if not isinstance(kind, spark.BooleanType):
        raise ValueError(
            f'an expectation must be true or false, as "price >= 0" is, and this is of type'
            f" {kind.simpleString()}: {text}"
        )
