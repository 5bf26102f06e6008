"""The fingerprint of a batch's rows, by which a batch that was counted is compared with what was written."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.batches import RESERVED_PREFIX

FINGERPRINT = f"{RESERVED_PREFIX}fingerprint"
"""A column of the rows of a batch that was counted: a hash of each row. The table does not have it."""


def fingerprint_of(batch: pa.RecordBatch, before: int = 0) -> int:
    """Return the fingerprint of `batch` and of the rows `before` it: equal for the same rows in any order and
    any batches, 0 if rows carry none.
    """
    if FINGERPRINT not in batch.schema.names:
        return before
    return (before + (pc.sum(batch.column(FINGERPRINT)).as_py() or 0)) % 2**64
