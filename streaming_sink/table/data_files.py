"""Descriptors of written files as pyiceberg's manifest entries hold them, and what entries state of files
that are merged: NaNs, of which no footer says anything, and bounds, by which a footer is checked before its
row groups are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.typedef import Record

from streaming_sink.table.parquet_properties import parquet_settings
from streaming_sink.tasks.files.metrics import ColumnMetrics
from streaming_sink.tasks.results import Merge, WrittenFile
from timeline.changes.changes import Replace
from timeline.versions.head import Head


def data_file(file: WrittenFile, spec: PartitionSpec, sort_order_id: int = 0) -> DataFile:
    """Return `file` as a data file of partition spec `spec`, unsorted (sort order 0) by default."""
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        column_sizes=dict(file.column_sizes),
        value_counts=dict(file.value_counts),
        null_value_counts=dict(file.null_counts),
        nan_value_counts=dict(file.nan_counts),
        lower_bounds=dict(file.lower_bounds),
        upper_bounds=dict(file.upper_bounds),
        key_metadata=file.key_metadata,
        split_offsets=list(file.split_offsets),
        equality_ids=None,
        sort_order_id=sort_order_id,
    )
    made.spec_id = spec.spec_id
    return made


def fill_of(merge: Merge, spec: PartitionSpec) -> Replace:
    """Return a fill that a task has written, as the change that commits it."""
    return Replace(
        frozenset([*merge.inputs, merge.new]),
        (data_file(merge.merged, spec),),
        frozenset(merge.applied),
        merge.deleted_rows,
    )


def stated_metrics(head: Head, paths: Iterable[str]) -> Mapping[str, ColumnMetrics]:
    """Return the nulls, NaNs and bounds of those files whose row groups may be copied, by their locations."""
    least = parquet_settings(head.properties).copied_from_bytes
    return {
        path: ColumnMetrics(
            nulls=dict(file.null_value_counts or {}),
            nans=dict(file.nan_value_counts or {}),
            lower=dict(file.lower_bounds or {}),
            upper=dict(file.upper_bounds or {}),
        )
        for path, file in head.find_entries(paths).items()
        if file.file_size_in_bytes >= least
    }
