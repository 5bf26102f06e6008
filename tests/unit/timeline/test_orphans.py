"""Files that nothing refers to go behind a fence, which no late writer passes (R6); nothing else goes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from tests.unit.timeline.cleaning import Saved, Shore, fail_at
from tests.unit.timeline.world import DAY_MS, NOON
from timeline import names, properties
from timeline.changes.changes import Append, RaiseFence, Replace, SetProperties
from timeline.errors import CommitConflictError, CorruptTableError, TimelineError
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.retention import path_index
from timeline.retention.deletions import DeletedKind
from timeline.retention.expired import pending_notes, read_expiry_notes


def littered() -> tuple[Shore, set[str]]:
    """A table with orphans of every kind that are four days old, and their paths."""
    shore = Shore()
    shore.fill()
    shore.fill()
    old = names.ulid(NOON, 5)
    orphans = {
        shore.store.relative(shore.file(id_ms=NOON).file_path),
        f"data/{old}-app-1-0-0.parquet",
        f"data/p=1/q=a b/{old}-app-1-0-0.parquet",
        names.manifest_path(old),
        names.manifest_list_path(old),
    }
    for path in orphans:
        shore.objects.overwrite(path, b"orphan")
    shore.clock.now_ms += 4 * DAY_MS
    shore.append()
    return shore, orphans


# what goes ----------------------------------------------------------------------------------------


def test_old_orphans_of_every_kind_go_and_are_reported_with_the_reason() -> None:
    shore, orphans = littered()
    before = shore.paths()
    report = remove_orphan_files(shore.table)
    assert {file.path for file in report.files} == orphans
    assert before - shore.paths() == orphans
    assert (
        report.count(DeletedKind.DATA_FILE),
        report.count(DeletedKind.MANIFEST),
        report.count(DeletedKind.MANIFEST_LIST),
    ) == (
        3,
        1,
        1,
    )
    assert report.bytes == 5 * len(b"orphan")
    assert "deleted 3 data files, 1 manifest, 1 manifest list (30 bytes)" in str(report)
    assert "nothing refers to it, and its id is below the table's garbage cutoff" in str(report)
    shore.check_nothing_is_missing()


def test_a_manifest_is_read_whose_path_passes_for_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of hashes may take a strange file for a needed one, which stays, and not the other way."""
    shore, orphans = littered()
    monkeypatch.setattr(
        path_index, "hash", lambda path: 7 if path.startswith("metadata/") else hash(path), raising=False
    )
    remove_orphan_files(shore.table)
    assert not any(path.startswith("data/") for path in orphans & shore.paths())
    shore.check_nothing_is_missing()


def test_young_orphans_stay_by_the_tables_time_whatever_the_clock_says() -> None:
    """The cutoff trails the head's own time: a cleaner whose clock is a year ahead takes no more (R12)."""
    shore, orphans = littered()
    young = shore.store.relative(shore.file(id_ms=shore.clock.now_ms - 3 * DAY_MS + 1).file_path)
    shore.clock.now_ms += 365 * DAY_MS
    remove_orphan_files(shore.table)
    assert young in shore.paths()
    assert not orphans & shore.paths()


def test_files_that_this_protocol_does_not_write_stay() -> None:
    shore, _ = littered()
    old = names.ulid(NOON, 6)
    foreign = {
        "data/part-00000-c000.snappy.parquet",
        f"data/{old}.parquet",
        f"data/{old}-deletes.parquet",
        f"data/{old}-app-1-0-0.parquet.crc",
        f"metadata/{old}-manifest.avro",
        f"metadata/m/{old}-m0.avro",
        f"metadata/m/{old}-stats.puffin",
        f"_timeline/{old}-app-1-0-0.parquet",
        f"_timeline/expired/v1-{old}.json",
        names.key_run_path("0123456789abcdef", old),
        f"{old}-app-1-0-0.parquet",
        "metadata/v999.metadata.json.tmp",
        "data/.tmp-1-2-3",
    }
    for path in foreign:
        shore.objects.overwrite(path, b"not ours")
    remove_orphan_files(shore.table)
    assert foreign <= shore.paths()
    assert {"metadata/version-hint.text", "metadata/v1.metadata.json"} <= shore.paths()


@pytest.mark.parametrize("kind", [SnapshotRefType.TAG, SnapshotRefType.BRANCH, None])
def test_what_a_tag_a_branch_or_a_staged_snapshot_refers_to_stays(kind: SnapshotRefType | None) -> None:
    shore = Shore()
    for _ in range(3):
        shore.fill()
    second = shore.table.head.metadata.snapshots[2]
    ref = SnapshotRef(snapshot_id=second.snapshot_id, snapshot_ref_type=kind or SnapshotRefType.TAG)
    newest = shore.table.head.metadata.snapshots[-1]
    shore.change_metadata(
        lambda metadata: {
            "snapshots": [second, newest],
            "refs": {**metadata.refs, **({"keep": ref} if kind else {})},
        }
    )
    shore.clock.now_ms += 4 * DAY_MS
    shore.append()
    report = remove_orphan_files(shore.table)
    assert report.count(DeletedKind.DATA_FILE) == 3
    shore.check_nothing_is_missing()


def test_what_expired_snapshots_refer_to_stays_through_their_grace() -> None:
    shore = expired_a_moment_ago()
    kept = shore.in_grace()
    remove_orphan_files(shore.table)
    assert kept <= shore.paths()


def expired_a_moment_ago() -> Shore:
    """A table with old snapshots that have just expired."""
    shore = Shore({properties.MIN_SNAPSHOTS_TO_KEEP: "1", properties.MAX_SNAPSHOT_AGE_MS: str(DAY_MS)})
    for _ in range(4):
        shore.fill()
    shore.pass_versions(102)
    shore.clock.now_ms += 9 * DAY_MS
    shore.append()
    assert expire_snapshots(shore.table).expired_snapshots > 0
    return shore


@pytest.mark.parametrize(
    "damage", ["cut off", "of another version", "a file elsewhere", "a version as text", "no list", "deep"]
)
def test_nothing_goes_while_the_note_of_an_expiry_in_its_grace_is_damaged(damage: str) -> None:
    """What it names is not known, and readers may be reading it."""
    shore = expired_a_moment_ago()
    (pending,) = pending_notes(shore.objects)
    note = read_expiry_notes(shore.objects, [pending])[0][pending]
    kept, before = shore.in_grace(), shore.paths()
    stored = note.encode()
    damaged = {
        "cut off": stored[:-1],
        "of another version": replace(note, version=note.version - 1, expired=note.expired[:1]).encode(),
        "a file elsewhere": stored.replace(b"memory://", b"memnry://", 1),
        "a version as text": json.dumps({**json.loads(stored), "version": str(note.version)}).encode(),
        "no list": json.dumps({**json.loads(stored), "expired": {}}).encode(),
        "deep": b"[" * 200_000,
    }
    shore.objects.overwrite(pending.path, damaged[damage])
    with pytest.raises(CorruptTableError, match=f"{pending.path} cannot be read.* nothing was deleted") as it:
        remove_orphan_files(shore.table)
    assert it.value.files == (pending.path,)
    assert shore.paths() == before
    shore.objects.delete([pending.path])  # as the error says, where there are no readers
    remove_orphan_files(shore.table)
    assert not kept <= shore.paths()
    shore.check_nothing_is_missing()


@pytest.mark.parametrize(("version", "ahead_ms"), [(6, 0), (6, 3650 * DAY_MS), (10**6, 0)])
def test_a_damaged_note_of_no_commit_in_its_grace_is_in_nothings_way(version: int, ahead_ms: int) -> None:
    shore, orphans = littered()
    shore.pass_versions(110)
    shore.clock.now_ms += 9 * DAY_MS
    shore.append()
    time_ms = shore.clock.now_ms + ahead_ms if ahead_ms or version > 6 else NOON
    shore.objects.overwrite(names.expired_path(version, names.ulid(time_ms, 7)), b"{}")
    assert orphans <= {file.path for file in remove_orphan_files(shore.table).files}


def test_nothing_to_remove_commits_no_version() -> None:
    shore = Shore()
    shore.fill()
    shore.clock.now_ms += 9 * DAY_MS
    shore.append()
    number = shore.table.head.number
    assert not remove_orphan_files(shore.table).files
    assert shore.table.refresh().number == number


def test_a_dry_run_changes_nothing_and_names_what_a_run_deletes() -> None:
    shore, orphans = littered()
    saved = dict(shore.objects._contents.objects)
    told = remove_orphan_files(shore.table, dry_run=True)
    assert shore.objects._contents.objects == saved
    assert {file.path for file in told.files} == orphans
    assert str(told).startswith("would delete 3 data files, ")  # and no word of snapshots
    assert remove_orphan_files(shore.table).files == told.files


def test_less_than_a_day_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 day, 0:00:00, not 23:00:00"):
        remove_orphan_files(Shore().table, older_than=timedelta(hours=23))


def test_nothing_goes_where_a_snapshots_files_are_missing() -> None:
    """Nobody knows then what the snapshot refers to."""
    shore, orphans = littered()
    snapshot = shore.table.head.metadata.snapshots[0]
    shore.objects.delete([shore.store.relative(snapshot.manifest_list)])
    with pytest.raises(CorruptTableError, match="reachability cannot be determined; nothing was deleted"):
        remove_orphan_files(shore.open())
    assert orphans <= shore.paths()


def test_a_removal_that_is_cut_off_anywhere_is_finished_by_the_next() -> None:
    shore, orphans = littered()
    saved = Saved(shore)
    for request in range(60):
        saved.restore()
        table = shore.open(shore.store)
        table.deadline_seconds = 0.0
        try:
            cut = fail_at(shore, request, "applied", lambda: remove_orphan_files(table))  # noqa: B023
        except TimelineError:
            cut = True
        shore.check_nothing_is_missing()
        remove_orphan_files(shore.open())
        assert not orphans & shore.paths()
        shore.check_nothing_is_missing()
        if not cut:
            break
    assert not cut
    assert request > 15


# the fence ----------------------------------------------------------------------------------------


def cutoff_of(shore: Shore) -> str:
    return shore.open().head.properties[properties.GC_CUTOFF]


def test_the_cutoff_trails_the_head_by_three_days() -> None:
    shore, _ = littered()
    before = shore.table.head.metadata.last_updated_ms
    remove_orphan_files(shore.table)
    assert cutoff_of(shore) == names.ulid_floor(before - 3 * DAY_MS)


def test_the_fence_never_sinks() -> None:
    shore, _ = littered()
    remove_orphan_files(shore.table)
    raised = cutoff_of(shore)
    shore.table.commit([RaiseFence(names.ulid_floor(5))])
    assert cutoff_of(shore) == raised
    with pytest.raises(ValueError, match="belongs to the commit protocol"):
        shore.table.commit([SetProperties({properties.GC_CUTOFF: ""})])


def old_file(shore: Shore, file: DataFile | None = None) -> tuple[DataFile, str]:
    file = shore.file(id_ms=NOON) if file is None else file
    return file, shore.store.relative(file.file_path)


def test_a_writer_that_slept_past_the_fence_is_refused_and_its_file_is_gone() -> None:
    shore, _ = littered()
    late, path = old_file(shore)
    sleeper = shore.open()
    remove_orphan_files(shore.table)
    assert path not in shore.paths()
    with pytest.raises(CommitConflictError, match="write the batch again"):
        sleeper.commit([Append((late,))])
    shore.check_nothing_is_missing()


def test_a_merge_that_slept_past_the_fence_is_refused() -> None:
    shore, _ = littered()
    live = next(iter(shore.table.head.live_files()))
    merged = shore.file(shore.rows[live.location], id_ms=NOON)
    sleeper = shore.open()
    remove_orphan_files(shore.table)
    with pytest.raises(CommitConflictError, match="write the batch again"):
        sleeper.commit([Replace(frozenset({live.location}), (merged,))])
    shore.check_nothing_is_missing()


@pytest.mark.parametrize("rest", ["none", "fence", "fence and deletion"])
def test_a_commit_that_sleeps_at_any_request_never_refers_to_what_was_deleted(rest: str) -> None:
    """Its data file is young enough all the time; its manifest and its list are of an attempt of long ago."""
    for request in range(7):
        shore, _ = littered()
        table = shore.open(shore.store)
        count = 0

        def sleep(verb: str, path: str) -> None:
            nonlocal count
            count += 1
            if count != request + 1:  # noqa: B023 - called within this turn
                return
            shore.clock.now_ms += 5 * DAY_MS  # noqa: B023
            other = shore.open()  # noqa: B023
            if rest != "none":
                other.commit([SetProperties({"time": "passes"})])
            if rest == "fence":
                cutoff = names.ulid_floor(other.head.metadata.last_updated_ms - 3 * DAY_MS)
                other.commit([RaiseFence(cutoff)])
            elif rest != "none":
                remove_orphan_files(other)

        file = shore.file(id_ms=shore.clock.now_ms + 20 * DAY_MS)
        shore.store.before = sleep
        table.commit([Append((file,))])
        shore.store.before = None
        shore.check_nothing_is_missing()
        assert file.file_path in shore.live()
        remove_orphan_files(shore.open())
        shore.check_nothing_is_missing()


def test_a_file_that_is_committed_between_the_listing_and_the_fence_stays() -> None:
    shore, orphans = littered()
    late, path = old_file(shore)
    writer, cleaner = shore.open(), shore.open(shore.store)
    shore.store.creates.append(lambda: writer.commit([Append((late,))]))
    report = remove_orphan_files(cleaner)
    assert {file.path for file in report.files} == orphans
    assert path in shore.needed()
    shore.check_nothing_is_missing()


def test_a_cleaner_that_slept_while_snapshots_expired_goes_on() -> None:
    """What it had read of the table is gone; what it takes is still garbage."""
    shore, orphans = littered()
    cleaner = shore.open(shore.store)
    started = False

    def others_go_on(verb: str, path: str) -> None:
        nonlocal started
        if not started and path.endswith("-list.avro"):
            started = True
            other = shore.open()
            shore.pass_versions(330, other)
            expire_snapshots(other)

    shore.store.before = others_go_on
    report = remove_orphan_files(cleaner)
    shore.store.before = None
    assert orphans <= {file.path for file in report.files}
    shore.check_nothing_is_missing()


def test_the_removal_is_one_listing_for_each_folder_and_reads_each_metadata_file_once() -> None:
    shore, _ = littered()
    requests: list[tuple[str, str]] = []
    shore.store.before = lambda verb, path: requests.append((verb, path))
    remove_orphan_files(shore.open(shore.store))
    listed = [path for verb, path in requests if verb == "list"]
    assert [path for path in listed if path in ("data", "metadata/m")] == ["data", "metadata/m"]
    read = [path for verb, path in requests if verb == "read" and path.endswith("-manifest.avro")]
    assert len(read) == len(set(read))
