"""The Spark task that runs in this Python worker: its number, and what is set before it starts."""

from __future__ import annotations

from streaming_sink.tasks import fast_workers


def start_task(fast_workers_enabled: bool) -> tuple[int, int]:
    """Set up this worker process; return the number of the task's Spark partition, and of its attempt."""
    from pyspark import TaskContext

    fast_workers.set_enabled(fast_workers_enabled)
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.taskAttemptId()
