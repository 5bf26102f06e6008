"""Coalesced batches: several tasks write what they read, each in buckets of its own, without a shuffle.

How many rows a task reads is known only when it has read them, so each has the plan of a forecast for an
equal share of the batch. The tasks are planned one after the other, each with the small files that those
before it have left, so that a file is filled by one task at most.

Each of k tasks leaves a tail of its own. So a batch is coalesced only while fewer than eight small files
wait in its partitions (`has_room`), which leaves k - 1 more than the eight of `planners.inserts` at most: the
next batch is routed otherwise, and merges them. That holds too for a task that reads fewer rows than planned
or none, or does not run at all: Spark makes no more tasks than the batch has parts.

A part of a file that one task alone would have filled is written once more, in a merge. So there are as many
tasks as full files (`tasks_that_fit`), each with one and a tail: less than half of the bytes are written once
more. Or, where the rows fill none and will be merged with others anyway, as many as have a quarter of a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from planners.inserts import plan_inserts
from planners.model import Arrival, Bucket, Decision, FileContent, InsertPlan, TableFile, comparable
from planners.routing import Routing
from planners.sizing import SMALL_FILES_AT_MOST, FileSizing, FillPolicy

LEAST_SHARE = 4
"""Where its rows fill no file, a task has at least one part in so many of a file."""


def has_room(files: Iterable[TableFile], sizing: FileSizing) -> bool:
    """Return whether each partition has fewer than eight small files, even of those that are never filled."""
    small = Counter(
        comparable(file.partition)
        for file in files
        if file.content is FileContent.DATA and file.bytes < sizing.small_file_bytes
    )
    return max(small.values(), default=0) < SMALL_FILES_AT_MOST


def tasks_that_fit(rows: int, rows_per_file: int, full_rows: int) -> int:
    """Return how many tasks may share so many rows, at least 1; a file of `full_rows` is no small file."""
    return max(1, rows // rows_per_file if rows >= full_rows else rows * LEAST_SHARE // rows_per_file)


def plan_coalesced(
    arrivals: Sequence[Arrival],
    files: Iterable[TableFile],
    sizing: FileSizing,
    tasks: int,
    *,
    bytes_per_row: int,
    policy: FillPolicy = FillPolicy.AMORTIZED,
) -> tuple[InsertPlan, Routing]:
    """Return where the rows of one batch go if so many tasks write what they read. The other arguments are
    those of `plan_inserts`, and so are the promises, for each task.
    """
    if tasks < 1:
        raise ValueError(f"there must be at least 1 task: {tasks}")
    left = list(files)
    buckets: list[Bucket] = []
    decisions: dict[str, Decision] = {}
    own: list[tuple[int, ...]] = []
    for task in range(tasks):
        plan = plan_inserts(
            [Arrival(it.partition, (it.rows + task) // tasks) for it in arrivals],
            left,
            sizing,
            bytes_per_row=bytes_per_row,
            policy=policy,
            exact=False,
        )
        own.append(tuple(range(len(buckets), len(buckets) + len(plan.buckets))))
        buckets += plan.buckets
        decisions.update((decision.path, decision) for decision in plan.decisions)
        taken = {file.path for bucket in plan.buckets for file in bucket.inputs}
        left = [file for file in left if file.path not in taken]
    return (
        InsertPlan(
            buckets=tuple(buckets),
            decisions=tuple(decisions.values()),
            bytes_per_row=plan.bytes_per_row,
            rows_per_new_file=plan.rows_per_new_file,
            max_file_bytes=plan.max_file_bytes,
        ),
        Routing(tasks, cold_tasks=1, hot=(), cold_buckets=(), shuffled=False, own_buckets=tuple(own)),
    )
