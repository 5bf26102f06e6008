"""The write task: Arrow batches of a micro-batch in, closed data files out, one row for each result."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from planners.model import Bucket, PartitionKey, comparable
from streaming_sink.tasks.batches import conform_valid
from streaming_sink.tasks.files.data_paths import new_data_path
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.files.spill import PartitionSpill
from streaming_sink.tasks.job import TaskBuckets, WorkerJob
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.partitioning import split
from streaming_sink.tasks.results import (
    Merge,
    TaskReport,
    TaskResult,
    WrittenFile,
    delete_files,
    encode_results,
)
from streaming_sink.tasks.row_groups.footer import StoredGroups
from streaming_sink.tasks.rows.failures import check_is_readable
from streaming_sink.tasks.rows.fingerprints import fingerprint_of
from streaming_sink.tasks.rows.partition_files import BUFFER_BYTES, MAX_OPEN_FILES, PartitionFiles
from streaming_sink.tasks.rows.task_state import TaskState
from streaming_sink.tasks.spark_task import start_task
from timeline.clock import SYSTEM
from timeline.names import data_file_name

if TYPE_CHECKING:
    from streaming_sink.tasks.changes.change_writer import ChangeWriter
    from streaming_sink.tasks.rows.sieve import SiftingWriter


class TaskWriter:
    """Writes the rows of one task. Holds at most BUFFER_BYTES and one incoming batch as Arrow, and at most
    MAX_OPEN_FILES files open."""

    def __init__(self, job: WorkerJob, task: int, attempt: int) -> None:
        self.job = job
        self._attempt = attempt
        self._planned: dict[PartitionKey, list[tuple[int, Bucket]]] = {}
        for planned in (job.tasks.get(task, TaskBuckets()), job.shared):
            for index, bucket in planned.buckets:
                self._planned.setdefault(comparable(bucket.partition), []).append((index, bucket))
        columns = leaves(job.schema)
        self._task = TaskState(
            job=job,
            columns=columns,
            dictionaries=DictionaryChoice(columns),
            new_path=self._new_path,
            next_free_bucket=job.first_free_bucket,
        )
        self._partitions: dict[PartitionKey, PartitionFiles] = {}
        self._spill: PartitionSpill | None = None
        self.rows = 0
        self.fingerprint = 0
        self.spilled_bytes = 0

    def _new_path(self, partition: PartitionKey, bucket: int) -> str:
        app_id, batch = self.job.ids.app_id, self.job.ids.batch
        name = partial(data_file_name, app_id=app_id, batch=batch, bucket=bucket, attempt=self._attempt)
        return new_data_path(self.job, partition, name)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch of rows, as Spark sends it. Where it raises RowsDoNotFitError it takes none."""
        check_is_readable(batch)
        parts = list(split(conform_valid(batch, self.job.schema), self.job.partition_by))
        self.rows += batch.num_rows
        self.fingerprint = fingerprint_of(batch, self.fingerprint)
        self._add(parts)

    def write_some(self, batch: pa.RecordBatch, only: frozenset[PartitionKey] | None) -> None:
        """As `write`, of rows that `conform_valid` returned, of these partitions alone (None: of all), and
        without their fingerprint.
        """
        parts = list(split(batch, self.job.partition_by))
        kept = [(key, rows) for key, rows in parts if only is None or comparable(key) in only]
        self.rows += sum(rows.num_rows for _, rows in kept)
        self._add(kept)

    def copy(self, stored: StoredGroups | None, number: int, batches: Sequence[pa.RecordBatch]) -> None:
        """As `write_some`, of the rows of a row group: where all are of one partition and fit into a file,
        its bytes become part of that as they are. `stored` is None where they may not.
        """
        parts = [part for batch in batches for part in split(batch, self.job.partition_by)]
        self.rows += sum(rows.num_rows for _, rows in parts)
        keys = {comparable(key): key for key, _ in parts}
        if stored is not None and len(keys) == 1:
            [key] = keys.values()
            if self._partition(key).copy(stored, number, [rows for _, rows in parts]):
                return
        self._add(parts)

    def _add(self, parts: list[tuple[PartitionKey, pa.RecordBatch]]) -> None:
        for key, rows in parts:
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
            self._spill = PartitionSpill(self.job.schema)
        for key, files in self._partitions.items():
            if not files.is_open and files.held_bytes:
                self._spill.append(key, files.take_back())
        self.spilled_bytes = self._spill.bytes

    @property
    def held_bytes(self) -> int:
        """Arrow bytes of the rows that are neither encoded nor spilled."""
        return self._task.held_bytes

    def finish(self) -> list[TaskResult]:
        """Write the remaining rows, and return the results."""
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
        """Delete all files of the task, finished or not, best effort: no result of a failing task reaches the
        driver."""
        for file in list(self._task.open_files):
            file.abort()
        delete_files(self.job.store, _written_files(self._task.results))


def _written_files(results: list[TaskResult]) -> Iterator[WrittenFile]:
    for result in results:
        if isinstance(result, WrittenFile):
            yield result
        elif isinstance(result, Merge):
            yield result.merged


def _writer(job: WorkerJob, task: int, attempt: int) -> TaskWriter | ChangeWriter | SiftingWriter:
    new_rows = TaskWriter(job, task, attempt)
    rows: TaskWriter | ChangeWriter = new_rows
    if job.keys is not None:
        from streaming_sink.tasks.changes.change_writer import ChangeWriter  # only changes by key pay for it

        rows = ChangeWriter(new_rows, job.keys)
    if job.sieve is None:
        return rows
    from streaming_sink.tasks.rows.sieve import SiftingWriter  # only a query with checks pays for it

    quarantine = None if job.sieve.quarantine is None else TaskWriter(job.sieve.quarantine, task, attempt)
    row_ids = SYSTEM.new_id(job.ids.time_ms)
    return SiftingWriter(rows, quarantine, job.sieve, row_ids)


class WriteTask:
    """The function that `DataFrame.mapInArrow` runs in each task of a batch."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, attempt = start_task(self._job.fast_workers)
        started = time.perf_counter()
        reading = 0.0
        writer = _writer(self._job, task, attempt)
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
            task=task,
            attempt=attempt,
            rows=writer.rows,
            seconds=seconds,
            read_seconds=reading,
            spilled_bytes=writer.spilled_bytes,
            fingerprint=writer.fingerprint,
        )
        yield encode_results((*results, report))
