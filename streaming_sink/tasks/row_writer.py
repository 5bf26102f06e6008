"""What takes the rows of one task, and makes files of them."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from streaming_sink.tasks.job import WorkerJob
from streaming_sink.tasks.results import TaskResult


class RowWriter(Protocol):
    """Takes the rows of one task, and makes files of them."""

    @property
    def rows(self) -> int:
        """The rows taken so far."""

    @property
    def fingerprint(self) -> int:
        """Of the rows taken so far, as `fingerprint_of` says."""

    @property
    def spilled_bytes(self) -> int:
        """Bytes that did not fit into memory."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch of rows."""

    def finish(self) -> list[TaskResult]:
        """Close all files, durably, and return what was made."""

    def abort(self) -> None:
        """Delete what was written, best effort."""


class JobWriter(RowWriter, Protocol):
    """A writer of the files of one table."""

    @property
    def job(self) -> WorkerJob:
        """How they are written."""
