"""Rollback, tags and branches, on version files and in a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation

from tests.unit.timeline.cleaning import BRIEF, Shore
from tests.unit.timeline.logs.kinds import CatalogKind, Kind, VersionFilesKind
from timeline import properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.changes.ref_changes import Rollback, Tag
from timeline.diagnosis import doctor
from timeline.errors import CommitConflictError
from timeline.features import required_features
from timeline.refs import roll_back, set_branch, set_tag
from timeline.table import AlreadyCommitted, Table
from timeline.versions.transactions import Transaction


@pytest.fixture(params=["version files", "catalog"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = VersionFilesKind(tmp_path) if request.param == "version files" else CatalogKind(tmp_path)
    yield made
    if isinstance(made, CatalogKind):
        made.close()


def land(table: Table, kind: Kind, *rows: int) -> int:
    """Append a file of each row, a version each; return the last."""
    for row in rows:
        kind.clock.now_ms += 1000
        table.commit([Append((kind.file([row]),))], transaction=Transaction("app", "query", "run", row))
    return table.head.number


def test_a_rollback_is_a_new_snapshot_with_the_old_content(kind: Kind) -> None:
    table = kind.create()
    at = land(table, kind, 1, 2)
    land(table, kind, 3, 4)
    before = [it.snapshot_id for it in table.head.main_snapshots()]
    done = roll_back(table, at)
    assert kind.rows() == [1, 2]
    snapshots = [it.snapshot_id for it in table.head.main_snapshots()]
    assert snapshots[1:] == before, "main still grows"
    assert done.left == tuple(before[:2])
    assert (done.version, done.to_version) == (table.head.number, at)
    newest = table.head.snapshot
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary.operation == Operation.DELETE
    assert newest.summary.additional_properties["deleted-records"] == "2"
    assert newest.summary.additional_properties["total-records"] == "2"


def test_it_can_be_taken_back_by_another_one(kind: Kind) -> None:
    table = kind.create()
    at = land(table, kind, 1)
    then = land(table, kind, 2, 3)
    roll_back(table, at)
    assert kind.rows() == [1]
    roll_back(table, then)
    assert kind.rows() == [1, 2, 3]
    assert kind.open().head.properties[properties.ROLLED_BACK] == str(
        table.head.metadata.last_sequence_number
    )


def test_files_that_were_merged_are_live_again_with_their_age(kind: Kind) -> None:
    table = kind.create()
    small = [kind.file([row]) for row in (1, 2)]
    table.commit([Append(tuple(small))])
    at, ages = table.head.number, {it.location: it.sequence_number for it in table.head.live_files()}
    table.commit([Replace(frozenset(it.file_path for it in small), (kind.file([1, 2]),))])
    land(table, kind, 3)
    roll_back(table, at)
    assert kind.rows() == [1, 2]
    fresh = kind.open().head
    assert {it.location: it.sequence_number for it in fresh.live_files()} == ages


def test_batches_that_were_committed_are_not_written_again(kind: Kind) -> None:
    table = kind.create()
    at = land(table, kind, 1)
    land(table, kind, 2)
    roll_back(table, at)
    again = Transaction("app", "query", "other run", 2)
    assert isinstance(kind.open().commit([Append((kind.file([2]),))], transaction=again), AlreadyCommitted)
    assert kind.rows() == [1]
    land(table, kind, 3)
    assert kind.rows() == [1, 3]


def test_what_others_add_meanwhile_leaves_too(kind: Kind) -> None:
    table = kind.create()
    at = land(table, kind, 1, 2)
    land(table, kind, 3)
    other = kind.open()
    kind.answers.append(lambda: other.commit([Append((kind.file([4]),))]))
    roll_back(table, at)
    assert kind.rows() == [1, 2]


def test_a_rollback_to_what_has_expired_is_refused(kind: Kind) -> None:
    table = kind.create()
    land(table, kind, 1, 2)
    with pytest.raises(CommitConflictError, match="has expired"):
        table.commit([Rollback(77)])
    for number in (0, 99):
        with pytest.raises(ValueError, match="the history has the versions"):
            roll_back(table, number or kind.created - 1)
    with pytest.raises(ValueError, match="already"):
        roll_back(table, table.head.number)
    with pytest.raises(ValueError, match="commit of its own"):
        table.commit([Rollback(1), SetProperties({})])
    assert kind.rows() == [1, 2]


def test_a_table_without_rows_has_nothing_to_name(kind: Kind) -> None:
    table = kind.create()
    with pytest.raises(ValueError, match="the table has no snapshot yet"):
        set_tag(table, "release")


def test_writers_must_know_that_files_come_back(kind: Kind) -> None:
    table = kind.create()
    at = land(table, kind, 1)
    land(table, kind, 2)
    roll_back(table, at)
    assert "rollback" in required_features(kind.open().head.properties)


def test_a_tag_and_a_branch_name_a_snapshot(kind: Kind) -> None:
    table = kind.create()
    at = land(table, kind, 1)
    land(table, kind, 2)
    tagged, begun = set_tag(table, "before", at), set_branch(table, "try")
    refs = kind.read().metadata.refs
    assert refs["before"].snapshot_ref_type == SnapshotRefType.TAG
    assert refs["try"].snapshot_ref_type == SnapshotRefType.BRANCH
    assert kind.rows(tagged) == [1]
    assert kind.rows(begun) == [1, 2]
    assert kind.rows() == [1, 2]


def test_a_name_that_is_taken_is_refused(kind: Kind) -> None:
    table = kind.create()
    at = land(table, kind, 1)
    land(table, kind, 2)
    set_tag(table, "before", at)
    with pytest.raises(CommitConflictError, match="use another name"):
        set_tag(table, "before")
    with pytest.raises(CommitConflictError, match="use another name"):
        set_branch(table, "before", at)
    versions = table.refresh().number
    assert set_tag(table, "before", at) == table.head.metadata.refs["before"].snapshot_id
    assert table.refresh().number == versions  # it has the name already
    for name in ("main", " ", "wap-app-1", "followed-a-log"):
        with pytest.raises(ValueError, match="name of its own"):
            table.commit([Tag(name, 1)])


def test_a_tag_keeps_its_snapshot() -> None:
    shore = Shore()
    for _ in range(5):
        shore.fill()
    tagged = set_tag(shore.table, "keep", 4)
    shore.pass_versions(260)
    assert tagged in {it.snapshot_id for it in shore.table.head.metadata.snapshots}
    shore.check_nothing_is_missing()
    assert shore.leftover() == set()


@pytest.mark.parametrize("later", [0, 30])
def test_files_that_a_rollback_brings_back_are_not_deleted(later: int) -> None:
    """They have left main once, and R7's short way deletes what has: within 420 commits."""
    shore = Shore({**BRIEF, properties.MANIFEST_MIN_MERGE_COUNT: "8"})
    for _ in range(6):
        shore.fill()
    at = shore.table.head.number
    for _ in range(6):
        shore.fill()
    shore.pass_versions(later)
    roll_back(shore.table, at)
    live = {it.location for it in shore.open().head.live_files()}
    found = {it.kind for it in doctor(shore.objects, probe=False).findings}
    assert found <= {"orphans", "file-size-differs"}, "the files of a shore have ten bytes each"
    for _ in range(21):
        shore.append()
        shore.pass_versions(19)
    shore.check_nothing_is_missing()
    assert live <= {it.location for it in shore.open().head.live_files()}
    assert shore.leftover() == set(), "nothing of it is left to the orphan cleaner"
