"""One data file on its way: rows are buffered as Arrow batches, encoded one row group at a time, and measured at close."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from planners.model import PartitionKey
from streaming_sink.metrics import Leaf, column_metrics, nan_counts
from streaming_sink.writejob import WorkerJob, WrittenFile


class ParquetFile:
    """Encodes tables into one new object. `close` makes it durable; `abort` deletes what there is, best effort."""

    def __init__(self, job: WorkerJob, columns: tuple[Leaf, ...], path: str) -> None:
        self.path = path
        self._job = job
        self._columns = columns
        self._footers: list[pq.FileMetaData] = []
        self._nans: dict[int, int] = {}
        self._rows = 0
        self._output: Any = job.store.open_output(path)
        self._sink = pa.PythonFile(self._output, mode="w")
        settings = job.parquet
        try:
            self._writer = pq.ParquetWriter(
                self._sink,
                job.schema,
                compression=settings.compression,
                compression_level=settings.compression_level,
                data_page_size=settings.page_bytes,
                max_rows_per_page=settings.page_rows,
                dictionary_pagesize_limit=settings.dictionary_page_bytes,
                store_schema=False,  # a second copy of the schema, for Arrow alone
                store_decimal_as_integer=True,  # as the Iceberg specification has it
                metadata_collector=self._footers,
            )
        except BaseException:
            self._discard()
            raise

    def write(self, table: pa.Table) -> None:
        """Encode `table` as one row group."""
        if not table.num_rows:
            return
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows
        for leaf, count in nan_counts(table, self._columns).items():
            self._nans[leaf] = self._nans.get(leaf, 0) + count

    @property
    def encoded_bytes(self) -> int:
        """Bytes of the row groups that were written so far."""
        return int(self._sink.tell())

    def close(self, partition: PartitionKey, bucket: int) -> WrittenFile:
        """Write the footer, wait until the object is durable (R14), and return what it is."""
        self._writer.close()
        size = int(self._sink.tell())  # exact: the footer is the last thing written (R23)
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
        """Give the file up after a failure, whose error wins over any that this raises."""
        self._discard()

    def _discard(self) -> None:
        # An output that is closed is complete, so it is closed and then deleted.
        for step in (self._output.close, lambda: self._job.store.delete([self.path])):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the first failure is the one to report
                self.discard_error = error


def _split_offsets(footer: pq.FileMetaData) -> tuple[int, ...]:
    offsets = []
    for index in range(footer.num_row_groups):
        first = footer.row_group(index).column(0)
        offsets.append(first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset)
    return tuple(offsets)
