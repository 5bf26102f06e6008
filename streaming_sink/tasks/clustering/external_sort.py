"""Sorting more rows than memory holds: sorted runs on the worker's disk, merged a piece of each at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.clustering.ordering import Order, sorting

_RUN_SHARE = 6
"""A run takes this part of the memory: sorting it needs a copy in one piece, and keys as large again."""
_MERGE_SHARE = 8
"""The pieces of all runs together take this part: at most half as much again, and copies of that."""
_PIECE_SHARE = 1024
"""A piece of a run on disk. A merge of up to 100 runs (16 times the memory) stays within its part."""
_SLICE_SHARE = 32
"""What is handed on at a time."""


@dataclass
class SortCounts:
    """What sorting cost so far."""

    spilled_bytes: int = 0
    runs: int = 0


def sort(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, order: Order, memory_bytes: int, counts: SortCounts
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in order; rows with equal keys stay in the order in which they came.

    Holds about `memory_bytes` of Arrow at most, whatever comes; a batch should be a small part of that.
    """
    runs: list[_Run] = []
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    try:
        for batch in batches:
            if held and held_bytes + batch.nbytes > run_bytes(memory_bytes):
                runs.append(_spilled(held, schema, order, memory_bytes, counts))
                held_bytes = 0
            held.append(batch)
            held_bytes += batch.nbytes
        if not runs:
            yield from _in_order(_taken(held, schema), order, memory_bytes // _SLICE_SHARE)
            return
        if held:
            runs.append(_spilled(held, schema, order, memory_bytes, counts))
        yield from _merged(runs, order, memory_bytes)
    finally:
        for run in runs:
            run.close()


def run_bytes(memory_bytes: int) -> int:
    """Return how much is sorted in memory."""
    return memory_bytes // _RUN_SHARE


def _taken(held: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the rows in one piece, and empty the list, so that they are not held twice."""
    rows = pa.Table.from_batches(held, schema)
    held.clear()
    return rows.combine_chunks()


def _in_order(rows: pa.Table, order: Order, slice_bytes: int) -> Iterator[pa.RecordBatch]:
    if rows.num_rows:
        yield from _slices(rows, sorting(order(rows)), slice_bytes)


def _slices(rows: pa.Table, places: pa.Array, slice_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows at these places, in batches of about so many bytes."""
    count = max(1, rows.num_rows * slice_bytes // max(1, rows.nbytes))
    for start in range(0, len(places), count):
        yield from rows.take(places.slice(start, count)).combine_chunks().to_batches()


def _spilled(
    held: list[pa.RecordBatch], schema: pa.Schema, order: Order, memory_bytes: int, counts: SortCounts
) -> _Run:
    run = _Run(schema)
    for batch in _in_order(_taken(held, schema), order, memory_bytes // _PIECE_SHARE):
        run.append(batch)
    counts.runs += 1
    counts.spilled_bytes += run.finish()
    return run


def _merged(runs: list[_Run], order: Order, memory_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all runs in order.

    Each round sorts what is held of the runs, and hands on the rows up to the first place where a run's next
    piece might belong: the last row that is held of a run that has more on disk.
    """
    enough = memory_bytes // _MERGE_SHARE // len(runs)
    while True:
        for run in runs:
            run.refill(enough)
        runs = [run for run in runs if run.held.num_rows]
        if not runs:
            return
        ends = np.cumsum([run.held.num_rows for run in runs])
        rows = pa.concat_tables([run.held for run in runs]).combine_chunks()
        places = sorting(order(rows))
        unfinished = [end - 1 for end, run in zip(ends, runs, strict=True) if run.has_more]
        numbers = places.to_numpy(zero_copy_only=False)
        safe = int(np.isin(numbers, unfinished).argmax()) + 1 if unfinished else len(numbers)
        handed = np.bincount(np.searchsorted(ends, numbers[:safe], side="right"), minlength=len(runs))
        for run, count in zip(runs, handed, strict=True):
            run.held = run.held.slice(int(count))
        yield from _slices(rows, places.slice(0, safe), memory_bytes // _SLICE_SHARE)


class _Run:
    """Sorted rows in a temporary file, read back from the front. The file vanishes with the process."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = tempfile.TemporaryFile(prefix="streaming-sink-")  # noqa: SIM115 - open until `close`
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), schema, options=options)
        self._next = 0
        self.held = schema.empty_table()
        """The rows that are read back and not handed on."""

    def append(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> int:
        """Return the bytes on disk. Nothing is appended after."""
        self._writer.close()
        self._file.flush()
        size = self._file.tell()
        self._reader = pa.ipc.open_file(pa.PythonFile(self._file, mode="r"))
        return size

    @property
    def has_more(self) -> bool:
        """Whether rows of it are still on disk alone."""
        return self._next < int(self._reader.num_record_batches)

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
