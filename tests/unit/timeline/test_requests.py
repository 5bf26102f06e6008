"""What a commit and a refresh cost in requests, and in which order they are sent."""

from __future__ import annotations

import pytest

from tests.unit.timeline.cleaning import BRIEF, Shore
from tests.unit.timeline.world import Lake
from timeline import properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.errors import CorruptTableError
from timeline.names import HINT_PATH, version_path
from timeline.retention.deletions import DeletedKind
from timeline.retention.expired import pending_notes
from timeline.table import Committed


def test_an_uncontended_append_with_a_warm_cache_costs_one_list_one_get_and_four_puts() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    lake.store.count()
    lake.table.commit([Append((lake.file(),))])
    assert lake.store.count() == {"LIST": 1, "GET": 1, "PUT": 4}


def test_a_fill_costs_at_most_seven_puts() -> None:
    lake = Lake()
    a = lake.file()
    lake.table.commit([Append((a,))], open_below_bytes=5000)
    lake.store.count()
    new = lake.file()
    replace = Replace(frozenset({a.file_path, new.file_path}), (lake.merged(a, new),))
    lake.table.commit([Append((new,)), replace], open_below_bytes=5000)
    counted = lake.store.count()
    assert counted["PUT"] <= 7
    assert (counted["LIST"], counted["GET"], counted["DELETE"]) == (1, 1, 0)


def test_one_lost_race_costs_only_the_list_and_the_version_again() -> None:
    """The appended files' manifest is written once (R15), and the winner's bytes came with settling."""
    lake = Lake()
    other = lake.open()
    lake.table.commit([SetProperties({})])
    lake.store.count()
    other.refresh()
    lake.store.creates.append(lambda: other.commit([SetProperties({"a": "b"})]))
    lake.table.commit([Append((lake.file(),))])
    counted = lake.store.count()
    assert counted["PUT"] == 4 + 2
    assert counted["GET"] <= 3
    assert counted["LIST"] == 1


def test_refreshing_costs_one_list_while_nothing_changed() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    lake.store.count()
    lake.table.refresh()
    assert lake.store.count() == {"LIST": 1}


@pytest.mark.parametrize("new", [1, 3, 10])
def test_refreshing_after_others_committed_reads_only_what_is_new(new: int) -> None:
    lake = Lake()
    for _ in range(15):
        lake.table.commit([Append((lake.file(),))])
    watcher = lake.open(lake.store)
    list(watcher.head.live_files())
    for _ in range(new):
        lake.table.commit([Append((lake.file(),))])
    lake.store.count()
    files = len(list(watcher.refresh().live_files()))
    assert files == 15 + new
    lists = 0 if new == 1 else 1  # the next version tells which manifests it added to ours
    assert lake.store.count() == {"LIST": 1, "GET": 1 + lists + new}


def test_a_commit_on_a_stale_head_costs_requests_by_what_is_new_only() -> None:
    lake = Lake()
    for _ in range(15):
        lake.table.commit([Append((lake.file(),))])
    mine = lake.open(lake.store)
    list(mine.head.live_files())
    for _ in range(8):
        lake.open().commit([Append((lake.file(),))])
    lake.store.count()
    mine.commit([Append((lake.file(),))])
    counted = lake.store.count()
    assert counted["GET"] <= 6 + 8
    assert counted["LIST"] <= 2


def test_the_hint_is_written_after_the_commit() -> None:
    lake = Lake()
    lake.store.requests.clear()
    lake.table.commit([Append((lake.file(),))])
    puts = [path for verb, path in lake.store.requests if verb in ("create", "overwrite")]
    assert puts[-2:] == [version_path(2), HINT_PATH]


def test_a_hint_that_cannot_be_written_does_not_fail_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake()

    def no_hint(verb: str, path: str) -> None:
        if path == HINT_PATH:
            raise ConnectionError("no")

    lake.store.before = no_hint
    assert isinstance(lake.table.commit([Append((lake.file(),))]), Committed)
    assert "version 2 is committed; tidying after it failed" in caplog.text


def test_refreshing_never_steps_back_to_a_lower_version() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    lake.store.delete([version_path(lake.table.head.number)])
    with pytest.raises(CorruptTableError, match="has vanished"):
        lake.table.refresh()


def test_nineteen_appends_in_twenty_cost_the_same_with_retention_as_without() -> None:
    shore = Shore({**BRIEF, properties.MANIFEST_MIN_MERGE_COUNT: "1000"})
    for _ in range(60):
        shore.append()
    shore.pass_versions(140)
    swept = []
    for _ in range(40):
        notes = len(pending_notes(shore.objects))
        shore.store.count()
        committed = shore.append()
        counted = shore.store.count()
        if committed.version % 20:
            assert counted == {"LIST": 1, "GET": 1, "PUT": 4}
        else:
            swept.append(committed.deleted.count(DeletedKind.MANIFEST_LIST))
            # One snapshot expires at first, and is noted. The notes are listed and read, those that wait too,
            # and the hint again. What the lists of the snapshots held is known: they were written here.
            assert (counted["PUT"], counted["LIST"]) == (4 + committed.expired_snapshots, 2)
            assert counted["GET"] == 1 + 1 + notes + committed.expired_snapshots
    assert swept == [19, 20]


def test_who_committed_the_snapshots_reads_no_list_to_delete_what_they_reached() -> None:
    """Each costs a request, one after another, while a stream waits; one who has not seen them reads each."""
    shore = Shore()
    deleted = 0
    for _ in range(300):
        before = len(shore.store.requests)
        deleted += len(shore.fill().deleted.files)
        read = [path for verb, path in shore.store.requests[before:] if verb == "read"]
        assert not [path for path in read if path.endswith("-list.avro")]
    assert deleted > 50
    while (shore.table.head.number + 1) % 20:
        shore.fill()
    another = shore.open(shore.store)
    shore.store.requests.clear()
    lists = shore.fill(another).deleted.count(DeletedKind.MANIFEST_LIST)
    read = [path for verb, path in shore.store.requests if verb == "read" and path.endswith("-list.avro")]
    assert len(read) > lists > 0


@pytest.mark.parametrize("behind", [1, 2, 5, 60, 99])
def test_a_writer_that_fell_behind_catches_up_at_once(behind: int) -> None:
    """It does not walk through the versions that it missed one lost race after another."""
    lake = Lake()
    mine, other = lake.open(lake.store), lake.open()
    for _ in range(behind):
        other.commit([Append((lake.file(),))])
    lake.clock.seconds += 5
    lake.store.count()
    committed = mine.commit([Append((lake.file(),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    assert sum(lake.clock.sleeps) == 0
    # Written: the manifest; the list and the version, twice; the hint. Read: who won, and the head, with its
    # list where it does not follow the head that we knew; the hint. Listed: for the head, and to confirm.
    assert lake.store.count() == {"PUT": 6, "GET": 3 if behind == 1 else 4, "LIST": 2}


def test_a_writer_that_looked_right_before_builds_on_the_winner_without_a_listing() -> None:
    lake = Lake()
    mine, other = lake.open(lake.store), lake.open()
    other.commit([SetProperties({"step": "1"})])
    lake.store.count()
    committed = mine.commit([Append((lake.file(),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    assert lake.store.count()["LIST"] == 1
