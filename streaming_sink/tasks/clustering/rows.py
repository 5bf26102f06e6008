"""The rows of one group, as a strategy sees them inside a task."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planners.clustering.sort_fields import SortField
from streaming_sink.tasks.clustering import external_sort
from streaming_sink.tasks.clustering.job import GroupJob, Input
from streaming_sink.tasks.clustering.known_columns import KnownColumns
from streaming_sink.tasks.clustering.ordering import Order, sort_column, top_level_names
from streaming_sink.tasks.clustering.ranges import boundary_digest, boundary_rows, range_numbers
from streaming_sink.tasks.files.cut_files import CutFiles
from streaming_sink.tasks.files.data_file_reader import READ_ROWS, DataFileReader, open_data_file
from streaming_sink.tasks.files.delete_files import check_rows, deleted_positions, leave_out
from streaming_sink.tasks.files.held_rows import HeldRows
from streaming_sink.tasks.files.merged_rows import MergedRows
from streaming_sink.tasks.numpy_arrays import numbers_array

_READ_SHARE = 64
"""A batch takes at most this part of the task's memory, by the sizes in the file's footer."""
_SAMPLED_ROWS = 65_536
_SAMPLE_SHARE = 32
"""The sample takes at most this part of the task's memory as Arrow: wide rows are sampled less often."""
_OPEN_FILES = 256
"""Files that stay open between two passes over their columns. A process may open a thousand."""
_OPEN_SHARE = 8
"""The footers of these take at most this part of the task's memory: those of wide tables have megabytes."""
_FOOTER_BYTES = 20
"""Bytes of a footer in memory, for each that it takes in its file."""

_INPUT = "an input"


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """An input, which `stack` closes, and translates errors of its reader while it is entered."""

    stack: ExitStack
    reader: DataFileReader
    deleted: npt.NDArray[np.int64]
    """The positions of its deleted rows."""


class GroupRows:
    """Reads the group's files, in the table's current schema, as often as its strategy needs."""

    def __init__(self, job: GroupJob) -> None:
        self._job = job
        self._known: KnownColumns | None = None
        """The sampled columns of all rows, from the first sample until the rows are read; None if they are
        too many."""
        self._open: dict[str, _OpenFile] = {}
        """The files whose sampled columns are read, and the others not yet."""
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
        if columns is None and self._known is not None:
            known, self._known = self._known, None
            yield from known.complete(self._read(known.missing))
            return
        names = self.schema.names if columns is None else columns
        yield from self._read(pa.schema([field for field in self.schema if field.name in names]))

    def _read(self, schema: pa.Schema, *, again: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the live rows with these columns. `again`: other columns of the same files are read next."""
        for given in self._job.inputs:
            file = self._open.pop(given.path, None) or self._open_file(given)
            with file.stack:
                yield from leave_out(_read_all(self._job, file.reader, schema), file.deleted)
                if again and self._may_stay_open(file):
                    self._open[given.path] = replace(file, stack=file.stack.pop_all())

    def _may_stay_open(self, file: _OpenFile) -> bool:
        """Return whether one more file may."""
        footers = [each.reader.footer.serialized_size for each in (*self._open.values(), file)]
        held = _FOOTER_BYTES * sum(footers)
        return len(footers) <= _OPEN_FILES and held <= self.memory_bytes // _OPEN_SHARE

    def _open_file(self, given: Input) -> _OpenFile:
        deleted = deleted_positions(self._job.worker.store, given)
        self._deleted[given.path] = len(deleted)
        with ExitStack() as stack:
            reader = stack.enter_context(_opened(self._job, given))
            return _OpenFile(stack.pop_all(), reader, deleted)

    def close(self) -> None:
        """Close the files that are still open."""
        while self._open:
            self._open.popitem()[1].stack.close()

    def join(self, output: CutFiles) -> None:
        """Hand over the live rows, file after file; row groups that are worth keeping as they are."""
        rows = MergedRows(self._job.worker, _INPUT, self.memory_bytes // _READ_SHARE)
        for file in self._job.inputs:
            self._deleted[file.path] = rows.add(file, output, output.cuts_left)

    def sample(self, columns: Collection[str]) -> pa.Table:
        """Return these columns of a random sample of the group's rows, the same in every task and attempt.

        Where these columns of all rows fit into a sort in memory they are kept for the next `read` or
        `sorted` of all columns, which reads the others from the files that are still open.
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
        if self._known is not None and self._known.names.issuperset(firsts.column_names):
            self._known.keep(lambda rows: range_numbers(rows, firsts, order) == self._job.part)
            for batch in self.read():
                self._range_rows += batch.num_rows
                yield batch
            return
        for rows in _join_small(self.read(), self.schema, self.memory_bytes // _READ_SHARE):
            numbers = range_numbers(rows, firsts, order)
            mine = rows.take(numbers_array(np.flatnonzero(numbers == self._job.part)))
            self._range_rows += mine.num_rows
            yield from mine.combine_chunks().to_batches()

    def _draw_sample(self, names: frozenset[str]) -> pa.Table:
        random = np.random.default_rng(0)
        share = min(1.0, _SAMPLED_ROWS / max(1, self.rows))
        schema = pa.schema([field for field in self.schema if field.name in names])
        known = KnownColumns(self.schema, schema)
        keeps = self._known is None
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in self._read(schema, again=True):
            keeps = keeps and known.add(batch, self.rows, external_sort.known_bytes(self.memory_bytes))
            chosen = _some(batch, random, share)
            held.append(chosen)
            held_bytes += chosen.nbytes
            while held_bytes > self.memory_bytes // _SAMPLE_SHARE and sum(each.num_rows for each in held) > 1:
                held = [_some(each, random, 0.5) for each in held]
                held_bytes = sum(each.nbytes for each in held)
                share /= 2
        self._known = known if keeps else self._known
        return pa.Table.from_batches(held, schema).combine_chunks()


def _some(batch: pa.RecordBatch, random: np.random.Generator, share: float) -> pa.RecordBatch:
    return batch.take(numbers_array(np.flatnonzero(random.random(batch.num_rows) < share)))


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


def read_input(job: GroupJob, given: Input) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one data file, deleted or not, in the table's schema.

    DataFileError for a file that is missing, damaged, or of another number of rows.
    """
    with _opened(job, given) as file:
        yield from _read_all(job, file, job.worker.schema)


@contextmanager
def _opened(job: GroupJob, given: Input) -> Iterator[DataFileReader]:
    """Open a file as `open_data_file`, and check its rows."""
    worker, cipher = job.worker, job.worker.cipher if given.encrypted else None
    with open_data_file(worker.store, given.path, _INPUT, cipher, needs_ids=worker.needs_ids) as file:
        check_rows(file, given, _INPUT)
        yield file


def _read_all(job: GroupJob, file: DataFileReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    batch_bytes = job.memory_bytes // _READ_SHARE
    return file.read(schema, max(1, min(READ_ROWS, batch_bytes // max(1, file.row_bytes))))
