"""How the files of a table are written, as the plain values that a task receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.parquet_properties import metrics_modes, parquet_settings
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.job import FileIds, TaskBuckets, WorkerJob
from timeline.stores.base import Store


class TableLayout(Protocol):
    """What says how files of a table are written: a head, or what a table will be."""

    @property
    def schema(self) -> Schema: ...

    @property
    def spec(self) -> PartitionSpec: ...

    @property
    def properties(self) -> Mapping[str, str]: ...


def file_job(
    store: Store,
    layout: TableLayout,
    ids: FileIds,
    max_file_bytes: int,
    rows_per_new_file: int | None = None,
    *,
    needs_ids: bool = False,
) -> WorkerJob:
    """Return the job of tasks that write rows of a table to new files of at most so many bytes and rows each;
    a plan of buckets may be added. `needs_ids` as `WorkerJob`.
    """
    return WorkerJob(
        store=store,
        schema=arrow_schema(layout.schema),
        partition_by=partition_sources(layout.schema, layout.spec),
        parquet=parquet_settings(layout.properties, layout.schema),
        metrics=metrics_modes(layout.schema, layout.properties),
        ids=ids,
        tasks={},
        shared=TaskBuckets(),
        # A row has at least a byte.
        rows_per_new_file=max_file_bytes if rows_per_new_file is None else rows_per_new_file,
        max_file_bytes=max_file_bytes,
        fast_workers=fast_workers.is_enabled(),
        needs_ids=needs_ids,
    )
