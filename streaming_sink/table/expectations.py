"""Expectations of a sink: SQL conditions that every row must meet, each with what becomes of a row that
does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.table.checks import RowCheck


def expectation_checks(batch: DataFrame, expectations: Mapping[str, str]) -> tuple[RowCheck, ...]:
    """Return a check for each expectation: a row fails where the condition is false, and passes where it is
    true or null. Analyses the conditions, and runs no job.

    Raises ValueError for a condition that is no SQL, names an unknown column or is not true or false of one
    row.
    """
    for text in expectations:
        _check_condition(batch, text)
    return tuple(RowCheck(text, ~sf.expr(text), action) for text, action in expectations.items())


def _check_condition(batch: DataFrame, text: str) -> None:
    try:
        # In a `when` beside a column, since an aggregate and a generator are no conditions of a row.
        first = sf.col("`" + batch.columns[0].replace("`", "``") + "`")
        kind = batch.select(sf.expr(text)).schema.fields[0].dataType
        if isinstance(kind, spark.BooleanType):
            _ = batch.select(first, sf.when(sf.expr(text), sf.lit(1))).schema
    except PySparkException as error:
        why = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(
            "an expectation is not an SQL condition over the columns of the batch"
            f" ({', '.join(batch.columns)}): {text}: {why}"
        ) from error
    if not isinstance(kind, spark.BooleanType):
        raise ValueError(
            f'an expectation must be true or false, as "price >= 0" is, and this is of type'
            f" {kind.simpleString()}: {text}"
        )
