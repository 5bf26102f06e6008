"""A table that was dropped: nobody writes to it, and none of its rows are in what is made in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.timeline.cleaning import BRIEF
from tests.unit.timeline.logs.kinds import NOT_LANDED, Answers, CatalogKind, VersionFilesKind
from tests.unit.timeline.outboxes import Pair
from timeline.catalogs.catalog_log import CatalogLog
from timeline.catalogs.dropping import drop_from_catalog
from timeline.changes.changes import Append, SetProperties
from timeline.changes.drop_changes import Drop
from timeline.changes.outbox_changes import RegisterMain
from timeline.diagnosis import doctor
from timeline.dropping import drop_table
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    TableDroppedError,
    TableNotFoundError,
    UnknownFeatureError,
)
from timeline.features import KNOWN_FEATURES
from timeline.maintenance.orphans import remove_orphan_files
from timeline.table import Committed, Table
from timeline.versions.outbox import mains_of
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem, published_items


@pytest.fixture
def kind(tmp_path: Path) -> VersionFilesKind:
    return VersionFilesKind(tmp_path)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


def drop(kind: VersionFilesKind) -> int:
    return drop_table(kind.store(), _opens_nothing, kind.clock.environment(77))


def _opens_nothing(address: str) -> Table:
    raise TableNotFoundError(address)


def append(table: Table, kind: VersionFilesKind | CatalogKind, *rows: int) -> None:
    table.commit([Append((kind.file(list(rows)),))])


def test_a_last_version_says_it_and_readers_see_no_row(kind: VersionFilesKind) -> None:
    table = kind.create()
    append(table, kind, 1)
    uuid = table.head.metadata.table_uuid
    assert drop(kind) == table.head.number + 1
    assert kind.rows() == []
    assert kind.read().metadata.table_uuid == uuid
    for open_it in (kind.open, table.refresh, lambda: table.commit([Append((kind.file([2]),))])):
        with pytest.raises(TableDroppedError, match="dropped, by version 3; nothing was written"):
            open_it()
    assert drop(kind) == 3, "once more, which completes it"


def test_a_table_that_is_made_again_follows_it_and_has_none_of_its_rows(kind: VersionFilesKind) -> None:
    table = kind.create()
    append(table, kind, 1)
    late = kind.file([2])
    drop(kind)
    kind.clock.now_ms -= 3_600_000  # the clock of who makes it again is behind
    again = kind.create()
    assert again.head.number == 4
    assert again.head.metadata.last_updated_ms > table.head.metadata.last_updated_ms
    assert again.head.metadata.table_uuid != table.head.metadata.table_uuid
    append(again, kind, 5)
    with pytest.raises((CommitConflictError, CommitStateUnknownError), match="dropped and created again"):
        table.commit([Append((late,))])
    assert kind.rows() == [5]
    assert {it.kind for it in doctor(kind.store()).findings} == {"orphans"}
    assert kind.create().head.metadata.table_uuid == again.head.metadata.table_uuid, "it is opened"


def test_a_commit_that_is_under_way_is_refused_by_the_drop_and_nothing_of_it_is_live(
    kind: VersionFilesKind,
) -> None:
    table = kind.create()
    kind.answers.append(lambda: drop(kind))
    with pytest.raises(TableDroppedError):
        append(table, kind, 1)


def test_a_commit_before_the_drop_whose_answer_was_lost_was_dropped_with_the_table(
    kind: VersionFilesKind,
) -> None:
    table = kind.create()
    append(table, kind, 1)
    stale = kind.file([2])
    kind.answers.append(NOT_LANDED)
    kind.answers.append(lambda: (drop(kind), kind.create(Answers())))
    with pytest.raises((CommitStateUnknownError, CommitConflictError), match="dropped and created again"):
        table.commit([Append((stale,))])
    assert kind.rows() == []


def test_a_batch_that_comes_again_lands_in_the_new_table_as_its_first(kind: VersionFilesKind) -> None:
    """What the new table knows of its batches is its own: it has none of the rows of the dropped one."""
    table, batch = kind.create(), Transaction("app", "query", "run", 7)
    table.commit([Append((kind.file([1]),))], transaction=batch)
    drop(kind)
    again = kind.create()
    assert isinstance(again.commit([Append((kind.file([2]),))], transaction=batch), Committed)
    assert kind.rows() == [2]


def test_a_work_item_that_has_landed_lands_in_no_table_that_is_made_again(kind: VersionFilesKind) -> None:
    item = WorkItem("ingest-zone", 3)
    kind.create().commit([Append((kind.file([1]),))], transaction=item)
    drop(kind)
    again = kind.create()
    assert 3 in published_items(again.head.properties, "ingest-zone")
    assert not isinstance(again.commit([Append((kind.file([1]),))], transaction=item), Committed)


def test_an_older_release_neither_goes_on_nor_begins_anew(
    kind: VersionFilesKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kind.create()
    drop(kind)
    monkeypatch.setattr("timeline.features.KNOWN_FEATURES", KNOWN_FEATURES - {"dropped"})
    monkeypatch.setattr("timeline.commit.conflicts.check_not_dropped", lambda head: None)
    with pytest.raises(UnknownFeatureError, match="'dropped'"):
        append(table, kind, 1)


def test_files_of_the_dropped_table_are_orphans_of_the_new_one(kind: VersionFilesKind) -> None:
    table = kind.create(table_properties=BRIEF)
    old = kind.file([1])
    table.commit([Append((old,))])
    drop(kind)
    again = kind.create()
    new = kind.file([2])
    again.commit([Append((new,))])
    kind.clock.now_ms += 5 * 24 * 3_600_000
    again.commit([SetProperties({"a": "b"})])
    remove_orphan_files(again)
    assert not Path(old.file_path).exists()
    assert Path(new.file_path).exists()
    assert kind.rows() == [2]


def test_a_drop_is_a_commit_of_its_own(kind: VersionFilesKind) -> None:
    with pytest.raises(ValueError, match="a drop is a commit of its own"):
        kind.create().commit([Drop(), SetProperties({"a": "b"})])


def test_there_is_nothing_to_drop(kind: VersionFilesKind) -> None:
    with pytest.raises(TableNotFoundError, match="there is no table"):
        drop(kind)


def test_what_waits_for_a_second_table_is_delivered_and_the_second_table_forgets_it() -> None:
    pair = Pair()
    writer = pair.writer()
    bad = pair.bad_file()
    writer.commit(0, bad)
    uuid = str(pair.main.table.head.metadata.table_uuid)
    assert pair.second_rows().total() == 0
    drop_table(pair.main.open().store, pair.open_table, pair.clock.environment(5))
    assert pair.second_rows().total() == bad.record_count
    assert mains_of(pair.second.open().head.properties)[uuid] is None
    with pytest.raises(CommitConflictError):
        pair.second.open().commit([RegisterMain(uuid, "memory://x")])


def test_in_a_catalog_the_table_is_dropped_without_its_files(catalog: CatalogKind) -> None:
    table = catalog.create()
    append(table, catalog, 1)
    log, uuid = table.log, table.head.metadata.table_uuid
    assert isinstance(log, CatalogLog)
    (file,) = table.head.live_files()
    drop_from_catalog(log, uuid)
    assert Path(file.location).exists()
    with pytest.raises(TableNotFoundError):
        catalog.open()
    with pytest.raises((TableNotFoundError, CommitStateUnknownError)):
        append(table, catalog, 2)
    again = catalog.create()
    drop_from_catalog(log, uuid)  # of a call that comes late
    assert catalog.open().head.metadata.table_uuid == again.head.metadata.table_uuid
    with pytest.raises((CommitConflictError, CommitStateUnknownError)):
        append(table, catalog, 2)
    assert catalog.rows() == []
