"""The count task: the rows of each table partition among its rows, without writing any."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from planners.model import PartitionKey
from streaming_sink.tasks.batches import conform, conform_valid
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import split
from streaming_sink.tasks.results import encode_results
from streaming_sink.tasks.rows.failures import each_that_fits, split_failing, use_all
from streaming_sink.tasks.rows.fingerprints import fingerprint_of


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The rows of each partition in a task or a batch, and the time that reading and counting them took."""

    rows: Mapping[PartitionKey, int]
    seconds: float
    fingerprint: int = 0
    """The fingerprint of all its rows, see `fingerprint_of`; 0 if they carry none."""


class CountTask:
    """The function that `DataFrame.mapInArrow` runs in each task to count a batch."""

    """`skips_unfit` says that a row whose values do not fit is kept out of the table, and is not counted."""

    def __init__(
        self, schema: pa.Schema, partition_by: tuple[PartitionSource, ...], skips_unfit: bool = False
    ) -> None:
        self._schema = schema
        self._partition_by = partition_by
        self._skips_unfit = skips_unfit

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started = time.perf_counter()
        rows: Counter[PartitionKey] = Counter()
        fingerprint = 0
        for batch in batches:
            fingerprint = fingerprint_of(batch, fingerprint)
            passing, _ = split_failing(batch)
            if not self._skips_unfit:
                rows.update(use_all(passing, self._count))
                continue
            whole = conform(passing, passing.schema)  # so that it may be cut
            for _, counted in each_that_fits(whole, self._count):
                if isinstance(counted, Counter):
                    rows.update(counted)
        yield encode_results([RowCounts(dict(rows), time.perf_counter() - started, fingerprint)])

    def _count(self, rows: pa.RecordBatch) -> Counter[PartitionKey]:
        parts = split(conform_valid(rows, self._schema), self._partition_by)
        return Counter({key: part.num_rows for key, part in parts})
