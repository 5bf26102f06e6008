"""Who sleeps past the grace period and meets a deleted file goes on with a newer head; damage is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.world import NOON, FaultyStore
from timeline import names, properties
from timeline.changes.changes import Append, Replace
from timeline.commit import version_log
from timeline.drafts import draft
from timeline.errors import CommitConflictError, CorruptTableError, MissingMetadataError
from timeline.retention import grace, policy
from timeline.retention.expired import Note, SnapshotRecord
from timeline.stores import Stored
from timeline.table import Committed
from timeline.versions.head import Head

BRIEF = {
    properties.MIN_SNAPSHOTS_TO_KEEP: "1",
    properties.MAX_SNAPSHOTS: "2",
    properties.DELETION_GRACE_MS: "0",
    properties.MANIFEST_MIN_MERGE_COUNT: "2",
}


@pytest.fixture
def shore(monkeypatch: pytest.MonkeyPatch) -> Shore:
    """A table that keeps nothing: ten commits are past every grace."""
    monkeypatch.setattr(policy, "SAFE_DISTANCE", 2)
    monkeypatch.setattr(grace, "SAFE_DISTANCE", 2)
    monkeypatch.setattr(policy, "VERSIONS_ALWAYS_KEPT", 3)
    monkeypatch.setattr(policy, "VERSION_AGE_MS", -1)
    monkeypatch.setattr(draft, "MAINTAIN_EVERY", 1)
    monkeypatch.setattr(version_log, "MAINTAIN_EVERY", 1)
    shore = Shore(BRIEF)
    shore.append()
    return shore


def oversleep(shore: Shore) -> None:
    for _ in range(10):
        shore.fill()


class Drowsy(FaultyStore):
    """Sleeps right before its next read of a manifest list, or of a manifest."""

    def __init__(self, shore: Shore, kind: str) -> None:
        super().__init__(shore.name)
        self._kind = kind
        self._sleep: Callable[[], None] | None = lambda: oversleep(shore)

    def read(self, path: str) -> Stored:
        if path.endswith(f"-{self._kind}.avro") and self._sleep is not None:
            sleep, self._sleep = self._sleep, None
            sleep()
        return super().read(path)


def rows(head: Head) -> int:
    return sum(file.rows for file in head.live_files())


def test_a_commit_goes_on_with_the_newer_head(shore: Shore) -> None:
    """The fill is dropped, since others have merged its input meanwhile; the append is in."""
    sleeper = shore.open()
    (small,) = [file.location for file in shore.table.head.live_files()]
    oversleep(shore)
    new = shore.file()
    merged = shore.file([*shore.rows[new.file_path], *shore.rows[small]])
    fill = Replace(frozenset([new.file_path, small]), (merged,))
    done = sleeper.commit([Append((new,)), fill])
    assert isinstance(done, Committed)
    assert [dropped.change for dropped in done.dropped] == [fill]
    assert new.file_path in shore.live()


def test_a_commit_that_no_longer_fits_is_a_conflict(shore: Shore) -> None:
    sleeper = shore.open()
    (small,) = [file.location for file in shore.table.head.live_files()]
    oversleep(shore)
    again = Replace(frozenset([small]), (shore.file(shore.rows[small]),))
    with pytest.raises(CommitConflictError, match="another commit has replaced an input"):
        sleeper.commit([again])


def test_opening_a_table_takes_the_newer_head(shore: Shore) -> None:
    opened = shore.open(Drowsy(shore, "list"))
    assert opened.head.number == shore.table.head.number


def test_a_refresh_takes_the_newer_head(shore: Shore) -> None:
    sleeper = shore.open()
    shore.append()
    sleeper.log.manifest_files.store = Drowsy(shore, "list")
    assert sleeper.refresh().number == shore.table.head.number


def test_planning_takes_the_newer_head(shore: Shore) -> None:
    sleeper = shore.open(Drowsy(shore, "manifest"))
    assert sleeper.on_head(rows) == rows(shore.table.head)
    assert sleeper.head.number == shore.table.head.number


def test_a_cleaner_takes_the_newer_head(shore: Shore) -> None:
    """What a tag pinned on the head that it knows may have gone with the tag."""
    tagged, stays = shore.table.head.metadata.snapshots[0], shore.append().appended_snapshot_id
    assert stays is not None
    pin(shore, tagged=tagged.snapshot_id, stays=stays)
    oversleep(shore)
    cleaner = shore.open()
    pin(shore, stays=stays)
    oversleep(shore)
    shore.objects.delete([shore.store.relative(tagged.manifest_list)])
    a_note_is_due(shore, stays)
    assert tagged in cleaner.head.metadata.snapshots
    cleaner.delete_expired(cleaner.log.list())
    assert cleaner.head.number == shore.table.head.number
    assert tagged not in cleaner.head.metadata.snapshots


def pin(shore: Shore, **tags: int) -> None:
    refs = {
        name: SnapshotRef(snapshot_id=snapshot_id, snapshot_ref_type=SnapshotRefType.TAG)
        for name, snapshot_id in tags.items()
    }
    shore.change_metadata(lambda metadata: {"refs": {"main": metadata.refs["main"], **refs}})
    shore.table.refresh()


def a_note_is_due(shore: Shore, kept: int) -> None:
    gone = SnapshotRecord(1, 1, shore.store.uri("metadata/m/gone"))
    (snapshot,) = [s for s in shore.table.head.metadata.snapshots if s.snapshot_id == kept]
    note = Note(1, names.ulid(NOON, 1), (gone,), SnapshotRecord.of(snapshot))
    shore.objects.overwrite(note.path, note.encode())


@pytest.mark.parametrize("kind", ["list", "manifest"])
def test_a_file_that_the_newest_head_lacks_is_damage(shore: Shore, kind: str) -> None:
    sleeper = shore.open()
    (small,) = [file.location for file in shore.table.head.live_files()]
    for listed in shore.objects.list_folder(names.MANIFEST_FOLDER):
        if listed.path.endswith(f"-{kind}.avro"):
            shore.objects.delete([listed.path])
    again = Replace(frozenset([small]), (shore.file(shore.rows[small]),))
    attempts: list[Callable[[], object]] = [lambda: sleeper.on_head(rows), lambda: sleeper.commit([again])]
    for attempt_it in [shore.open] if kind == "list" else attempts:
        with pytest.raises(CorruptTableError, match=f"-{kind}.avro"):
            attempt_it()


def test_a_head_that_is_held_too_long_says_what_it_misses(shore: Shore) -> None:
    """A reader that pins a version has no newer one to go on with."""
    pinned = shore.open().head
    oversleep(shore)
    with pytest.raises(MissingMetadataError, match="manifest"):
        rows(pinned)
