"""Rows of many partitions parked in one temporary file of the worker, so that memory and open files stay
bounded."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa

from planners.model import PartitionKey


class Spill:
    """Append batches by partition, then read them back by partition. The file vanishes with `close` or the
    process."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = tempfile.TemporaryFile(prefix="streaming-sink-")  # noqa: SIM115 - open until `close`
        self._sink = pa.PythonFile(self._file, mode="w")
        self._writer = pa.ipc.new_file(self._sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self._pieces: dict[PartitionKey, list[int]] = defaultdict(list)
        self._count = 0

    def append(self, partition: PartitionKey, batches: list[pa.RecordBatch]) -> None:
        """Park `batches`."""
        for batch in pa.Table.from_batches(batches, self._schema).combine_chunks().to_batches():
            self._writer.write_batch(batch)
            self._pieces[partition].append(self._count)
            self._count += 1

    def read(self) -> Iterator[tuple[PartitionKey, Iterator[pa.RecordBatch]]]:
        """Yield every partition with its batches, in the order in which they were appended. Nothing is
        appended after."""
        self._writer.close()
        self._file.flush()
        reader = pa.ipc.open_file(pa.PythonFile(self._file, mode="r"))
        for partition, pieces in self._pieces.items():
            yield partition, (reader.get_batch(piece) for piece in pieces)

    @property
    def partitions(self) -> set[PartitionKey]:
        """The partitions that have rows here."""
        return set(self._pieces)

    @property
    def bytes(self) -> int:
        """Bytes parked so far."""
        return self._file.tell()

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()
