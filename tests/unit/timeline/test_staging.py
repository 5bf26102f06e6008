"""Write-audit-publish: a staged work item waits beside main, and is published once or never (R27)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as replaced
from datetime import timedelta

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import NestedField, StringType

from streaming_sink.reading.snapshots import list_snapshots
from streaming_sink.writing.planning import commit_sizes
from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.world import DAY_MS, SCHEMA, Lake
from timeline import properties, staging
from timeline.changes.changes import Append, Replace
from timeline.changes.intent import Intent
from timeline.changes.schema_changes import MergeSchema
from timeline.changes.staging_changes import Publish, Stage
from timeline.commit.attempts import Candidate
from timeline.commit.log import Standing
from timeline.commit.standing import judge_standing
from timeline.diagnosis import Finding, Severity, doctor
from timeline.errors import CommitConflictError, CorruptTableError
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.retention import grace, policy
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.head import Head
from timeline.versions.staged import find_staged, staged_files, staged_items
from timeline.versions.work_items import WorkItem, discarded_items, published_items, settled_items

ITEM = WorkItem("zone", 7)


def staged(lake: Lake, table: Table | None = None, item: WorkItem = ITEM, rows: int = 10) -> Committed:
    done = staging.stage_item(
        table or lake.table, item, [lake.file(rows)], summary={"streaming-sink.of": "me"}
    )
    assert isinstance(done, Committed)
    return done


def snapshot_of(head: Head, item: WorkItem = ITEM) -> Snapshot:
    found = find_staged(head, item)
    assert found is not None
    return found


def begun() -> Lake:
    """A table of ten rows."""
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    return lake


# what is staged -----------------------------------------------------------------------------------


def test_a_staged_item_is_an_append_beside_main_that_its_tag_holds() -> None:
    lake = begun()
    main = lake.table.head.snapshot
    done = staged(lake)
    head = lake.open().head
    assert head.snapshot == main
    assert main is not None
    assert lake.live_rows().total() == 10
    beside = snapshot_of(head)
    assert (beside.snapshot_id, beside.parent_snapshot_id) == (done.staged_snapshot_id, main.snapshot_id)
    assert beside.sequence_number == head.metadata.last_sequence_number == 2
    assert beside.summary is not None
    assert beside.summary.operation == Operation.APPEND
    told = beside.summary.additional_properties
    assert (told["wap.id"], told["added-records"], told["total-records"]) == ("zone-7", "10", "20")
    assert [entry.snapshot_id for entry in head.metadata.snapshot_log] == [main.snapshot_id]
    tag = head.metadata.refs["wap-zone-7"]
    assert (tag.snapshot_ref_type, tag.snapshot_id) == (SnapshotRefType.TAG, beside.snapshot_id)
    assert staged_items(head.metadata, "zone") == {7: beside}
    assert settled_items(head.properties, "zone").to_text() == ""


def test_the_first_rows_of_a_table_can_be_staged() -> None:
    lake = Lake()
    staged(lake)
    assert lake.open().head.snapshot is None
    assert isinstance(staging.publish_item(lake.table, ITEM), Committed)
    assert lake.live_rows().total() == 10


def test_nothing_else_is_in_the_commit_that_stages() -> None:
    lake = begun()
    with pytest.raises(ValueError, match="by a commit of its own"):
        lake.table.commit([Stage(ITEM, (lake.file(),)), Append((lake.file(),))])
    with pytest.raises(ValueError, match="nothing to stage"):
        staging.stage_item(lake.table, ITEM, [])


def test_what_was_staged_is_not_staged_again_by_a_writer_that_does_not_know_it() -> None:
    lake = begun()
    late = lake.open(lake.store)
    staged(lake)
    with pytest.raises(CommitConflictError, match="another worker has staged work item 7"):
        staging.stage_item(late, ITEM, [lake.file()])
    with pytest.raises(CommitConflictError, match="another worker has staged work item 7"):
        late.commit([Append((lake.file(),))], transaction=ITEM)
    assert len(staged_items(lake.open().head.metadata, "zone")) == 1
    assert len(lake.open().head.metadata.snapshots) == 2


def test_other_items_are_staged_beside_it() -> None:
    lake = begun()
    for number in (8, 7):
        staged(lake, item=WorkItem("zone", number))
    staged(lake, item=WorkItem("zone-7", 1))
    assert sorted(staged_items(lake.open().head.metadata, "zone")) == [7, 8]
    assert sorted(staged_items(lake.open().head.metadata, "zone-7")) == [1]


# publishing ---------------------------------------------------------------------------------------


def test_publishing_appends_the_same_files_to_what_main_is_by_then() -> None:
    lake = begun()
    staged(lake)
    source = snapshot_of(lake.table.head)
    lake.open().commit([Append((lake.file(),))])
    done = staging.publish_item(lake.table, ITEM)
    assert isinstance(done, Committed)
    head = lake.open().head
    assert lake.live_rows() == Counter(range(1, 31))
    assert head.snapshot is not None
    assert head.snapshot.summary is not None
    assert head.snapshot.summary.operation == Operation.APPEND
    told = head.snapshot.summary.additional_properties
    assert told["published-wap-id"] == "zone-7"
    assert told["source-snapshot-id"] == str(source.snapshot_id)
    assert told["streaming-sink.of"] == "me"
    assert "wap.id" not in told
    assert (told["added-records"], told["total-records"]) == ("10", "30")
    assert published_items(head.properties, "zone").to_text() == "7"
    assert "wap-zone-7" not in head.metadata.refs
    mine = [it for it in head.manifests if it.added_snapshot_id == head.snapshot.snapshot_id]
    assert [(it.added_files_count, it.existing_files_count, it.deleted_files_count) for it in mine] == [
        (1, 0, 0)
    ]
    live = {file.location: file for file in head.live_files()}
    (published,) = staged_files(head, source)
    assert live[published.file_path].sequence_number == head.snapshot.sequence_number


def test_an_item_is_published_once_whoever_does_it() -> None:
    lake = begun()
    late = lake.open(lake.store)
    staged(lake)
    other = lake.open(lake.store)
    change = Publish(
        staged_files(other.head, snapshot_of(other.head)), ITEM, snapshot_of(other.head).snapshot_id
    )
    assert isinstance(staging.publish_item(lake.table, ITEM), Committed)
    before = lake.live_rows()
    assert isinstance(staging.publish_item(lake.table, ITEM), AlreadyCommitted)
    assert isinstance(other.commit([change], transaction=ITEM), AlreadyCommitted)
    assert isinstance(staging.stage_item(late, ITEM, [lake.file()]), AlreadyCommitted)
    assert isinstance(staging.discard_item(late, ITEM), AlreadyCommitted)
    assert lake.live_rows() == before
    assert not discarded_items(late.head.properties, "zone").ranges


def test_a_publish_whose_reply_is_lost_lands_once() -> None:
    for reply in ("unknown-applied", "unknown-late", "unknown-absent", "exists-ours"):
        lake = begun()
        lake.store.creates.append(reply)
        staged(lake)
        lake.store.creates.append(reply)
        assert isinstance(staging.publish_item(lake.table, ITEM), Committed)
        assert lake.live_rows() == Counter(range(1, 21))
        assert lake.open().head.number == 4


def test_what_is_not_staged_cannot_be_published() -> None:
    lake = begun()
    with pytest.raises(CommitConflictError, match="work item 7 of 'zone' is not staged"):
        staging.publish_item(lake.table, ITEM)


def test_a_publish_that_comes_after_the_item_was_unstaged_is_refused() -> None:
    """Its files may be gone: nothing holds them any more."""
    lake = begun()
    staged(lake)
    late = lake.open(lake.store)
    found = snapshot_of(late.head)
    change = Publish(staged_files(late.head, found), ITEM, found.snapshot_id)
    assert isinstance(staging.unstage_item(lake.table, ITEM, found.snapshot_id), Committed)
    with pytest.raises(CommitConflictError, match="no longer staged in snapshot"):
        late.commit([change], transaction=ITEM)
    staged(lake)
    with pytest.raises(CommitConflictError, match="no longer staged in snapshot"):
        late.commit([change], transaction=ITEM)
    assert lake.live_rows().total() == 10


# discarding ---------------------------------------------------------------------------------------


def test_a_discarded_item_is_refused_for_ever() -> None:
    lake = begun()
    late = lake.open(lake.store)
    staged(lake)
    assert isinstance(staging.discard_item(lake.table, ITEM), Committed)
    head = lake.open().head
    assert "wap-zone-7" not in head.metadata.refs
    assert discarded_items(head.properties, "zone").to_text() == "7"
    assert settled_items(head.properties, "zone").to_text() == "7"
    assert not published_items(head.properties, "zone").ranges
    assert isinstance(staging.stage_item(late, ITEM, [lake.file()]), AlreadyCommitted)
    assert isinstance(late.commit([Append((lake.file(),))], transaction=ITEM), AlreadyCommitted)
    assert isinstance(staging.publish_item(late, ITEM), AlreadyCommitted)
    assert isinstance(staging.discard_item(late, ITEM), AlreadyCommitted)
    assert lake.live_rows().total() == 10


def test_an_item_that_was_never_staged_can_be_discarded() -> None:
    lake = begun()
    assert isinstance(staging.discard_item(lake.table, ITEM), Committed)
    assert isinstance(staging.stage_item(lake.table, ITEM, [lake.file()]), AlreadyCommitted)


def test_an_item_that_is_unstaged_is_staged_again_and_not_by_mistake() -> None:
    lake = begun()
    first = staged(lake).staged_snapshot_id
    assert first is not None
    staging.unstage_item(lake.table, ITEM, first)
    second = staged(lake)
    with pytest.raises(CommitConflictError, match=f"no longer staged in snapshot {first}"):
        staging.unstage_item(lake.table, ITEM, first)
    assert snapshot_of(lake.open().head).snapshot_id == second.staged_snapshot_id


# what it outlives ---------------------------------------------------------------------------------


def test_files_that_are_staged_for_longer_than_the_fence_are_published() -> None:
    shore = Shore()
    shore.fill()
    files = [shore.file() for _ in range(2)]
    staging.stage_item(shore.table, ITEM, files)
    shore.clock.now_ms += 9 * DAY_MS
    shore.append()
    orphan = shore.file(id_ms=shore.clock.now_ms - 8 * DAY_MS)
    report = remove_orphan_files(shore.table, older_than=timedelta(days=1))
    assert [it.path for it in report.files] == [shore.store.relative(orphan.file_path)]
    assert properties.GC_CUTOFF in shore.table.head.properties
    assert isinstance(staging.publish_item(shore.table, ITEM), Committed)
    shore.check_nothing_is_missing()
    live = {file.location for file in shore.open().head.live_files()}
    assert {file.file_path for file in files} <= live


def test_files_below_the_fence_cannot_be_staged() -> None:
    shore = Shore()
    shore.fill()
    old = shore.file()
    shore.clock.now_ms += 9 * DAY_MS
    shore.append()
    shore.file(id_ms=shore.clock.now_ms - 8 * DAY_MS)
    remove_orphan_files(shore.table)
    with pytest.raises(CommitConflictError, match="before the table's garbage cutoff"):
        staging.stage_item(shore.table, ITEM, [old])


def test_a_staged_item_outlives_the_history_and_leaves_it_once_it_is_published() -> None:
    shore = Shore({properties.MAX_SNAPSHOTS: "10"})
    for _ in range(3):
        shore.fill()
    done = staging.stage_item(shore.table, ITEM, [shore.file()])
    assert isinstance(done, Committed)
    for _ in range(130):
        shore.append()
    head = shore.table.refresh()
    assert done.staged_snapshot_id in {it.snapshot_id for it in head.metadata.snapshots}
    shore.check_nothing_is_missing()
    assert isinstance(staging.publish_item(shore.table, ITEM), Committed)
    for _ in range(260):
        shore.append()
    left = {it.snapshot_id for it in shore.table.refresh().metadata.snapshots}
    assert done.staged_snapshot_id not in left
    shore.check_nothing_is_missing()
    assert isinstance(staging.publish_item(shore.table, ITEM), AlreadyCommitted)


def test_a_staged_snapshot_keeps_its_file_once_the_published_one_was_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the same file, added to main later than to the snapshot that still has it (R7)."""
    monkeypatch.setattr(policy, "SAFE_DISTANCE", 2)
    monkeypatch.setattr(grace, "SAFE_DISTANCE", 2)
    shore = Shore({properties.DELETION_GRACE_MS: "0"})
    shore.append()
    file = shore.file()
    done = staging.stage_item(shore.table, ITEM, [file])
    assert isinstance(done, Committed)
    staging.publish_item(shore.table, ITEM)
    shore.table.commit([Replace(frozenset([file.file_path]), (shore.file(shore.rows[file.file_path]),))])
    for _ in range(4):
        shore.append()
    expire_snapshots(shore.table, max_snapshots=3, min_snapshots_to_keep=1)
    for _ in range(3):
        shore.append()
    shore.table.delete_expired(shore.table.log.list())
    left = {it.snapshot_id: it for it in shore.table.refresh().metadata.snapshots}
    assert (
        min(it.sequence_number or 0 for it in left.values() if it.snapshot_id != done.staged_snapshot_id) > 4
    )
    assert done.staged_snapshot_id in left
    assert shore.objects.read(shore.store.relative(file.file_path)).data


def test_whether_an_item_was_staged_is_unknown_once_the_head_has_forgotten_it() -> None:
    """Another process may have unstaged it since: its files are in their grace period then, no orphans."""
    lake = begun()
    change = Stage(ITEM, (lake.file(),))
    intent = Intent((change,), 0, str(lake.table.head.metadata.table_uuid), transaction=ITEM)
    candidate = Candidate(lake.table.head, b"", staged_snapshot_id=1)
    assert judge_standing(intent, lake.table.head, candidate) is Standing.UNKNOWN
    candidate = Candidate(lake.table.head, b"", appended_snapshot_id=1)
    assert judge_standing(replaced(intent, changes=()), lake.table.head, candidate) is Standing.LOST


def test_a_fill_over_main_leaves_what_is_staged() -> None:
    lake = Lake()
    small = lake.file()
    lake.table.commit([Append((small,))])
    staged(lake)
    lake.open().commit([Replace(frozenset([small.file_path]), (lake.merged(small),))])
    assert isinstance(staging.publish_item(lake.table, ITEM), Committed)
    assert lake.live_rows() == Counter(range(1, 21))


def test_a_column_that_was_added_since_is_null_in_what_was_staged() -> None:
    lake = begun()
    staged(lake)
    wider = Schema(*SCHEMA.fields, NestedField(3, "note", StringType(), required=False))
    lake.open().commit([MergeSchema(wider)])
    assert isinstance(staging.publish_item(lake.table, ITEM), Committed)
    assert lake.live_rows() == Counter(range(1, 21))


# damage -------------------------------------------------------------------------------------------


def test_a_tag_of_another_snapshot_is_told_and_can_be_discarded() -> None:
    shore = Shore()
    shore.fill()
    main = shore.table.head.metadata.current_snapshot_id
    tag = SnapshotRef(snapshot_id=main or 0, snapshot_ref_type=SnapshotRefType.TAG)
    shore.change_metadata(lambda metadata: {"refs": {**metadata.refs, "wap-zone-7": tag}})
    with pytest.raises(CorruptTableError, match="does not name a staged snapshot of its work item"):
        staging.publish_item(shore.table, ITEM)
    assert isinstance(staging.discard_item(shore.table, ITEM), Committed)


def staged_findings(shore: Shore) -> list[Finding]:
    """What the doctor says of staged snapshots; a shore's files have other sizes than its manifests state."""
    found = doctor(shore.objects, probe=False).findings
    return [it for it in found if it.severity > Severity.NOTE and it.kind != "file-size-differs"]


def test_the_doctor_tells_what_is_staged_and_finds_no_fault_with_it() -> None:
    shore = Shore()
    shore.fill()
    staging.stage_item(shore.table, ITEM, [shore.file()])
    assert not staged_findings(shore)
    assert ("staged", "zone-7") in doctor(shore.objects, probe=False).facts


def test_the_doctor_finds_staged_files_that_are_missing() -> None:
    shore = Shore()
    shore.fill()
    file = shore.file()
    staging.stage_item(shore.table, ITEM, [file])
    shore.objects.delete([shore.store.relative(file.file_path)])
    (found,) = staged_findings(shore)
    assert (found.kind, found.severity) == ("staged-file-missing", Severity.WARNING)
    assert file.file_path in found.what
    assert "zone-7" in found.what


@pytest.mark.parametrize("is_there", [True, False])
def test_the_doctor_finds_a_tag_that_holds_no_staged_snapshot(is_there: bool) -> None:
    shore = Shore()
    shore.fill()
    main = shore.table.head.metadata.current_snapshot_id if is_there else 5
    tag = SnapshotRef(snapshot_id=main or 0, snapshot_ref_type=SnapshotRefType.TAG)
    shore.change_metadata(lambda metadata: {"refs": {**metadata.refs, "wap-zone-7": tag}})
    (found,) = staged_findings(shore)
    assert found.kind == "staged-tag-dangling"


def test_what_reports_on_main_leaves_out_what_is_staged() -> None:
    lake = begun()
    before = commit_sizes(lake.table.head), list_snapshots(lake.table.head)
    staged(lake, rows=3)
    assert (commit_sizes(lake.table.head), list_snapshots(lake.table.head)) == before
    staging.publish_item(lake.table, ITEM)
    assert [size.rows for size in commit_sizes(lake.table.head)] == [10, 3]
    assert [it.version for it in list_snapshots(lake.table.head)] == [4, 2]
