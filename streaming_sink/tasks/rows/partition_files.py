"""The data files of one table partition inside one write task: rows are cut where the plan says, and by the
table's file and row group sizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pyarrow as pa

from planners.model import Bucket, PartitionKey
from streaming_sink.tasks.files.data_file_writer import DataFileWriter
from streaming_sink.tasks.files.held_rows import HeldRows
from streaming_sink.tasks.files.metrics import nan_counts
from streaming_sink.tasks.results import MergeSkipped
from streaming_sink.tasks.row_groups.footer import StoredGroups
from streaming_sink.tasks.rows.merging import merge_files
from streaming_sink.tasks.rows.task_state import TaskState

BUFFER_BYTES = 128 * 1024 * 1024
"""Arrow bytes that one task holds over all its partitions before it encodes or spills some of them."""

EARLY_ROWS = 16_384
EARLY_GROUPS = 4
"""The first row groups of a file take so many rows, so that a small batch is encoded while Spark still reads
it, not after. In a large file they do not count; a small one is soon merged into a large one.
"""

MAX_OPEN_FILES = 16
"""Unfinished files of one task; rows of further partitions are spilled. An object store's upload holds
megabytes.
"""

_LEAST_ROOM = 32
"""A file with less than this fraction of its maximum left is full: a smaller row group is not worth its
overhead."""

_MOST_ROOM = 4
"""A row group takes at most so many Arrow bytes for each byte that is left in the file, so that rows that
suddenly compress worse than those before exceed the maximum by no more.
"""


class PartitionFiles:
    """Takes the rows of one partition in the task, and writes its files one after the other."""

    def __init__(self, task: TaskState, partition: PartitionKey, planned: list[tuple[int, Bucket]]) -> None:
        self._task = task
        self._partition = partition
        self._planned = deque(planned)
        self._held = HeldRows()
        self._file: DataFileWriter | None = None
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
        """Whether one of its files is unfinished."""
        return self._file is not None

    @property
    def held_bytes(self) -> int:
        """Arrow bytes of its rows that are neither encoded nor spilled."""
        return self._held.bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Take `batch`; files that it completes are closed, and are in the task's results."""
        while batch.num_rows:
            rows = min(batch.num_rows, self._limit - self._rows, self._rows_that_fit(batch))
            self._hold(batch.slice(0, rows))
            batch = batch.slice(rows)
            if self._rows == self._limit:
                self._finish_file()
                self._start_bucket()
            elif self._begins_early():
                self.flush()
            elif self._held.bytes >= self._group_bytes():
                self.flush()
                self._roll_if_full()

    def copy(self, stored: StoredGroups, number: int, rows: Sequence[pa.RecordBatch]) -> bool:
        """Take a row group as it is, of which these are the rows, where it fits into the current file, which
        is open or may be; return whether it was taken.
        """
        group, file = stored.footer.groups[number], self._file
        left = self._largest_file() - (0 if file is None else file.encoded_bytes) - self._held.bytes
        if group.rows > self._limit - self._rows or group.extent.size > left:
            return False
        if file is None and len(self._task.open_files) >= MAX_OPEN_FILES:
            return False
        file = self._opened()
        file.copy(stored, [number])
        for batch in rows:
            file.count_nans(nan_counts(pa.Table.from_batches([batch]), self._task.columns))
        self._rows += group.rows
        if self._rows == self._limit:
            self._finish_file()
            self._start_bucket()
        return True

    def _opened(self) -> DataFileWriter:
        if self._file is None:
            path = self._task.new_path(self._partition, self._bucket_index)
            self._file = self._task.open_file(path, self._task.dictionaries)
        return self._file

    def _begins_early(self) -> bool:
        """Whether to encode the held rows already now, while the JVM works on the next ones."""
        if self._bucket.fills or self._held.rows < EARLY_ROWS:
            return False  # (a fill takes its new rows from memory)
        if self._file is None:
            return len(self._task.open_files) < MAX_OPEN_FILES
        return self._file.groups < EARLY_GROUPS

    def _hold(self, batch: pa.RecordBatch) -> None:
        before = self._held.bytes
        self._held.add(batch)
        self._rows += batch.num_rows
        self._task.held_bytes += self._held.bytes - before

    def _rows_that_fit(self, batch: pa.RecordBatch) -> int:
        room = self._group_bytes() - self._held.bytes
        rows: int = batch.num_rows
        return max(1, -(-rows * room // int(batch.nbytes))) if batch.nbytes > room else rows

    def _group_bytes(self) -> int:
        room = self._largest_file() - (self._file.encoded_bytes if self._file else 0)
        return max(
            1,
            min(
                self._task.job.parquet.row_group_bytes,
                BUFFER_BYTES,
                self._task.ratio.arrow_bytes(room),
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
        """Encode the held rows as one row group of the current file."""
        if not self._held.rows:
            return
        file = self._opened()
        encoded, arrow = file.encoded_bytes, self._held.bytes
        file.write(pa.Table.from_batches(self._held.copy()))
        self._task.ratio.arrow += arrow
        self._task.ratio.encoded += file.encoded_bytes - encoded
        self._release()

    def _release(self) -> list[pa.RecordBatch]:
        self._task.held_bytes -= self._held.bytes
        return self._held.take()

    def take_back(self) -> list[pa.RecordBatch]:
        """Return the held rows, as if they had not been added yet. Only before a file is open."""
        assert self._file is None
        self._rows -= self._held.rows
        return self._release()

    def _roll_if_full(self) -> None:
        assert self._file is not None
        limit = self._largest_file()
        if limit - self._file.encoded_bytes > limit // _LEAST_ROOM:
            return
        left = self._limit - self._rows
        self._finish_file()
        # The rest of the bucket becomes a file of its own; its inputs, if any, are merged already.
        self._bucket = Bucket(self._partition, left)
        self._limit = left
        self._rows = 0

    def finish(self) -> None:
        """Write the remaining rows, and close the file."""
        if self._rows:
            self._finish_file()
            self._start_bucket()

    def _finish_file(self) -> None:
        all_rows = self._held.copy() if self._file is None else None
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
            if bucket.fills:  # a standby bucket was never meant to merge at this size
                reason = f"too few rows came to repay rewriting its files: {self._rows} < {bucket.min_rows}"
                inputs = tuple(given.path for given in bucket.inputs)
                task.results.append(MergeSkipped(inputs, new.path, reason))
            return
        path = task.new_path(self._partition, self._bucket_index)
        task.results.append(merge_files(task, bucket, self._bucket_index, new, all_rows, path))
