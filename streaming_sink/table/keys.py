"""A batch as changes by key: the columns that the table gets, and which rows delete their key."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.options.values.writes import WriteByKey
from streaming_sink.table.column_sequences import check_is_not_brought
from streaming_sink.table.row_expressions import summarize_error, type_of_value
from streaming_sink.tasks.job import DELETES
from timeline.errors import SchemaMismatchError


def written_schema(options: WriteByKey, came: spark.StructType) -> spark.StructType:
    """Return the columns of a batch that the table gets; of a batch of deletes, its key and sequence.
    SchemaMismatchError for a batch that lacks a column which is to be left out, or has one of the sink's own.
    """
    for name in options.except_columns:
        if name not in came.names:
            raise SchemaMismatchError(
                f"the batch has no column {name!r}, which except_columns names; it has"
                f" {', '.join(came.names)}"
            )
    if options.keeps:
        check_is_not_brought(came.names)
    if options.deletes_only:
        wanted = {*options.key, options.sequence_by}
        return spark.StructType([field for field in came.fields if field.name in wanted])
    return spark.StructType([field for field in came.fields if field.name not in options.except_columns])


def check_has_key(options: WriteByKey, columns: Sequence[str]) -> None:
    """Raise SchemaMismatchError where a batch lacks a column of the key, or the sequence."""
    wanted = [("key", name) for name in options.key]
    wanted += [("sequence_by", options.sequence_by)] if options.sequence_by else []
    for option, name in wanted:
        if name not in columns:
            near = next((it for it in columns if it.casefold() == name.casefold()), None)
            hint = f"; it has {near!r}, and case counts" if near else f"; it has {', '.join(columns)}"
            raise SchemaMismatchError(f"the batch has no column {name!r}, which {option} names{hint}")


def as_changes(options: WriteByKey, batch: DataFrame) -> DataFrame:
    """Return a batch with the column `DELETES`. SchemaMismatchError for a condition that Spark cannot
    resolve, that is no boolean, or that is no function of the row.
    """
    if options.deletes_only:
        return batch.withColumn(DELETES, sf.lit(True))
    if options.condition is None:
        return batch
    try:
        condition: Column = sf.expr(options.condition)
        kind = type_of_value(batch, condition)
    except PySparkException as error:
        raise SchemaMismatchError(
            "delete_where is no condition of one row, the same whenever it is computed, over the batch's"
            f" columns ({', '.join(batch.columns)}): {options.condition!r}: {summarize_error(error)}"
        ) from error
    if not isinstance(kind, spark.BooleanType):
        raise SchemaMismatchError(
            f"delete_where must be a condition, such as \"op = 'D'\"; {options.condition!r} is of type"
            f" {kind.simpleString()}"
        )
    return batch.withColumn(DELETES, sf.coalesce(condition, sf.lit(False)))
