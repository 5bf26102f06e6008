"""SQL expressions that users give: the type of what each makes of a row, and why Spark refuses one."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark


def type_of_value(rows: DataFrame, value: Column) -> spark.DataType:
    """Return the type of an expression over a row. Runs no job.

    PySparkException for what is no SQL, for an unknown column, and for what is no function of the row alone:
    an aggregate, a window, a generator, `rand()`.
    """
    kind = rows.select(value.alias("value")).schema["value"].dataType
    _ = rows.select(sf.count_if(value.isNull())).schema  # Spark counts nothing else
    return kind


def summarize_error(error: PySparkException) -> str:
    """Return what Spark says of an expression, without the plan that it has in the next lines."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
