"""Descriptors of written files as pyiceberg's manifest entries hold them."""

from __future__ import annotations

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.typedef import Record

from streaming_sink.tasks.results import Merge, WrittenFile
from timeline.changes.changes import Replace


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
