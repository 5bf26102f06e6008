"""The column in which rows carry the checks that they fail, as the driver adds it and as tasks read it."""

from __future__ import annotations

from streaming_sink.tasks.batches import RESERVED_PREFIX

QUARANTINE = "quarantine"
REFUSE = "refuse"
DROP = "drop"

FAILED = f"{RESERVED_PREFIX}failed"
"""A struct, null where a row passes all checks. No column of a table or a batch."""
FAILED_CHECKS = "checks"
"""Its field of the numbers of the checks that the row fails, in the order of the checks."""
AS_IT_CAME = "came"
"""Its field, a struct: the values that came, of columns that are written otherwise; absent without such."""
