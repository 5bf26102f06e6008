"""Reads the live rows of a data file: those that none of its position-delete files deletes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from planners.model import InputFile
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_file_reader import DataFileReader
from streaming_sink.tasks.files.delete_files import read_position_deletes

if TYPE_CHECKING:
    from timeline.stores.base import Store


def deleted_positions(store: Store, given: InputFile) -> np.ndarray:
    """Return the positions of the deleted rows of a data file, ascending, each once.

    DataFileError if a delete file is missing or damaged, or if they delete other rows than the table says:
    rows beyond the end, or more or fewer than it counts. (Two files of another engine may delete one row.)
    """
    if not given.deletes:
        return np.empty(0, np.int64)
    positions = read_position_deletes(store, [each.path for each in given.deletes], given.path)
    least = max((each.rows for each in given.deletes if each.run is None), default=0)
    most = sum(each.rows for each in given.deletes)
    if not least <= len(positions) <= most:
        said = f"{len(positions)} rows, not {least} to {most} as the table says"
        raise DataFileError(f"the delete files of a data file delete {said}: {given.path}")
    if len(positions) and not 0 <= positions[0] <= positions[-1] < given.rows:
        said = f"positions {positions[0]} to {positions[-1]} of {given.rows} rows"
        raise DataFileError(
            f"a delete file deletes rows that its data file does not hold: {said}: {given.path}"
        )
    return positions


def check_rows(file: DataFileReader, given: InputFile, what: str) -> None:
    """Raise DataFileError unless an open file holds as many rows as the table says."""
    if file.rows != given.rows:
        counts = f"{file.rows} != {given.rows}"
        raise DataFileError(f"{what} holds more or fewer rows than the table says: {counts}: {given.path}")


def leave_out(batches: Iterable[pa.RecordBatch], deleted: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file, which come in its order, without those at the deleted positions."""
    end = 0
    for batch in batches:
        start, end = end, end + batch.num_rows
        first, last = np.searchsorted(deleted, (start, end))
        if first < last:
            lives = np.ones(batch.num_rows, dtype=bool)
            lives[deleted[first:last] - start] = False
            batch = batch.filter(pa.array(lives))
        if batch.num_rows:
            yield batch
