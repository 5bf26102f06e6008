"""Counts the rows of a batch per table partition. The most expensive part of planning, so it runs only where
no forecast exists. The batch is persisted from then on until it is written, and both jobs report a
fingerprint of its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from planners.model import PartitionKey
from streaming_sink.spark.jobs import collect_results
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.rows.count_task import CountTask, RowCounts
from streaming_sink.tasks.rows.fingerprints import FINGERPRINT
from streaming_sink.writing.routes import row_hash


def count_rows(
    batch: DataFrame, schema: pa.Schema, partition_by: tuple[PartitionSource, ...], skips_unfit: bool = False
) -> RowCounts:
    """Count the batch in one Spark job, without rows that fail a check. The tasks compute partition keys
    exactly as writing tasks do. `skips_unfit`: as `CountTask` has it.

    Raises the error of a failing task, translated by `explain_worker_failure`.
    """
    counts: list[RowCounts] = collect_results(batch, CountTask(schema, partition_by, skips_unfit))
    rows: Counter[PartitionKey] = Counter()
    for each in counts:
        rows.update(each.rows)
    seconds = sum((each.seconds for each in counts), 0.0)
    return RowCounts(dict(rows), seconds, sum(each.fingerprint for each in counts) % 2**64)


@contextmanager
def persisted(batch: DataFrame, read_twice: bool) -> Iterator[DataFrame]:
    """Yield the batch, persisted if it is read twice (counted, then written), so that its source is read
    once. Its rows then carry a hash each, and the tasks of both jobs report the sum of the hashes.

    A partition that is lost with its executor is computed again from what upstream holds by then, while the
    surviving partitions keep the old rows; no checksum of a shuffle compares the two (R10).
    """
    if not read_twice or is_persisted(batch):
        yield batch
        return
    hashed = row_hash(batch)
    marked = batch.select("*", (sf.lit(1).cast("long") if hashed is None else hashed).alias(FINGERPRINT))
    if is_persisted(marked):  # by another sink, in another thread
        yield marked
        return
    rows = marked.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def is_persisted(rows: DataFrame) -> bool:
    """Return whether a plan is persisted, by whichever DataFrame."""
    # Not `is_cached`, which knows this Python object alone. Spark persists plans: a plan that the user has
    # persisted under another name would be unpersisted above.
    level = rows.storageLevel
    return level.useMemory or level.useDisk
