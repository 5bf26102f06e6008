"""The Spark task that runs in this Python worker: its number, and what is set before it starts."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from streaming_sink.tasks import fast_workers


def start_task(fast_workers_enabled: bool) -> tuple[int, int]:
    """Set up this worker process; return the number of the task's Spark partition, and of its attempt."""
    from pyspark import TaskContext

    fast_workers.set_enabled(fast_workers_enabled)
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.taskAttemptId()


def start_task_without_rows(rows: Iterable[pa.RecordBatch], fast_workers_enabled: bool) -> tuple[int, int]:
    """As `start_task`, of a stage whose rows do nothing but start its tasks.

    They are read all the same: Spark ends a worker that has left some, and the next task waits a second until
    a new one has imported what it needs.
    """
    for _ in rows:
        pass
    return start_task(fast_workers_enabled)
