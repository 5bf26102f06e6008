"""A kind of change is one class, and a writer where it adds a snapshot: new kinds need no arm elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType

from tests.unit.timeline import world
from tests.unit.timeline.world import SCHEMA, Audit, Lake, bound_paths, data_file
from timeline import names
from timeline.clock import Environment
from timeline.commit import attempts, succession
from timeline.commit.attempts import SNAPSHOT_WRITERS
from timeline.commit.changes import Append, Change, Intent
from timeline.commit.draft import Draft
from timeline.errors import CommitConflictError
from timeline.stores import Created
from timeline.table import Committed
from timeline.versions import entries, manifest_format
from timeline.versions.head import Head
from timeline.versions.manifests import ManifestFiles


@dataclass(frozen=True)
class AddColumn(Change):
    """A schema update: metadata only, so it applies itself."""

    column: NestedField

    def find_conflict(self, head: Head, schema_id: int, beside: object) -> str | None:
        if self.column.name in head.schema.column_names:
            return f"another commit has added the column: {self.column.name}"
        return None

    def apply(self, draft: Draft) -> None:
        schema = draft.head.schema
        added = Schema(*schema.fields, self.column, schema_id=schema.schema_id + 1)
        draft.update_metadata(
            schemas=[*draft.metadata.schemas, added],
            current_schema_id=added.schema_id,
            last_column_id=self.column.field_id,
        )


@dataclass(frozen=True)
class DeletePositions(Change):
    """A row delta: position deletes of one live file, in a snapshot that its writer adds."""

    delete: DataFile
    of: str

    def find_conflict(self, head: Head, schema_id: int, beside: object) -> str | None:
        if head.find_live(self.of) is None:
            raise CommitConflictError("its rows have moved", files=[self.of])
        return None


@dataclass
class DeletePositionsWriter:
    intent: Intent
    manifest_files: ManifestFiles
    environment: Environment

    def prepare(self, head: Head) -> None:
        pass

    def add_snapshot(self, draft: Draft, kept: Sequence[Change]) -> None:
        deletes = [change.delete for change in kept if isinstance(change, DeletePositions)]
        if not deletes:
            return
        snapshot_id = succession.new_snapshot_id(draft.environment)
        path = names.manifest_path(draft.new_id())
        output = manifest_format.WrittenBytes(self.manifest_files.store.uri(path))
        spec = draft.head.metadata.specs()[0]
        with world._DeleteManifestWriter(spec, draft.head.schema, output, snapshot_id, "deflate") as writer:
            for delete in deletes:
                writer.add_entry(entries.added_entry(snapshot_id, delete))
        assert isinstance(self.manifest_files.store.create(path, output.data), Created)
        new = [writer.to_manifest_file()]
        draft.add_snapshot(Operation.DELETE, snapshot_id, new, draft.carried_manifests(), deletes, ())


@pytest.fixture
def row_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "SNAPSHOT_WRITERS", (*SNAPSHOT_WRITERS, DeletePositionsWriter))


def deletion(lake: Lake, of: DataFile) -> DeletePositions:
    location = f"{of.file_path}-deletes.parquet"
    delete = data_file(location, 4, partition=Record(0), content=DataFileContent.POSITION_DELETES)
    bound_paths(delete, of.file_path, of.file_path)
    return DeletePositions(delete, of.file_path)


def test_a_schema_update_is_one_class() -> None:
    lake = Lake()
    committed = lake.table.commit([AddColumn(NestedField(3, "note", StringType(), required=False))])
    assert isinstance(committed, Committed)
    assert lake.open().head.schema.column_names == [*SCHEMA.column_names, "note"]
    Audit(lake.store).check_snapshots(lake.open().head.metadata)


def test_a_change_that_no_longer_fits_is_dropped_with_its_own_reason() -> None:
    lake = Lake()
    mine, column = lake.open(), NestedField(3, "note", StringType(), required=False)
    lake.table.commit([AddColumn(column)])
    with pytest.raises(CommitConflictError, match="another commit has added the column: note"):
        mine.commit([AddColumn(column)])


def test_a_row_delta_is_one_class_and_one_writer(row_deltas: None) -> None:
    """New rows and position deletes in one version, as an upsert will commit them."""
    lake = Lake()
    old, new = lake.file(size=1000), lake.file()
    lake.table.commit([Append((old,))])
    committed = lake.table.commit([Append((new,)), deletion(lake, old)])
    assert isinstance(committed, Committed)
    head = lake.open().head
    operations = [s.summary.operation for s in head.metadata.snapshots if s.summary]
    assert operations == [Operation.APPEND, Operation.APPEND, Operation.DELETE]
    live = {file.location: file for file in head.live_files()}
    assert {location: head.live_bytes(file) for location, file in live.items()} == {
        old.file_path: 600,
        new.file_path: 1000,
    }
    assert [head.has_deletes(live[file.file_path]) for file in (old, new)] == [True, False]


def test_a_rebase_over_a_row_delta_needs_no_list(row_deltas: None) -> None:
    """A version whose snapshot only adds manifests describes them, of whichever kind they are."""
    lake = Lake()
    old = lake.file()
    lake.table.commit([Append((old,))])
    other = lake.open(lake.store)
    lake.table.commit([deletion(lake, old)])
    lake.store.count()
    assert [file.rows for file in other.refresh().delete_files()] == [4]
    assert lake.store.count() == {"LIST": 1, "GET": 2}


def test_a_row_delta_that_lost_its_file_fails_the_whole_commit(row_deltas: None) -> None:
    lake = Lake()
    (gone,) = [lake.file()]
    with pytest.raises(CommitConflictError, match="its rows have moved"):
        lake.table.commit([Append((lake.file(),)), deletion(lake, gone)])
    assert lake.live() == set()
