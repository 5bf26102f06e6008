"""A table's partitions as people know them: by the names of their folders."""

from __future__ import annotations

from urllib.parse import unquote_plus

from planners.model import TablePartition
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.files.data_paths import partition_path
from timeline.versions.head import Head


def spelled(head: Head, partition: TablePartition) -> tuple[str, ...]:
    """Return a partition as ("region=eu", "day=2026-01-01"): the names of its folders, read as URLs are. ()
    where its spec has no fields.
    """
    sources = partition_sources(head.schema, head.metadata.specs()[partition.spec_id])
    path = partition_path(partition.values, sources, arrow_schema(head.schema)) if sources else ""
    return tuple(unquote_plus(part) for part in path.split("/") if part)
