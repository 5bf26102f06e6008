"""The task that makes a new Python worker ready for those of work items: it imports what they import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_sink.tasks.ingest import consolidation_task, profile_task, read_task, register_task
from streaming_sink.tasks.results import encode_results
from streaming_sink.tasks.spark_task import start_task_without_rows

IMPORTED = (consolidation_task, profile_task, read_task, register_task)


class WarmTask:
    """The function that Spark runs in each Python worker. It touches nothing but memory."""

    def __init__(self, fast_workers: bool) -> None:
        self._fast_workers = fast_workers

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_task_without_rows(rows, self._fast_workers)
        written = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [0], "text": [""]}), written, compression="zstd")
        pq.read_table(pa.BufferReader(written.getvalue()), use_threads=False)
        yield encode_results([])
