"""Rows on the worker's disk in Arrow's IPC format, which bounds the memory and open files of a task."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa

from planners.model import PartitionKey


class SpillFile:
    """A temporary file of batches: written from front to back, then read by number. It is deleted by `close`,
    or with the process.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.count = 0
        """Batches written."""
        self._file = tempfile.TemporaryFile(prefix="streaming-sink-")  # noqa: SIM115 - open until `close`
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), schema, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.count += 1

    @property
    def bytes(self) -> int:
        """Bytes on disk, while it is written and when it is finished."""
        return self._file.tell()

    def finish(self) -> None:
        """End writing; reading begins."""
        self._writer.close()
        self._file.flush()

    def open_reader(self) -> pa.ipc.RecordBatchFileReader:
        """Return the reader of the finished file's batches."""
        return pa.ipc.open_file(pa.PythonFile(self._file, mode="r"))

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()


class PartitionSpill:
    """Batches appended by partition, then read back by partition. Freed by `close`, or with the process."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = SpillFile(schema)
        self._numbers: dict[PartitionKey, list[int]] = defaultdict(list)

    def append(self, partition: PartitionKey, batches: list[pa.RecordBatch]) -> None:
        """Write `batches` of one partition to disk."""
        for batch in pa.Table.from_batches(batches, self._schema).combine_chunks().to_batches():
            self._numbers[partition].append(self._file.count)
            self._file.write(batch)

    def read(self) -> Iterator[tuple[PartitionKey, Iterator[pa.RecordBatch]]]:
        """Yield every partition with its batches, in the order in which they were appended. Nothing is
        appended after."""
        self._file.finish()
        reader = self._file.open_reader()
        for partition, numbers in self._numbers.items():
            yield partition, (reader.get_batch(number) for number in numbers)

    @property
    def partitions(self) -> set[PartitionKey]:
        """The partitions that have rows here."""
        return set(self._numbers)

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
        return self._file.bytes

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()
