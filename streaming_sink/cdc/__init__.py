"""Changes as tools of change data capture bring them, as a sink with a key takes them.

    sink = IcebergSink("/lake/users", cdc.upsert(key=["id"]))
    stream.writeStream.foreachBatch(lambda batch, number: sink(cdc.debezium(batch), number))

Each function returns the columns of the row, `_sequence`, which the table keeps, and `_op`, which it does
not: "d" for a delete, else "u". A delete has the values of the row before it. Nothing is read.

A change that cannot be read, or that nothing orders, is a row that does not fit: the sink does with it as the
`mismatch` of its contract says, and the reason has the whole change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streaming_sink.cdc.delta import delta_cdf
from streaming_sink.cdc.dms import dms
from streaming_sink.cdc.envelopes import debezium
from streaming_sink.options.values.writes import Upsert

__all__ = ["debezium", "delta_cdf", "dms", "upsert"]


def upsert(key: Sequence[str], **options: Any) -> Upsert:
    """Return the write that takes what the other functions of this room return. `options` are those of
    `Upsert` beside; those that this one sets (ValueError) are given to `Upsert` itself.
    """
    if taken := sorted(options.keys() & {"sequence_by", "delete_where", "except_columns"}):
        raise ValueError(
            f"cdc.upsert orders changes by _sequence and deletes by _op; leave out {', '.join(taken)}, or"
            " make the write yourself: Upsert(key=…, sequence_by='_sequence', delete_where=\"_op = 'd'\","
            " except_columns=['_op'])"
        )
    return Upsert(
        key=key, sequence_by="_sequence", delete_where="_op = 'd'", except_columns=["_op"], **options
    )
