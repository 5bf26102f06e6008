"""The change task: rows that snapshots have added or deleted; a row of its input is a part of a data file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.files.delete_files import leave_out, read_position_deletes
from streaming_sink.tasks.spark_task import start_task
from timeline.stores.base import Store


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows of one data file that one snapshot has added, or deleted."""

    version: int
    snapshot_id: int
    committed_ms: int
    location: str
    added: bool
    deletes: tuple[str, ...]
    """Position-delete files."""
    rows: int
    """How many rows these are; at most, where `before` has some of them."""
    whole: bool = True
    """Whether these are all rows of the file but those that `deletes` name; else these alone."""
    before: tuple[str, ...] = ()
    """Position-delete files whose rows are none of these, though `deletes` name them too."""


class ChangeTask:
    """The function that `DataFrame.mapInArrow` runs over numbers of pieces. DataFileError where a file is
    missing or damaged. `schema` has field ids; the rows come in its columns. `needs_ids` as for
    `open_data_file`.
    """

    def __init__(
        self, store: Store, pieces: Sequence[ChangedRows], schema: pa.Schema, *, needs_ids: bool = False
    ) -> None:
        self._store, self._pieces, self._schema = store, tuple(pieces), schema
        self._needs_ids = needs_ids
        self._fast_workers = fast_workers.is_enabled()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_task(self._fast_workers)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                piece = self._pieces[number]
                for rows in self._rows(piece):
                    yield _described(rows, piece)

    def _rows(self, piece: ChangedRows) -> Iterator[pa.RecordBatch]:
        positions = read_position_deletes(self._store, piece.deletes, piece.location)
        known = read_position_deletes(self._store, piece.before, piece.location)
        with open_data_file(self._store, piece.location, "a data file", needs_ids=self._needs_ids) as file:
            if not piece.whole:
                yield from file.read_at(self._schema, np.setdiff1d(positions, known))
                return
            yield from leave_out(file.read(self._schema), positions)


def _described(rows: pa.RecordBatch, piece: ChangedRows) -> pa.RecordBatch:
    of_each = {
        "_change_type": pa.scalar("INSERT" if piece.added else "DELETE"),
        "_commit_version": pa.scalar(piece.version, pa.int64()),
        "_commit_snapshot_id": pa.scalar(piece.snapshot_id, pa.int64()),
        "_commit_timestamp": pa.scalar(piece.committed_ms, pa.timestamp("ms", "UTC")).cast(
            pa.timestamp("us", "UTC")
        ),
    }
    columns = [*rows.columns, *(pa.repeat(value, rows.num_rows) for value in of_each.values())]
    return pa.RecordBatch.from_arrays(columns, names=[*rows.schema.names, *of_each])
