"""Metadata files that the client writes: durable, none replaced, and none kept that nothing needs (R14)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import OperationalError

from tests.unit.timeline.logs.kinds import Answers, CatalogKind
from timeline.catalogs.clients.store_io import StoreIO
from timeline.changes.changes import Append, SetProperties
from timeline.clock import SYSTEM
from timeline.errors import StoreUnavailableError
from timeline.stores import Created, Exists, LocalStore, Unknown
from timeline.table import Committed

DAY_MS = 24 * 3600 * 1000
KEPT = "write.metadata.previous-versions-max"


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


def metadata_files(kind: CatalogKind) -> set[str]:
    return {it.name for it in (kind.folder / "warehouse/lake/table/metadata").glob("*.metadata.json")}


def named(kind: CatalogKind) -> set[str]:
    """Return the metadata files that the table has, by its log and the catalog's pointer."""
    loaded = kind.read()
    files = [entry.metadata_file for entry in loaded.metadata.metadata_log]
    return {file.rpartition("/")[2] for file in (*files, loaded.metadata_location)}


def set_properties(kind: CatalogKind, changed: dict[str, str]) -> None:
    """Set properties as another engine does, which deletes no old metadata."""
    with kind.read().transaction() as edit:
        edit.set_properties(changed)


def test_what_a_lost_attempt_wrote_is_deleted_once_it_is_known_to_have_lost(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other, write, written = kind.create(), kind.open(), SqlCatalog._write_metadata, []

    def overtaken(**given: Any) -> None:
        write(**given)
        written.append(given["metadata_path"])
        if len(written) == 1:
            other.commit([Append((kind.file([1]),))])

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(overtaken))
    committed = table.commit([Append((kind.file([2]),))])
    assert isinstance(committed, Committed)
    assert (committed.attempts, len(written)) == (2, 3)
    assert metadata_files(kind) == named(kind)
    assert kind.rows() == [1, 2]


@pytest.mark.parametrize("landed", [True, False])
def test_what_an_attempt_wrote_stays_while_it_may_still_take_effect(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """Deleted too early, the table would point to a file that is gone."""
    table, commit, sent = kind.create(), SqlCatalog.commit_table, []

    def unanswered(self: Any, *arguments: Any) -> Any:
        sent.append(1)
        if len(sent) > 1:
            return commit(self, *arguments)
        if landed:
            commit(self, *arguments)
        else:
            staged = self._update_and_stage_table(self.load_table(arguments[0].name()), *given(arguments))
            self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        raise OperationalError("UPDATE", {}, Exception("the connection was lost"))

    def given(arguments: Any) -> Any:
        return arguments[0].name(), arguments[1], arguments[2]

    monkeypatch.setattr(SqlCatalog, "commit_table", unanswered)
    for row in (1, 2, 3):
        assert isinstance(table.commit([Append((kind.file([row]),))]), Committed)
    assert kind.rows() == [1, 2, 3]
    assert metadata_files(kind) >= named(kind)
    assert len(metadata_files(kind) - named(kind)) == (0 if landed else 1)


@pytest.mark.parametrize("landed", [True, False])
def test_a_database_whose_answer_to_a_commit_gets_lost_loses_and_doubles_nothing(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    commit, met = DefaultDialect.do_commit, []

    def lose_each_second(self: Any, connection: Any) -> None:
        met.append(len(met) % 2 == 0)
        if landed or not met[-1]:
            commit(self, connection)
        if met[-1]:
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(DefaultDialect, "do_commit", lose_each_second)
    table = kind.create()
    for row in (1, 2, 3):
        assert isinstance(table.commit([Append((kind.file([row]),))]), Committed)
    assert met.count(True) >= 2
    assert kind.rows() == [1, 2, 3]
    assert kind.open().head.number == 3
    assert metadata_files(kind) >= named(kind)


def test_old_metadata_files_leave_after_a_commit_where_the_table_says_so(kind: CatalogKind) -> None:
    kind.create()
    set_properties(kind, {KEPT: "3"})
    table = kind.open()
    for row in range(8):
        table.commit([Append((kind.file([row]),))])
    assert metadata_files(kind) == named(kind)
    assert len(named(kind)) == 4


def test_old_metadata_files_of_a_table_of_others_stay(kind: CatalogKind) -> None:
    kind.create()
    set_properties(kind, {KEPT: "3", "write.metadata.delete-after-commit.enabled": "false"})
    table, before = kind.open(), metadata_files(kind)
    for row in range(8):
        table.commit([Append((kind.file([row]),))])
    assert len(metadata_files(kind)) == len(before) + 8
    assert len(named(kind)) == 4


def test_a_commit_without_an_answer_that_landed_leaves_no_old_metadata_files_either(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.create()
    set_properties(kind, {KEPT: "1"})
    table = kind.open()
    table.commit([SetProperties({"a": "b"})])
    commit = SqlCatalog.commit_table

    def unanswered(self: Any, *arguments: Any) -> Any:
        commit(self, *arguments)
        raise OperationalError("COMMIT", {}, Exception("the connection was lost"))

    monkeypatch.setattr(SqlCatalog, "commit_table", unanswered)
    for row in range(4):
        assert isinstance(table.commit([Append((kind.file([row]),))]), Committed)
    assert metadata_files(kind) == named(kind)
    assert len(named(kind)) == 2


def test_metadata_is_created_through_the_store_and_synced(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set(), os.fsync

    def watched(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    folder = Path(kind.store().location, "metadata")
    files = [folder / name for name in metadata_files(kind)]
    assert len(files) == 2
    assert {folder.stat().st_ino, *(file.stat().st_ino for file in files)} <= synced


def test_metadata_that_cannot_be_written_is_an_error_and_nothing_is_live(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, create = kind.create(), LocalStore.create

    def refusing(self: Any, path: str, data: bytes) -> Any:
        if path.endswith(".metadata.json"):
            raise StoreUnavailableError("no space is left")
        return create(self, path, data)

    monkeypatch.setattr(LocalStore, "create", refusing)
    with pytest.raises(StoreUnavailableError, match="no space is left"):
        CatalogKind(kind.folder / "other").create()
    with pytest.raises(StoreUnavailableError, match=r"nothing of it is live.*no space is left"):
        table.commit([Append((kind.file([1]),))])
    monkeypatch.undo()
    assert kind.rows() == []


def test_a_sequence_number_that_is_taken_is_refused_for_a_snapshot_without_a_parent(
    kind: CatalogKind,
) -> None:
    """pyiceberg compares none of these; it would land after the table's rows were set back to nothing."""
    kind.create().commit([Append((kind.file([1]),))])
    catalog = kind._catalog(Answers())
    snapshot = Snapshot(
        snapshot_id=7, parent_snapshot_id=None, sequence_number=1, timestamp_ms=10**13,
        manifest_list="x", summary=Summary(Operation.APPEND), schema_id=0,
    )  # fmt: skip
    with pytest.raises(CommitFailedException, match=r"sequence number 1 .* that has 1"):
        catalog.commit_table(
            catalog.load_table(("lake", "table")), (), (AddSnapshotUpdate(snapshot=snapshot),)
        )


def test_a_commit_is_later_than_every_time_in_the_table_whatever_clocks_say(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg's catalogs check no time, and Java opens no table whose logs go back."""
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    kind.clock.now_ms += DAY_MS
    table.commit([Append((kind.file([2]),))])
    first, second = (it.snapshot_id for it in table.head.metadata.snapshots)
    for year, snapshot_id in ((2030, first), (2020, second)):  # other engines, whose clocks are off
        at = datetime(year, 1, 1, tzinfo=timezone.utc)
        monkeypatch.setattr("pyiceberg.table.update.datetime", SimpleNamespace(now=lambda at=at: at))
        catalog = kind.beside()
        moved = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
        catalog.commit_table(catalog.load_table(("lake", "table")), (), (moved,))
    assert kind.read().metadata.last_updated_ms < table.head.metadata.last_updated_ms
    with pytest.raises(StoreUnavailableError, match="cannot follow a table"):  # main is where it was
        table.commit([Append((kind.file([3]),))])
    table.refresh()
    table.commit([Append((kind.file([3]),))])
    metadata = kind.read().metadata
    newest = metadata.current_snapshot().timestamp_ms
    assert newest > max(it.timestamp_ms for it in metadata.snapshots[:-1])
    assert newest > max(it.timestamp_ms for it in metadata.snapshot_log[:-1])
    assert newest > max(it.timestamp_ms for it in metadata.metadata_log)
    assert metadata.last_updated_ms >= newest
    assert kind.rows() == [1, 2, 3]


def test_a_location_of_the_table_s_properties_changes_nothing_of_where_metadata_is_read(
    kind: CatalogKind,
) -> None:
    table = kind.create(table_properties={"py-io-impl": "nowhere.Impl"})
    table.commit([SetProperties({"a": "b"})])
    assert kind.open().head.properties["a"] == "b"


class Slow(LocalStore):
    """A disk whose creates answer as they are told."""

    said: list[Any]

    def create(self, path: str, data: bytes) -> Any:
        outcome = super().create(path, data)
        return self.said.pop(0) if self.said else outcome


@pytest.mark.parametrize("said", [Unknown("lost"), Exists()])
def test_a_file_whose_create_was_not_answered_is_looked_for(tmp_path: Path, said: Any) -> None:
    store = Slow(tmp_path)
    store.said = [said]
    io = StoreIO(lambda _: store, SYSTEM)
    with io.new_output(f"{tmp_path}/a.json").create() as stream:
        stream.write(b"{}")
    assert io.new_input(f"{tmp_path}/a.json").open().read() == b"{}"
    assert isinstance(store.create("b", b""), Created)


def test_a_file_of_another_content_is_not_replaced(tmp_path: Path) -> None:
    io = StoreIO(LocalStore, SYSTEM)
    (tmp_path / "a.json").write_bytes(b"theirs")
    stream = io.new_output(f"file://{tmp_path}/a.json").create(overwrite=True)
    stream.write(b"ours")
    with pytest.raises(StoreUnavailableError, match="another file is there"):
        stream.close()
    assert (tmp_path / "a.json").read_bytes() == b"theirs"


def test_what_was_begun_and_failed_is_not_written(tmp_path: Path) -> None:
    io = StoreIO(LocalStore, SYSTEM)
    with pytest.raises(ZeroDivisionError), io.new_output(f"{tmp_path}/a.json").create() as stream:
        stream.write(b"x" * (1 // 0))
    assert not io.new_output(f"{tmp_path}/a.json").exists()
    assert list(tmp_path.iterdir()) == []
