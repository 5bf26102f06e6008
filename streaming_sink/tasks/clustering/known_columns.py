"""Columns of all rows of a group that are read before the others: by these it is known which rows a task
takes, and so no row of another range is held with all its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_sink.tasks.files.data_file_reader import READ_ROWS
from streaming_sink.tasks.files.held_rows import HeldRows
from streaming_sink.tasks.numpy_arrays import numbers_array

Wanted = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""Returns which rows are wanted, by the columns that are known."""


class KnownColumns:
    """Takes the columns of `schema` of a group's rows, file after file, and completes the rows to `whole`."""

    def __init__(self, whole: pa.Schema, schema: pa.Schema) -> None:
        self._whole = whole
        self._schema = schema
        self._held = HeldRows()
        self._places: npt.NDArray[np.int64] | None = None
        """Of the rows that are held, among all rows; None if these are all."""

    @property
    def names(self) -> frozenset[str]:
        """The columns that are known."""
        return frozenset(self._schema.names)

    @property
    def missing(self) -> pa.Schema:
        """The columns that are not known."""
        return pa.schema([field for field in self._whole if field.name not in self._schema.names])

    def add(self, batch: pa.RecordBatch, rows: int, most_bytes: int) -> bool:
        """Hold a batch, and return True; False, and hold nothing more, if `rows` rows as wide as those so far
        take more than so many bytes.
        """
        self._held.add(batch)
        fits = self._held.bytes * rows <= most_bytes * self._held.rows
        if not fits:
            self._held.take()
        return fits

    def keep(self, wanted: Wanted) -> None:
        """Hold only the rows that are wanted from now on."""
        all_rows, kept, places, end = self._held.take(), HeldRows(), [np.empty(0, np.int64)], 0
        all_rows.reverse()
        while all_rows:
            rows = pa.Table.from_batches(_pop_some(all_rows), self._schema)
            flags = np.flatnonzero(wanted(rows))
            places.append(flags + end)
            end += rows.num_rows
            for batch in rows.take(numbers_array(flags)).combine_chunks().to_batches():
                kept.add(batch)
        self._held, self._places = kept, np.concatenate(places)

    def complete(self, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are held. `others`: the missing columns of all rows, in the same order."""
        if not self.missing.names:
            yield from self._held.take()
            return
        known = pa.Table.from_batches(self._held.take(), self._schema)
        begin = end = 0
        for batch in others:
            begin, end = end, end + batch.num_rows
            first, last = begin, end
            if self._places is not None:
                first, last = map(int, np.searchsorted(self._places, (begin, end)))
                batch = batch.take(numbers_array(self._places[first:last] - begin))
            if first < last:
                yield self._joined(known.slice(first, last - first).combine_chunks(), batch)
        if known.num_rows != (last if end else 0):
            raise ValueError(f"the other columns are of {last:,} rows, not of {known.num_rows:,}")

    def _joined(self, known: pa.Table, others: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: known.column(name).chunk(0) for name in self._schema.names}
        columns |= dict(zip(others.schema.names, others.columns, strict=True))
        return pa.RecordBatch.from_arrays([columns[name] for name in self._whole.names], schema=self._whole)


def _pop_some(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Take batches from the end, up to about `READ_ROWS` rows: an operation on few rows costs as much as one
    on thousands.
    """
    popped = [batches.pop()]
    rows = popped[0].num_rows
    while batches and rows + batches[-1].num_rows <= READ_ROWS:
        rows += batches[-1].num_rows
        popped.append(batches.pop())
    return popped
