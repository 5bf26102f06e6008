"""Rows that a task holds in memory until they are encoded, sorted or spilled."""

from __future__ import annotations

import pyarrow as pa


class HeldRows:
    """Arrow batches, with the number of their rows and their bytes."""

    __slots__ = ("_batches", "bytes", "rows")

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def exceed_with(self, batch: pa.RecordBatch, most_bytes: int) -> bool:
        """Return whether there are batches, of more than `most_bytes` together with `batch`."""
        return bool(self._batches) and self.bytes + batch.nbytes > most_bytes

    def copy(self) -> list[pa.RecordBatch]:
        """Return the batches, which remain held."""
        return list(self._batches)

    def take(self) -> list[pa.RecordBatch]:
        """Return the batches, and hold none of them any longer."""
        batches, self._batches = self._batches, []
        self.rows = self.bytes = 0
        return batches
