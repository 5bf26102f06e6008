"""New data files of one partition, one after the other, each of which ends where a cut is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import pyarrow as pa

from planners.model import PartitionKey
from streaming_sink.tasks.files.data_file_writer import GroupedFile
from streaming_sink.tasks.results import WrittenFile, delete_files
from streaming_sink.tasks.row_groups.footer import StoredGroups
from timeline.stores.base import Store


class CutFiles(ABC):
    """Takes rows in their final order. `bucket`: that of all files, where they are not counted."""

    def __init__(self, store: Store, partition: PartitionKey, bucket: int | None = None) -> None:
        self._store, self._partition, self._bucket = store, partition, bucket
        self._file: GroupedFile | None = None
        self._rows = 0
        """Those of the open file."""
        self._closed: list[WrittenFile] = []

    @property
    @abstractmethod
    def cuts_left(self) -> tuple[int, ...]:
        """After how many more rows each further file begins, as far as that is planned."""

    @abstractmethod
    def _open(self) -> GroupedFile:
        """Begin the next file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        while batch.num_rows:
            taken = min((batch.num_rows, *self.cuts_left[:1]))
            self._opened().write(batch.slice(0, taken))
            batch = batch.slice(taken)
            self._count(taken)

    def copy(self, stored: StoredGroups, numbers: Sequence[int]) -> None:
        """Take row groups of a file as they are; no cut is inside of them."""
        self._opened().copy(stored, numbers)
        self._count(sum(stored.footer.groups[number].rows for number in numbers))

    def count_nans(self, counts: Mapping[int, int | None]) -> None:
        """Take the NaNs of the row groups that come next."""
        self._opened().count_nans(counts)

    def _opened(self) -> GroupedFile:
        if self._file is None:
            self._file = self._open()
        return self._file

    def _count(self, rows: int) -> None:
        is_full = self.cuts_left[:1] == (rows,)
        self._rows += rows
        if is_full:
            self.close()

    def close(self) -> tuple[WrittenFile, ...]:
        """Close the open file, if there is one, and return all files."""
        if self._file is not None:
            bucket = len(self._closed) if self._bucket is None else self._bucket
            self._closed.append(self._file.close(self._partition, bucket))
            self._file, self._rows = None, 0
        return tuple(self._closed)

    def abort(self) -> None:
        """Delete all files, finished or not, best effort."""
        if self._file is not None:
            self._file.abort()
        delete_files(self._store, self._closed)
