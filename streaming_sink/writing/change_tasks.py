"""How many tasks land a batch of changes: one without a shuffle, or several that share it by its keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from streaming_sink.tasks.results import TaskReport

CHANGES_A_TASK = 250_000
"""More changes are shared by several tasks. A task needs about a microsecond for one, of seven columns, and
all tasks look for their keys in the same files: a shuffle and a second search cost more than they save.
"""
_READING_SECONDS = 1.0
"""One task reads, and computes, as many changes as it can in so long: what is upstream runs at its width."""
_TRIED_SECONDS = 10.0
"""What is upstream of a shuffle is in no report. Where it takes all cores no longer than this, one batch
comes to one task, and shows it.
"""
_RECENT = 3


@dataclass
class ChangeTasks:
    """What the last batches of changes of one run brought, and what it took to read them. Lost with the
    process: it is only a guess at the next one.
    """

    rows: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    reading: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """Seconds a change that it took to read those batches that came to one task."""
    bound: float = 0.0
    """What all cores together may have read for, before the last shuffle."""

    def add(self, reports: Sequence[TaskReport], seconds: float, parallelism: int) -> None:
        """Remember a batch that so many cores have written in `seconds` of wall time."""
        rows = sum(task.rows for task in reports)
        self.rows.append(rows)
        if len(reports) == 1 and rows:
            self.reading.append(reports[0].read_seconds / rows)
        elif reports:
            self.bound = (seconds - max(task.seconds for task in reports)) * parallelism

    def expected(self, parallelism: int) -> int:
        """Return how many tasks the next batch gets: one only where the last ones say that it is enough."""
        if not self.rows:
            return parallelism
        rows = max(self.rows)
        if self.reading:
            # The least of them: a machine that was busy for a moment says nothing of the next batch.
            reading = rows * min(self.reading)
        else:
            reading = self.bound if self.bound > _TRIED_SECONDS else 0.0
        wanted = max(ceil(rows / CHANGES_A_TASK), ceil(reading / _READING_SECONDS), 1)
        return min(parallelism, wanted)
