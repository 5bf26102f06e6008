"""What the simulator found, each as the shortest story that shows it. See docs/correctness.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.world import BY_P, SCHEMA, FaultyStore, Lake, version_of
from timeline import names, properties
from timeline.changes.changes import Append, Replace
from timeline.commit import version_log
from timeline.errors import CommitStateUnknownError, StoreUnavailableError
from timeline.maintenance.expiry import expire_snapshots
from timeline.retention import grace, policy
from timeline.retention.expired import Note, SnapshotRecord, pending_notes, read_expiry_notes
from timeline.stores import Created, CreateOutcome, Exists, Stored
from timeline.table import Committed, Table
from timeline.versions.transactions import Transaction


class Crash(BaseException):
    """The process dies here."""


@pytest.fixture(autouse=True)
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads remember three commits, and three versions stay: ten commits are past every retention."""
    monkeypatch.setattr(properties, "RECENT_COMMITS_KEPT", 3)
    monkeypatch.setattr(policy, "VERSIONS_ALWAYS_KEPT", 3)
    monkeypatch.setattr(policy, "VERSION_AGE_MS", -1)
    monkeypatch.setattr(version_log, "MAINTAIN_EVERY", 1)


def batch(number: int, run: str = "run", epoch: int | None = None) -> Transaction:
    return Transaction("app", "query", run, number, epoch)


def others_commit(lake: Lake, times: int) -> None:
    for _ in range(times):
        assert isinstance(lake.table.commit([Append((lake.file(1),))]), Committed)


def die() -> None:
    raise Crash


def a_fork_of_batch_0_is_left(lake: Lake) -> None:
    """A writer sleeps past retention, creates a number that was deleted, and dies before it looks."""
    store = FaultyStore(lake.name)
    zombie = lake.open(store)
    others_commit(lake, 6)
    store.lists.append(die)
    with pytest.raises(Crash):
        zombie.commit([Append((lake.file(1),))], transaction=batch(0, "zombie"))


def test_a_batch_is_not_skipped_because_a_fork_holds_it() -> None:
    """A fork's bytes come from the slot, unlisted: only a listed head says what is committed (R4)."""
    lake = Lake()
    sleeper = lake.open()
    a_fork_of_batch_0_is_left(lake)
    file = lake.file(1)
    assert isinstance(sleeper.commit([Append((file,))], transaction=batch(0)), Committed)
    assert file.file_path in lake.live()


def test_an_error_leaves_no_fork_as_the_known_head() -> None:
    """After it, the batch is tried again on the same table: it must be committed then, not skipped (R4)."""
    lake = Lake()
    store = FaultyStore(lake.name)
    sleeper = lake.open(store)
    a_fork_of_batch_0_is_left(lake)
    file = lake.file(1)
    store.lists.append("fails")
    sleeper.deadline_seconds = 0
    with pytest.raises(CommitStateUnknownError):
        sleeper.commit([Append((file,))], transaction=batch(0))
    sleeper.deadline_seconds = 600
    assert sleeper.head.transaction("app") is None
    assert isinstance(sleeper.commit([Append((file,))], transaction=batch(0)), Committed)
    assert file.file_path in lake.live()


@dataclass
class Sleeper:
    """A writer that falls asleep between the create of batch 0 and the listing that confirms it."""

    lake: Lake
    store: FaultyStore
    table: Table

    @classmethod
    def of(cls, lake: Lake, store: FaultyStore) -> Sleeper:
        return cls(lake, store, lake.open(store))

    def next_run_goes_on(self) -> None:
        successor, epoch = self.lake.open(), None
        for number in range(1, 6):
            file = self.lake.file(1)
            done = successor.commit([Append((file,))], transaction=batch(number, "successor", epoch))
            assert isinstance(done, Committed)
            epoch = done.epoch


def test_a_commit_that_the_head_has_forgotten_is_not_declared_failed() -> None:
    """Its batch is below the last one: it was committed and built upon, as its live file proves (R1)."""
    lake = Lake()
    sleeper = Sleeper.of(lake, FaultyStore(lake.name))
    sleeper.store.lists.append(sleeper.next_run_goes_on)
    file = lake.file(1)
    assert isinstance(sleeper.table.commit([Append((file,))], transaction=batch(0)), Committed)
    assert file.file_path in lake.live()


class _NoManifests(FaultyStore):
    """Fails the next reads of manifests."""

    failures = 0

    def read(self, path: str) -> Stored:
        if self.failures and path.startswith(names.MANIFEST_FOLDER) and not names.is_manifest_list(path):
            self.failures -= 1
            raise StoreUnavailableError("it does not answer")
        return super().read(path)


def test_a_read_that_fails_while_a_forgotten_commit_is_judged_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says nothing of the commit, and StoreUnavailableError would say that nothing of it is live (R3)."""
    monkeypatch.setattr(policy, "SAFE_DISTANCE", 2)
    lake = Lake()
    store = _NoManifests(lake.name)
    sleeper = Sleeper.of(lake, store)

    def oversleep() -> None:
        sleeper.next_run_goes_on()
        expire_snapshots(lake.open(), max_snapshots=1, min_snapshots_to_keep=1)
        store.failures = 2
        sleeper.table.log.manifest_files.keep_only(())

    store.lists.append(oversleep)
    assert isinstance(sleeper.table.commit([Append((lake.file(1),))], transaction=batch(0)), Committed)
    assert store.failures == 0


def test_the_note_of_a_lost_commit_does_not_cut_the_grace_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that slept notes, under its old number, what another one has expired just now (R7)."""
    monkeypatch.setattr(policy, "SAFE_DISTANCE", 2)
    monkeypatch.setattr(grace, "SAFE_DISTANCE", 2)
    lake = Lake(table_properties={properties.MIN_SNAPSHOTS_TO_KEEP: "1"})
    others_commit(lake, 6)
    before = lake.open().head.metadata.snapshots
    expire_snapshots(lake.table, max_snapshots=3, grace=timedelta(hours=1))
    (true_note,) = notes(lake)
    late = replace(true_note, version=2, commit_id=names.ulid(0, 7))
    lake.store.create(late.path, late.encode())
    others_commit(lake, 1)
    gone = before[0].manifest_list
    assert lake.store.read(lake.store.relative(gone))
    assert {note.path for note in notes(lake)} == {late.path, true_note.path}, "both wait for the later one"


@pytest.mark.parametrize("under_the_id_of", ["no other", "the attempt that won"])
def test_the_note_of_a_fork_deletes_nothing_that_main_has(
    monkeypatch: pytest.MonkeyPatch, under_the_id_of: str
) -> None:
    """It keeps a snapshot of the fork's own, which removed files; it came late, under an old number (R7). An
    attempt that lost is such a fork, and the one that won has a snapshot of the same id.
    """
    monkeypatch.setattr(policy, "SAFE_DISTANCE", 2)
    monkeypatch.setattr(grace, "SAFE_DISTANCE", 2)
    lake = Shore()
    old = lake.append(), lake.append()
    files = [live.location for live in lake.table.head.live_files()]
    store = FaultyStore(lake.name)
    zombie = lake.open(store)
    for _ in range(6):
        lake.append()
    expire_snapshots(lake.table, max_snapshots=2, min_snapshots_to_keep=1)
    store.lists.append(die)
    with pytest.raises(Crash):
        zombie.commit([Replace(frozenset(files), (lake.file([r for f in files for r in lake.rows[f]]),))])
    fork = version_of(lake.store, old[1].version + 1).metadata.snapshots[-1]
    gone = SnapshotRecord(7, 1, lake.store.uri("metadata/m/gone"))
    kept = SnapshotRecord.of(fork)
    if under_the_id_of != "no other":
        kept = replace(kept, snapshot_id=lake.table.head.metadata.snapshots[-1].snapshot_id)
    note = Note(2, names.ulid(0, 7), (gone,), kept)
    lake.objects.overwrite(note.path, note.encode())
    lake.table.delete_expired(lake.table.log.list())
    lake.check_nothing_is_missing()
    assert note not in notes(lake)


def test_the_hint_never_names_a_version_that_a_sleeper_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its listing is newer than the head that it knows, and what goes is counted from the listing (R19)."""
    lake = Lake()
    sleeper = lake.open()
    monkeypatch.setattr(version_log, "MAINTAIN_EVERY", 1000)
    others_commit(lake, 8)
    lake.store.overwrite(names.HINT_PATH, b"1")
    monkeypatch.setattr(version_log, "MAINTAIN_EVERY", 1)
    sleeper.tidy()
    listing = lake.table.log.list()
    assert 1 not in listing.versions
    assert lake.table.log.read_hint() in listing.versions


def notes(lake: Lake) -> list[Note]:
    found, _ = read_expiry_notes(lake.store, pending_notes(lake.store))
    return [*found.values()]


class _Retries(FaultyStore):
    """Its client tries creates again by itself; its next answer to one comes after `sleep`."""

    sleep: Callable[[], None] | None = None

    def create(self, path: str, data: bytes) -> CreateOutcome:
        if self.sleep is None or names.version_number(path) is None:
            return super().create(path, data)
        sleep, self.sleep = self.sleep, None
        assert isinstance(super().create(path, data), Created)
        sleep()
        return Exists()


def a_sleeper_whose_number_a_fork_takes(lake: Lake) -> tuple[_Retries, Table]:
    """Before it is answered its version is created, built upon and deleted by retention, and a stalled
    writer's fork has the number.
    """
    store, fork = _Retries(lake.name), FaultyStore(lake.name)
    sleeper, zombie = lake.open(store), lake.open(fork)

    def oversleep() -> None:
        others_commit(lake, 6)
        fork.lists.append(die)
        with pytest.raises(Crash):
            zombie.commit([Append((lake.file(1),))])

    store.sleep = oversleep
    return store, sleeper


@pytest.mark.parametrize("deadline_seconds", [0, 600])
def test_exists_and_others_bytes_are_no_loss_where_ours_was_built_upon(deadline_seconds: int) -> None:
    """Ours was there, was deleted by retention, and a stalled writer's fork has its number since (R2)."""
    lake = Lake()
    _, sleeper = a_sleeper_whose_number_a_fork_takes(lake)
    sleeper.deadline_seconds = deadline_seconds
    file = lake.file(1)
    done = sleeper.commit([Append((file,))])
    assert isinstance(done, Committed)
    assert done.version == 2
    assert list(lake.live_rows().values()) == [1] * 7


def test_a_commit_of_a_table_that_was_made_again_meanwhile_is_not_declared_failed() -> None:
    """Declared failed, its files would be deleted, which readers of the old table may be at (seed 200426)."""
    lake = Lake()
    store = FaultyStore(lake.name)
    writer = lake.open(store)

    def drop_and_make_again() -> None:
        lake.store.delete([listed.path for listed in lake.store.list_folder(names.VERSION_FOLDER)])
        again = Table.create(lake.store, SCHEMA, BY_P, environment=lake.clock.environment(7))
        for _ in range(3):
            again.commit([Append((lake.file(1),))])

    store.lists.append(drop_and_make_again)
    with pytest.raises(
        CommitStateUnknownError, match="dropped and created again while version 2 was being committed"
    ):
        writer.commit([Append((lake.file(1),))])


def test_a_manifest_that_could_not_be_written_again_is_not_left_out() -> None:
    """Seed 318380: the fence had risen over the manifest of a loser. To write it again failed, on a winner
    that no listing had shown; the next attempt, on a listed head, found no manifest and committed a snapshot
    without its file: an acknowledged row that nobody would ever have read (R6, R21).
    """
    lake = Lake()
    store = _FailsOnce(lake.name)
    mine, noon = lake.open(store), lake.clock.now_ms

    def another_wins_and_the_fence_rises() -> None:
        cutoff = names.ulid_floor(noon + 1000)
        lake.change_metadata(
            lambda metadata: {"properties": {**metadata.properties, properties.GC_CUTOFF: cutoff}}
        )
        lake.clock.now_ms = noon + 2000
        store.fails = True

    store.creates.append(another_wins_and_the_fence_rises)
    new = lake.file(3, id_ms=noon + 1500)
    committed = mine.commit([Append((new,))])
    assert isinstance(committed, Committed)
    assert not store.fails
    assert lake.live_rows() == lake.rows_of(new)


class _FailsOnce(FaultyStore):
    """Refuses one manifest, once it is told to."""

    fails = False

    def create(self, path: str, data: bytes) -> CreateOutcome:
        if self.fails and path.endswith("-manifest.avro"):
            self.fails = False
            raise StoreUnavailableError("it does not answer")
        return super().create(path, data)


def test_a_doubt_whose_table_is_dropped_meanwhile_is_no_failure() -> None:
    """Ours was there and was built upon, so its rows may have been read: nothing says that it failed."""
    lake = Lake()
    store, sleeper = a_sleeper_whose_number_a_fork_takes(lake)

    def drop() -> None:
        lake.store.delete([listed.path for listed in lake.store.list_folder(names.VERSION_FOLDER)])

    store.lists.append(drop)
    sleeper.deadline_seconds = 0
    with pytest.raises(CommitStateUnknownError, match="was dropped while version 2 was being committed"):
        sleeper.commit([Append((lake.file(1),))])
