"""Tags and branches are removed as they were seen, on version files and in a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.logs.kinds import LANDED, NOT_LANDED, CatalogKind, Kind, LandedThen, VersionFilesKind
from tests.unit.timeline.world import DAY_MS, Lake
from timeline import staging
from timeline.changes.changes import Append, ExpireSnapshots, SetProperties
from timeline.changes.ref_changes import RemoveRef
from timeline.diagnosis import doctor
from timeline.errors import CommitConflictError
from timeline.maintenance.orphans import remove_orphan_files
from timeline.refs import remove_ref, set_branch, set_tag
from timeline.retention import policy
from timeline.retention.policy import MAINTAIN_EVERY
from timeline.table import Committed, Table
from timeline.versions.work_items import WorkItem

TAG, BRANCH = SnapshotRefType.TAG, SnapshotRefType.BRANCH
ITEM = WorkItem("a-zone", 7)
each_ref = pytest.mark.parametrize("ref", [TAG, BRANCH])


@pytest.fixture(params=["version files", "catalog"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = VersionFilesKind(tmp_path) if request.param == "version files" else CatalogKind(tmp_path)
    yield made
    if isinstance(made, CatalogKind):
        made.close()


def named(kind: Kind, ref: SnapshotRefType) -> tuple[Table, int]:
    """A table of two versions, of which "old" names the first one; and its snapshot."""
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    at = table.head.number
    table.commit([Append((kind.file([2]),))])
    set_name = set_tag if ref is TAG else set_branch
    return table, set_name(table, "old", at)


def refs(kind: Kind) -> dict[str, int]:
    """The refs beside main, as pyiceberg reads them."""
    return {name: ref.snapshot_id for name, ref in kind.read().metadata.refs.items() if name != "main"}


def move(kind: Kind, ref: SnapshotRefType = TAG) -> int:
    """Another writer lets "old" name the newest version."""
    other = kind.open()
    remove_ref(other, "old", ref)
    return (set_tag if ref is TAG else set_branch)(other, "old")


@each_ref
def test_a_name_is_removed_and_all_else_stays(kind: Kind, ref: SnapshotRefType) -> None:
    table, snapshot_id = named(kind, ref)
    set_tag(table, "kept")
    before = {it.snapshot_id for it in table.head.metadata.snapshots}
    assert remove_ref(table, "old", ref) == snapshot_id
    assert refs(kind).keys() == {"kept"}
    assert kind.rows() == [1, 2]
    assert kind.rows(snapshot_id) == [1]
    assert before <= {it.snapshot_id for it in kind.read().metadata.snapshots}
    set_tag(table, "old")
    assert kind.read().metadata.refs["old"].snapshot_ref_type == TAG, "the name is free"


@each_ref
def test_main_is_never_removed(kind: Kind, ref: SnapshotRefType) -> None:
    with pytest.raises(ValueError, match="never removed"):
        remove_ref(kind.create(), "main", ref)
    table, _ = named(kind, BRANCH)
    with pytest.raises(ValueError, match="never removed"):
        remove_ref(table, "main", ref)
    with pytest.raises(ValueError, match="never removed"):
        table.commit([RemoveRef("main", table.head.metadata.refs["main"].snapshot_id, BRANCH)])
    assert kind.open().head.number == table.head.number
    assert kind.rows() == [1, 2]


def test_a_name_that_is_not_there_is_refused_with_those_that_are(kind: Kind) -> None:
    table = kind.create()
    with pytest.raises(ValueError, match=r"no tag 'new', but neither tags nor branches beside main"):
        remove_ref(table, "new", TAG)
    table, _ = named(kind, TAG)
    set_branch(table, "try")
    number = table.head.number
    with pytest.raises(ValueError, match=r"no tag 'new', but tag 'old', branch 'try'; nothing was changed"):
        remove_ref(table, "new", TAG)
    with pytest.raises(ValueError, match="no branch 'old', but tag 'old'"):
        remove_ref(table, "old", BRANCH)
    assert kind.open().head.number == number
    for each in range(30):
        set_tag(table, f"t{each:02}")
    with pytest.raises(ValueError, match="tag 't18', 12 more; nothing"):
        remove_ref(table, "new", TAG)


@pytest.mark.parametrize("answer", [LANDED, NOT_LANDED])
@each_ref
def test_an_answer_that_is_lost_is_settled(kind: Kind, ref: SnapshotRefType, answer: str) -> None:
    table, _ = named(kind, ref)
    kind.answers.append(answer)
    remove_ref(table, "old", ref)
    assert refs(kind) == {}
    with pytest.raises(ValueError, match=f"no {ref} 'old'"):
        remove_ref(table, "old", ref)


def test_an_answer_that_is_lost_is_settled_though_others_have_set_the_name_since(kind: Kind) -> None:
    table, _ = named(kind, TAG)
    kind.answers.append(LandedThen(lambda: set_tag(kind.open(), "old")))
    remove_ref(table, "old", TAG)
    assert kind.rows(refs(kind)["old"]) == [1, 2], "theirs"


@each_ref
def test_a_name_that_others_have_moved_meanwhile_stays(kind: Kind, ref: SnapshotRefType) -> None:
    table, snapshot_id = named(kind, ref)
    kind.answers.append(lambda: move(kind, ref))
    with pytest.raises(CommitConflictError, match=f"was of snapshot {snapshot_id}, and is a {ref} of"):
        remove_ref(table, "old", ref)
    assert refs(kind)["old"] != snapshot_id


def test_a_tag_that_another_engine_moves_beside_main_meanwhile_stays(tmp_path: Path) -> None:
    """No sequence number and no main says so: the commit requires the tag as it was seen."""
    kind = CatalogKind(tmp_path)
    table, _ = named(kind, TAG)
    newest = next(table.head.main_snapshots()).snapshot_id

    def another() -> None:
        kind.read().manage_snapshots().create_tag(newest, "old").commit()

    kind.answers.append(another)
    with pytest.raises(CommitConflictError, match="was of snapshot"):
        remove_ref(table, "old", TAG)
    assert refs(kind) == {"old": newest}
    remove_ref(table, "old", TAG)
    assert refs(kind) == {}
    assert kind.rows() == [1, 2]
    kind.close()


def test_a_name_that_others_have_made_a_branch_meanwhile_stays(kind: Kind) -> None:
    table, snapshot_id = named(kind, TAG)
    at = next(it for it in range(kind.created, 9) if _at(table, it) == snapshot_id)

    def another() -> None:
        other = kind.open()
        remove_ref(other, "old", TAG)
        set_branch(other, "old", at)

    kind.answers.append(another)
    with pytest.raises(CommitConflictError, match="and is a branch of"):
        remove_ref(table, "old", TAG)
    assert refs(kind) == {"old": snapshot_id}


def _at(table: Table, version: int) -> int | None:
    from timeline.refs import snapshot_at

    try:
        return snapshot_at(table.head, version).snapshot_id
    except ValueError:
        return None


@each_ref
def test_a_name_that_others_have_removed_meanwhile_is_said(kind: Kind, ref: SnapshotRefType) -> None:
    table, snapshot_id = named(kind, ref)
    kind.answers.append(lambda: remove_ref(kind.open(), "old", ref))
    with pytest.raises(CommitConflictError, match=f"the {ref} was removed: old"):
        remove_ref(table, "old", ref)
    table.refresh()
    done = table.commit([RemoveRef("old", snapshot_id, ref), SetProperties({"a": "b"})])
    assert isinstance(done, Committed)
    assert [each.reason for each in done.dropped] == [f"the {ref} was removed: old"]
    assert kind.open().head.properties["a"] == "b"


def test_a_name_that_one_commit_removes_twice_is_removed(kind: Kind) -> None:
    table, snapshot_id = named(kind, TAG)
    table.commit([RemoveRef("old", snapshot_id, TAG)] * 2)
    assert refs(kind) == {}


def test_what_others_commit_meanwhile_stays(kind: Kind) -> None:
    table, _ = named(kind, TAG)
    kind.answers.append(lambda: kind.open().commit([Append((kind.file([3]),))]))
    kind.answers.append(lambda: set_tag(kind.open(), "theirs"))
    remove_ref(table, "old", TAG)
    assert kind.rows() == [1, 2, 3]
    assert refs(kind).keys() <= {"theirs"}


def test_a_name_of_a_snapshot_that_is_not_there_is_removed() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    gone = SnapshotRef.model_validate({"snapshot-id": 77, "type": "tag"})
    lake.change_metadata(lambda metadata: {"refs": {**metadata.refs, "gone": gone}})
    assert [it.kind for it in doctor(lake.store, probe=False).findings if "reference" in it.kind]
    assert remove_ref(lake.open(), "gone", TAG) == 77
    assert not [it.kind for it in doctor(lake.store, probe=False).findings if "reference" in it.kind]


# what it held -------------------------------------------------------------------------------------


@each_ref
def test_what_it_alone_held_leaves_as_all_else_and_never_with_it(ref: SnapshotRefType) -> None:
    shore = Shore()
    for _ in range(3):
        shore.fill()
    (set_tag if ref is TAG else set_branch)(shore.table, "old", 3)
    shore.pass_versions(MAINTAIN_EVERY * 8 - 1 - shore.table.head.number)
    kept = {it.snapshot_id for it in shore.table.head.metadata.snapshots}
    snapshot_id = shore.table.head.metadata.refs["old"].snapshot_id
    assert snapshot_id in kept
    assert remove_ref(shore.table, "old", ref) == snapshot_id
    assert shore.table.head.number % MAINTAIN_EVERY == 0, "a version that expires what may leave"
    assert snapshot_id in {it.snapshot_id for it in shore.table.head.metadata.snapshots}
    files = shore.needed() & shore.paths()
    shore.pass_versions(MAINTAIN_EVERY)
    assert snapshot_id not in {it.snapshot_id for it in shore.table.head.metadata.snapshots}
    assert files <= shore.paths(), "in their grace period"
    shore.clock.now_ms += 2 * DAY_MS
    shore.pass_versions(130)
    remove_orphan_files(shore.table, older_than=timedelta(days=1))
    assert shore.leftover() == set()
    shore.check_nothing_is_missing()


@each_ref
def test_a_name_that_was_removed_by_mistake_is_given_back(ref: SnapshotRefType) -> None:
    """By its version, which main's history has no more."""
    shore = Shore()
    for _ in range(5):
        shore.fill()
    set_name = set_tag if ref is TAG else set_branch
    snapshot_id = set_name(shore.table, "old", 3)
    staging.stage_item(shore.table, ITEM, [shore.file()])
    shore.pass_versions(MAINTAIN_EVERY * 8 - 1 - shore.table.head.number)
    remove_ref(shore.table, "old", ref)
    with pytest.raises(ValueError, match="the history has the versions from"):
        set_name(shore.table, "old", 2)
    assert set_name(shore.table, "old", 3) == snapshot_id
    shore.clock.now_ms += 2 * DAY_MS
    shore.pass_versions(260)
    remove_orphan_files(shore.table, older_than=timedelta(days=1))
    assert shore.open().head.metadata.refs["old"].snapshot_id == snapshot_id
    shore.check_nothing_is_missing()


def test_in_a_catalog_too_the_snapshot_stays_with_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "SAFE_DISTANCE", 2)
    kind = CatalogKind(tmp_path)
    table, snapshot_id = named(kind, TAG)
    for row in range(3, 8):
        kind.clock.now_ms += DAY_MS
        table.commit([Append((kind.file([row]),))])
    bounds = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
    table.commit([RemoveRef("old", snapshot_id, TAG), ExpireSnapshots(bounds)])
    ids = {it.snapshot_id for it in kind.read().metadata.snapshots}
    assert snapshot_id in ids
    assert len(ids) < 8, "others have expired"
    table.commit([ExpireSnapshots(bounds)])
    assert snapshot_id not in {it.snapshot_id for it in kind.read().metadata.snapshots}
    assert kind.rows() == [1, 2, 3, 4, 5, 6, 7]
    kind.close()
