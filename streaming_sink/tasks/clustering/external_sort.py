"""External merge sort of more rows than memory holds: sorted runs on disk, merged piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.clustering.few_values import decode_values, encode_few_values
from streaming_sink.tasks.clustering.ordering import Order, sort_indices
from streaming_sink.tasks.files.held_rows import HeldRows
from streaming_sink.tasks.files.spill import SpillFile
from streaming_sink.tasks.numpy_arrays import plain_numbers

_KNOWN_SHARE = 6
"""Columns of all rows that are held before the others take at most this part of the memory."""
_RUN_SHARE = 6
"""Rows that take this part of the memory are sorted in any case: a copy of them fits beside, and keys as
large again.
"""
_SORT_SHARE = 0.65
"""The part of the memory that sorting more rows may take: beside it the rows of an output file are held."""
_ROW_BYTES = 48
"""Sorting takes so many bytes a row for numbers, which keys and their order are."""
_LEAST_BYTES = 128
"""A column of a batch takes so many bytes at least: Arrow allocates 64 for each of its buffers."""
_COLUMN_BYTES = 2**31 - 1
"""A column of text in one piece has at most so many bytes: its offsets are of 32 bits."""
_MERGE_SHARE = 8
"""The pieces of all runs together take this part: at most half as much again, and copies of that."""
_PIECE_SHARE = 1024
"""A piece of a run on disk. A merge of up to 100 runs stays within its part."""
_PIECE_BYTES = 16 * 1024 * 1024
"""No piece is larger, so that those of a hundred runs are no column of 2 GiB."""
_SLICE_SHARE = 32
"""A batch that is yielded."""

Batches = Iterator[pa.RecordBatch]


@dataclass
class SortCounts:
    """What sorting has cost."""

    spilled_bytes: int = 0
    runs: int = 0


def sort(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, order: Order, memory_bytes: int, counts: SortCounts
) -> Batches:
    """Yield the rows of `batches` in order; rows with equal keys stay in the order in which they came.

    Holds about `memory_bytes` of Arrow at most, however many rows come; a batch should be a small part of it.
    """
    runs: list[_Run] = []
    held, columns = HeldRows(), [0] * len(schema)
    try:
        for batch in batches:
            sizes = [max(_LEAST_BYTES, column.nbytes) for column in batch.columns]
            columns = [held_bytes + size for held_bytes, size in zip(columns, sizes, strict=True)]
            if held.rows and not _fits(columns, held.rows + batch.num_rows, memory_bytes):
                runs.append(_spill_run(held, schema, order, memory_bytes, counts))
                columns = sizes
            held.add(batch)
        if not runs:
            if held.rows:
                yield from _sort_in_memory(held, schema, order, memory_bytes // _SLICE_SHARE)
            return
        if held.rows:
            runs.append(_spill_run(held, schema, order, memory_bytes, counts))
        yield from _merge_runs(runs, order, memory_bytes)
    finally:
        for run in runs:
            run.close()


def known_bytes(memory_bytes: int) -> int:
    """Return how many Arrow bytes of some columns may be held of all rows, before rows are sorted."""
    return memory_bytes // _KNOWN_SHARE


def _fits(columns: Sequence[int], rows: int, memory_bytes: int) -> bool:
    """Return whether so many rows, whose columns have so many bytes, can be sorted in memory: one column at a
    time is copied into one piece.
    """
    size, largest = sum(columns), max(columns, default=0)
    wanted = size + largest + rows * _ROW_BYTES
    fits = size <= memory_bytes // _RUN_SHARE or wanted <= _SORT_SHARE * memory_bytes
    return fits and largest <= _COLUMN_BYTES


def join_pieces(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the rows, each column in one piece. `batches` is emptied, and the batches' part of a column is
    freed before the next column is copied: the rows are not held twice.
    """
    columns = pa.Table.from_batches(batches, schema).columns
    batches.clear()
    for place, field in enumerate(schema):
        columns[place] = pa.table([columns[place]], [field.name]).combine_chunks().column(0)
    return pa.Table.from_arrays(columns, schema=schema)


def _sort_in_memory(held: HeldRows, schema: pa.Schema, order: Order, slice_bytes: int) -> Batches:
    """Return the held rows in order, in batches of about so many bytes. None are held after it."""
    rows = join_pieces(held.take(), schema)
    return _slices(rows.columns, schema, sort_indices(order(rows)), slice_bytes)


def _slices(
    columns: list[pa.ChunkedArray], schema: pa.Schema, indices: pa.Array, slice_bytes: int
) -> Batches:
    """Yield the rows at these indices, in batches of about so many bytes. Takes the columns, of which none
    should be held elsewhere.
    """
    size = sum(column.nbytes for column in columns)
    count = max(1, len(columns[0]) * slice_bytes // max(1, size))
    encode_few_values(columns)
    rows = pa.Table.from_arrays(columns, schema.names)
    for start in range(0, len(indices), count):
        yield from decode_values(rows.take(indices.slice(start, count)), schema).to_batches()


def _spill_run(
    held: HeldRows, schema: pa.Schema, order: Order, memory_bytes: int, counts: SortCounts
) -> _Run:
    run = _Run(schema)
    for batch in _sort_in_memory(held, schema, order, min(memory_bytes // _PIECE_SHARE, _PIECE_BYTES)):
        run.write(batch)
    counts.runs += 1
    counts.spilled_bytes += run.finish()
    return run


def _merge_runs(runs: list[_Run], order: Order, memory_bytes: int) -> Batches:
    """Yield the rows of all runs in order.

    Each round sorts the held rows of all runs, and yields them up to the first position where a run's next
    piece might belong: the last held row of a run that has more on disk.
    """
    enough = min(memory_bytes // _MERGE_SHARE, _COLUMN_BYTES // 2) // len(runs)
    while True:
        for run in runs:
            run.refill(enough)
        runs = [run for run in runs if run.held.num_rows]
        if not runs:
            return
        ends = np.cumsum([run.held.num_rows for run in runs])
        rows = pa.concat_tables([run.held for run in runs]).combine_chunks()
        indices = sort_indices(order(rows))
        unfinished = [end - 1 for end, run in zip(ends, runs, strict=True) if run.has_more]
        numbers = plain_numbers(indices)
        safe = int(np.isin(numbers, unfinished).argmax()) + 1 if unfinished else len(numbers)
        yielded = np.bincount(np.searchsorted(ends, numbers[:safe], side="right"), minlength=len(runs))
        for run, count in zip(runs, yielded, strict=True):
            run.held = run.held.slice(int(count))
        columns, schema = rows.columns, rows.schema
        del rows
        yield from _slices(columns, schema, indices.slice(0, safe), memory_bytes // _SLICE_SHARE)


class _Run:
    """Sorted rows on the worker's disk, read back from the front."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = SpillFile(schema)
        self._next = 0
        self.held = pa.Table.from_batches([], schema)
        """The rows that are read back and not yet yielded."""

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(batch)

    def finish(self) -> int:
        """End writing, and return the bytes on disk."""
        self._file.finish()
        size = self._file.bytes
        self._reader = self._file.open_reader()
        return size

    @property
    def has_more(self) -> bool:
        """Whether some of its rows are on disk only."""
        return self._next < self._file.count

    def refill(self, enough: int) -> None:
        """Read on until `enough` bytes are held, if fewer than half of that are left."""
        held = self.held.nbytes
        if held >= enough // 2 and self.held.num_rows:
            return
        pieces = [self.held]
        while self.has_more and (held < enough or not held):
            piece = self._reader.get_batch(self._next)
            self._next += 1
            held += piece.nbytes
            pieces.append(pa.Table.from_batches([piece]))
        self.held = pa.concat_tables(pieces)

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()
