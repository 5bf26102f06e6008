"""Adds the live rows of a data file to a new one: row groups that are worth keeping, byte by byte, and
all other rows decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from planners.model import InputFile
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_file_reader import READ_ROWS, DataFileReader, open_data_file
from streaming_sink.tasks.files.delete_files import check_rows, deleted_positions, leave_out
from streaming_sink.tasks.files.metrics import ColumnMetrics, column_metrics, nan_counts
from streaming_sink.tasks.job import WorkerJob
from streaming_sink.tasks.leaves import Leaf, leaves
from streaming_sink.tasks.row_groups.choosing import choose_row_groups
from streaming_sink.tasks.row_groups.conditions import (
    FileLayout,
    layout_of,
    why_none_is_copied,
    why_not_copied,
)
from streaming_sink.tasks.row_groups.footer import FooterError, StoredGroups, read_row_groups
from streaming_sink.tasks.row_groups.page_headers import has_checksums


class RowsOutput(Protocol):
    """What takes the rows of a merge."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Take rows."""

    def copy(self, stored: StoredGroups, numbers: Sequence[int], /) -> None:
        """Take row groups of a file as they are, which all go into one new file."""

    def count_nans(self, counts: Mapping[int, int | None], /) -> None:
        """Take the NaNs of the row groups that come next."""


@dataclass(frozen=True, slots=True)
class _Copied:
    """Row groups of a file that are copied, and the NaNs that they have."""

    stored: StoredGroups
    numbers: Sequence[int]
    nans: Mapping[int, int | None]


class MergedRows:
    """Adds data files of a table to new ones, for one merge. `what`: their part in it, for errors;
    `batch_bytes`: what a batch of decoded rows takes, by the sizes in the footer.
    """

    def __init__(self, job: WorkerJob, what: str = "a file to fill", batch_bytes: int | None = None) -> None:
        self._job = job
        self._what = what
        self._batch_bytes = batch_bytes
        self._columns = leaves(job.schema)
        self._layout: FileLayout | None = None

    def add(
        self, given: InputFile, output: RowsOutput, cuts: Sequence[int] = (), *, in_order: bool = False
    ) -> int:
        """Add the live rows of a file, and return how many of its rows are deleted. `cuts`: after so many of
        them a new file begins. `in_order`: they stay in their order.

        DataFileError if the file or a delete file is missing or damaged, holds more or fewer rows than the
        table says, or cannot be merged. What `output` raises is raised as it is.
        """
        deleted = deleted_positions(self._job.store, given)
        for part in self._parts(given, deleted, cuts, in_order):
            if isinstance(part, pa.RecordBatch):
                output.write(part)
                continue
            output.count_nans(part.nans)
            try:
                output.copy(part.stored, part.numbers)
            except FooterError as damage:
                raise DataFileError(f"{self._what} cannot be copied: {given.path}: {damage}") from damage
        return len(deleted)

    def _parts(
        self, given: InputFile, deleted: np.ndarray, cuts: Sequence[int], in_order: bool
    ) -> Iterator[pa.RecordBatch | _Copied]:
        """Yield the rows of a file in the table's schema, and at last its row groups that are copied."""
        job, what = self._job, self._what
        with open_data_file(job.store, given.path, what, needs_ids=job.needs_ids) as file:
            check_rows(file, given, what)
            # Another engine may have dropped the column of a field: then no row has it any more.
            for field in job.partition_by:
                if field.source and not file.holds(job.schema.field(field.source[0])):
                    raise DataFileError(f"{what} keeps a partition column only in its path: {given.path}")
            self._check_has_its_columns(given, file)
            stored = None if in_order else self._worth_keeping(given, file)
            if stored is None:
                yield from leave_out(self._read(file), deleted)
            else:
                yield from self._both(given, file, stored, deleted, cuts)

    def _check_has_its_columns(self, given: InputFile, file: DataFileReader) -> None:
        """Raise DataFileError where a file lacks a column, or a field of one, whose nulls its manifest
        counts: all rows of the merge would have nulls, as those of files from before the column.
        """
        stated = self._job.stated.get(given.path, ColumnMetrics()).nulls
        for leaf in self._columns:
            column = self._job.schema.field(leaf.path[0])
            if leaf.field_id in stated and not file.holds_leaf(leaf, column):
                raise DataFileError(
                    f"{self._what} lacks a column that its manifest counts: {given.path}: {leaf.parquet_path}"
                )

    def _read(self, file: DataFileReader, groups: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        rows = READ_ROWS
        if self._batch_bytes is not None:
            rows = max(1, min(rows, self._batch_bytes // max(1, file.row_bytes)))
        return file.read(self._job.schema, rows, groups)

    def _worth_keeping(self, given: InputFile, file: DataFileReader) -> StoredGroups | None:
        """Return the row groups of a file, None where none may be copied."""
        job, source = self._job, file.source
        if job.key_names is not None or source.seek(0, 2) < job.parquet.copied_from_bytes:
            return None
        try:
            stored = read_row_groups(source)
        except FooterError:
            return None  # what can be read of it at all, pyarrow reads
        layout = self._layout_of_files()
        if why_none_is_copied(stored.footer, layout) or not self._is_as_stated(given, file, stored):
            return None
        return None if layout.needs_checksums and not has_checksums(stored) else stored

    def _is_as_stated(self, given: InputFile, file: DataFileReader, stored: StoredGroups) -> bool:
        """Return whether a file's footer has the bounds and nulls that its manifest has. Where it has others
        one of the two is damaged: a copy would hand that on, and rows that are decoded get their own.
        """
        stated = self._job.stated.get(given.path)
        if stated is None or not (stated.lower or stated.upper or stated.nulls):
            return True
        if any(why_not_copied(group, self._layout_of_files()) for group in stored.footer.groups):
            return False  # its statistics may be what pyarrow must not look at
        found = column_metrics(file.footer, self._columns, self._job.metrics, {})
        both = ((stated.lower, found.lower), (stated.upper, found.upper))
        known = stated.lower.keys() | stated.upper.keys()
        # A bound that one of them lacks, of a column whose bounds are stated, is as good as another one.
        return all(own.get(leaf) == other.get(leaf) for own, other in both for leaf in known) and all(
            stated.nulls[leaf] == found.nulls[leaf] for leaf in stated.nulls.keys() & found.nulls.keys()
        )

    def _both(
        self,
        given: InputFile,
        file: DataFileReader,
        stored: StoredGroups,
        deleted: np.ndarray,
        cuts: Sequence[int],
    ) -> Iterator[pa.RecordBatch | _Copied]:
        rows = np.array([group.rows for group in stored.footer.groups])
        ends = np.cumsum(rows)
        gone: list[int] = np.diff(np.searchsorted(deleted, [0, *ends])).tolist()
        least = self._job.parquet.copied_from_bytes
        plan = choose_row_groups(stored, self._layout_of_files(), least, gone, cuts)
        # The copied ones come last: by then it is known how many of the file's NaNs the others have.
        nans: dict[int, int] = {}
        if decoded := list(plan.decoded):
            batches = _counted(self._read(file, decoded), self._columns, nans)
            yield from leave_out(batches, _positions_among(deleted, ends[decoded], rows[decoded]))
        if plan.copied:
            yield _Copied(stored, plan.copied, self._nans_left(given, nans))

    def _nans_left(self, given: InputFile, decoded: Mapping[int, int]) -> dict[int, int | None]:
        """Return the NaNs of a file beside those that were decoded; None where it is not known."""
        stated = self._job.stated.get(given.path, ColumnMetrics()).nans
        left: dict[int, int | None] = {}
        for leaf in self._columns:
            if not leaf.repeated and pa.types.is_floating(leaf.type):
                count = stated.get(leaf.field_id)
                rest = None if count is None else count - decoded.get(leaf.field_id, 0)
                left[leaf.field_id] = rest if rest is None or rest >= 0 else None
        return left

    def _layout_of_files(self) -> FileLayout:
        if self._layout is None:
            job = self._job
            self._layout = layout_of(job.schema, job.parquet, by_names=not job.needs_ids)
        return self._layout


def _counted(
    batches: Iterator[pa.RecordBatch], columns: tuple[Leaf, ...], nans: dict[int, int]
) -> Iterator[pa.RecordBatch]:
    """Yield batches, and add their NaNs to `nans`."""
    for batch in batches:
        for leaf, count in nan_counts(pa.Table.from_batches([batch]), columns).items():
            nans[leaf] = nans.get(leaf, 0) + count
        yield batch


def _positions_among(deleted: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return those of the positions that are in some row groups, which end there and have so many rows, as
    positions among the rows of these groups alone.
    """
    own_ends = np.cumsum(rows)
    found = [
        deleted[slice(*np.searchsorted(deleted, [end - count, end]))] + (own_end - end)
        for end, count, own_end in zip(ends, rows, own_ends, strict=True)
    ]
    return np.concatenate(found)
