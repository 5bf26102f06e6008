"""Counts the rows of a batch per table partition. The most expensive part of planning, so it runs only where
no forecast exists.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter

import pyarrow as pa
from pyspark.sql import DataFrame

from planners.model import PartitionKey
from streaming_sink.spark.worker_failures import explain_worker_failure
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.fingerprints import fingerprint_of
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import split

_COLUMN = "counts"


@dataclass(frozen=True)
class Profile:
    """The rows of each partition of a batch, and the time that all tasks together took to read them."""

    rows: Mapping[PartitionKey, int]
    task_seconds: float
    fingerprint: int = 0
    """Of all rows, see `fingerprint_of`."""


@dataclass(frozen=True)
class _CountTask:
    schema: pa.Schema
    partition_by: tuple[PartitionSource, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        started = perf_counter()
        rows: Counter[PartitionKey] = Counter()
        fingerprint = 0
        for batch in batches:
            fingerprint = fingerprint_of(batch, fingerprint)
            for key, part in split(conform(batch, self.schema), self.partition_by):
                rows[key] += part.num_rows
        counted = pickle.dumps(Profile(dict(rows), perf_counter() - started, fingerprint))
        yield pa.record_batch([pa.array([counted], pa.binary())], [_COLUMN])


def count_rows(batch: DataFrame, schema: pa.Schema, partition_by: tuple[PartitionSource, ...]) -> Profile:
    """Count the batch in one Spark job. The tasks compute partition keys exactly as writing tasks do.

    Raises the error of a failing task, translated by `explain_worker_failure`.
    """
    try:
        collected = batch.mapInArrow(_CountTask(schema, partition_by), f"{_COLUMN} binary").collect()
    except Exception as failure:
        explained = explain_worker_failure(failure)
        if explained is None:
            raise
        raise explained from failure
    rows: Counter[PartitionKey] = Counter()
    seconds, fingerprint = 0.0, 0
    for row in collected:
        counted: Profile = pickle.loads(bytes(row[0]))
        rows.update(counted.rows)
        seconds += counted.task_seconds
        fingerprint = (fingerprint + counted.fingerprint) % 2**64
    return Profile(dict(rows), seconds, fingerprint)
