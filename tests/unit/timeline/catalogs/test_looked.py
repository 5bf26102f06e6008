"""What a writer by key has looked at, in a catalog's table that others change (R31)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from tests.unit.timeline.logs.kinds import ARROW, CatalogKind, Kind, VersionFilesKind
from tests.unit.timeline.world import DAY_MS, Lake
from timeline import names
from timeline.changes.changes import Append, Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.key_changes import DeclareKey, KeysResolved, PutTombstones
from timeline.changes.row_deltas import RowDelta
from timeline.errors import RowsChangedError
from timeline.maintenance.orphans import remove_orphan_files
from timeline.manifests.entries import DeleteFile, position_deletes
from timeline.refs import roll_back
from timeline.table import Committed, Table
from timeline.versions.keys import Looked, TableKey
from timeline.versions.tombstones import tombstones_of

KEY = TableKey((1,))


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(kind: CatalogKind) -> Table:
    """A table with a key and one row."""
    made = kind.create()
    made.commit([Append((kind.file([1]),)), KeysResolved(KEY, Looked()), DeclareKey(KEY)])
    return made


def insert_to_branch(kind: CatalogKind, row: int) -> None:
    """Insert a row as another engine does, on a branch of main."""
    strangers = kind.read()
    strangers.manage_snapshots().create_branch(strangers.current_snapshot().snapshot_id, "theirs").commit()
    kind.read().append(pa.table({"id": [row], "p": [0]}, schema=ARROW), branch="theirs")


def set_main(kind: CatalogKind, snapshot_id: int) -> None:
    """Set main to a snapshot, as a fast-forward and a rollback do."""
    moved = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
    with kind.read().transaction() as transaction:
        transaction._apply((moved,), ())


def deletes_of(kind: CatalogKind, table: Table, rows: int = 1) -> DeleteFile:
    """A delete file of rows of the one data file; it exists in manifests only."""
    (file,) = table.head.live_files()
    location = kind.file([0]).file_path.replace(".parquet", "-deletes.parquet")
    return position_deletes(
        location, file.location, rows=rows, size=500, spec_id=0, partition=Record(*file.partition)
    )


def change(kind: CatalogKind, table: Table, looked: Looked) -> Committed:
    known = frozenset(file.location for file in tombstones_of(table.head.properties))
    done = table.commit([Append((kind.file([2]),)), KeysResolved(KEY, looked, known)])
    assert isinstance(done, Committed)
    return done


def test_a_file_of_a_branch_that_main_gets_later_is_looked_at_though_its_number_is_older(
    kind: CatalogKind, table: Table
) -> None:
    insert_to_branch(kind, 2)
    looked = Looked.at(table.refresh())
    number = table.head.metadata.last_sequence_number
    set_main(kind, kind.read().refs()["theirs"].snapshot_id)
    with pytest.raises(RowsChangedError, match="look again") as refused:
        change(kind, table, looked)
    theirs = [file for file in table.refresh().live_files() if file.location in refused.value.files]
    assert [file.sequence_number for file in theirs] == [number]
    assert change(kind, table, Looked.at(table.head)).version > number


def test_rows_whose_deletes_a_rollback_takes_back_are_looked_at_again(
    kind: CatalogKind, table: Table
) -> None:
    first = table.head.metadata.current_snapshot_id
    deletes = deletes_of(kind, table)
    kind.open().commit([RowDelta((), (deletes,)), KeysResolved(KEY, Looked.at(table.head))])
    looked = Looked.at(table.refresh())
    assert first is not None
    set_main(kind, first)
    with pytest.raises(RowsChangedError) as refused:
        change(kind, table, looked)
    assert refused.value.files == (deletes.file_path,)
    change(kind, table, Looked.at(table.refresh()))


@pytest.mark.parametrize("which", [VersionFilesKind, CatalogKind])
def test_rows_whose_deletes_a_rollback_of_this_sink_takes_back_are_looked_at_again(
    tmp_path: Path, which: type[Kind]
) -> None:
    """Main follows what was looked at, and a row that was deleted then is live again."""
    kind = which(tmp_path / "own")
    table, key = kind.create(), TableKey((1,))
    table.commit([Append((kind.file([1]),)), KeysResolved(key, Looked()), DeclareKey(key)])
    with_row = table.head.number
    (file,) = table.head.live_files()
    location = kind.file([0]).file_path.replace(".parquet", "-deletes.parquet")
    delete = position_deletes(
        location, file.location, rows=1, size=500, spec_id=0, partition=Record(*file.partition)
    )
    table.commit([RowDelta((), (delete,), frozenset()), KeysResolved(key, Looked.at(table.head))])
    looked = Looked.at(table.refresh())
    roll_back(kind.open(), with_row)
    with pytest.raises(RowsChangedError):
        table.commit([Append((kind.file([1]),)), KeysResolved(key, looked)])
    assert kind.rows() == [1]


def test_a_head_that_others_set_back_and_expired_is_left_for_the_one_that_is_there(
    kind: CatalogKind, table: Table
) -> None:
    """By the simulator, seed 6000913: its number stays, and so the files seemed to be lost."""
    first, looked = table.head.metadata.current_snapshot_id, Looked.at(table.head)
    table.commit([Append((kind.file([3]),)), KeysResolved(KEY, looked)])
    late = kind.open()
    assert first is not None
    set_main(kind, first)
    kept = {manifest.manifest_path for manifest in kind.open().head.manifests}
    gone = [it.manifest_path for it in late.head.manifests if it.manifest_path not in kept]
    late.store.delete([late.store.relative(path) for path in gone])
    assert gone
    change(kind, late, looked)


def test_files_that_a_rollback_brings_back_are_looked_at(kind: CatalogKind, table: Table) -> None:
    first = table.head.metadata.current_snapshot_id
    (old,) = table.head.live_files()
    kind.open().commit([Replace(frozenset({old.location}), (kind.file([1]),))])
    looked = Looked.at(table.refresh())
    assert first is not None
    set_main(kind, first)
    with pytest.raises(RowsChangedError) as refused:
        change(kind, table, looked)
    assert refused.value.files == (old.location,)


def test_deletes_that_were_merged_need_no_second_look(kind: CatalogKind, table: Table) -> None:
    small, large = deletes_of(kind, table), deletes_of(kind, table)
    kind.open().commit([RowDelta((), (small,)), KeysResolved(KEY, Looked.at(table.head))])
    looked = Looked.at(table.refresh())
    kind.open().commit([MergeDeletes(frozenset({small.file_path}), (large,))])
    assert small.file_path in looked.deletes
    change(kind, table, looked)
    assert [file.location for file in table.head.delete_files()] == [large.file_path]


def test_an_append_beside_main_needs_no_second_look(kind: CatalogKind, table: Table) -> None:
    looked = Looked.at(table.head)
    insert_to_branch(kind, 2)
    assert change(kind, table, looked).attempts == 2


def test_deletes_by_value_are_looked_at_and_deletes_by_position_are_not() -> None:
    lake = Lake()
    file = lake.file()
    lake.table.commit([Append((file,))])
    looked = Looked.at(lake.table.head)
    lake.add_delete_file(0)
    assert list(looked.find_unseen(lake.open().head)) == []
    by_value = lake.add_delete_file(0, content=DataFileContent.EQUALITY_DELETES)
    assert list(looked.find_unseen(lake.open().head)) == [by_value]
    assert list(Looked.at(lake.open().head).find_unseen(lake.open().head)) == []


def test_a_key_is_not_declared_over_rows_of_a_table_that_was_of_format_version_1(kind: CatalogKind) -> None:
    """Their sequence number is 0."""
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    for manifest in table.head.manifests:
        for name, file in table.head.manifest_files.contents(manifest).files.items():
            old = {each: getattr(file, each) for each in file.__slots__} | {"sequence_number": 0}
            table.head.manifest_files.contents(manifest).files[name] = type(file)(**old)
    with pytest.raises(RowsChangedError):
        table.commit([DeclareKey(KEY)])


def test_files_of_deleted_keys_are_orphans_once_they_are_named_no_more(
    kind: CatalogKind, table: Table
) -> None:
    def put(number: int, *merged: str) -> str:
        path = names.tombstone_path(names.ulid(kind.clock.now_ms, number), "app", 1, names.TOMBSTONE_FOLDER)
        table.store.overwrite(path, b"keys")
        location = table.store.uri(path)
        table.commit([PutTombstones(location, 1, frozenset(merged))])
        return path

    first = put(1)
    second = put(2, table.store.uri(first))
    kind.clock.now_ms += 5 * DAY_MS
    change(kind, table, Looked.at(table.head))
    kept = frozenset(file.location for file in tombstones_of(table.head.properties))
    assert kept == {table.store.uri(second)}
    assert [each.path for each in remove_orphan_files(table).files] == [first]
    assert [each.path for each in table.store.list_folder(names.TOMBSTONE_FOLDER)] == [second]
