"""Runs inside Spark tasks: Arrow batches in, data files out, one row per result.

A new Python worker pays for every import on its first batch: nothing here imports pyiceberg.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa

from planners.model import Bucket, PartitionKey
from planners.partitions import comparable
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.buckets import BUFFER_BYTES, MAX_OPEN_FILES, PartitionFiles, Ratio, TaskContents
from streaming_sink.tasks.dictionaries import DictionaryChoice
from streaming_sink.tasks.job import (
    RESULT_COLUMN,
    Merge,
    TaskBuckets,
    TaskReport,
    TaskResult,
    WorkerJob,
    WrittenFile,
    encode,
    fingerprint_of,
)
from streaming_sink.tasks.metrics import leaves
from streaming_sink.tasks.partitioning import partition_path, split
from streaming_sink.tasks.spill import Spill
from timeline.errors import StoreUnavailableError
from timeline.names import DATA_FOLDER, data_file_name, ulid


class TaskWriter:
    """Writes the rows of one task. Holds at most BUFFER_BYTES and one incoming batch as Arrow, and
    MAX_OPEN_FILES."""

    def __init__(self, job: WorkerJob, task: int, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._planned: dict[PartitionKey, list[tuple[int, Bucket]]] = {}
        for planned in (job.tasks.get(task, TaskBuckets()), job.shared):
            for index, bucket in planned.buckets:
                self._planned.setdefault(comparable(bucket.partition), []).append((index, bucket))
        columns = leaves(job.schema)
        self._task = TaskContents(
            job=job,
            columns=columns,
            dictionaries=DictionaryChoice(columns),
            new_path=self._new_path,
            results=[],
            ratio=Ratio(),
            next_free_bucket=job.first_free_bucket,
            open_files=set(),
        )
        self._partitions: dict[PartitionKey, PartitionFiles] = {}
        self._spill: Spill | None = None
        self.rows = 0
        self.fingerprint = 0
        self.spilled_bytes = 0

    def _new_path(self, partition: PartitionKey, bucket: int) -> str:
        ids = self._job.ids
        folder = partition_path(partition, self._job.partition_by, self._job.schema)
        file_id = ulid(ids.time_ms, int.from_bytes(os.urandom(10), "big"))
        name = data_file_name(file_id, ids.app_id, ids.batch, bucket, self._attempt)
        return "/".join(part for part in (DATA_FOLDER, folder, name) if part)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch of rows, as Spark sends it."""
        self.rows += batch.num_rows
        self.fingerprint = fingerprint_of(batch, self.fingerprint)
        for key, rows in split(conform(batch, self._job.schema), self._job.partition_by):
            self._partition(key).add(rows)
        while self._task.held_bytes > BUFFER_BYTES:
            self._make_room()

    def _partition(self, key: PartitionKey) -> PartitionFiles:
        files = self._partitions.get(key)
        if files is None:
            planned = self._planned.get(comparable(key), [])
            files = self._partitions[key] = PartitionFiles(self._task, key, planned)
        return files

    def _make_room(self) -> None:
        largest = max(self._partitions.values(), key=lambda files: files.held_bytes)
        if largest.is_open or len(self._task.open_files) < MAX_OPEN_FILES:
            largest.flush()
            return
        if self._spill is None:
            self._spill = Spill(self._job.schema)
        for key, files in self._partitions.items():
            if not files.is_open and files.held_bytes:
                self._spill.append(key, files.take_back())
        self.spilled_bytes = self._spill.bytes

    @property
    def held_bytes(self) -> int:
        """Arrow bytes of the rows that are neither encoded nor spilled yet."""
        return self._task.held_bytes

    def finish(self) -> list[TaskResult]:
        """Write everything that is left, and return the results."""
        if self._spill is None:
            for files in self._partitions.values():
                files.finish()
            return self._task.results
        spilled = self._spill.partitions
        for key, files in self._partitions.items():
            if key not in spilled:
                files.finish()
        for key, batches in self._spill.read():
            for batch in batches:
                self._partitions[key].add(batch)
            self._partitions[key].finish()
        self._spill.close()
        return self._task.results

    def abort(self) -> None:
        """Delete what the task wrote, half or whole, best effort: no result of a failing task reaches the
        driver."""
        for file in list(self._task.open_files):
            file.abort()
        store = self._job.store
        with suppress(StoreUnavailableError):
            store.delete([store.relative(file.path) for file in _files(self._task.results)])


def _files(results: list[TaskResult]) -> Iterator[WrittenFile]:
    for result in results:
        if isinstance(result, WrittenFile):
            yield result
        elif isinstance(result, Merge):
            yield result.merged


class WriteTask:
    """What `DataFrame.mapInArrow` is given."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        fast_workers.switch(self._job.fast_workers)
        context = TaskContext.get()
        assert context is not None
        started = time.perf_counter()
        reading = 0.0
        writer = TaskWriter(self._job, context.partitionId(), context.taskAttemptId())
        try:
            pulled = started
            for batch in batches:
                reading += time.perf_counter() - pulled
                writer.write(batch)
                pulled = time.perf_counter()
            reading += time.perf_counter() - pulled
            results = writer.finish()
        except BaseException:
            writer.abort()
            raise
        seconds = time.perf_counter() - started
        report = TaskReport(
            task=context.partitionId(),
            attempt=context.taskAttemptId(),
            rows=writer.rows,
            seconds=seconds,
            read_seconds=reading,
            spilled_bytes=writer.spilled_bytes,
            fingerprint=writer.fingerprint,
        )
        encoded = [encode(result) for result in (*results, report)]
        yield pa.RecordBatch.from_arrays([pa.array(encoded, pa.binary())], names=[RESULT_COLUMN])
