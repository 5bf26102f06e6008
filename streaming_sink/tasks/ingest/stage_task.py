"""The task that stages a stream's rows in a buffer zone: Arrow batches in, Parquet files out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_sink.tasks.results import encode_results
from streaming_sink.tasks.spark_task import start_task
from timeline.clock import SYSTEM
from timeline.stores.base import Store

FILE_BYTES = 64 * 1024 * 1024
"""Arrow bytes after which a task begins the next file."""


@dataclass(frozen=True, slots=True)
class StageJob:
    """Where the rows of a batch are staged."""

    store: Store
    folder: str
    fast_workers: bool = True


class StageTask:
    """The function that `DataFrame.mapInArrow` runs in each task of a batch."""

    def __init__(self, job: StageJob) -> None:
        self._job = job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_task(self._job.fast_workers)
        yield encode_results(stage(self._job, batches))


def stage(job: StageJob, batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Write the rows to closed, durable files of their own names, and return their paths below the zone. A
    task that fails leaves files that no commit names.
    """
    staged: list[str] = []
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(each.nbytes for each in held) >= FILE_BYTES:
            staged.append(_write(job, held))
            held = []
    return [*staged, _write(job, held)] if held else staged


def _write(job: StageJob, batches: list[pa.RecordBatch]) -> str:
    file_id = SYSTEM.new_id(time.time_ns() // 1_000_000)
    path = f"{job.folder}/{file_id}.parquet"
    table = pa.Table.from_batches(batches)
    with job.store.open_output(path) as output:
        pq.write_table(table, output, compression="zstd", write_page_checksum=True)
    return path
