"""The rows of one group, as a strategy sees them inside a task."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from planners.clustering.sort_fields import SortField
from streaming_sink.tasks.clustering import external_sort
from streaming_sink.tasks.clustering.job import GroupJob, Input
from streaming_sink.tasks.clustering.ordering import Order, sort_column, top_level_names
from streaming_sink.tasks.clustering.ranges import boundary_digest, boundary_rows, range_numbers
from streaming_sink.tasks.files.cut_files import CutFiles
from streaming_sink.tasks.files.data_file_reader import READ_ROWS, open_data_file
from streaming_sink.tasks.files.delete_files import check_rows, deleted_positions, leave_out
from streaming_sink.tasks.files.held_rows import HeldRows
from streaming_sink.tasks.files.merged_rows import MergedRows

_READ_SHARE = 64
"""A batch takes at most this part of the task's memory, by the sizes in the file's footer."""
_SAMPLED_ROWS = 65_536
_SAMPLE_SHARE = 32
"""The sample takes at most this part of the task's memory as Arrow: wide rows are sampled less often."""


_INPUT = "an input"


class GroupRows:
    """Reads the group's files, in the table's current schema, as often as its strategy needs."""

    def __init__(self, job: GroupJob) -> None:
        self._job = job
        self._held: deque[pa.RecordBatch] = deque()
        """All rows, from the first sample until they are read; none if they are too many."""
        self._samples: dict[frozenset[str], pa.Table] = {}
        self._range: tuple[Order, pa.Table] | None = None
        self._range_rows = 0
        self._deleted: dict[str, int] = {}
        self.counts = external_sort.SortCounts()
        self.ranges = b""
        """See `GroupWritten.ranges`."""

    @property
    def schema(self) -> pa.Schema:
        return self._job.worker.schema

    @property
    def rows(self) -> int:
        return self._job.rows

    @property
    def memory_bytes(self) -> int:
        """Arrow bytes that the whole task may hold."""
        return self._job.memory_bytes

    @property
    def sort_by(self) -> tuple[SortField, ...]:
        return self._job.sort_by

    @property
    def sort_columns(self) -> frozenset[str]:
        """The names of the table's columns that `sort_by` needs."""
        columns = [sort_column(self.schema, field.column) for field in self.sort_by]
        return frozenset(top_level_names(self.schema, columns))

    def read(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the live rows, file after file; of all columns, or only of those that `columns` names."""
        if columns is None and self._held:
            held, self._held = self._held, deque()
            while held:
                yield held.popleft()
            return
        for file in self._job.inputs:
            deleted = deleted_positions(self._job.worker.store, file)
            self._deleted[file.path] = len(deleted)
            yield from leave_out(read_input(self._job, file, columns), deleted)

    def join(self, output: CutFiles) -> None:
        """Hand over the live rows, file after file; row groups that are worth keeping as they are."""
        rows = MergedRows(self._job.worker, _INPUT, self.memory_bytes // _READ_SHARE)
        for file in self._job.inputs:
            self._deleted[file.path] = rows.add(file, output, output.cuts_left)

    def sample(self, columns: Collection[str]) -> pa.Table:
        """Return these columns of a random sample of the group's rows, the same in every task and attempt.

        Rows that fit into a sort in memory are read as a whole, and kept for the next `read` or `sorted` of
        all columns.
        """
        names = frozenset(columns)
        if names not in self._samples:
            self._samples[names] = self._draw_sample(names)
        return self._samples[names]

    def sorted(self, order: Order, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order; rows beyond the task's memory are spilled to its disk.

        If several tasks share the group, yields the rows of this task's range. `columns`, by default all, are
        those that `order` needs.
        """
        if self._job.range_ends:
            sample = self.sample(self.schema.names if columns is None else columns)
            firsts = boundary_rows(sample, order, self._job.range_ends)
            self.ranges = boundary_digest(firsts)
            self._range = order, firsts
        return external_sort.sort(self.share(), self.schema, order, self._job.memory_bytes, self.counts)

    def share(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that this task writes, unordered: all, or those of its range."""
        return self.read() if self._range is None else self._in_range(*self._range)

    @property
    def share_rows(self) -> int:
        """How many rows this task writes: known when all have been read; of a range, when `sorted` has
        yielded them.
        """
        stored = sum(file.rows for file in self._job.inputs)
        return stored - self.deleted_rows if self._range is None else self._range_rows

    @property
    def deleted_rows(self) -> int:
        """How many rows of the inputs are deleted, known when all have been read."""
        return sum(self._deleted.values())

    def _in_range(self, order: Order, firsts: pa.Table) -> Iterator[pa.RecordBatch]:
        self._range_rows = 0
        for rows in _join_small(self.read(), self.schema, self.memory_bytes // _READ_SHARE):
            numbers = range_numbers(rows, firsts, order)
            mine = rows.take(np.flatnonzero(numbers == self._job.part))
            self._range_rows += mine.num_rows
            yield from mine.combine_chunks().to_batches()

    def _draw_sample(self, names: frozenset[str]) -> pa.Table:
        random = np.random.default_rng(0)
        share = min(1.0, _SAMPLED_ROWS / max(1, self.rows))
        schema = pa.schema([field for field in self.schema if field.name in names])
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        self._held = self._held or self._read_if_few()
        batches = (each.select(schema.names) for each in self._held) if self._held else self.read(names)
        for batch in batches:
            chosen = batch.take(np.flatnonzero(random.random(batch.num_rows) < share))
            held.append(chosen)
            held_bytes += chosen.nbytes
            while held_bytes > self.memory_bytes // _SAMPLE_SHARE and sum(each.num_rows for each in held) > 1:
                held = [each.take(np.flatnonzero(random.random(each.num_rows) < 0.5)) for each in held]
                held_bytes = sum(each.nbytes for each in held)
                share /= 2
        return pa.Table.from_batches(held, schema).combine_chunks()

    def _read_if_few(self) -> deque[pa.RecordBatch]:
        """Return all rows if they fit into a sort in memory, none otherwise."""
        held: deque[pa.RecordBatch] = deque()
        held_rows = held_bytes = 0
        for batch in self.read():
            held.append(batch)
            held_rows += batch.num_rows
            held_bytes += batch.nbytes
            # Stop early: assume that the remaining rows are as wide as these on average.
            if held_bytes * self.rows > external_sort.run_bytes(self.memory_bytes) * held_rows:
                return deque()
        return held


def _join_small(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, enough_bytes: int
) -> Iterator[pa.Table]:
    """Join the batches of small files: an operation on a few rows costs as much as one on thousands."""
    held = HeldRows()
    for batch in batches:
        held.add(batch)
        if held.rows >= READ_ROWS // 2 or held.bytes >= enough_bytes:
            yield pa.Table.from_batches(held.take(), schema)
    if held.rows:
        yield pa.Table.from_batches(held.take(), schema)


def read_input(
    job: GroupJob, given: Input, columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one data file, deleted or not, in the table's schema, of all columns or of these.

    DataFileError for a file that is missing, damaged, or of another number of rows.
    """
    schema = job.worker.schema
    if columns is not None:
        schema = pa.schema([field for field in schema if field.name in columns])
    cipher = job.worker.cipher if given.encrypted else None
    worker = job.worker
    with open_data_file(worker.store, given.path, _INPUT, cipher, needs_ids=worker.needs_ids) as file:
        check_rows(file, given, _INPUT)
        batch_bytes = job.memory_bytes // _READ_SHARE
        yield from file.read(schema, max(1, min(READ_ROWS, batch_bytes // max(1, file.row_bytes))))
