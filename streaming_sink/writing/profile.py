"""Counts the rows of a batch per table partition. The most expensive part of planning, so it runs only where
no forecast exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from planners.model import PartitionKey
from streaming_sink.spark.task_results import collect_results
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.rows.count_task import CountTask, RowCounts


@dataclass(frozen=True)
class Profile:
    """The rows of each partition of a batch, and the time that all tasks together took to read them."""

    rows: Mapping[PartitionKey, int]
    task_seconds: float
    fingerprint: int = 0
    """Of all rows, see `fingerprint_of`."""


def count_rows(
    batch: DataFrame, schema: pa.Schema, partition_by: tuple[PartitionSource, ...], skips_unfit: bool = False
) -> Profile:
    """Count the batch in one Spark job, without rows that fail a check. The tasks compute partition keys
    exactly as writing tasks do. `skips_unfit`: as `CountTask` has it.

    Raises the error of a failing task, translated by `explain_worker_failure`.
    """
    counts: list[RowCounts] = collect_results(batch, CountTask(schema, partition_by, skips_unfit))
    rows: Counter[PartitionKey] = Counter()
    for each in counts:
        rows.update(each.rows)
    seconds = sum((each.seconds for each in counts), 0.0)
    return Profile(dict(rows), seconds, sum(each.fingerprint for each in counts) % 2**64)
