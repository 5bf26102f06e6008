"""Which columns a feed of changes must have, and which of its changes cannot be read, and why."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from streaming_sink.table.sql_names import folded, quoted
from streaming_sink.tasks.batches import RESERVED_PREFIX
from streaming_sink.tasks.rows.failures import UNPARSED, UNREADABLE
from timeline.errors import SchemaMismatchError


def check_batch(function: str, batch: object) -> None:
    """Raise TypeError for what is no DataFrame."""
    if not isinstance(batch, DataFrame):
        raise TypeError(
            f"cdc.{function} takes the batch, a DataFrame, as foreachBatch passes it, not {batch!r}"
        )


def check_has_columns(batch: DataFrame, wanted: Sequence[str], what: str) -> None:
    """Raise SchemaMismatchError where a batch lacks a column."""
    missing = [name for name in wanted if name not in batch.columns]
    if missing:
        raise SchemaMismatchError(
            f"{what} have columns {', '.join(wanted)}, and the batch has no {missing[0]!r}; parse its"
            f" messages first (parse_json, from_json): {', '.join(batch.columns)}"
        )


def check_names_are_free(batch: DataFrame) -> None:
    """Raise SchemaMismatchError where a column of the source is named as one that changes get."""
    if taken := [name for name in batch.columns if folded(name) in ("_op", "_sequence")]:
        raise SchemaMismatchError(
            "changes get the columns _op and _sequence, so the source's own column of such a name needs"
            f' another one: batch.withColumnRenamed("{taken[0]}", "source{taken[0]}")'
        )


def own_columns(batch: DataFrame) -> list[str]:
    """Return the names of a batch's columns without those by which others hand rows to the sink."""
    return [name for name in batch.columns if not name.startswith(RESERVED_PREFIX)]


def handed_on(batch: DataFrame) -> list[str]:
    """Return the columns by which others hand rows to the sink, such as texts that did not parse."""
    return [name for name in batch.columns if name.startswith(RESERVED_PREFIX)]


def unreadable(batch: DataFrame, faults: Sequence[tuple[Column, Column | str]]) -> Column:
    """Return the column `UNREADABLE`: of the faults that a change has the first, and the change as it came;
    null where it has none, or where it is a text that did not parse, which has a reason of its own.
    """
    reasons = [sf.when(fault, sf.lit(why) if isinstance(why, str) else why) for fault, why in faults]
    reason = sf.coalesce(*reasons)
    if UNPARSED in batch.columns:
        reason = sf.when(sf.col(UNPARSED).isNull(), reason)
    came = sf.struct(*(sf.col(quoted(name)) for name in own_columns(batch)))
    text = sf.to_json(came, {"ignoreNullFields": "false"})
    return sf.when(reason.isNotNull(), sf.concat(reason, sf.lit(": "), text)).alias(UNREADABLE)
