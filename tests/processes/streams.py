"""Streams without Spark: what the sink does for each micro-batch, with its own writer and commit.

Every batch is one file of a few rows whose ids tell stream and batch, so that a table's rows say which
batches it holds, and how often.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from streaming_sink.table.data_files import data_file
from streaming_sink.tasks.job import FileIds, ParquetSettings, PartitionSource, TaskBuckets, WorkerJob
from streaming_sink.tasks.rows.write_task import TaskWriter
from timeline.changes.changes import Append, Change, Replace
from timeline.clock import SYSTEM, Environment
from timeline.errors import TableNotFoundError
from timeline.plans.reservations import Reservations
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.transactions import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.manifest import DataFile

    from timeline.stores import LocalStore
    from timeline.versions.head import Head

ROWS = 3
"""Rows of a batch."""

_MOST_BATCHES = 1_000_000
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "stream", IntegerType(), required=False)
)
_SPEC = PartitionSpec(
    PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="stream")
)
_ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("stream", pa.int32(), metadata={"PARQUET:field_id": "2"}),
    ]
)


def open_or_create(store: LocalStore, environment: Environment = SYSTEM) -> Table:
    try:
        return Table.open(store, environment)
    except TableNotFoundError:
        return Table.create(store, _SCHEMA, _SPEC, environment=environment, store_is_checked=True)


class Run:
    """One run of one stream: from its start to the death of its process."""

    def __init__(self, stream: int, table: Table) -> None:
        self.table = table
        self._stream = stream
        self._run_id = str(uuid.uuid4())
        self._epoch: int | None = None
        self._reservations = Reservations(table.store)

    def commit(self, batch: int, *, fill: bool = False) -> Committed | AlreadyCommitted:
        """Write a batch and commit it; a fill replaces what the stream has in the table, and nobody has
        reserved, by one file.
        """
        new = self.write(batch, rows_of(self._stream, batch))
        changes: list[Change] = [Append((new,))]
        if fill:
            reserved = self._reservations.files(self.table.head)
            mine = [live for live in self.table.head.live_files() if live.partition == (self._stream,)]
            small = [live.location for live in mine if live.location not in reserved]
            inputs = frozenset([new.file_path, *small])
            merged = self.write(batch, [each for path in sorted(inputs) for each in ids_in(path)])
            changes.append(Replace(inputs, (merged,)))
        done = self.table.commit(changes, transaction=self._transaction(batch))
        if isinstance(done, Committed):
            self._epoch = done.epoch
        return done

    def _transaction(self, batch: int) -> Transaction:
        name = app_id(self._stream)
        return Transaction(name, f"query of {name}", self._run_id, batch, self._epoch)

    def write(self, batch: int, ids: Iterable[int]) -> DataFile:
        time_ms = self.table.log.environment.now_ms()
        job = WorkerJob(
            store=self.table.store,
            schema=_ARROW,
            partition_by=(PartitionSource("stream", ("stream",), "identity"),),
            parquet=ParquetSettings(),
            metrics={1: "full", 2: "full"},
            ids=FileIds(
                max(time_ms, self.table.head.metadata.last_updated_ms + 1), app_id(self._stream), batch
            ),
            tasks={},
            shared=TaskBuckets(),
            rows_per_new_file=_MOST_BATCHES,
            max_file_bytes=1 << 30,
        )
        rows = [{"id": each, "stream": self._stream} for each in ids]
        writer = TaskWriter(job, 0, 0)
        writer.write(pa.RecordBatch.from_pylist(rows, schema=_ARROW))
        [written] = [result for result in writer.finish() if hasattr(result, "partition")]
        return data_file(written, self.table.head.spec)


def app_id(stream: int) -> str:
    return f"stream-{stream}"


def rows_of(stream: int, batch: int) -> range:
    """Return the ids of a batch's rows; no two batches share one."""
    first = (stream * _MOST_BATCHES + batch) * ROWS
    return range(first, first + ROWS)


def rows_in(head: Head) -> Counter[int]:
    """Return how often each id is in the files of a head, which must be as long as the table says."""
    found: Counter[int] = Counter()
    for live in head.live_files():
        with open(live.location, "rb") as file:
            assert file.seek(0, 2) == live.bytes, f"not its whole length: {live.location}"
        found.update(ids_in(live.location))
    return found


def ids_in(path: str) -> list[int]:
    ids: list[int] = pq.ParquetFile(path).read(["id"], use_threads=False)["id"].to_pylist()
    return ids
