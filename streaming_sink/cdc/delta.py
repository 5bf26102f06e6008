"""`delta_cdf`: changes of Delta Lake's change data feed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from streaming_sink.cdc.readable import (
    check_batch,
    check_has_columns,
    check_names_are_free,
    handed_on,
    own_columns,
    unreadable,
)
from streaming_sink.table.sql_names import quoted

_OF_DELTA = ("_change_type", "_commit_version", "_commit_timestamp")
_KINDS = {"insert": "u", "update_postimage": "u", "delete": "d", "update_preimage": "d"}


def delta_cdf(batch: DataFrame) -> DataFrame:
    """Return the changes of Delta Lake's change data feed (`readChangeFeed`): by `_change_type`, in the
    sequence of `_commit_version`.

    A version deletes before it inserts: an overwrite has both of a key, and so has an update that changes
    the key, whose image before deletes the old one. `_sequence` is twice the version, and one more for rows.

    What is wrong with a single change is for the contract of the sink.
    """
    check_batch("delta_cdf", batch)
    check_has_columns(batch, ("_change_type", "_commit_version"), "rows of Delta's change data feed")
    check_names_are_free(batch)
    kind = sf.col("_change_type")
    op = sf.coalesce(*(sf.when(kind == name, each) for name, each in _KINDS.items()))
    version = sf.col("_commit_version")
    twice = sf.try_multiply(version.try_cast("long"), sf.lit(2))
    order = twice + sf.when(op == "d", 0).otherwise(1)  # an even number is not the largest
    faults: list[tuple[Column, Column | str]] = [
        (op.isNull(), sf.concat(sf.lit("_change_type is unknown: "), sf.coalesce(kind, sf.lit("null")))),
        (version.isNull(), "nothing orders the change: _commit_version is null"),
        (order.isNull(), "nothing orders the change: _commit_version is no whole number below 2^62"),
    ]
    return batch.select(
        *(sf.col(quoted(name)) for name in own_columns(batch) if name not in _OF_DELTA),
        order.alias("_sequence"),
        op.alias("_op"),
        *handed_on(batch),
        unreadable(batch, faults),
    )
