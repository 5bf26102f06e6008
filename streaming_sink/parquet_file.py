"""One data file on its way: rows are buffered as Arrow batches, encoded one row group at a time, and measured
at close."""

from __future__ import annotations

from contextlib import suppress
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from planners.model import PartitionKey
from streaming_sink.dictionaries import DictionaryChoice
from streaming_sink.metrics import Leaf, column_metrics, nan_counts
from streaming_sink.writejob import WorkerJob, WrittenFile
from timeline.errors import StoreUnavailableError


class ParquetFile:
    """Encodes tables into one new object. `close` makes it durable; `abort` deletes what there is, best
    effort."""

    def __init__(
        self, job: WorkerJob, columns: tuple[Leaf, ...], dictionaries: DictionaryChoice, path: str
    ) -> None:
        self.path = path
        self._job = job
        self._columns = columns
        self._dictionaries = dictionaries
        self._footers: list[pq.FileMetaData] = []
        self._nans: dict[int, int] = {}
        self._rows = 0
        self.groups = 0
        self._output = job.store.open_output(path)
        self._sink = _Sink(self._output)
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Encode `table` as one row group."""
        if not table.num_rows:
            return
        self._opened(table).write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows
        self.groups += 1
        for leaf, count in nan_counts(table, self._columns).items():
            self._nans[leaf] = self._nans.get(leaf, 0) + count

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            settings = self._job.parquet
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                self._job.schema,
                compression=settings.compression,
                compression_level=settings.compression_level,
                use_dictionary=self._dictionaries.paths(first),
                data_page_size=settings.page_bytes,
                max_rows_per_page=settings.page_rows,
                dictionary_pagesize_limit=settings.dictionary_page_bytes,
                store_schema=False,  # a second copy of the schema, for Arrow alone
                store_decimal_as_integer=True,  # as the Iceberg specification has it
                metadata_collector=self._footers,
            )
        return self._writer

    @property
    def encoded_bytes(self) -> int:
        """Bytes of the row groups that were written so far."""
        return self._sink.written

    def close(self, partition: PartitionKey, bucket: int) -> WrittenFile:
        """Write the footer, wait until the object is durable (R14), and return what it is."""
        self._opened(self._job.schema.empty_table()).close()
        size = self._sink.written  # exact: the footer is the last thing written (R23)
        self._output.close()
        footer = self._footers[0]
        metrics = column_metrics(footer, self._columns, self._job.metrics, self._nans)
        return WrittenFile(
            path=self._job.store.uri(self.path),
            partition=partition,
            bucket=bucket,
            rows=self._rows,
            bytes=size,
            column_sizes=metrics.sizes,
            value_counts=metrics.values,
            null_counts=metrics.nulls,
            nan_counts=metrics.nans,
            lower_bounds=metrics.lower,
            upper_bounds=metrics.upper,
            split_offsets=_split_offsets(footer),
        )

    def abort(self) -> None:
        """Give the file up after a failure. The store discards what is half written; what it raises gives
        way."""
        self._sink.discards = True
        error = RuntimeError("the file is given up")
        with suppress(StoreUnavailableError, OSError):
            self._output.__exit__(type(error), error, None)
        if self._writer is not None:
            self._writer.close()  # into nowhere: pyarrow would do it on collection, and print a failure


class _Sink:
    """Where pyarrow writes: counts the bytes, and forwards them until the file is given up."""

    closed = False

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self.written = 0
        self.discards = False

    def write(self, data: bytes) -> int:
        if not self.discards:
            self._output.write(data)
        self.written += len(data)
        return len(data)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """The output flushes when it is closed."""

    def close(self) -> None:
        """The owner of the output closes it."""


def _split_offsets(footer: pq.FileMetaData) -> tuple[int, ...]:
    offsets = []
    for index in range(footer.num_row_groups):
        first = footer.row_group(index).column(0)
        offsets.append(first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset)
    return tuple(offsets)
