"""Tables of ours, filled without a stream: each part of the rows is a file, as the sink's tasks write it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from benchmarks.data import SCHEMA
from planners.model import InsertPlan
from streaming_sink.table.data_files import data_file
from streaming_sink.table.schema import iceberg_schema
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.rows.write_task import TaskWriter
from streaming_sink.writing.writer import worker_job
from tests.spark.streams import metadata_file
from timeline.changes.changes import Append
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
from timeline.stores import open_store
from timeline.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


def new_table(location: str) -> Table:
    """Create a table for the rows of `benchmarks.data`. Needs a Spark session, which parses the schema."""
    columns = StructType.fromDDL(SCHEMA)
    assert isinstance(columns, StructType)
    return Table.create(open_store(location), iceberg_schema(columns))


def append_files(table: Table, parts: Iterable[pa.Table]) -> None:
    """Append every part as a data file of its own, in one commit."""
    head = table.head
    plan = InsertPlan((), (), 1, sys.maxsize, sys.maxsize)
    ids = FileIds(commit_time(SYSTEM, head), "benchmark", head.number)
    job = worker_job(table.store, head, plan, None, ids)
    files = []
    for part in parts:
        writer = TaskWriter(job, 0, 0)
        for batch in part.to_batches():
            writer.write(batch)
        files += [data_file(file, head.spec) for file in writer.finish() if isinstance(file, WrittenFile)]
    table.commit([Append(tuple(files))])


def newest_metadata(location: str) -> str:
    """Return the newest metadata file of a table of ours, or of a Hadoop catalog's."""
    found = metadata_file(location)
    if found is None:
        raise FileNotFoundError(f"no table at {location}")
    return found
