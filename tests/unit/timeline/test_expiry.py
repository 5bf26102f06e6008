"""Snapshots leave the metadata; what only they reached goes after a grace period, and nothing else (R7)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from tests.tiers import count, longer_in_soak
from tests.unit.timeline.cleaning import BRIEF, MINUTE_MS, Saved, Shore, fail_at, needed, reached
from tests.unit.timeline.world import DAY_MS, NOON
from timeline import names, properties
from timeline.changes.changes import Append, ExpireSnapshots, Replace
from timeline.errors import StoreUnavailableError, TimelineError
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.names import EXPIRED_FOLDER, HINT_PATH
from timeline.retention.deletions import DeletedKind, Deletions
from timeline.retention.expired import Note, Pending, SnapshotRecord, pending_notes, read_expiry_notes
from timeline.stores import MemoryStore

COMMITS = count(400, 1_500)


# what goes, and when ------------------------------------------------------------------------------


@longer_in_soak
def test_the_number_of_objects_is_bounded_and_the_reports_say_what_went() -> None:
    """Two thousand commits with fills leave no more behind than two hundred do, but for what is live."""
    shore = Shore({**BRIEF, properties.MANIFEST_MIN_MERGE_COUNT: "8"})
    deleted = Deletions()
    beside: list[int] = []
    for step in range(COMMITS):
        committed = shore.fill() if step % 3 else shore.append()
        deleted += committed.deleted
        if step % 100 == 99:
            beside.append(len(shore.paths()) - len(shore.live()))
    assert max(beside[3:]) < beside[2] * 1.1
    assert len(shore.table.head.metadata.snapshots) < 2 * 122
    shore.check_nothing_is_missing()
    assert shore.leftover() == set()
    gone = {file.path for file in deleted.files}
    assert len(gone) == len(deleted.files), "no file is reported twice"
    assert not gone & shore.paths()
    for kind in set(DeletedKind) - {DeletedKind.STATE_FILE}:
        assert deleted.count(kind) > COMMITS // 5


@pytest.mark.parametrize(
    ("grace_minutes", "versions"), [(30, 100), (150, 151)], ids=["a hundred versions", "the grace period"]
)
def test_files_of_expired_snapshots_go_only_after_the_grace(grace_minutes: int, versions: int) -> None:
    shore = Shore({**BRIEF, properties.DELETION_GRACE_MS: str(grace_minutes * MINUTE_MS)})
    for _ in range(4):
        shore.fill()
    shore.pass_versions(102)
    readable = needed(shore.objects, shore.table.head)
    expired = expire_snapshots(shore.table)
    assert expired.expired_snapshots == 6
    assert {file.kind for file in expired.files} <= {DeletedKind.VERSION}
    assert expired.waiting == 1
    at = shore.table.head.number
    while expire_snapshots(shore.table, dry_run=True).count(DeletedKind.DATA_FILE) == 0:
        assert readable <= shore.paths()
        shore.pass_versions(1)
    assert shore.table.head.number == at + versions
    report = expire_snapshots(shore.table)
    assert report.count(DeletedKind.DATA_FILE) == 5
    assert shore.leftover() == set()


def test_what_the_oldest_kept_snapshot_removed_goes_too() -> None:
    """Nothing that is kept reaches it, and no later expiry looks at that snapshot's removals again."""
    shore = Shore()
    file = shore.file()
    shore.table.commit([Append((file,))])
    for _ in range(3):
        merged = shore.merged(file)
        shore.table.commit([Replace(frozenset({file.file_path}), (merged,))])
        file = merged
    shore.append()
    shore.pass_versions(96)
    assert expire_snapshots(shore.table).expired_snapshots == 2
    shore.pass_versions(230)
    shore.check_nothing_is_missing()
    assert shore.leftover() == set()


def test_a_table_whose_time_stands_still_deletes_nothing() -> None:
    """Only the table's own time counts: a writer whose clock is behind neither waits less nor more (R12)."""
    shore = Shore()
    for _ in range(4):
        shore.fill()
    shore.pass_versions(110)
    expire_snapshots(shore.table)
    before = shore.paths()
    for _ in range(150):
        shore.table.commit([ExpireSnapshots()])
    assert {path for path in before if path.startswith("data/")} <= shore.paths()


def test_an_explicit_policy_counts_for_this_call_only() -> None:
    shore = Shore({properties.MIN_SNAPSHOTS_TO_KEEP: "1"})
    for _ in range(4):
        shore.append()
    shore.pass_versions(130)
    assert expire_snapshots(shore.table).expired_snapshots == 0
    assert (
        expire_snapshots(shore.table, max_snapshot_age=timedelta(0), max_snapshots=5).expired_snapshots == 3
    )
    assert shore.table.head.properties[properties.MAX_SNAPSHOT_AGE_MS] == str(24 * 3600 * 1000)


@pytest.mark.parametrize(
    "given", [{"max_snapshots": 0}, {"min_snapshots_to_keep": 0}, {"max_snapshot_age": timedelta(-1)}]
)
def test_bounds_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        expire_snapshots(Shore().table, **given)


def test_nothing_to_expire_commits_no_version() -> None:
    shore = Shore()
    shore.append()
    expire_snapshots(shore.table)
    assert shore.table.head.number == 2


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_expiry_says_what_lets_the_snapshots_go_that_stay(dry_run: bool) -> None:
    shore = Shore()
    shore.append()
    done = expire_snapshots(shore.table, max_snapshot_age=timedelta(hours=36), dry_run=dry_run)
    assert done.kept == (
        "1 snapshot stays: one expires once 100 later versions exist, if it is older than 36 hours and not"
        " among the last 1, or if there are more than 2,000; tags and branches keep theirs"
    )
    assert done.kept in str(done)


def test_a_dry_run_changes_nothing_and_names_what_a_run_deletes_with_the_reason() -> None:
    shore = due()
    before = dict(shore.objects._contents.objects)
    told = expire_snapshots(shore.open(), dry_run=True)
    assert shore.objects._contents.objects == before
    done = expire_snapshots(shore.open())
    assert [file.path for file in told.files] == [file.path for file in done.files]
    assert {file.path for file in done.files} == before.keys() - shore.paths() - {
        path for path in before if path.startswith(EXPIRED_FOLDER)
    }
    assert "would delete 5 data files" in str(told)
    assert "deleted 5 data files" in str(done)
    assert f"{done.files[-1].path}: only snapshots that version" in str(done)
    assert done.bytes >= 5 * 1000


# what pins ----------------------------------------------------------------------------------------


def pin(shore: Shore, name: str, snapshot_id: int, kind: SnapshotRefType, **bounds: int) -> None:
    ref = SnapshotRef(snapshot_id=snapshot_id, snapshot_ref_type=kind, **bounds)
    shore.change_metadata(lambda metadata: {"refs": {**metadata.refs, name: ref}})
    shore.table.refresh()


@pytest.mark.parametrize("position", [0, 3, 4, 7])
@pytest.mark.parametrize("kind", [SnapshotRefType.TAG, SnapshotRefType.BRANCH])
def test_what_a_tag_or_a_branch_reaches_stays_and_the_rest_goes(kind: SnapshotRefType, position: int) -> None:
    shore = Shore()
    for _ in range(5):
        shore.fill()
    pinned = shore.table.head.metadata.snapshots[position]
    pin(shore, "keep", pinned.snapshot_id, kind)
    shore.pass_versions(260)
    kept = {s.snapshot_id for s in shore.table.head.metadata.snapshots}
    assert pinned.snapshot_id in kept
    assert len(kept) < 6
    assert not pending_notes(shore.objects)
    shore.check_nothing_is_missing()
    assert shore.leftover() == set()


@pytest.mark.parametrize("kind", [SnapshotRefType.TAG, SnapshotRefType.BRANCH])
def test_what_a_tag_kept_goes_once_the_tag_has_gone(kind: SnapshotRefType) -> None:
    """It no longer is of main's lineage then, since its neighbours have expired; whole versions go (R7)."""
    shore = Shore()
    for _ in range(5):
        shore.fill()
    *before, newest_append, newest = shore.table.head.metadata.snapshots
    pin(shore, "keep", before[4].snapshot_id, kind)
    shore.pass_versions(140)
    assert before[4] in shore.table.head.metadata.snapshots
    unpin(shore, "keep")
    shore.pass_versions(20)
    assert shore.table.head.metadata.snapshots == [newest_append, newest]
    shore.check_nothing_is_missing()


def test_what_a_tag_kept_has_a_grace_of_its_own() -> None:
    """Its reader goes on while what expired before it, and shares files with it, is deleted (R7)."""
    shore, _, reader = a_tag_has_gone()
    shore.clock.now_ms += 2 * DAY_MS
    shore.pass_versions(90)
    remove_orphan_files(shore.table, older_than=timedelta(days=1))
    assert len(pending_notes(shore.objects)) == 1, "the expiry of the tag's neighbours is over"
    assert reader <= shore.paths()
    shore.pass_versions(30)
    assert not pending_notes(shore.objects)
    remove_orphan_files(shore.table, older_than=timedelta(days=1))
    assert shore.leftover() == set()
    assert reader & shore.paths() == reader & shore.needed()
    shore.check_nothing_is_missing()


def test_a_lost_commits_note_does_not_cut_the_grace_of_what_a_tag_kept() -> None:
    """It had expired the snapshot before it had a tag, and comes late, under an old number (seed 331517)."""
    shore, pinned, reader = a_tag_has_gone()
    kept = SnapshotRecord.of(shore.table.head.metadata.snapshots[0])
    late = Note(6, names.ulid(0, 7), (SnapshotRecord.of(pinned),), kept)
    shore.objects.overwrite(late.path, late.encode())
    assert shore.table.delete_expired(shore.table.log.list()).waiting == 3
    assert reader <= shore.paths()
    shore.clock.now_ms += 2 * DAY_MS
    shore.pass_versions(130)
    assert not pending_notes(shore.objects)
    shore.check_nothing_is_missing()


def just_expired() -> tuple[Shore, Pending]:
    """A table whose old snapshots have just expired, and the note of that."""
    shore = Shore()
    for _ in range(5):
        shore.fill()
    shore.pass_versions(110)
    expire_snapshots(shore.table)
    (pending,) = pending_notes(shore.objects)
    return shore, pending


def test_a_lost_commits_note_of_a_clock_ahead_costs_time_and_no_orphans() -> None:
    """What main's note names waits for the other's grace period, and is deleted then (seed 2000904)."""
    shore, pending = just_expired()
    note = read_expiry_notes(shore.objects, [pending])[0][pending]
    shore.pass_versions(90)
    ahead = replace(note, version=6, commit_id=names.ulid(shore.clock.now_ms + 10 * MINUTE_MS, 7))
    shore.objects.overwrite(ahead.path, ahead.encode())
    before = shore.paths()
    shore.pass_versions(20)
    assert {pending.path, ahead.path} <= shore.paths()
    assert before - shore.paths() <= {path for path in before if "metadata.json" in path}
    shore.clock.now_ms += 3 * DAY_MS
    shore.pass_versions(20)
    assert not pending_notes(shore.objects)
    assert shore.leftover() == set()
    shore.check_nothing_is_missing()


def test_nothing_is_deleted_while_a_note_in_its_grace_cannot_be_read() -> None:
    """It may name what another one, of a commit that lost, has noted long ago (seed 5800342)."""
    shore, pending = just_expired()
    shore.pass_versions(90)
    unread = names.expired_path(6, names.ulid(shore.clock.now_ms, 7))
    shore.objects.overwrite(unread, b"{}")
    before = shore.paths()
    shore.pass_versions(20)
    assert {pending.path, unread} <= shore.paths()
    assert before - shore.paths() <= {path for path in before if "metadata.json" in path}
    shore.clock.now_ms += 3 * DAY_MS
    shore.pass_versions(20)
    assert not pending_notes(shore.objects)
    assert shore.leftover() == set()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_note_of_a_clock_that_was_years_ahead_holds_nothing_up(damaged: bool) -> None:
    """No commit that landed is later than the head, by more than other engines' clocks differ."""
    shore, pending = just_expired()
    note = read_expiry_notes(shore.objects, [pending])[0][pending]
    ahead = replace(note, version=6, commit_id=names.ulid(shore.clock.now_ms + 3650 * DAY_MS, 7))
    shore.objects.overwrite(ahead.path, b"{}" if damaged else ahead.encode())
    reader = shore.in_grace()
    shore.pass_versions(19)
    assert reader <= shore.paths(), "main's note is in its grace period"
    shore.pass_versions(110)
    assert not pending_notes(shore.objects)
    assert shore.leftover() == set()
    shore.check_nothing_is_missing()


def test_what_another_run_has_deleted_of_a_snapshot_in_its_grace_stops_no_deletion() -> None:
    """A lost commit may note late what went long ago, and this process may know its list (seed 669525)."""
    shore, pinned, reader = a_tag_has_gone()
    table = shore.open()
    table.head.manifest_files.find_list(pinned.manifest_list)
    gone = {path for path in reader - shore.needed() if path.endswith("manifest.avro")}
    assert gone, "nothing of it is its own, and this proves nothing"
    shore.objects.delete(sorted(gone))
    assert len(pending_notes(shore.objects)) == 2
    shore.clock.now_ms += 2 * DAY_MS
    shore.pass_versions(90, table)
    assert len(pending_notes(shore.objects)) == 1, "the expiry of the tag's neighbours is over"
    shore.check_nothing_is_missing()


def a_tag_has_gone() -> tuple[Shore, Snapshot, set[str]]:
    """A table that has just expired a snapshot which a tag had kept; that snapshot, and what it needs."""
    shore = Shore()
    for _ in range(5):
        shore.fill()
    pinned = shore.table.head.metadata.snapshots[4]
    pin(shore, "keep", pinned.snapshot_id, SnapshotRefType.TAG)
    reader = needed_by(shore, pinned)
    shore.pass_versions(140)
    unpin(shore, "keep")
    expire_snapshots(shore.table)
    return shore, pinned, reader


def unpin(shore: Shore, name: str) -> None:
    shore.change_metadata(lambda metadata: {"refs": {k: v for k, v in metadata.refs.items() if k != name}})
    shore.table.refresh()


def needed_by(shore: Shore, snapshot: Snapshot) -> set[str]:
    return reached(shore.objects, shore.open().head, snapshot.manifest_list)


def test_a_branch_pins_of_its_lineage_what_its_own_bounds_keep() -> None:
    shore = Shore()
    for _ in range(6):
        shore.append()
    ids = [s.snapshot_id for s in shore.table.head.metadata.snapshots]
    pin(shore, "fork", ids[3], SnapshotRefType.BRANCH, min_snapshots_to_keep=3)
    shore.pass_versions(130)
    assert [s.snapshot_id for s in shore.table.head.metadata.snapshots] == [*ids[1:4], ids[5]]


@pytest.mark.parametrize("later_fills", [0, 1])
def test_a_staged_snapshot_stays_with_all_that_it_reaches(later_fills: int) -> None:
    """Written, audited, not yet published: no reference names it, and its parent leaves before it."""
    shore = Shore()
    for _ in range(4):
        shore.fill()
    parent = shore.table.head.metadata.snapshots[1]
    staged = Snapshot.model_validate(
        {
            **parent.model_dump(by_alias=True),
            "snapshot-id": 77,
            "parent-snapshot-id": parent.snapshot_id,
            "sequence-number": 99,
            "manifest-list": shore.store.uri(names.manifest_list_path(names.ulid(NOON, 77))),
            "summary": {"operation": "append"},
        }
    )
    listed = shore.objects.read(shore.store.relative(parent.manifest_list)).data
    shore.objects.overwrite(shore.store.relative(staged.manifest_list), listed)
    shore.change_metadata(
        lambda metadata: {"snapshots": [*metadata.snapshots, staged], "last_sequence_number": 99}
    )
    shore.table.refresh()
    for _ in range(later_fills):
        shore.fill()
    shore.pass_versions(260)
    kept = {s.snapshot_id for s in shore.table.head.metadata.snapshots}
    assert 77 in kept
    assert parent.snapshot_id not in kept
    shore.check_nothing_is_missing()


def test_a_newer_append_beside_main_does_not_let_mains_newest_one_go() -> None:
    """Else the current snapshot itself would leave, and the table with it."""
    shore = Shore()
    shore.fill()
    current = shore.table.head.metadata.snapshots[-1]
    staged = Snapshot.model_validate(
        {
            **current.model_dump(by_alias=True),
            "snapshot-id": 77,
            "parent-snapshot-id": current.snapshot_id,
            "sequence-number": 99,
            "summary": {"operation": "append"},
        }
    )
    shore.change_metadata(
        lambda metadata: {"snapshots": [*metadata.snapshots, staged], "last_sequence_number": 99}
    )
    shore.table.refresh()
    shore.pass_versions(130)
    assert current in shore.table.head.metadata.snapshots


# when it is cut off -------------------------------------------------------------------------------


def due(shore: Shore | None = None) -> Shore:
    """A table with one expiry whose grace is over and whose files are still there."""
    shore = shore or Shore()
    for _ in range(4):
        shore.fill()
    shore.pass_versions(102)
    expire_snapshots(shore.table)
    shore.store.before = keep_the_notes
    shore.pass_versions(101)
    shore.store.before = lambda verb, path: shore.store.requests.append((verb, path))
    assert len(pending_notes(shore.objects)) == 1
    return shore


def keep_the_notes(verb: str, path: str) -> None:
    if (verb, path) == ("list", EXPIRED_FOLDER):
        raise ConnectionError("no")


@pytest.mark.parametrize("side", ["lost", "applied"])
def test_a_deletion_that_is_cut_off_at_any_request_is_finished_by_the_next_run(side: str) -> None:
    shore = due()
    saved = Saved(shore)
    expire_snapshots(shore.open())
    finished = shore.paths()
    saved.restore()
    request = 0
    while True:
        table = shore.open(shore.store)
        cut = fail_at(shore, request, side, lambda: expire_snapshots(table))  # noqa: B023 - called at once
        shore.check_nothing_is_missing()
        assert expire_snapshots(shore.open()).waiting == 0
        assert shore.paths() == finished
        assert shore.leftover() == set()
        if not cut:
            break
        saved.restore()
        request += 1
    assert request > 30


def test_an_expiry_that_is_cut_off_at_any_request_leaves_no_file_behind() -> None:
    """The note is there before the version that needs it; one without a version goes away unused."""
    shore = Shore()
    for _ in range(2):
        shore.fill()
    shore.pass_versions(102)
    shore.table.deadline_seconds = 0.0
    saved = Saved(shore)
    for request in range(14):
        saved.restore()
        table = shore.open(shore.store)
        table.deadline_seconds = 0.0
        with suppress(TimelineError):  # how it ends is the business of other tests
            fail_at(shore, request, "applied", lambda: expire_snapshots(table))  # noqa: B023 - called at once
        shore.check_nothing_is_missing()
        after = shore.open()
        shore.pass_versions(130, after)
        expire_snapshots(after)
        assert pending_notes(shore.objects) == []
        shore.check_nothing_is_missing()
        assert shore.leftover() == set(), request


def test_two_runs_at_once_delete_the_same_and_nothing_else() -> None:
    shore = due()
    saved = Saved(shore)
    expire_snapshots(shore.open())
    finished = shore.paths()
    for request in range(1, 60, 3):
        saved.restore()
        count = 0
        slow = shore.open(shore.store)

        def run_another(verb: str, path: str) -> None:
            nonlocal count
            count += 1
            if count == request:  # noqa: B023 - called within this turn
                expire_snapshots(shore.open())

        shore.store.before = run_another
        expire_snapshots(slow)
        shore.store.before = None
        shore.check_nothing_is_missing()
        assert shore.paths() == finished


def test_a_deletion_that_fails_never_fails_a_commit_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shore = due()

    def no_delete(verb: str, path: str) -> None:
        if verb == "delete":
            raise ConnectionError("no")

    shore.store.before = no_delete
    deleted = [committed.deleted for committed in shore.pass_versions(21)]
    assert not any(report.files for report in deleted)
    assert "tidying after it failed and is tried again" in caplog.text
    shore.store.before = None
    assert sum(c.deleted.count(DeletedKind.DATA_FILE) for c in shore.pass_versions(21)) == 5
    assert shore.leftover() == set()


def test_snapshots_stay_where_their_expiry_cannot_be_noted(caplog: pytest.LogCaptureFixture) -> None:
    shore = Shore()
    for _ in range(4):
        shore.fill()
    shore.pass_versions(102)

    class NoNotes(MemoryStore):
        def create(self, path: str, data: bytes) -> Any:
            if path.startswith(EXPIRED_FOLDER):
                raise StoreUnavailableError("no access")
            return super().create(path, data)

    table = shore.open(NoNotes(shore.name))
    assert expire_snapshots(table).expired_snapshots == 0
    assert len(table.head.metadata.snapshots) == 8
    assert "snapshots stay in the metadata" in caplog.text


# notes --------------------------------------------------------------------------------------------


def test_the_note_of_an_attempt_that_lost_is_removed_unused() -> None:
    shore = Shore()
    for _ in range(4):
        shore.fill()
    shore.pass_versions(102)
    other = shore.open()
    shore.store.creates.append(lambda: other.commit([Append((shore.file(),))]))
    shore.store.requests.clear()
    expire_snapshots(shore.table)
    assert (
        sum(verb == "create" and path.startswith(EXPIRED_FOLDER) for verb, path in shore.store.requests) == 2
    )
    assert [pending.version for pending in pending_notes(shore.objects)] == [shore.table.head.number]
    shore.pass_versions(120)
    shore.check_nothing_is_missing()
    assert pending_notes(shore.objects) == []


@pytest.mark.parametrize("data", [b"", b"{}", b'{"expired": 3}', b"[1]"])
@pytest.mark.parametrize("version", [1, 1_000_000])
def test_a_note_that_cannot_be_read_stops_nothing(data: bytes, version: int) -> None:
    """Its time is over, or no commit can have landed with it."""
    shore = due()
    shore.objects.overwrite(names.expired_path(version, names.ulid(0, 0)), data)
    expire_snapshots(shore.table)
    assert {it.version for it in pending_notes(shore.objects)} <= {1_000_000}
    assert shore.leftover() == set()


# requests -----------------------------------------------------------------------------------------


def test_the_hint_is_mended_before_versions_go() -> None:
    """A writer that woke up late may have put it back to a version that is about to be deleted (R5, R19)."""
    shore = Shore()
    shore.append()
    shore.pass_versions(177)
    shore.clock.now_ms += 100 * MINUTE_MS
    hints: list[int] = []

    def late(verb: str, path: str) -> None:
        if (verb, path) == ("overwrite", HINT_PATH) and not hints:
            shore.objects.overwrite(HINT_PATH, b"5")
            hints.append(5)

    def watch(verb: str, path: str) -> None:
        if verb == "delete":
            hints.append(int(shore.objects.read(HINT_PATH).data))

    shore.store.after, shore.store.before = late, watch
    shore.pass_versions(1)
    assert shore.table.head.number == 180
    assert hints[0] == 5
    assert set(hints[1:]) == {180}
