"""How many rows a batch brings to each table partition, counted. The dearest part of planning: only where nothing can be predicted."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from planners.model import PartitionKey
from streaming_sink.batches import conform
from streaming_sink.partitioning import split
from streaming_sink.worker_failures import explain_worker_failure
from streaming_sink.writejob import PartitionSource

_COLUMN = "counts"


@dataclass(frozen=True)
class _CountTask:
    schema: pa.Schema
    partition_by: tuple[PartitionSource, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        rows: Counter[PartitionKey] = Counter()
        for batch in batches:
            for key, part in split(conform(batch, self.schema), self.partition_by):
                rows[key] += part.num_rows
        yield pa.record_batch([pa.array([pickle.dumps(dict(rows))], pa.binary())], [_COLUMN])


def count_rows(batch: DataFrame, schema: pa.Schema, partition_by: tuple[PartitionSource, ...]) -> dict[PartitionKey, int]:
    """Return the rows of each partition of the batch, in one Spark job. The tasks compute keys just as those that write do.

    A failing task fails the call, as `explain_worker_failure` names it.
    """
    total: Counter[PartitionKey] = Counter()
    try:
        counted = batch.mapInArrow(_CountTask(schema, partition_by), f"{_COLUMN} binary").collect()
    except Exception as failure:
        explained = explain_worker_failure(failure)
        if explained is None:
            raise
        raise explained from failure
    for row in counted:
        total.update(pickle.loads(bytes(row[0])))
    return dict(total)
