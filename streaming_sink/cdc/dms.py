"""`dms`: changes of AWS Database Migration Service."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.cdc.readable import (
    check_batch,
    check_has_columns,
    check_names_are_free,
    handed_on,
    own_columns,
    unreadable,
)
from streaming_sink.table.sql_names import folded, quoted
from timeline.errors import SchemaMismatchError

_OP = "Op"
_OLDEST_DAY = "0001-01-02"
"""The first that is in the year 1 in each time zone."""
_WHOLE: dict[type[spark.DataType], int] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}


def dms(batch: DataFrame, sequence: str) -> DataFrame:
    """Return the changes of AWS Database Migration Service: the row's columns, and `Op` with "I", "U" or "D"
    (null in rows of a full load, which has no such column).

    `sequence` names the column that orders the changes of a key; it stays in the table under its own name
    too. Text must be a whole number of up to 38 digits, as `AR_H_CHANGE_SEQ` is, which differs for all
    changes. The time of a commit does not: the changes of a transaction share it. A row of a full load
    without it is older than every change.

    Raises SchemaMismatchError where a column is `Op` in another case, since its rows would be those of a full
    load. What is wrong with a single change is for the contract of the sink.
    """
    check_batch("dms", batch)
    if not sequence or type(sequence) is not str:
        raise TypeError(
            "sequence must be the name of the column that orders the changes of a key, such as"
            f" 'AR_H_CHANGE_SEQ', not {sequence!r}"
        )
    if spelled := [name for name in batch.columns if name != _OP and folded(name) == folded(_OP)]:
        raise SchemaMismatchError(
            f"DMS names its column {_OP}, and without one the rows are of a full load; rename the column to"
            f" {_OP} if it says what became of the row, and to another name if it is the source's own:"
            f" {spelled[0]}"
        )
    check_has_columns(batch, (sequence,), "changes of DMS")
    check_names_are_free(batch)
    op = sf.col(_OP).cast("string") if _OP in batch.columns else sf.lit(None).cast("string")
    columns = [sf.col(quoted(name)) for name in own_columns(batch) if name != _OP]
    order = _order(batch, sequence, op)
    known = op.isNull() | op.isin("I", "U", "D")
    faults: list[tuple[Column, Column | str]] = [
        (~known, sf.concat(sf.lit("Op is none of I, U and D: "), op)),
        (order.isNull(), f"nothing orders the change: {sequence} is null, or text that is no whole number"),
    ]
    kind = sf.when(known, sf.when(op == "D", "d").otherwise("u"))
    return batch.select(
        *columns, order.alias("_sequence"), kind.alias("_op"), *handed_on(batch), unreadable(batch, faults)
    )


def _order(batch: DataFrame, sequence: str, op: Column) -> Column:
    """Return the column of the sequence, text as a number; of rows of a full load without it the oldest."""
    kind, value = batch.schema[sequence].dataType, sf.col(quoted(sequence))
    if isinstance(kind, spark.StringType):
        number = value.rlike("^[0-9]{1,38}$")
        kind, value = spark.DecimalType(38, 0), sf.when(number, value).try_cast("decimal(38,0)")
    absent = op.isNull() & sf.col(quoted(sequence)).isNull()
    return sf.when(absent, sf.lit(_oldest(kind)).cast(kind)).otherwise(value)


def _oldest(kind: spark.DataType) -> str:
    """Return a value of the type of a sequence that is below those of changes."""
    if isinstance(kind, spark.DecimalType):
        return f"-{'9' * (kind.precision - kind.scale) or 0}.{'9' * kind.scale}".rstrip(".")
    bits = _WHOLE.get(type(kind))
    return _OLDEST_DAY if bits is None else str(-(1 << min(bits - 1, 62)))
