"""A small keyed table of people, of real files, and a quarantine of rows that failed; without Spark."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType

from planners.model import InsertPlan
from streaming_sink.checks.quarantine_table import QUARANTINE_SCHEMA
from streaming_sink.removal.matching import find_key_columns, matcher_of
from streaming_sink.removal.wanted import WantedKeys
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import data_file
from streaming_sink.table.spec import partition_spec
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.files.delete_files import read_position_deletes
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.upkeep import build
from streaming_sink.tasks.keys.scanning import KeyedFile, scope_salt
from streaming_sink.tasks.keys.tombstones import AT_COMMIT, Tombstones, write_tombstones
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.rows.write_task import TaskWriter
from streaming_sink.writing.writer import worker_job
from tests.unit.streaming_sink.small_tables import delete_rows
from tests.unit.timeline.world import Clock, bound_paths, change_metadata
from timeline import names
from timeline.changes.changes import Append, SetProperties
from timeline.changes.key_changes import DeclareKey, KeysResolved, PutTombstones
from timeline.changes.outbox_changes import PutOutbox
from timeline.changes.references import AllowReferences
from timeline.changes.row_deltas import RowDelta
from timeline.drafts.succession import commit_time
from timeline.manifests.entries import DeleteFile, LiveFile, position_deletes
from timeline.outbox import deliver_all, register_main
from timeline.stores import open_store
from timeline.table import Table
from timeline.versions.keys import PARTITION_SCOPE, Looked, TableKey
from timeline.versions.outbox import Delivery
from timeline.versions.tombstones import tombstones_of
from timeline.versions.transactions import Transaction

KEY = TableKey((1,), 2)
ALICE = 42
"""The one who is to be gone."""
WANTED = WantedKeys.of([{"user_id": ALICE}])
_seeds = count(1)


def _schema(at: PrimitiveType) -> Schema:
    return Schema(
        NestedField(1, "user_id", LongType(), required=False),
        NestedField(2, "at", at, required=False),
        NestedField(3, "name", StringType(), required=False),
        NestedField(4, "_rescued", StringType(), required=False),
    )


class Foreign(RowDelta):
    """Deletes that this sink does not write."""

    def check(self) -> None:
        """Any are fine."""

    def find_conflict(self, *_: object) -> None:  # type: ignore[override]
        """None is looked for."""


class People:
    """A table of people on a local disk, and the ways in which rows get into it, and out."""

    def __init__(
        self,
        folder: Any,
        place: Any = None,
        key: TableKey = KEY,
        by: str | None = None,
        at: PrimitiveType = LongType(),  # noqa: B008 - a value
        **properties: str,
    ) -> None:
        schema = _schema(at)
        self.location = str(folder)
        self.key = key
        self.place = f"{folder}__quarantine" if place is None else str(place)
        self.clock = Clock()
        self.table = Table.create(
            open_store(self.location),
            schema,
            partition_spec([] if by is None else [by], schema),
            table_properties=properties,
            environment=self.clock.environment(next(_seeds)),
            store_is_checked=True,
        )
        self.table.commit([DeclareKey(key)])
        self.quarantine: Table | None = None

    @property
    def store(self) -> Any:
        return self.table.store

    def write(self, *ids: int | None, rescued: str | None = None, table: Table | None = None) -> list[Any]:
        """Write a data file of these people, which no commit has."""
        rows = [
            {"user_id": it, "at": at, "name": f"name of {it}", "_rescued": rescued}
            for at, it in enumerate(ids)
        ]
        return write_rows(table or self.table, rows)

    def append(self, *ids: int | None, rescued: str | None = None) -> str:
        """Commit a file of these people, and return its location."""
        files = self.write(*ids, rescued=rescued)
        self.commit(*files)
        return str(files[0].file_path)

    def commit(self, *files: Any) -> None:
        """Append files that were written, as of keys that were looked for."""
        head = self.table.head
        known = frozenset(it.location for it in tombstones_of(head.properties))
        resolved = KeysResolved(self.key, Looked.at(head), known)
        self.table.commit([Append(files), resolved])

    def refer(self, path: str, *ids: int) -> str:
        """Commit a producer's file of these people by reference, without field ids; return its location."""
        put_parquet(
            path, {"user_id": list(ids), "at": [0] * len(ids), "name": [f"name of {it}" for it in ids]}
        )
        self.table.commit([AllowReferences()])
        file = data_file(self.written(path, len(ids)), self.table.head.spec)
        self.commit(file)
        return path

    def written(self, path: str, rows: int) -> WrittenFile:
        nothing: dict[int, Any] = {}
        size = Path(path).stat().st_size
        bounds = {1: (ALICE).to_bytes(8, "little")}
        return WrittenFile(path, (), 0, rows, size, nothing, nothing, nothing, nothing, bounds, bounds, (4,))

    def delete(self, location: str, *positions: int) -> str:
        """Delete rows by their positions, and return the location of the delete file."""
        return str(delete_rows(self.table, {location: list(positions)})[0])

    def delete_of_many(self, positions: dict[str, list[int]]) -> None:
        """Delete rows of several files in one delete file, whose bounds are a range."""
        where = sorted(positions)
        rows = [{"file_path": path, "pos": at} for path in where for at in positions[path]]
        path = f"data/{names.delete_file_name(self.new_id(), 'many', 0, 0, 0)}"
        with self.store.open_output(path) as output:
            pq.write_table(pa.Table.from_pylist(rows), output)
        of_one = position_deletes(
            self.store.uri(path), where[0], rows=len(rows), size=1, spec_id=0, partition=Record()
        )
        delete = DeleteFile(*of_one._data[:-1], None)
        delete.spec_id = 0
        bound_paths(delete, where[0], where[-1])
        self.table.commit([Foreign((), (delete,))])

    def index(self) -> str:
        """Build a key run of all live files, and return its path."""
        scoped = self.key.scope == PARTITION_SCOPE
        files = [
            KeyedFile(file.location, file.rows, scope_salt(scoped, file.partition))
            for file in self.table.head.live_files()
        ]
        columns = find_key_columns(WANTED, self.table.head)
        return build(KeyIndex(self.store, columns), files, self.new_id())

    def remember(self, *ids: int) -> str:
        """Commit tombstones of these people, and return their file's location."""
        hashes = matcher_of(WantedKeys.of([{"user_id": it} for it in ids]), self.table.head).hashes
        path = names.tombstone_path(self.new_id(), "app", 1, names.DATA_FOLDER)
        stones = Tombstones(hashes, np.full(len(ids), 5), np.full(len(ids), AT_COMMIT))
        write_tombstones(self.store, path, stones)
        self.table.commit([PutTombstones(self.store.uri(path), len(ids))])
        return str(self.store.uri(path))

    def quarantine_row(self, row: str, *, deliver: bool = True) -> str:
        """Quarantine a row as a batch does, and return its file's location."""
        if self.quarantine is None:
            self.quarantine = Table.create(
                open_store(self.place),
                QUARANTINE_SCHEMA,
                environment=self.clock.environment(next(_seeds)),
                store_is_checked=True,
            )
            register_main(self.quarantine, self.table)
        second, main_uuid = self.quarantine, str(self.table.head.metadata.table_uuid)
        fixed = {"row_id": self.new_id(), "quarantined_at": 0, "app_id": "app", "query_id": "q", "batch": 1}
        (file,) = write_rows(second, [{**fixed, "table_uuid": main_uuid, "check": "c", "row": row}])
        uuid = str(second.head.metadata.table_uuid)
        delivery = Delivery(second.head.metadata.location, uuid, second.head.schema.schema_id, (file,))
        known = self.table.head.outbox("app")
        state = self.table.head.transaction("app")
        batch, epoch = (0, None) if state is None else (state.batch + 1, 1)
        put = PutOutbox("app", (delivery,), None if known is None else known.sequence)
        self.table.commit([put], transaction=Transaction("app", "query", "run", batch, epoch))
        if deliver:
            deliver_all(self.table, lambda _: second)
            second.refresh()
        return str(file.file_path)

    def tag(self, name: str = "audit", kind: str = "tag") -> None:
        """Let another engine put a tag on the current snapshot."""
        ref = SnapshotRef.model_validate(
            {"snapshot-id": self.table.head.metadata.current_snapshot_id, "type": kind}
        )
        change_metadata(self.table, lambda metadata: {"refs": {**metadata.refs, name: ref}})
        self.table.refresh()

    def untag(self, name: str = "audit") -> None:
        """Let another engine drop a tag."""
        change_metadata(
            self.table, lambda metadata: {"refs": {k: v for k, v in metadata.refs.items() if k != name}}
        )
        self.table.refresh()

    def new_id(self) -> str:
        return names.ulid(commit_time(self.clock.environment(), self.table.head), next(_seeds))

    def rows(self, table: Table | None = None, column: str = "user_id") -> list[Any]:
        """The people that readers see, as pyiceberg reads the table; in memory, of files without deletes."""
        table = table or self.table
        head = table.refresh()
        if not self.location.startswith("memory:"):
            version = f"{table.store.location}/metadata/v{head.number}.metadata.json"
            return sorted(StaticTable.from_metadata(version).scan().to_arrow()[column].to_pylist(), key=str)
        assert list(head.delete_files()) == []
        found: list[Any] = []
        for file in head.live_files():
            with table.store.open_input(table.store.relative(file.location)) as source:
                found += pq.read_table(source)[column].to_pylist()
        return sorted(found, key=str)

    def open(self) -> Table:
        """Open the table as another process does."""
        return Table.open(open_store(self.location), self.clock.environment(next(_seeds)))

    def live(self, file: LiveFile) -> list[tuple[int, Any]]:
        """Return the positions and people of a live file that no delete file deletes."""
        deletes = [each.location for each in self.table.head.deletes_of(file)]
        gone = set(read_position_deletes(self.store, deletes, file.location).tolist())
        with self.store.open_input(self.store.relative(file.location)) as source:
            ids = pq.read_table(source)["user_id"].to_pylist()
        return [(at, who) for at, who in enumerate(ids) if at not in gone]

    def holds(self, path: str) -> bool:
        """Whether a file is there."""
        return self.store.relative(path) in {each.path for each in self.store.list_below("")}

    def pass_versions(self, count: int = 101, minutes: int = 1) -> None:
        """Let other writers commit so many versions to each table."""
        for _ in range(count):
            self.clock.now_ms += minutes * 60_000
            for table in filter(None, (self.table, self.quarantine)):
                table.commit([SetProperties({"a": "b"})])


def write_rows(table: Table, rows: list[dict[str, Any]]) -> list[Any]:
    """Write a data file of rows, which no commit has."""
    head = table.head
    ids = FileIds(commit_time(table.log.environment, head), "app", next(_seeds))
    plan = InsertPlan((), (), 10, 10**6, 1 << 30)
    job = worker_job(table.store, head, plan, None, ids)
    schema = arrow_schema(head.schema)
    columns = {field.name: _values([row.get(field.name) for row in rows], field.type) for field in schema}
    writer = TaskWriter(job, 0, 0)
    writer.write(conform(pa.RecordBatch.from_pydict(columns), schema))
    return [data_file(it, head.spec) for it in writer.finish() if isinstance(it, WrittenFile)]


def _values(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and any(isinstance(value, int) for value in values):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def put_parquet(path: str, columns: dict[str, list[Any]]) -> None:
    """Write a Parquet file without field ids, as another program does."""
    pq.write_table(pa.table(columns), path)


def staged(people: People) -> None:
    """Let another engine take the current snapshot off main, and stage it: main is its parent again."""
    metadata = people.table.head.metadata
    current = next(it for it in metadata.snapshots if it.snapshot_id == metadata.current_snapshot_id)
    assert current.summary is not None
    bare = current.model_copy(
        update={"summary": replace_summary(current.summary), "snapshot_id": current.snapshot_id}
    )
    main = metadata.refs["main"].model_copy(update={"snapshot_id": current.parent_snapshot_id})
    snapshots = [bare if it.snapshot_id == current.snapshot_id else it for it in metadata.snapshots]
    log = [it for it in metadata.snapshot_log if it.snapshot_id != current.snapshot_id]
    change_metadata(
        people.table,
        lambda found: {
            "snapshots": snapshots,
            "snapshot_log": log,
            "current_snapshot_id": current.parent_snapshot_id,
            "refs": {**found.refs, "main": main},
        },
    )
    people.table = Table.open(people.store, people.clock.environment(next(_seeds)))


def replace_summary(summary: Any) -> Any:
    """A summary without what only this protocol writes."""
    from pyiceberg.table.snapshots import Summary

    return Summary(summary.operation)


__all__ = ["ALICE", "KEY", "WANTED", "People", "put_parquet", "staged", "write_rows"]
