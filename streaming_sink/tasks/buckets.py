"""The files of one table partition inside one task: rows are cut exactly as the plan says, then by the
table's sizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from planners.model import Bucket, PartitionKey
from streaming_sink.tasks.dictionaries import DictionaryChoice
from streaming_sink.tasks.job import MergeSkipped, TaskResult, WorkerJob
from streaming_sink.tasks.merging import merge
from streaming_sink.tasks.metrics import Leaf
from streaming_sink.tasks.parquet_file import ParquetFile

BUFFER_BYTES = 128 * 1024 * 1024
"""Arrow bytes that one task holds over all its partitions before it encodes or spills some of them."""

EARLY_ROWS = 16_384
EARLY_GROUPS = 4
"""The first row groups of a file are cut at so many rows, so that a small batch is encoded while Spark still
reads it, not after. In a large file they do not count; a small one is merged into a large one soon.
"""

MAX_OPEN_FILES = 16
"""Half-written files of one task; rows of further partitions are spilled. An object store's upload holds
megabytes.
"""

_LEAST_ROOM = 32
"""A file with less than this fraction of its maximum left is full: a smaller row group is not worth its
overhead."""

_MOST_ROOM = 4
"""A row group takes at most so many Arrow bytes for each byte that is left in the file: rows that suddenly
compress worse than those before may outgrow the maximum by no more.
"""


@dataclass(slots=True)
class Ratio:
    """Encoded bytes per Arrow byte, as this task has seen it. 1 before it saw any: encoding hardly ever grows
    rows."""

    arrow: int = 0
    encoded: int = 0

    def encoded_of(self, arrow_bytes: int) -> int:
        return arrow_bytes * self.encoded // self.arrow if self.arrow else arrow_bytes

    def arrow_of(self, encoded_bytes: int) -> int:
        return encoded_bytes * self.arrow // self.encoded if self.encoded else encoded_bytes


@dataclass(slots=True)
class TaskContents:
    """What the partitions of one task share."""

    job: WorkerJob
    columns: tuple[Leaf, ...]
    dictionaries: DictionaryChoice
    new_path: Callable[[PartitionKey, int], str]
    """A fresh file name for a partition and a bucket."""
    results: list[TaskResult]
    ratio: Ratio
    next_free_bucket: int
    open_files: set[ParquetFile]
    held_bytes: int = 0


class PartitionFiles:
    """Takes the rows of one partition in the task, and turns them into its files one after the other."""

    def __init__(
        self, task: TaskContents, partition: PartitionKey, planned: list[tuple[int, Bucket]]
    ) -> None:
        self._task = task
        self._partition = partition
        self._planned = deque(planned)
        self._held: list[pa.RecordBatch] = []
        self.held_bytes = 0
        self._file: ParquetFile | None = None
        self._start_bucket()

    def _start_bucket(self) -> None:
        self._rows = 0
        while self._planned:
            self._bucket_index, self._bucket = self._planned.popleft()
            most = None if self._planned else self._bucket.max_rows
            self._limit = self._bucket.rows if most is None else most
            if self._limit:
                return
        self._bucket_index = self._task.next_free_bucket
        self._task.next_free_bucket += 1
        self._limit = self._task.job.rows_per_new_file
        self._bucket = Bucket(self._partition, self._limit)

    @property
    def is_open(self) -> bool:
        """Whether a file of it is half written."""
        return self._file is not None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take `batch`; files that it completes are written and reported."""
        while batch.num_rows:
            rows = min(batch.num_rows, self._limit - self._rows, self._rows_that_fit(batch))
            self._hold(batch.slice(0, rows))
            batch = batch.slice(rows)
            if self._rows == self._limit:
                self._finish_file()
                self._start_bucket()
            elif self._begins_early():
                self.flush()
            elif self.held_bytes >= self._group_bytes():
                self.flush()
                self._roll_if_full()

    def _begins_early(self) -> bool:
        """Whether to encode what is held already now, beside the JVM's work on the next rows."""
        if self._bucket.fills or sum(batch.num_rows for batch in self._held) < EARLY_ROWS:
            return False  # (a fill wants its new rows in memory)
        if self._file is None:
            return len(self._task.open_files) < MAX_OPEN_FILES
        return self._file.groups < EARLY_GROUPS

    def _hold(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self.held_bytes += batch.nbytes
        self._task.held_bytes += batch.nbytes

    def _rows_that_fit(self, batch: pa.RecordBatch) -> int:
        room = self._group_bytes() - self.held_bytes
        rows: int = batch.num_rows
        return max(1, -(-rows * room // int(batch.nbytes))) if batch.nbytes > room else rows

    def _group_bytes(self) -> int:
        room = self._largest_file() - (self._file.encoded_bytes if self._file else 0)
        return max(
            1,
            min(
                self._task.job.parquet.row_group_bytes,
                BUFFER_BYTES,
                self._task.ratio.arrow_of(room),
                _MOST_ROOM * room,
            ),
        )

    def _largest_file(self) -> int:
        # the merged file may not exceed the maximum either
        return max(
            self._task.job.max_file_bytes - self._bucket.input_bytes,
            self._task.job.max_file_bytes // _LEAST_ROOM,
        )

    def flush(self) -> None:
        """Encode the rows that are held as one row group of the current file."""
        if not self._held:
            return
        if self._file is None:
            path = self._task.new_path(self._partition, self._bucket_index)
            self._file = ParquetFile(self._task.job, self._task.columns, self._task.dictionaries, path)
            self._task.open_files.add(self._file)
        before = self._file.encoded_bytes
        self._file.write(pa.Table.from_batches(self._held))
        self._task.ratio.arrow += self.held_bytes
        self._task.ratio.encoded += self._file.encoded_bytes - before
        self.release()

    def release(self) -> list[pa.RecordBatch]:
        """Give up the rows that are held, and return them."""
        held, self._held = self._held, []
        self._task.held_bytes -= self.held_bytes
        self.held_bytes = 0
        return held

    def take_back(self) -> list[pa.RecordBatch]:
        """Return the rows that are held, as if they had not been added yet. Only before the file is open."""
        assert self._file is None
        held = self.release()
        self._rows -= sum(batch.num_rows for batch in held)
        return held

    def _roll_if_full(self) -> None:
        assert self._file is not None
        limit = self._largest_file()
        if limit - self._file.encoded_bytes > limit // _LEAST_ROOM:
            return
        left = self._limit - self._rows
        self._finish_file()
        # the rest of the bucket becomes a file of its own; its inputs, if any, are merged already
        self._bucket = Bucket(self._partition, left)
        self._limit = left
        self._rows = 0

    def finish(self) -> None:
        """Write what is left."""
        if self._rows:
            self._finish_file()
            self._start_bucket()

    def _finish_file(self) -> None:
        whole = list(self._held) if self._file is None else None
        self.flush()
        assert self._file is not None
        task, file, bucket = self._task, self._file, self._bucket
        self._file = None
        new = file.close(self._partition, self._bucket_index)
        task.open_files.discard(file)
        task.results.append(new)
        if not bucket.inputs:
            return
        if self._rows < bucket.min_rows:
            if bucket.fills:  # a bucket that only stood by was never meant to merge at this size
                reason = f"too few rows came to repay rewriting its files: {self._rows} < {bucket.min_rows}"
                task.results.append(MergeSkipped(bucket.inputs, new.path, reason))
            return
        merged_path = task.new_path(self._partition, self._bucket_index)
        task.results.append(
            merge(
                task.job, task.columns, task.open_files, bucket, self._bucket_index, new, whole, merged_path
            )
        )
