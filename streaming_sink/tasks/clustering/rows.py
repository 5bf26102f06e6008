"""The rows of one group, as a strategy sees them inside a task."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from planners.clustering.sort_fields import SortField
from streaming_sink.tasks.batches import by_field_id, conform
from streaming_sink.tasks.clustering import external_sort
from streaming_sink.tasks.clustering.job import GroupJob, Input
from streaming_sink.tasks.clustering.ordering import Order, sortable, top_names
from streaming_sink.tasks.clustering.ranges import digest, first_rows, range_numbers
from streaming_sink.tasks.encryption import KeysError
from streaming_sink.tasks.metrics import FIELD_ID

_READ_ROWS = 64 * 1024
_READ_SHARE = 64
"""A batch takes this part of the task's memory, as far as the file's own sizes tell."""
_SAMPLED_ROWS = 65_536
_SAMPLE_SHARE = 32
"""The sample takes at most this part of the task's memory as Arrow: wide values are sampled less often."""


class GroupUnfitError(Exception):
    """The group cannot be rewritten; its files stay as they are."""


class GroupRows:
    """Reads the group's files, in the table's current schema, as often as a strategy asks."""

    def __init__(self, job: GroupJob) -> None:
        self._job = job
        self._held: deque[pa.RecordBatch] = deque()
        """All rows, from the first sample until they are handed out; none where they are too many."""
        self._samples: dict[frozenset[str], pa.Table] = {}
        self._range: tuple[Order, pa.Table] | None = None
        self._share_rows = job.rows
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
        """The names of the table's columns that `sort_by` is about."""
        return frozenset(top_names(self.schema, [sortable(self.schema, it.column) for it in self.sort_by]))

    def read(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows, file after file; where `columns` names some, all others are left out."""
        if columns is None and self._held:
            held, self._held = self._held, deque()
            while held:
                yield held.popleft()
            return
        for given in self._job.inputs:
            yield from file_rows(self._job, given, columns)

    def sample(self, columns: Collection[str]) -> pa.Table:
        """Return these columns of rows from all over the group: the same ones in every task and attempt.

        Where all rows are no more than are sorted in memory, they are read for it as a whole, and kept for
        the next `read` or `sorted` of all columns.
        """
        names = frozenset(columns)
        if names not in self._samples:
            self._samples[names] = self._sampled(names)
        return self._samples[names]

    def sorted(self, order: Order, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, those beyond the task's memory by way of its disk.

        Where the group is cut into ranges, yields those of this task's. `columns`, by default all, are those
        that `order` looks at.
        """
        if self._job.cuts:
            sample = self.sample(self.schema.names if columns is None else columns)
            firsts = first_rows(sample, order, self._job.cuts)
            self.ranges = digest(firsts)
            self._range = order, firsts
        return external_sort.sort(self.share(), self.schema, order, self._job.memory_bytes, self.counts)

    def share(self) -> Iterator[pa.RecordBatch]:
        """Yield what this task has to write, in no order: all rows, or those of its range."""
        return self.read() if self._range is None else self._in_range(*self._range)

    @property
    def share_rows(self) -> int:
        """How many rows this task has to write; of a range known when `sorted` has yielded."""
        return self._share_rows

    def _in_range(self, order: Order, firsts: pa.Table) -> Iterator[pa.RecordBatch]:
        self._share_rows = 0
        for rows in _gathered(self.read(), self.schema, self.memory_bytes // _READ_SHARE):
            numbers = range_numbers(rows, firsts, order)
            mine = rows.take(np.flatnonzero(numbers == self._job.part))
            self._share_rows += mine.num_rows
            yield from mine.combine_chunks().to_batches()

    def _sampled(self, names: frozenset[str]) -> pa.Table:
        random = np.random.default_rng(0)
        share = min(1.0, _SAMPLED_ROWS / max(1, self.rows))
        schema = pa.schema([field for field in self.schema if field.name in names])
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        self._held = self._held or self._all_if_few()
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

    def _all_if_few(self) -> deque[pa.RecordBatch]:
        """Return all rows where they are no more than are sorted in memory, none otherwise."""
        held: deque[pa.RecordBatch] = deque()
        held_rows = held_bytes = 0
        for batch in self.read():
            held.append(batch)
            held_rows += batch.num_rows
            held_bytes += batch.nbytes
            # Gives up early: as if all others were as wide as these on average.
            if held_bytes * self.rows > external_sort.run_bytes(self.memory_bytes) * held_rows:
                return deque()
        return held


def _gathered(batches: Iterator[pa.RecordBatch], schema: pa.Schema, enough_bytes: int) -> Iterator[pa.Table]:
    """Join the batches of small files: what is done with a few rows costs as much as with thousands."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
        if held_rows >= _READ_ROWS // 2 or held_bytes >= enough_bytes:
            yield pa.Table.from_batches(held, schema)
            held, held_rows, held_bytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema)


def file_rows(
    job: GroupJob, given: Input, columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one data file in the table's schema, matched by field id.

    GroupUnfitError for a file that is gone, damaged, without field ids, or of another number of rows.
    """
    try:
        store = job.worker.store
        source: Any = store.open_input(store.relative(given.path))
    except FileNotFoundError as gone:
        raise GroupUnfitError(f"an input is gone: {given.path}") from gone
    schema = job.worker.schema
    if columns is not None:
        schema = pa.schema([field for field in schema if field.name in columns])
    try:
        cipher = job.worker.cipher if given.encrypted else None
        reader = pq.ParquetFile(
            pa.PythonFile(source, mode="r"), decryption_properties=cipher.decryption() if cipher else None
        )
        if reader.metadata.num_rows != given.rows:
            said = "an input holds more or fewer rows than the table says"
            raise GroupUnfitError(f"{said}: {reader.metadata.num_rows} != {given.rows}: {given.path}")
        names = _names_by_field_id(reader.schema_arrow, given.path)
        wanted = [names[key] for field in schema if (key := field.metadata[FIELD_ID]) in names]
        for batch in reader.iter_batches(_rows_at_once(reader.metadata, job.memory_bytes), columns=wanted):
            yield conform(batch, schema, by_field_id)
    except FileNotFoundError as gone:
        raise GroupUnfitError(f"an input is gone: {given.path}") from gone
    except (pa.ArrowException, OSError, KeysError) as damage:
        raise GroupUnfitError(f"an input cannot be read: {given.path}: {damage}") from damage
    finally:
        source.close()


def _rows_at_once(footer: pq.FileMetaData, memory_bytes: int) -> int:
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    wide = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(_READ_ROWS, memory_bytes // _READ_SHARE // max(1, wide)))


def _names_by_field_id(schema: pa.Schema, path: str) -> Mapping[bytes, str]:
    if not all(field.metadata and FIELD_ID in field.metadata for field in schema):
        raise GroupUnfitError(f"an input has columns without field ids: {path}")
    return {field.metadata[FIELD_ID]: field.name for field in schema}
