"""Shares the files of a work item that are registered as they are among tasks."""

from __future__ import annotations

from collections.abc import Sequence

from planners.buffering import PlannedItem
from streaming_sink.tasks.ingest.profile_task import SourceProfile
from streaming_sink.tasks.ingest.register_task import RegisterTask, SourceToRegister
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import WorkerJob


def register_tasks(
    job: WorkerJob, sources: Sources, item: PlannedItem, profiles: Sequence[SourceProfile], most: int
) -> list[RegisterTask]:
    """Return the tasks, `most` of them at most, that register those of the files which can be."""
    files = [
        SourceToRegister(it.number, item.files[it.number], it.parts[0][0], it.rows)
        for it in profiles
        if it.rewritten is None
    ]
    tasks = min(most, len(files))
    return [RegisterTask(job, sources, files[at::tasks]) for at in range(tasks)]
