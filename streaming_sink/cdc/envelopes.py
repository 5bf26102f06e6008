"""`debezium`: changes from Debezium's envelopes, ordered by their position in the log of the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.cdc.positions import DIGITS, check_sequence, log_position, own_position
from streaming_sink.cdc.readable import check_batch, check_has_columns, handed_on, unreadable
from streaming_sink.table.rescue import RESCUED
from streaming_sink.table.schema import cannot_be_column
from streaming_sink.table.sql_names import folded, quoted
from streaming_sink.tasks.batches import RESERVED_PREFIX
from timeline.errors import SchemaMismatchError

_HALF = f"{RESERVED_PREFIX}half"
_EPOCH_DIGITS = 2
_TAKEN = ("_op", "_sequence", RESCUED)
"""Columns that the sink or these functions make."""
_IMAGES = {"d": "before", "c": "after", "u": "after", "r": "after"}
"""The operation → the image that has the row."""


def debezium(
    batch: DataFrame,
    sequence: str | None = None,
    *,
    key: Sequence[str] = (),
    source_key: Sequence[str] = (),
    epoch: int = 0,
) -> DataFrame:
    """Return the changes of Debezium's envelopes: columns `op`, `before`, `after`, `source` and perhaps
    `transaction`, or a column `payload` with these. Of `before` and `after` one may be absent, as in a batch
    of inserts.

    A change whose row has a key that cannot be a column (`_op`, `_sequence`, `_rescued`, `*`, with a dot or a
    backtick, in two cases, of the sink's own) cannot be read.

    `_sequence` is a whole number: the epoch, 35 digits of the position in the log of the database
    (docs/cdc.md says what that is for each connector), and a last digit that orders what has one position:
    rows of a snapshot, deletes, then inserts and updates. `sequence` is an SQL expression over the envelope,
    of a whole number of up to 35 digits, in the place of the position. A row of a snapshot (op "r") without a
    position is older than every change. Raise `epoch` (0 to 99) by one where positions begin again.

    `key` has the columns of the sink's key, where it is not that of the source, which `source_key` has: an
    update that changes one of them deletes the key of `before` and writes that of `after`. Else the row of
    the old key stays, as it does where `before` has no value of the key. The sink's key must have all columns
    of the source's (ValueError): else a transaction may move a key from one row to another, and the change
    that takes it from the one comes after that which gave it to the other, whose row it would delete.

    Raises SchemaMismatchError where the columns are no envelope, or nothing in them orders changes, and
    ValueError for a `sequence` that is no whole number, or differs when it is computed again. What is wrong
    with a single change is for the contract of the sink.
    """
    check_batch("debezium", batch)
    if type(epoch) is not int or not 0 <= epoch < 10**_EPOCH_DIGITS:
        raise ValueError(f"epoch must be a whole number from 0 to {10**_EPOCH_DIGITS - 1}, not {epoch!r}")
    _check_keys(key, source_key)
    given, wanted = handed_on(batch), ("op", "source") if sequence is None else ("op",)
    envelope = _envelope(batch, wanted)
    check_has_columns(envelope, wanted, "Debezium's envelopes")
    if sequence is not None:
        check_sequence(envelope, sequence)
    before, after = _Image(envelope, "before"), _Image(envelope, "after")
    position = log_position(envelope) if sequence is None else own_position(sequence)
    names, odd = _names((*after.kind.names, *before.kind.names))
    op = sf.col("op")
    oldest = sf.when((op == "r") & ~position.given, sf.lit("0" * DIGITS))
    place = sf.coalesce(sf.lpad(position.digits, DIGITS, "0"), oldest)
    faults: list[tuple[Column, Column | str]] = [
        (
            op.isNull(),
            "op is null: a tombstone of Kafka, which a filter keeps out, or text that is no envelope",
        ),
        (op == "t", "a truncation (op 't') names no key"),
        (op == "m", "a message of the log (op 'm') is of no row"),
        (~op.isin(*_IMAGES), sf.concat(sf.lit("op is none of c, u, d and r: "), op)),
        *((op.isin(*image.ops) & image.is_absent, image.why) for image in (before, after)),
        *((before.value(name).isNotNull() | after.value(name).isNotNull(), _why(name)) for name in odd),
        (
            place.isNull() & position.given,
            f"the position of the change cannot be read, or is too large: {position.says}",
        ),
        (place.isNull(), f"nothing orders the change: {position.says}"),
    ]
    moved = (op == "u") & place.isNotNull() & _differs(before, after, key)
    if key:
        halves = sf.when(moved, sf.array(sf.lit("d"), sf.lit("u"))).otherwise(sf.array(sf.lit(None)))
        envelope = envelope.select("*", sf.explode(halves).alias(_HALF))
    kind = sf.when(op.isin("c", "u", "r"), "u").when(op == "d", "d")
    kind = sf.coalesce(sf.col(_HALF), kind) if key else kind
    rank = sf.when(op == "r", "0").when(kind == "d", "1").otherwise("2")
    order = sf.concat(sf.lit(str(epoch)), place, rank).cast("decimal(38,0)")
    columns = [
        sf.when(kind == "d", before.value(name, after)).otherwise(after.value(name)).alias(name)
        for name in names
    ]
    return envelope.select(
        *columns, order.alias("_sequence"), kind.alias("_op"), *given, unreadable(envelope, faults)
    )


def _envelope(batch: DataFrame, wanted: Sequence[str]) -> DataFrame:
    """Return the envelopes of a batch: those of `payload` where it has what an envelope has, or the batch
    itself has not; else its own columns.
    """
    kind = batch.schema["payload"].dataType if "payload" in batch.columns else None
    if not isinstance(kind, spark.StructType):
        return batch
    if all(name in batch.columns for name in wanted) and not set(wanted) <= set(kind.names):
        return batch
    names = [name for name in kind.names if not name.startswith(RESERVED_PREFIX)]
    return batch.select(*handed_on(batch), *(sf.col(f"payload.{quoted(name)}").alias(name) for name in names))


def _names(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the keys of rows that become columns, and those that cannot."""
    columns: dict[str, str] = {}
    odd = []
    for name in dict.fromkeys(names):
        taken = columns.setdefault(folded(name), name) != name or folded(name) in _TAKEN
        if taken or cannot_be_column(name):
            odd.append(name)
    return [name for name in columns.values() if name not in odd], odd


def _why(name: str) -> str:
    return (
        f"the row has a key that cannot be a column of the table, {name!r}; rename it at the source, or in"
        " `before` and `after`"
    )


class _Image:
    """A row before or after its change."""

    def __init__(self, envelope: DataFrame, name: str) -> None:
        kind = envelope.schema[name].dataType if name in envelope.columns else spark.NullType()
        if not isinstance(kind, spark.StructType | spark.NullType):
            raise SchemaMismatchError(
                f"{name!r} of an envelope is a struct of the row's columns; parse it first, with from_json"
                f" where it is text, as MongoDB's is: {name} {kind.simpleString()}"
            )
        self.name = name
        self.kind = kind if isinstance(kind, spark.StructType) else spark.StructType()
        self.ops = [op for op, image in _IMAGES.items() if image == name]
        self.is_absent = sf.col(name).isNull() if self.kind.fields else sf.lit(True)
        self.why = f"nothing says what row it is of: {name!r} is null"

    def value(self, name: str, like: _Image | None = None) -> Column:
        """Return a column of the row, null where the image lacks it; in the type of another image."""
        if name not in self.kind.names:
            return sf.lit(None)
        value, kind = sf.col(f"{self.name}.{quoted(name)}"), self.kind[name].dataType
        if like is None or name not in like.kind.names or like.kind[name].dataType == kind:
            return value
        other = like.kind[name].dataType
        if isinstance(kind, spark.NumericType) and isinstance(other, spark.NumericType):
            return value  # Spark takes the wider one
        if isinstance(kind, spark.AtomicType) and isinstance(other, spark.AtomicType):
            return value.try_cast(other)
        return sf.lit(None)  # of a delete only the key counts, which is not nested


def _check_keys(key: Sequence[str], source_key: Sequence[str]) -> None:
    for name, columns in (("key", key), ("source_key", source_key)):
        if isinstance(columns, str):
            raise ValueError(f"{name} must be a list of columns, such as [{columns!r}], not {columns!r}")
    if bool(key) != bool(source_key):
        raise ValueError(
            "key and source_key go together: the columns of the sink's key, and of the source's key, which"
            f" must be among them: key={list(key)}, source_key={list(source_key)}"
        )
    if missing := [name for name in source_key if name not in key]:
        raise ValueError(
            "the sink's key must have all columns of the source's key, or a transaction that moves a key from"
            f" one row to another loses rows; add {', '.join(missing)} to the key of the sink and to this"
            f" one: key={list(key)}, source_key={list(source_key)}"
        )


def _differs(before: _Image, after: _Image, key: Sequence[str]) -> Column:
    """Return whether an image before the change has another key than the one after it."""
    found = sf.lit(False)
    for name in key:
        old = before.value(name, after)
        found = found | (old.isNotNull() & ~old.eqNullSafe(after.value(name)))
    return found
