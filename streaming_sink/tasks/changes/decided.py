"""What becomes of the keys of a task's changes, however that was decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.results import ChangeCounts


@dataclass(frozen=True)
class Decided:
    """The rows that a task writes, and which leave the table; in each array a place for each key."""

    rows: Iterable[pa.RecordBatch]
    """The new ones."""
    leaves: np.ndarray
    """Whether the live rows of the key leave."""
    remembered: np.ndarray
    """Whether the key has a delete that the table is to remember."""
    deleted_at: np.ndarray
    """The sequence of that delete."""
    counts: ChangeCounts
