"""`purge` in a catalog: rows leave what every engine has written; nothing of others leaves unasked (R32)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.update import AssertTableUUID, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from streaming_sink import CatalogTable, check_gone
from streaming_sink.checks.quarantine_table import QUARANTINE_SCHEMA
from streaming_sink.removal import until
from streaming_sink.removal.leftovers import LeftoverKind
from streaming_sink.removal.purge import Purge
from streaming_sink.removal.report import PurgedTable
from streaming_sink.removal.wanted import WantedKeys
from tests.unit.streaming_sink.removal.people import write_rows
from tests.unit.timeline.logs.kinds import Answers, CatalogKind
from timeline.catalogs.catalog_draft import OneSnapshotDraft
from timeline.catalogs.opening import create_in_catalog, open_in_catalog
from timeline.changes.changes import Append
from timeline.changes.follow_changes import HoldFollowed, NameSecondTable
from timeline.changes.key_changes import DeclareKey, KeysResolved
from timeline.changes.purge_changes import AppendNothing
from timeline.errors import UnsupportedTableError
from timeline.retention import grace, policy
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.keys import Looked, TableKey
from timeline.versions.outbox import catalog_address, identifier_of

ALICE = 42
GONE = [{"id": ALICE}]
ROWS = pa.schema([("id", pa.int64()), ("p", pa.int32())])
DISTANCE = 6
"""Of commits, in the place of 100."""
BRIEF = {"streaming-sink.history.deletion-grace-ms": "1000"}


class Lake:
    """A table of a catalog, into which this sink and pyiceberg write."""

    def __init__(self, folder: Path) -> None:
        self.kind = CatalogKind(folder)
        self.kind.clock.now_ms = int(time.time() * 1000)  # pyiceberg's own commits have this machine's time
        self.table = self.kind.create(table_properties=BRIEF)
        named = {"type": "sql", "name": "test", **self.kind._properties}
        self.place = CatalogTable("lake.table", named)

    def ours(self, *ids: int) -> str:
        """Append a file as this sink does, and return its location."""
        self.table.refresh()
        file = self.kind.file(list(ids))
        self.table.commit([Append((file,))])
        return str(file.file_path)

    def theirs(self, *ids: int, **stated: str) -> None:
        """Append rows as pyiceberg does."""
        rows = pa.table({"id": list(ids), "p": [0] * len(ids)}, schema=ROWS)
        self.kind.read().append(rows, snapshot_properties=stated)

    def open(self, address: str) -> Table:
        """Open a table as a process whose sleep moves the clock of all."""
        identifier, clock = identifier_of(address), self.kind.clock
        assert identifier is not None

        def sleep(seconds: float) -> None:
            clock.now_ms += int(seconds * 1000)
            clock.sleep(seconds)

        environment = replace(self.kind._environment(), sleep=sleep)
        return open_in_catalog(self.kind._catalog(Answers()), identifier, LocalStore, environment)

    def purge(self, **key: Any) -> Purge:
        return Purge.open(self.place, WantedKeys.of([key] if key else GONE), open_table=self.open)

    def set_ref(self, name: str, kind: str, snapshot_id: int) -> None:
        """Set a tag, a branch or main, as another engine does."""
        update = SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=snapshot_id)
        with self.kind.read().transaction() as edit:
            edit._apply((update,), (AssertTableUUID(uuid=self.kind.read().metadata.table_uuid),))

    def snapshots(self) -> list[int]:
        return [it.snapshot_id for it in self.kind.read().snapshots()]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    for module in (policy, grace, until):
        monkeypatch.setattr(module, "SAFE_DISTANCE", DISTANCE)
    made = Lake(tmp_path)
    yield made
    made.kind.close()


def left(table: PurgedTable) -> dict[str, str]:
    """What is left → until when."""
    return {each.kind.value: each.until for each in table.left}


def test_rows_that_each_engine_has_written_leave_main_at_once(lake: Lake) -> None:
    lake.ours(1, ALICE)
    lake.theirs(2, ALICE, 3)
    lake.theirs(4)
    job = lake.purge()
    job.run()
    assert lake.kind.rows() == [1, 2, 3, 4]
    (table,) = job.report().tables
    assert (table.deleted_rows, table.rewritten_files, table.problems) == (2, 2, ())
    assert set(left(table)) == {"row-in-history"}
    assert "6 commits later, of any engine" in left(table)["row-in-history"]


def test_her_rows_leave_the_bytes_and_what_others_wrote_is_theirs_to_delete(lake: Lake) -> None:
    small = lake.ours(1, ALICE)
    lake.theirs(2, ALICE)
    (foreign,) = {file.location for file in lake.table.refresh().live_files()} - {small}
    job = lake.purge()
    job.run()
    job.wait(150.0)
    assert lake.kind.rows() == [1, 2]
    assert not Path(small).exists()
    (table,) = job.report().tables
    assert table.expired_snapshots > 2
    theirs = Path(foreign.removeprefix("file://"))
    assert theirs.exists(), "nothing of theirs leaves unasked"
    assert "remove_orphan_files" in left(table)["row-foreign"]
    assert not job.report().is_gone
    theirs.unlink()
    (table,) = lake.purge().report().tables
    assert "its remove_orphan_files" in left(table)["key-in-bounds"], "their manifest says it"
    for each in (lake.kind.folder / "warehouse" / "lake" / "table" / "metadata").glob("*-m0.avro"):
        each.unlink()
    assert lake.purge().report().is_gone
    assert check_gone(lake.place, GONE).healthy


def test_snapshots_of_others_alone_that_have_her_rows_expire(lake: Lake) -> None:
    lake.theirs(1, ALICE)
    lake.theirs(2)
    lake.kind.read().delete(f"id == {ALICE}")
    with_her = lake.snapshots()
    job = lake.purge()
    job.run()
    job.wait(150.0)
    assert lake.kind.rows() == [1, 2]
    assert not set(with_her[:-1]) & set(lake.snapshots())
    (table,) = job.report().tables
    assert (table.deleted_rows, table.rewritten_files, set(left(table))) == (0, 0, {"row-foreign"})


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_tag_or_a_branch_of_others_is_named_and_nothing_is_changed(lake: Lake, kind: str) -> None:
    lake.ours(1, ALICE)
    lake.set_ref("audit", kind, lake.snapshots()[-1])
    lake.theirs(2)
    before = lake.snapshots()
    with pytest.raises(ValueError, match=f"kept by {kind} 'audit', and nothing was changed"):
        lake.purge().run()
    assert lake.snapshots() == before


def test_what_a_change_log_holds_is_released(lake: Lake) -> None:
    """The log has followed it by then, and the stream may have ended, so that no batch moves its tag."""
    file = lake.ours(1, ALICE)
    lake.table.commit([AppendNothing(), HoldFollowed("a log")])
    lake.theirs(2)
    assert "followed-a log" in lake.kind.read().metadata.refs
    job = lake.purge()
    job.run()
    assert "followed-a log" not in lake.kind.read().metadata.refs
    job.wait(150.0)
    assert lake.kind.rows() == [1, 2]
    assert not Path(file).exists()


def test_what_a_change_log_holds_and_what_never_had_her_rows_stays(lake: Lake) -> None:
    lake.ours(1, ALICE)
    lake.purge().run()
    lake.table.refresh()
    lake.table.commit([AppendNothing(), HoldFollowed("a log")])
    lake.purge().run()
    assert "followed-a log" in lake.kind.read().metadata.refs


def test_a_snapshot_of_others_that_a_rollback_has_left_beside_main_is_named(lake: Lake) -> None:
    lake.ours(1)
    lake.theirs(ALICE)
    aside = lake.snapshots()[-1]
    lake.set_ref("main", "branch", lake.snapshots()[0])
    with pytest.raises(ValueError, match=f"a snapshot beside main, {aside}.*expire_snapshots with its id"):
        lake.purge().run()


def test_the_snapshot_that_an_engine_remembers_its_commits_by_stays(lake: Lake) -> None:
    lake.ours(1, ALICE)
    lake.theirs(2, **{"flink.job-id": "a"})
    memory = lake.snapshots()[-1]
    job = lake.purge()
    job.run()
    job.wait(150.0)
    assert lake.kind.rows() == [1, 2]
    assert memory in lake.snapshots()
    (table,) = job.report().tables
    assert f"remembers its commits in snapshot {memory}" in left(table)["row-in-history"]
    lake.theirs(3, **{"flink.job-id": "a"})
    job.wait(150.0)
    assert memory not in lake.snapshots()


@pytest.mark.parametrize("reason", ["gc.enabled=false", "one snapshot"])
def test_where_snapshots_cannot_leave_it_is_refused_before_anything_is_changed(
    lake: Lake, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ours(1, ALICE)
    if reason == "one snapshot":
        monkeypatch.setattr("timeline.catalogs.probed_log.CatalogDraft", OneSnapshotDraft)
        message = "keeps two snapshots of one commit"
    else:
        message = "gc.enabled=false; nothing was changed"
        with lake.kind.read().transaction() as edit:
            edit.set_properties({"gc.enabled": "false"})
    before = lake.snapshots()
    assert lake.purge().report(dry_run=True).tables[0].found == {"row-live": 1}
    with pytest.raises(UnsupportedTableError, match=message):
        lake.purge().run()
    assert lake.snapshots() == before


def test_a_file_without_ids_is_not_looked_into_once_columns_were_renamed(lake: Lake) -> None:
    lake.ours(1, ALICE)
    path = lake.kind.folder / "theirs.parquet"
    pq.write_table(pa.table({"id": [ALICE], "p": [0]}, schema=ROWS), path)
    lake.kind.read().add_files([f"file://{path}"])
    with lake.kind.read().update_schema() as edit:
        edit.rename_column("id", "ident")
    job = lake.purge(ident=ALICE)
    job.run()
    (table,) = job.report().tables
    assert table.rewritten_files == 1
    not_checked = next(each for each in table.left if each.kind is LeftoverKind.NOT_CHECKED)
    assert not_checked.path.endswith("theirs.parquet")


def test_a_delete_by_key_is_remembered_against_older_changes(lake: Lake) -> None:
    key = TableKey((1,), 2)
    lake.table.commit([DeclareKey(key)])
    lake.table.commit([Append((lake.kind.file([1, ALICE]),)), KeysResolved(key, Looked())])
    job = lake.purge()
    job.run()
    assert lake.kind.rows() == [1]
    (table,) = job.report().tables
    assert "key-in-tombstones" in left(table)


def test_a_quarantine_that_was_renamed_is_found_by_its_uuid(lake: Lake) -> None:
    second = create_in_catalog(
        lake.kind._catalog(Answers()), ("lake", "rejected"), LocalStore, Schema(*QUARANTINE_SCHEMA.fields),
        lake.table.head.metadata.specs()[0].__class__(), {}, environment=lake.kind._environment(),
    )  # fmt: skip
    uuid = str(second.head.metadata.table_uuid)
    lake.table.commit([NameSecondTable(catalog_address(("lake", "rejected")), uuid)])
    main_uuid = str(lake.table.head.metadata.table_uuid)
    fixed = {"row_id": "a", "quarantined_at": 0, "app_id": "app", "query_id": "q", "batch": 1, "check": "c"}
    rows = [{**fixed, "table_uuid": main_uuid, "row": f'{{"id": {each}}}'} for each in (1, ALICE)]
    second.commit([Append(tuple(write_rows(second, rows)))])
    lake.kind.beside().rename_table("lake.rejected", "lake.renamed")
    job = lake.purge()
    job.run()
    _, quarantine = job.report().tables
    assert (quarantine.role, quarantine.deleted_rows) == ("quarantine", 1)
    found = lake.kind.beside().load_table("lake.renamed").scan().to_arrow()
    assert found["row"].to_pylist() == ['{"id": 1}']


def test_other_writers_commits_between_look_and_commit_are_looked_at(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming_sink.removal import table_purge

    lake.ours(1, ALICE)
    real, late = table_purge.rewrite, [lambda: lake.theirs(ALICE, 5)]

    def rewrite(*given: Any) -> Any:
        if late:
            late.pop()()
        return real(*given)

    monkeypatch.setattr(table_purge, "rewrite", rewrite)
    lake.purge().run()
    assert lake.kind.rows() == [1, 5]


@pytest.mark.parametrize("name", ["part-00000", "x.parq", "X.PARQUET", "x-tombstones.parquet"])
def test_a_file_of_others_is_looked_into_by_any_name(lake: Lake, name: str) -> None:
    path = put(f"{lake.kind.store().location}/data/p=0/{name}", [ALICE, 8])
    lake.kind.read().add_files([f"file://{path}"])
    assert "gone-row-live" in {it.kind for it in check_gone(lake.place, GONE).findings}
    lake.purge().run()
    assert lake.kind.rows() == [8]


@pytest.mark.parametrize("ids", [[7, ALICE, 99], [ALICE, 8]])
def test_a_file_elsewhere_may_be_spelled_with_one_slash(lake: Lake, ids: list[int]) -> None:
    path = put(f"{lake.kind.folder}/elsewhere/y.parquet", ids)
    lake.kind.read().add_files([f"file:{path}"])
    lake.purge().run()
    assert lake.kind.rows() == [it for it in ids if it != ALICE]


def test_a_partition_column_that_is_only_in_the_path_is_not_taken_for_null(lake: Lake) -> None:
    path = Path(put(f"{lake.kind.store().location}/data/p=7/hive.parquet", [ALICE, 8], {"id"}))
    size = path.stat().st_size
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=f"file://{path}", file_format=FileFormat.PARQUET,
        partition=Record(7), record_count=2, file_size_in_bytes=size,
    )  # fmt: skip
    file.spec_id = 0
    with lake.kind.read().transaction() as edit, edit.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    job = lake.purge(id=ALICE, p=7)
    job.run()
    (table,) = job.report().tables
    assert left(table).keys() == {"not-checked"}
    assert lake.kind.rows() == [8, ALICE]


def put(path: str, ids: list[int], columns: Collection[str] = ("id", "p")) -> str:
    """Write a Parquet file as another engine does, and return its path on the disk."""
    path = path.removeprefix("file://")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids, "p": [0] * len(ids)}, schema=ROWS).select(sorted(columns)), path)
    return path
