"""Retention beside other engines: nothing of theirs leaves unasked (R32)."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import update as table_update
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AssertTableUUID, SetSnapshotRefUpdate

from streaming_sink.options.values.retention import Retention
from tests.unit.timeline.logs.kinds import NOT_LANDED, Answers, CatalogKind
from tests.unit.timeline.world import BY_P, SCHEMA
from timeline import properties
from timeline.catalogs import catalog_draft, catalog_version
from timeline.catalogs.catalog_log import CatalogLog
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.changes.purge_changes import AppendNothing
from timeline.errors import StoreUnavailableError, UnsupportedTableError
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.retention import grace, policy
from timeline.retention.expired import pending_notes
from timeline.retention.policy import snapshots_to_expire
from timeline.table import Committed, Table
from timeline.versions.past import SOURCE_SNAPSHOT_ID
from timeline.versions.work_items import STAGED_TAG_PREFIX

BRIEF = Retention(
    max_snapshot_age="1 minute", min_snapshots_to_keep=1, max_snapshots=5000, deletion_grace="1 minute"
)
ROWS = pa.schema([("id", pa.int64()), ("p", pa.int32())])


DISTANCE, EVERY = 6, 4
"""Of commits, in the place of 100 and 20."""


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogKind]:
    for module in (policy, grace):
        monkeypatch.setattr(module, "SAFE_DISTANCE", DISTANCE)
    monkeypatch.setattr(catalog_version, "MAINTAIN_EVERY", EVERY)
    made = CatalogKind(tmp_path)
    made.clock.now_ms = int(time.time() * 1000)  # pyiceberg's own commits have this machine's time
    yield made
    made.close()


# which snapshots, without a catalog ---------------------------------------------------------------


def snapshot(place: int, commit: str | None = None, parent: int | None = None, **stated: str) -> Snapshot:
    """Return a snapshot of this protocol's commit of that id, or of another engine."""
    ours = {} if commit is None else {properties.COMMIT_ID: commit}
    return Snapshot(
        snapshot_id=place,
        parent_snapshot_id=(place - 1 or None) if parent is None else parent,
        sequence_number=place,
        timestamp_ms=place,
        manifest_list="x",
        summary=Summary(Operation.APPEND, **ours, **stated),
    )


def expired(
    snapshots: Sequence[Snapshot], tags: Sequence[int] = (), prefix: str = "tag-", **bounds: str
) -> list[int]:
    pins = {
        f"{prefix}{each}": SnapshotRef(snapshot_id=each, snapshot_ref_type=SnapshotRefType.TAG)
        for each in tags
    }
    main = next(s.snapshot_id for s in reversed(snapshots) if s.snapshot_id < 10_000)
    refs = {"main": SnapshotRef(snapshot_id=main, snapshot_ref_type=SnapshotRefType.BRANCH), **pins}
    given = {properties.MAX_SNAPSHOT_AGE_MS: "100", properties.MIN_SNAPSHOTS_TO_KEEP: "1", **bounds}
    return sorted(snapshots_to_expire(snapshots, refs, given, 999_999, 10**9).snapshot_ids)


def ours(first: int, last: int) -> list[Snapshot]:
    return [snapshot(place, f"commit-{place}") for place in range(first, last + 1)]


def theirs(first: int, last: int, **stated: str) -> list[Snapshot]:
    return [snapshot(place, **stated) for place in range(first, last + 1)]


def test_a_run_of_more_than_two_hundred_of_theirs_leaves_in_several_commits() -> None:
    """As one group it stopped all expiry for good."""
    assert expired([*theirs(1, 450), *ours(451, 600)]) == list(range(1, 201))


def test_the_safe_distance_holds_for_theirs_and_is_one_of_commits() -> None:
    assert expired([*theirs(1, 150), *ours(151, 170)]) == list(range(1, 71))
    assert expired(theirs(1, 100)) == []
    pairs = [snapshot(place, f"commit-{(place + 1) // 2}") for place in range(1, 203)]
    assert expired(pairs) == [1, 2], "a hundred and one commits of two snapshots each"


def test_the_newest_snapshot_with_an_engines_memory_stays_with_all_after_it() -> None:
    """The engine walks main to find it: where one in between were missing, it would not get there."""
    for key in (
        "flink.max-committed-checkpoint-id",
        "kafka.connect.offsets.a",
        "spark.sql.streaming.queryId",
    ):
        history = [*theirs(1, 20, **{key: "1"}), *ours(21, 200)]
        assert expired(history) == list(range(1, 20)), key
    both = [
        snapshot(1, **{"flink.job-id": "a"}),
        snapshot(2, **{"kafka.connect.commit-id": "b"}),
        *ours(3, 200),
    ]
    assert expired(both) == []


def test_what_this_sink_writes_of_sparks_epochs_keeps_nothing() -> None:
    epochs = [snapshot(place, f"c{place}", **{"spark.sql.streaming.epochId": "1"}) for place in range(1, 151)]
    assert expired(epochs) == list(range(1, 51))


def test_what_others_have_beside_main_stays_and_stops_nothing() -> None:
    staged = [snapshot(10_000 + place, parent=3, **{"wap.id": str(place)}) for place in range(250)]
    assert expired([*theirs(1, 5), *staged, *ours(6, 150)]) == list(range(1, 51))


def test_what_a_tag_pins_stays() -> None:
    assert expired([*theirs(1, 5), *ours(6, 105)], [2, 4]) == [1, 3, 5]


def test_a_cherry_pick_of_what_is_still_staged_stays_and_all_after_it() -> None:
    """By it alone a worker sees that the item has landed, once its files were compacted."""
    picked = snapshot(4, **{SOURCE_SNAPSHOT_ID: "10000"})
    history = [*theirs(1, 3), picked, *ours(5, 150), snapshot(10_000, parent=3)]
    assert expired(history, [10_000], STAGED_TAG_PREFIX) == [1, 2, 3]
    assert expired(history, [10_000]) == list(range(1, 51)), "the tag is none of a staged item"


# in a catalog -------------------------------------------------------------------------------------


def their_table(kind: CatalogKind) -> Table:
    """Another engine makes a table, and this sink opens it."""
    kind._catalog(Answers()).create_table(("lake", "table"), SCHEMA, partition_spec=BY_P)
    return kind.open()


def they_append(kind: CatalogKind, *rows: int, **stated: str) -> None:
    table = pa.table({"id": list(rows), "p": [0] * len(rows)}, schema=ROWS)
    kind.read().append(table, snapshot_properties=stated)


def commits(kind: CatalogKind, table: Table, count: int, *first: Any) -> list[Committed]:
    """Commit appends without a row, a minute apart."""
    done = []
    for _ in range(count):
        kind.clock.now_ms += 60_000
        committed = table.commit([*first, AppendNothing()])
        first = ()
        assert isinstance(committed, Committed)
        done.append(committed)
    return done


def asked(table: Table) -> SetProperties:
    (change,) = BRIEF.changes(table.head.properties)
    return change


def count(kind: CatalogKind) -> int:
    return len(kind.read().snapshots())


def test_in_a_table_of_theirs_nothing_expires_until_retention_is_asked_for(kind: CatalogKind) -> None:
    table = their_table(kind)
    for row in range(5):
        they_append(kind, row)
    kind.clock.now_ms += 9 * 24 * 3600 * 1000
    done = commits(kind, table, 20)
    assert count(kind) == 25
    with pytest.raises(UnsupportedTableError, match="unasked"):
        expire_snapshots(table)
    assert {each.expired_snapshots for each in done} == {0}
    assert not pending_notes(kind.store(), table.head.version.owner)
    commits(kind, table, 2 * EVERY, asked(table))
    assert count(kind) < DISTANCE + EVERY
    assert kind.rows() == list(range(5))


def test_a_call_that_says_how_long_is_asked(kind: CatalogKind) -> None:
    table = their_table(kind)
    for row in range(5):
        they_append(kind, row)
    commits(kind, table, DISTANCE)
    given: dict[str, Any] = {"max_snapshot_age": timedelta(0), "min_snapshots_to_keep": 1}
    assert expire_snapshots(table, **given, dry_run=True).expired_snapshots == 5
    assert count(kind) == 5 + DISTANCE
    assert expire_snapshots(table, **given).expired_snapshots == 6
    assert kind.rows() == list(range(5))


def test_a_table_that_this_sink_made_expires_by_its_defaults_at_every_twentieth_commit(
    kind: CatalogKind,
) -> None:
    table = kind.create(table_properties={properties.MIN_SNAPSHOTS_TO_KEEP: "1"})
    table.commit([Append((kind.file([1]),))])
    done = commits(kind, table, 20)
    assert {each.expired_snapshots for each in done} == {0}, "they are younger than a day"
    kind.clock.now_ms += 2 * 24 * 3600 * 1000
    done = commits(kind, table, 3 * EVERY)
    expiring = [place for place, each in enumerate(done) if each.expired_snapshots]
    assert [later - before for before, later in itertools.pairwise(expiring)] == [EVERY]
    assert kind.rows() == [1]


def test_a_due_expiry_is_counted_in_commits_of_anyone_though_numbers_have_gaps(kind: CatalogKind) -> None:
    """By `number % 20` commits of two snapshots expire at one of a hundred, or at none of a thousand."""
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    expired_at = []
    for row in range(8 * EVERY):
        kind.clock.now_ms += 60_000
        if row % EVERY == 1:
            they_append(kind, 1000 + row)
        new = kind.file([row])
        merging = Replace(frozenset({new.file_path}), (kind.file([row]),))
        committed = table.commit([Append((new,)), merging])
        assert isinstance(committed, Committed)
        if committed.expired_snapshots:
            expired_at.append(row)
    # One of four commits is theirs, and each of ours has two snapshots.
    assert {later - before for before, later in itertools.pairwise(expired_at)} == {EVERY}
    assert count(kind) < 2 * (DISTANCE + 2 * EVERY)


def test_a_tag_that_was_set_since_the_last_commit_keeps_its_snapshot(kind: CatalogKind) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    table.commit([Append((kind.file([1]),))])
    first = kind.read().snapshots()[0].snapshot_id
    commits(kind, table, 2 * EVERY - 2)
    assert table.head.version.expires_next
    assert first in {it.snapshot_id for it in kind.read().snapshots()}
    they_tag(kind, "keep", first)
    (committed,) = commits(kind, table, 1)
    assert committed.expired_snapshots > 0, "its neighbours have left"
    assert kind.rows(first) == [1]
    assert "keep" in kind.read().metadata.refs


def test_a_tag_that_comes_between_two_sends_of_a_commit_that_expires_stays(kind: CatalogKind) -> None:
    """The commit is sent again, and moves the same main: nothing else would keep the snapshot."""
    answers = Answers()
    table = kind.create(answers, table_properties=dict(BRIEF.table_properties))
    commits(kind, table, DISTANCE + 2 * EVERY)
    oldest = kind.read().snapshots()[0].snapshot_id
    while not table.head.version.expires_next:
        commits(kind, table, 1)
    answers += [NOT_LANDED, lambda: they_tag(kind, "keep", oldest)]
    (done,) = commits(kind, table, 1)
    assert (done.attempts, done.expired_snapshots) == (1, 0)
    assert kind.read().metadata.refs["keep"].snapshot_id == oldest
    assert kind.read().snapshot_by_id(oldest) is not None


def they_tag(kind: CatalogKind, name: str, snapshot_id: int, type_: str = "tag") -> None:
    read = kind.read()
    update = SetSnapshotRefUpdate(ref_name=name, type=type_, snapshot_id=snapshot_id)
    read.catalog.commit_table(read, (AssertTableUUID(uuid=read.metadata.table_uuid),), (update,))


# deletion -----------------------------------------------------------------------------------------


def merge(kind: CatalogKind, table: Table, *rows: int) -> tuple[str, str]:
    """Append a file and replace it, in two commits; return the paths of both."""
    small, merged = kind.file(list(rows)), kind.file(list(rows))
    kind.clock.now_ms += 60_000
    table.commit([Append((small,))])
    kind.clock.now_ms += 60_000
    table.commit([Replace(frozenset({small.file_path}), (merged,))])
    return small.file_path, merged.file_path


def test_what_expired_snapshots_leave_is_deleted_after_the_distance_and_the_grace(kind: CatalogKind) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    small, merged = merge(kind, table, 1)
    done = commits(kind, table, DISTANCE + EVERY)
    assert sum(each.expired_snapshots for each in done) > 2
    assert Path(small).exists(), "its grace has not passed"
    done = commits(kind, table, DISTANCE + EVERY)
    assert not Path(small).exists()
    assert Path(merged).exists()
    assert kind.rows() == [1]
    assert small in {kind.store().uri(file.path) for each in done for file in each.deleted.files}


def test_beside_others_what_no_snapshot_reaches_is_deleted_and_only_names_of_ours(kind: CatalogKind) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    small, merged = merge(kind, table, 1)
    they_append(kind, 2)
    mine = kind.open().head
    foreign = {file.location for file in mine.live_files()} - {merged}
    theirs_replaced = kind.file([2])
    table.refresh()
    table.commit([Replace(frozenset(foreign), (theirs_replaced,))])
    commits(kind, table, 5 * DISTANCE)
    assert not Path(small).exists()
    assert all(Path(each.removeprefix("file://")).exists() for each in foreign), "theirs to delete"
    assert kind.rows() == [1, 2]


@pytest.mark.parametrize("tagged", [False, True])
def test_a_file_that_came_back_with_a_rollback_stays(kind: CatalogKind, tagged: bool) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    merge(kind, table, 1)
    first = kind.read().snapshots()[0].snapshot_id
    if tagged:
        they_tag(kind, "keep", first)
    commits(kind, table, 3)
    they_tag(kind, "main", first, "branch")
    table.refresh()
    commits(kind, table, 8 * DISTANCE)
    assert kind.rows() == [1]
    left = pending_notes(kind.store(), table.head.version.owner)
    assert all(each.version > table.head.number - 4 * DISTANCE for each in left)


def test_a_file_that_others_have_added_once_more_stays(kind: CatalogKind) -> None:
    """By main's own lists it has left. It is live again, and was deleted under the table."""
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    small, _ = merge(kind, table, 1)
    commits(kind, table, DISTANCE + EVERY)
    assert Path(small).exists()
    kind.read().add_files([f"file://{small}"])
    table.refresh()
    commits(kind, table, 8 * DISTANCE)
    assert kind.rows() == [1, 1]


def test_a_manifest_that_another_engine_has_deleted_of_an_expired_snapshot_is_no_damage(
    kind: CatalogKind,
) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    merge(kind, table, 1)
    they_append(kind, 2)
    table.refresh()
    first = kind.read().snapshots()[0]
    gone = [it.manifest_path for it in table.head.manifest_files.read_list(first.manifest_list)]
    commits(kind, table, DISTANCE + EVERY)
    for path in gone:
        Path(path).unlink()
    fresh = kind.open()
    commits(kind, fresh, 6 * DISTANCE)
    assert kind.rows() == [1, 2]
    left = pending_notes(kind.store(), fresh.head.version.owner)
    assert all(each.version > fresh.head.number - 4 * DISTANCE for each in left)


# where nothing may be deleted ---------------------------------------------------------------------


def test_a_catalog_whose_clients_delete_nothing_keeps_all_and_expires_nothing(kind: CatalogKind) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    log = table.log
    assert isinstance(log, CatalogLog)
    table = Table.open_in(replace(log, keeps_files="it says so"))
    merge(kind, table, 1)
    commits(kind, table, 20)
    assert count(kind) == 22
    for refused in (expire_snapshots, remove_orphan_files):
        with pytest.raises(UnsupportedTableError, match="it says so"):
            refused(table)


def test_a_table_that_says_that_nothing_is_deleted_keeps_all(kind: CatalogKind) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    with kind.read().transaction() as edit:
        edit.set_properties({"gc.enabled": "false"})
    table.refresh()
    commits(kind, table, 20)
    assert count(kind) == 20
    with pytest.raises(UnsupportedTableError, match=r"gc\.enabled=false"):
        expire_snapshots(table)


def test_a_store_that_refuses_to_list_is_told_of_once_and_no_snapshot_leaves(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))

    def refuse(*_: Any) -> Any:
        raise StoreUnavailableError("listing is not allowed")

    monkeypatch.setattr(catalog_draft, "pending_notes", refuse)
    with caplog.at_level(logging.WARNING):
        commits(kind, table, 20)
    assert count(kind) == 20
    assert caplog.text.count("listing is not allowed") == 1


def test_a_bound_that_another_engine_has_spoiled_stops_no_commit(kind: CatalogKind) -> None:
    table = kind.create(table_properties=dict(BRIEF.table_properties))
    with kind.read().transaction() as edit:
        edit.set_properties({properties.MAX_SNAPSHOT_AGE_MS: "a day"})
    table.refresh()
    commits(kind, table, 20)
    assert count(kind) == 20


# orphans ------------------------------------------------------------------------------------------


def test_orphans_of_ours_go_behind_the_fence_and_files_of_others_stay(kind: CatalogKind) -> None:
    table = their_table(kind)
    they_append(kind, 1)
    table.refresh()
    table.commit([Append((kind.file([2]),))])
    orphan = kind.file([3])
    foreign = kind.store().uri("data/p=0/00000-0-1234.parquet")
    Path(foreign).write_bytes(b"x")
    kind.clock.now_ms += 4 * 24 * 3600 * 1000
    table.commit([SetProperties({"a": "b"})])
    report = remove_orphan_files(table)
    assert [kind.store().uri(file.path) for file in report.files] == [orphan.file_path]
    assert not Path(orphan.file_path).exists()
    assert Path(foreign).exists()
    assert kind.rows() == [1, 2]
    with pytest.raises(Exception, match="cutoff"):
        table.commit([Append((orphan,))])


HOUR_MS = 3_600_000


def test_an_engine_whose_clock_is_slow_ends_no_grace(kind: CatalogKind) -> None:
    """It sets the table's time back, so that our own commits seem to be of a later time."""
    kind.clock.now_ms += 4 * HOUR_MS
    retention = {**BRIEF.table_properties, properties.DELETION_GRACE_MS: str(HOUR_MS)}
    table = kind.create(table_properties=retention)
    small, _ = merge(kind, table, 1)
    commits(kind, table, 2 * DISTANCE + EVERY + 1)
    assert pending_notes(kind.store(), table.head.version.owner)
    they_append(kind, 5)
    assert kind.open().delete_expired().files == ()
    assert Path(small.removeprefix("file://")).exists()


def test_a_note_of_a_commit_that_another_engine_has_rolled_back_keeps_its_grace(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It landed, and what it expired has readers: the orphan cleaner has to know."""
    monkeypatch.setattr(table_update, "datetime_to_millis", lambda *_: kind.clock.now_ms)
    retention = {**BRIEF.table_properties, properties.DELETION_GRACE_MS: str(10 * HOUR_MS)}
    table = kind.create(table_properties=retention)
    small, _ = merge(kind, table, 1)
    commits(kind, table, 2)
    kind.clock.now_ms += 15 * 24 * HOUR_MS
    while not (expiring := commits(kind, table, 1)[0]).expired_snapshots:
        pass
    before = [it for it in kind.read().snapshots() if (it.sequence_number or 0) < expiring.version][-1]
    they_tag(kind, "main", before.snapshot_id, "branch")
    kind.clock.now_ms += 60_000
    table = kind.open()
    table.delete_expired()
    assert pending_notes(kind.store(), table.head.version.owner)
    assert remove_orphan_files(table).files == ()
    assert Path(small.removeprefix("file://")).exists()
