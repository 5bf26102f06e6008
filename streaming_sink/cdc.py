"""Changes as tools of change data capture bring them, as a sink with a key takes them.

    sink = IcebergSink("/lake/users", operation="upsert", key=["id"], **cdc.CHANGES)
    stream.writeStream.foreachBatch(lambda batch, number: sink(cdc.debezium(batch), number))

Each function returns the columns of the row, `_sequence`, which the table keeps, and `_op`, which it does
not: "d" for a delete, else "u". A delete has the values of the row before it. Nothing is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.table.sql_names import quoted
from timeline.errors import SchemaMismatchError

CHANGES: Mapping[str, Any] = {
    "sequence_by": "_sequence",
    "delete_where": "_op = 'd'",
    "except_columns": ("_op",),
}
"""The options of a sink that takes what the functions of this module return."""

_POSITIONS = 40
"""Bits of a position in a binlog: a file of a terabyte."""


def debezium(batch: DataFrame, sequence: str | None = None) -> DataFrame:
    """Return the changes of Debezium's envelopes: columns `op`, `before`, `after`, `source` and `ts_ms`, or a
    column `payload` with these.

    `sequence` is an SQL expression of a whole number over them. By default it is the position in the log of
    the database: `source.lsn` (PostgreSQL), `source.file` and `source.pos` (MySQL, MariaDB); else
    `source.ts_ms`, whose milliseconds may hold two changes of a key. Rows of a snapshot (op "r") come before
    all changes where the position is null. SchemaMismatchError where the columns are no envelope.

    Truncations (op "t") name no key, and are refused with their batch as rows without one: filter them, and
    empty the table as you see fit.
    """
    envelope = batch.select("payload.*") if "payload" in batch.columns else batch
    _check_columns(envelope, ("op", "before", "after", "source"), "a Debezium envelope")
    before, after = (_struct(envelope, name) for name in ("before", "after"))
    deletes = sf.col("op") == "d"
    columns = [
        sf.when(deletes, _field("before", name, before)).otherwise(_field("after", name, after)).alias(name)
        for name in dict.fromkeys([*after.names, *before.names])
    ]
    position = _log_position(envelope) if sequence is None else sf.expr(sequence)
    order = sf.coalesce(position.cast("long"), sf.lit(0).cast("long")).alias("_sequence")
    return envelope.select(*columns, order, sf.when(deletes, "d").otherwise("u").alias("_op"))


def dms(batch: DataFrame, sequence: str) -> DataFrame:
    """Return the changes of AWS Database Migration Service: the row's columns, and `Op` with "I", "U" or "D"
    (null in rows of a full load, which has no such column).

    `sequence` names the column that orders the changes of a key, such as the one of `TimestampColumnName`;
    it stays in the table under its own name too.
    """
    _check_columns(batch, (sequence,), "changes of DMS")
    op = sf.col("Op") if "Op" in batch.columns else sf.lit(None).cast("string")
    columns = [sf.col(quoted(name)) for name in batch.columns if name != "Op"]
    order = sf.col(quoted(sequence)).alias("_sequence")
    return batch.select(*columns, order, sf.when(op == "D", "d").otherwise("u").alias("_op"))


def delta_cdf(batch: DataFrame) -> DataFrame:
    """Return the changes of Delta Lake's change data feed (`readChangeFeed`): by `_change_type`, in the
    sequence of `_commit_version`. The images before an update are left out.

    An overwrite deletes and inserts the rows of a key in one version, of which the insert is the later one:
    `_sequence` is twice the version, and one more for rows.
    """
    _check_columns(batch, ("_change_type", "_commit_version"), "rows of Delta's change data feed")
    own = [name for name in batch.columns if name not in _OF_DELTA]
    deletes = sf.col("_change_type") == "delete"
    return batch.where(sf.col("_change_type") != "update_preimage").select(
        *(sf.col(quoted(name)) for name in own),
        (sf.col("_commit_version").cast("long") * 2 + sf.when(deletes, 0).otherwise(1)).alias("_sequence"),
        sf.when(deletes, "d").otherwise("u").alias("_op"),
    )


_OF_DELTA = ("_change_type", "_commit_version", "_commit_timestamp")


def _check_columns(batch: DataFrame, wanted: Sequence[str], what: str) -> None:
    missing = [name for name in wanted if name not in batch.columns]
    if missing:
        raise SchemaMismatchError(
            f"{what} have columns {', '.join(wanted)}, and the batch has no {missing[0]!r}; parse its"
            f" messages first (parse_json, from_json): {', '.join(batch.columns)}"
        )


def _struct(envelope: DataFrame, name: str) -> spark.StructType:
    kind = envelope.schema[name].dataType
    return kind if isinstance(kind, spark.StructType) else spark.StructType([])


def _field(struct: str, name: str, kind: spark.StructType) -> Column:
    if name not in kind.names:
        return sf.lit(None)
    return sf.col(f"{struct}.{quoted(name)}")


def _log_position(envelope: DataFrame) -> Column:
    source = _struct(envelope, "source").names
    if "lsn" in source:
        return sf.col("source.lsn")
    if "file" in source and "pos" in source:
        number = sf.regexp_extract("source.file", r"([0-9]+)$", 1).cast("long")
        return sf.shiftleft(number, _POSITIONS) + sf.col("source.pos").cast("long")
    if "ts_ms" in source:
        return sf.col("source.ts_ms")
    raise SchemaMismatchError(
        "the source of the envelope has no lsn, no file and pos, and no ts_ms, so nothing orders the changes"
        f' of a key; give debezium a sequence, such as sequence="source.scn": {", ".join(source)}'
    )
