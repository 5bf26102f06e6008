"""Writes one data file: encodes Arrow tables as row groups, copies those of other files, and measures its
columns when it closes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from planners.model import PartitionKey
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.files.file_sink import FileSink
from streaming_sink.tasks.files.held_rows import HeldRows
from streaming_sink.tasks.files.metrics import column_metrics, nan_counts
from streaming_sink.tasks.job import ParquetSettings, SortedBy, WorkerJob
from streaming_sink.tasks.leaves import Leaf
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.row_groups.copying import CopiedGroup, copy_pages, joined_end, moved_group
from streaming_sink.tasks.row_groups.footer import StoredGroups
from timeline.errors import StoreUnavailableError

SPLIT_BYTES = 16 * 1024 * 1024
"""Iceberg's readers split a scan no finer by themselves. They weigh each part of a file by 4 MiB, and by as
much again for each delete file that may apply to it, however few bytes the part has.
"""


class DataFileWriter:
    """Encodes tables into one new object. `close` makes it durable; `abort` deletes it, best effort.

    `sorted_by`: the order of all rows that will be written, which the footer states.
    """

    def __init__(
        self,
        job: WorkerJob,
        columns: tuple[Leaf, ...],
        dictionaries: DictionaryChoice,
        path: str,
        sorted_by: Sequence[SortedBy] = (),
    ) -> None:
        self.path = path
        self._job = job
        self._columns = columns
        self._dictionaries = dictionaries
        self._sorted_by = sorted_by
        self._footers: list[pq.FileMetaData] = []
        self._nans: dict[int, int | None] = {}
        self._rows = 0
        self.groups = 0
        self._copied: list[CopiedGroup] = []
        self._needs_checksums = any(leaf.repeated for leaf in columns)  # as `FileLayout.needs_checksums`
        self._output = job.store.open_output(path)
        self._sink = FileSink(self._output)
        self._file = pa.PythonFile(self._sink, mode="w")
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Encode `table` as one row group."""
        if not table.num_rows:
            return
        writer = self._writer or self._open_writer(self._dictionaries.paths(table))
        writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows
        self.groups += 1
        self.count_nans(nan_counts(table, self._columns))

    def copy(self, stored: StoredGroups, numbers: Sequence[int]) -> None:
        """Append row groups of another file, byte by byte. The caller counts their NaNs. FooterError where
        they are not what their footer says.
        """
        if self._writer is None:  # pyarrow begins no file where there are bytes already
            chunks = zip(self._columns, stored.footer.groups[numbers[0]].chunks, strict=True)
            self._open_writer([leaf.parquet_path for leaf, chunk in chunks if chunk.has_dictionary])
        for number in numbers:
            group = stored.footer.groups[number]
            moved = moved_group(group, stored.footer, stored.indexes, self._file.tell())
            copy_pages(stored.source, moved, self._file.write, needs_checksums=self._needs_checksums)
            self._copied.append(moved)
            self._rows += group.rows
            self.groups += 1

    def count_nans(self, counts: Mapping[int, int | None]) -> None:
        """Add the NaNs of rows to those of the file, by the field ids of leaves; None where it is not known
        how many they are.
        """
        for leaf, count in counts.items():
            known = self._nans.get(leaf, 0)
            self._nans[leaf] = None if count is None or known is None else known + count

    def _open_writer(self, dictionaries: Sequence[str]) -> pq.ParquetWriter:
        """Begin the file; `dictionaries`: the columns whose rows are encoded with one."""
        settings = self._job.parquet
        self._writer = pq.ParquetWriter(
            self._file,
            self._job.schema,
            compression=settings.compression,
            compression_level=settings.compression_level,
            use_dictionary=dictionaries,
            data_page_size=settings.page_bytes,
            max_rows_per_page=settings.page_rows,
            dictionary_pagesize_limit=settings.dictionary_page_bytes,
            store_schema=False,  # would be a second copy of the schema, that only Arrow reads
            store_decimal_as_integer=True,  # as the Iceberg specification has it
            metadata_collector=self._footers,
            # Lets readers skip pages. It costs about 30 bytes a column and row group, and no time: it
            # replaces the statistics in page headers.
            write_page_index=True,
            # Damage is found when rows are read, and by merges that copy pages as they are. Five bytes a
            # page, and no time that could be measured.
            write_page_checksum=True,
            sorting_columns=_sorting_columns(self._sorted_by, self._columns),
            bloom_filter_options=self._bloom_filters(),
            encryption_properties=self._encryption(),
        )
        return self._writer

    def _bloom_filters(self) -> Mapping[str, Mapping[str, Any]] | None:
        """Return pyarrow's options; none for encrypted files, since pyarrow cannot encrypt filters."""
        encrypted = self._job.key_names is not None
        return None if encrypted else _bloom_filters(self._job.parquet, self._columns)

    def _encryption(self) -> Any:
        names, cipher = self._job.key_names, self._job.cipher
        if names is None:
            return None
        assert cipher is not None
        return cipher.encryption(names, self._columns)

    @property
    def encoded_bytes(self) -> int:
        """Bytes of the row groups written so far."""
        return self._sink.written

    def close(self, partition: PartitionKey, bucket: int) -> WrittenFile:
        """Write the footer, wait until the object is durable (R14), and return its descriptor."""
        self._write_end()
        size = self._sink.written  # exact: the footer is the last thing written (R23)
        self._output.close()
        footer = self._footer()
        known = {leaf: count for leaf, count in self._nans.items() if count is not None}
        metrics = column_metrics(footer, self._columns, self._modes(), known)
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
            split_offsets=split_offsets(footer, size),
            key_metadata=None if self._job.key_names is None else self._job.key_names.to_bytes(),
        )

    def _write_end(self) -> None:
        """Write the indexes and the footer: pyarrow's, to which the row groups that were copied are added."""
        writer = self._writer or self._open_writer([])
        if not self._copied:
            writer.close()
            return
        begin = self._sink.written
        self._sink.keep_back()
        writer.close()
        end = joined_end(self._sink.take_back(), begin, self._copied)
        self._footers = [pq.read_metadata(pa.BufferReader(end))]
        self._sink.write(end)

    def _footer(self) -> pq.FileMetaData:
        if self._job.key_names is None:
            return self._footers[0]
        # The writer's own copy is partly encrypted, and pyarrow ends the process on access to it.
        assert self._job.cipher is not None
        with closing(self._job.store.open_input(self.path)) as source:
            return pq.read_metadata(
                pa.PythonFile(source, mode="r"), decryption_properties=self._job.cipher.decryption()
            )

    def _modes(self) -> Mapping[int, str]:
        """Return the metrics modes, without bounds of encrypted columns, which manifests hold in plain."""
        names, modes = self._job.key_names, self._job.metrics
        if names is None:
            return modes
        return {it: "counts" if mode != "none" and names.hides(it) else mode for it, mode in modes.items()}

    def abort(self) -> None:
        """Delete the file after a failure, best effort: what the store raises is suppressed."""
        self._sink.discards = True
        error = RuntimeError("the file is aborted")
        with suppress(StoreUnavailableError, OSError):
            self._output.__exit__(type(error), error, None)
        if self._writer is not None:
            with suppress(pa.ArrowException, RuntimeError, OSError):  # in the middle of a row group
                self._writer.close()  # discarded; pyarrow would do it on collection, and print a failure


class GroupedFile:
    """Collects batches of any size for a `DataFileWriter`, into row groups of at most `group_bytes` of Arrow,
    or one batch.
    """

    def __init__(self, file: DataFileWriter, group_bytes: int) -> None:
        self._file = file
        self._group_bytes = group_bytes
        self._held = HeldRows()

    def write(self, batch: pa.RecordBatch) -> None:
        if self._held.exceed_with(batch, self._group_bytes):
            self._flush()
        self._held.add(batch)

    def copy(self, stored: StoredGroups, numbers: Sequence[int]) -> None:
        """Append row groups of another file; see `DataFileWriter.copy`."""
        self._file.copy(stored, numbers)

    def count_nans(self, counts: Mapping[int, int | None]) -> None:
        """Add the NaNs of rows that were copied; see `DataFileWriter.count_nans`."""
        self._file.count_nans(counts)

    def _flush(self) -> None:
        if self._held.rows:
            self._file.write(pa.Table.from_batches(self._held.copy()))
        self._held.take()

    def close(self, partition: PartitionKey, bucket: int) -> WrittenFile:
        """Encode the held rows, and close the file; see `DataFileWriter.close`."""
        self._flush()
        return self._file.close(partition, bucket)

    def abort(self) -> None:
        """Delete the file; see `DataFileWriter.abort`."""
        self._file.abort()


def _sorting_columns(sorted_by: Sequence[SortedBy], columns: tuple[Leaf, ...]) -> list[pq.SortingColumn]:
    """Return the part of an order that Parquet can express: up to the first column that the schema lacks, or
    that readers of Parquet order otherwise (NaN and the two zeros of floats, the signs of a UUID's bytes).
    """
    places = {leaf.field_id: place for place, leaf in enumerate(columns)}
    found = []
    for each in sorted_by:
        place = places.get(each.field_id)
        if place is None:
            break
        kind = columns[place].type
        if pa.types.is_floating(kind) or isinstance(kind, pa.BaseExtensionType):
            break
        found.append(pq.SortingColumn(place, each.descending, each.nulls_first))
    return found


def _bloom_filters(settings: ParquetSettings, columns: tuple[Leaf, ...]) -> Mapping[str, Mapping[str, Any]]:
    """Return pyarrow's options for filters of at most `bloom_filter_bytes`.

    pyarrow allocates the next power of two of the bits that `ndv` values need (Parquet's split block filter),
    and folds the filter to the size that the values of its row group need.
    """
    options = {}
    for leaf in columns:
        if asked := settings.bloom_filters.get(leaf.field_id):
            bits = 8 << (settings.bloom_filter_bytes.bit_length() - 1)
            fitting = int(bits * -math.log(1 - asked.false_positives ** (1 / 8)) / 8)
            different = fitting if asked.different is None else min(asked.different, fitting)
            options[leaf.parquet_path] = {"ndv": different, "fpp": asked.false_positives}
    return options


def split_offsets(footer: pq.FileMetaData, size: int) -> tuple[int, ...]:
    """Return where readers may split a file of so many bytes: where row groups begin, as far as each part has
    `SPLIT_BYTES` or more; a smaller file is one part.
    """
    offsets: list[int] = []
    for index in range(footer.num_row_groups):
        first = footer.row_group(index).column(0)
        begin = first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset
        if not offsets or min(begin - offsets[-1], size - begin) >= SPLIT_BYTES:
            offsets.append(begin)
    return tuple(offsets)
