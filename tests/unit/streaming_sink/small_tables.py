"""A small table of real files on a local disk, and plans carried out in this process, without Spark."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, StructType

from planners import ClusteringPolicy
from planners.clustering.planner import plan_clustering
from planners.model import InsertPlan
from streaming_sink.clustering import execution
from streaming_sink.clustering.known_files import known_files
from streaming_sink.clustering.options import execution_of
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import data_file, stated_metrics
from streaming_sink.table.file_jobs import file_job
from streaming_sink.table.planned_files import planned_file
from streaming_sink.table.spec import partition_spec
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.clustering.group_task import rewrite_group
from streaming_sink.tasks.files.delete_files import write_position_deletes
from streaming_sink.tasks.job import FileIds, ParquetSettings
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.rows.fill_task import Fill, execute_fill
from streaming_sink.tasks.rows.write_task import TaskWriter
from streaming_sink.writing.writer import worker_job
from tests.unit.timeline.world import change_metadata
from timeline import names
from timeline.changes.changes import Append, Replace
from timeline.changes.row_deltas import RowDelta
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
from timeline.manifests.entries import position_deletes
from timeline.stores import LocalStore
from timeline.table import Table

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "key", LongType(), required=False),
    NestedField(
        4,
        "place",
        StructType(
            NestedField(6, "town", StringType(), required=False),
            NestedField(7, "old", StringType(), required=False),
        ),
        required=False,
    ),
    NestedField(5, "note", StringType(), required=False),
)
"""The ids are those that a new table gives its fields."""
_numbers = count()
ROWS = 400
SIZES = {"target_file_bytes": "10MiB", "small_file_bytes": "1MiB", "max_group_bytes": "10MiB"}


def make_table(location):
    """Make a table of two partitions without any file."""
    return Table.create(
        LocalStore(str(location)), SCHEMA, partition_spec(["p"], SCHEMA), store_is_checked=True
    )


def append(table, batch):
    """Commit the rows of a batch, as `append_rows`."""
    append_rows(table, rows_of(batch), batch)


def append_rows(table, rows, batch):
    """Commit rows in the columns of any table, one file for each partition, as a sink would."""
    ids = FileIds(max(1, table.head.metadata.last_updated_ms), "made", batch)
    plan = InsertPlan((), (), 10, 10**6, 1 << 30)
    head = table.head
    job = worker_job(table.store, head, plan, None, ids)
    writer = TaskWriter(job, 0, 0)
    for each in rows.to_batches():
        writer.write(conform(each, arrow_schema(head.schema)))
    files = [data_file(it, head.spec) for it in writer.finish() if isinstance(it, WrittenFile)]
    table.commit([Append(tuple(files))])


def merge_all(table):
    """Commit a merge of all data files of an unpartitioned table into one, as a fill beside a stream does."""
    head = table.head
    ids = FileIds(max(1, head.metadata.last_updated_ms), "merged", 0)
    inputs = tuple(planned_file(head, file).input for file in head.live_files())
    job = replace(
        file_job(table.store, head, ids, 1 << 30), stated=stated_metrics(head, (it.path for it in inputs))
    )
    done = execute_fill(job, Fill(0, (), (), inputs, ()), 0)
    removed = frozenset(given.path for given in inputs)
    applied = frozenset(deletes.path for given in inputs for deletes in given.deletes)
    new = tuple(data_file(file, head.spec) for file in done.files)
    table.commit([Replace(removed, new, applied, done.deleted_rows)])


def delete_rows(table, positions, new=()):
    """Commit a row delta: real delete files of the rows at these positions, by location."""
    deletes, head, store = [], table.head, table.store
    for location, gone in positions.items():
        file = head.find_live(location)
        name = names.delete_file_name(names.ulid(commit_time(SYSTEM, head), next(_numbers)), "d", 0, 0, 0)
        path = f"data/{name}"
        rows, size = write_position_deletes(
            store, path, location, pa.array(gone, pa.int64()), ParquetSettings()
        )
        where = {"spec_id": file.spec_id, "partition": Record(*file.partition)}
        deletes.append(position_deletes(store.uri(path), location, rows=rows, size=size, **where))
    known = {it.location for at in positions for it in head.deletes_of(head.find_live(at))}
    table.commit([RowDelta(tuple(new), tuple(deletes), frozenset(known))])
    return [it.file_path for it in deletes]


def live_rows(table):
    """Return the rows of the table, as pyiceberg reads them."""
    where = path_of(table.store.location) / f"metadata/v{table.refresh().number}.metadata.json"
    return multiset([StaticTable.from_metadata(str(where)).scan().to_arrow()])


def rows_of(batch):
    numbers = range(batch * ROWS, (batch + 1) * ROWS)
    return pa.Table.from_pylist(
        [
            {
                "id": it,
                "p": f"p{it % 2}",
                "key": it * 2654435761 % 2**32 if it % 97 else None,
                "place": {"town": f"town {it % 7}", "old": f"old {it * 7919 % 10007}"},
                "note": f"a note nobody reads {it * 40503 % 2**16:x}",
            }
            for it in numbers
        ],
        schema=arrow_schema(SCHEMA),
    )


def drop_columns(table):
    """Let the table lose `note` and `place.old`, as a schema evolution would, and see it."""
    place = NestedField(
        4, "place", StructType(NestedField(6, "town", StringType(), required=False)), required=False
    )
    left = Schema(*SCHEMA.fields[:3], place, schema_id=1)
    change_metadata(table, lambda metadata: {"schemas": [*metadata.schemas, left], "current_schema_id": 1})
    table.refresh()


def plan_of(table, **policy):
    asked = ClusteringPolicy(**{**SIZES, "overlap_at_least": 2, **policy})
    return plan_clustering(known_files(table.head, asked, {}).files, 0, asked)


def carry_out(table, plan, **how):
    """Execute a plan with tasks that run here, one after the other, on pickled copies of their jobs."""

    def inline(_session, _store, groups, _plan, jobs, _is_wanted, _unwanted):
        for group in groups:
            job = None if group.dropped else pickle.loads(pickle.dumps(jobs[0](group, (), 0)))
            yield replace(group, results=() if job is None else (rewrite_group(job, 0),))

    with mock.patch.object(execution, "rewrite_groups", inline):
        asked = execution_of(**{"checksum": True, **how})
        return execution.execute_groups(None, table, plan, asked, plan_id="plan")


def entries(table):
    """Return the data files of the head as manifests describe them, by location."""
    head = table.head
    return {
        it.data_file.file_path: it.data_file
        for manifest in head.manifests
        for it in head.manifest_files.entries(manifest)
    }


def path_of(location):
    return Path(location.removeprefix("file://"))


def read(location, **how):
    """Return a file's rows, as pyarrow alone reads them."""
    return pq.ParquetFile(path_of(location), **how).read()


def multiset(tables):
    return Counter(repr(row) for table in tables for row in table.to_pylist())
