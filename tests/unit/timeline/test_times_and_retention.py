"""Times run with the table (R12); snapshots and version files leave by them, and by number (R7, R19)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from tests.unit.timeline.world import DAY_MS, NOON, Audit, Clock, Lake, versions_of
from timeline import names, properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.names import HINT_PATH, version_number
from timeline.retention.policy import lineage, snapshots_to_expire, versions_to_delete
from timeline.stores import MemoryStore
from timeline.table import Committed, Table

BOUNDS = {
    properties.MAX_SNAPSHOT_AGE_MS: str(DAY_MS),
    properties.MIN_SNAPSHOTS_TO_KEEP: "1",
    properties.MANIFEST_MIN_MERGE_COUNT: "1000",
}
"""No manifest is merged, so that each append is one snapshot."""


def fill(lake: Lake, table: Table) -> Committed:
    """Append a file and merge it with the smallest live one, if there is any."""
    new = lake.file()
    live = [file for file in table.head.live_files() if file.bytes < 5000][:1]
    rows = [row for location in [new.file_path, *(f.location for f in live)] for row in lake.rows[location]]
    removed = frozenset([new.file_path, *(f.location for f in live)])
    committed = table.commit(
        [Append((new,)), Replace(removed, (lake.file(rows, size=1000 * (1 + len(live))),))],
        open_below_bytes=5000,
    )
    assert isinstance(committed, Committed)
    return committed


# time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1, -DAY_MS, DAY_MS, -10 * DAY_MS])
def test_last_updated_grows_strictly_in_every_version_whatever_the_clock_does(step: int) -> None:
    lake = Lake()
    clock = Clock(NOON + step)
    stepped = lake.open(clock=clock)
    commits = [
        lambda table: table.commit([Append((lake.file(),))]),
        lambda table: table.commit([SetProperties({"a": "b"})]),
        lambda table: fill(lake, table),
    ]
    for commit in [*commits, *commits]:
        commit(stepped)
        commit(lake.table)
        clock.now_ms += step // 7
    versions = versions_of(lake.store)
    assert len(versions) == 13
    times = [version.metadata.last_updated_ms for version in versions.values()]
    assert all(earlier < later for earlier, later in itertools.pairwise(times))
    for version in versions.values():
        for snapshot in version.metadata.snapshots:
            assert snapshot.timestamp_ms <= version.metadata.last_updated_ms
        for entry, later in itertools.pairwise(version.metadata.metadata_log):
            assert entry.timestamp_ms < later.timestamp_ms
    Audit(lake.store).check()


def test_the_first_version_takes_its_time_from_the_given_clock() -> None:
    lake = Lake()
    assert lake.table.head.metadata.last_updated_ms == NOON


def test_the_replace_is_one_millisecond_after_its_append() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))], open_below_bytes=5000)
    lake.clock.now_ms += 1000
    fill(lake, lake.table)
    a, b = lake.table.head.metadata.snapshots[-2:]
    assert (a.timestamp_ms, b.timestamp_ms) == (NOON + 1000, NOON + 1001)
    assert lake.table.head.metadata.last_updated_ms == b.timestamp_ms


def test_ids_of_manifests_and_lists_run_with_the_table_not_with_the_machine() -> None:
    """A machine whose clock is years behind writes no id that the garbage fence would take."""
    lake = Lake()
    late = lake.open(clock=Clock(NOON - 365 * DAY_MS))
    fill(lake, late)
    for entry in MemoryStore(lake.name).list_folder(names.MANIFEST_FOLDER):
        file_id = names.file_id(entry.path)
        assert file_id is not None
        assert file_id >= names.ulid_floor(NOON + 1)
    assert late.head.version.commit_id >= names.ulid_floor(NOON + 1)


# snapshots ----------------------------------------------------------------------------------------


def kept_versions(table: Table) -> list[int]:
    return [
        int(s.summary.additional_properties[properties.VERSION])
        for s in table.head.metadata.snapshots
        if s.summary is not None
    ]


def test_snapshots_older_than_the_age_leave_once_a_hundred_later_versions_exist() -> None:
    lake = Lake(table_properties=BOUNDS)
    for _ in range(10):
        lake.table.commit([Append((lake.file(),))])
    lake.clock.now_ms += 2 * DAY_MS
    for later in range(110):
        committed = lake.table.commit([Append((lake.file(),))])
        assert isinstance(committed, Committed)
        # Snapshots leave at every twentieth version; that of version 2 is too near at version 100.
        assert committed.expired_snapshots == (10 if committed.version == 120 else 0), later
    assert kept_versions(lake.table) == list(range(12, 122))
    assert not committed.history_cut
    Audit(lake.store).check()


def test_a_writer_whose_clock_is_a_day_ahead_expires_nothing() -> None:
    lake = Lake(table_properties=BOUNDS)
    for _ in range(60):
        lake.table.commit([Append((lake.file(),))])
    ahead = lake.open(clock=Clock(NOON + 3 * DAY_MS))
    committed = ahead.commit([Append((lake.file(),))])
    assert isinstance(committed, Committed)
    assert committed.expired_snapshots == 0
    assert len(ahead.head.metadata.snapshots) == 61


def test_age_is_the_difference_within_the_lineage_not_to_the_local_clock() -> None:
    """A day ahead once pushed the table's time on; a writer with the right clock then measures from there."""
    lake = Lake(table_properties=BOUNDS)
    ahead = lake.open(clock=Clock(NOON + 3 * DAY_MS))
    ahead.commit([Append((lake.file(),))])
    for _ in range(150):
        committed = lake.table.commit([Append((lake.file(),))])
        assert isinstance(committed, Committed)
        assert committed.expired_snapshots == 0
    assert lake.table.head.metadata.last_updated_ms == NOON + 3 * DAY_MS + 150


def test_the_number_bounds_snapshots_too_and_the_report_says_when_it_cuts_the_age_short() -> None:
    """One too many takes a twentieth of the number with it, so that few commits expire anything."""
    lake = Lake(table_properties={**BOUNDS, properties.MAX_SNAPSHOTS: "160"})
    counts, cut_at = [], []
    for commit in range(1, 181):
        committed = lake.table.commit([Append((lake.file(),))])
        assert isinstance(committed, Committed)
        counts.append(len(lake.table.head.metadata.snapshots))
        if committed.history_cut:
            cut_at.append(commit)
    assert counts[:178] == list(range(1, 179)), "snapshots leave at every twentieth version only"
    assert counts[178:] == [152, 153]
    assert cut_at == [179]


def test_the_number_bound_never_goes_below_a_hundred_versions() -> None:
    lake = Lake(table_properties={**BOUNDS, properties.MAX_SNAPSHOTS: "3"})
    for _ in range(130):
        lake.table.commit([Append((lake.file(),))])
    assert kept_versions(lake.table) == list(range(21, 132))


def test_an_append_and_its_replace_leave_together() -> None:
    lake = Lake(table_properties={**BOUNDS, properties.MAX_SNAPSHOTS: "151"})
    for _ in range(119):
        fill(lake, lake.table)
        first = lake.table.head.metadata.snapshots[0]
        assert first.summary is not None
        assert first.summary.operation == Operation.APPEND
    # The hundred later versions hold two snapshots each.
    assert len(lake.table.head.metadata.snapshots) == 200
    Audit(lake.store).check()


def test_the_newest_append_never_leaves() -> None:
    """A stream reader's offset names it, however long ago it was."""
    lake = Lake(table_properties={**BOUNDS, properties.MAX_SNAPSHOTS: "1"})
    a = lake.file()
    lake.table.commit([Append((lake.file(),))])
    lake.table.commit([Append((a,))])
    for _ in range(130):
        lake.clock.now_ms += DAY_MS
        merged = lake.merged(a)
        lake.table.commit([Replace(frozenset({a.file_path}), (merged,))])
        a = merged
    snapshots = lake.table.head.metadata.snapshots
    assert snapshots[0].summary is not None
    assert snapshots[0].summary.operation == Operation.APPEND
    assert kept_versions(lake.table)[0] == 3
    assert len(snapshots) == 131


def test_commits_without_snapshots_expire_too() -> None:
    """A table that only clusters or changes properties forgets its old states all the same."""
    lake = Lake(table_properties=BOUNDS)
    lake.table.commit([Append((lake.file(),))])
    lake.table.commit([Append((lake.file(),))])
    lake.clock.now_ms += 5 * DAY_MS
    for _ in range(120):
        lake.table.commit([SetProperties({"a": "b"})])
    assert len(lake.table.head.metadata.snapshots) == 1


def snapshot(
    number: int, operation: Operation = Operation.APPEND, *, time: int = 0, id_: int | None = None
) -> Snapshot:
    snapshot_id = number if id_ is None else id_
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=snapshot_id - 1 or None,
        sequence_number=snapshot_id,
        timestamp_ms=time,
        manifest_list="x",
        summary=Summary(operation, **{properties.VERSION: str(number)}),
    )


def expire(snapshots: Sequence[Snapshot], refs: dict[str, int] | None = None, **bounds: str) -> list[int]:
    pins = {"main": snapshots[-1].snapshot_id, **(refs or {})}
    kinds = {"main": SnapshotRefType.BRANCH}
    named = {
        name: SnapshotRef(snapshot_id=sid, snapshot_ref_type=kinds.get(name, SnapshotRefType.TAG))
        for name, sid in pins.items()
    }
    given = {properties.MAX_SNAPSHOT_AGE_MS: "100", properties.MIN_SNAPSHOTS_TO_KEEP: "1", **bounds}
    version = 1000
    return sorted(snapshots_to_expire(snapshots, named, given, version, 10_000).snapshot_ids)


def test_what_a_tag_names_stays_and_the_rest_of_the_prefix_leaves() -> None:
    assert expire([snapshot(n) for n in range(1, 11)]) == list(range(1, 10))
    assert expire([snapshot(n) for n in range(1, 11)], {"tag": 4}) == [1, 2, 3, 5, 6, 7, 8, 9]


def test_an_append_stays_while_a_tag_keeps_its_replace() -> None:
    """A reader that starts at the tagged replace resolves its append (R7)."""
    pair = [snapshot(3, id_=3), snapshot(3, Operation.REPLACE, id_=4)]
    history = [snapshot(1, id_=1), snapshot(2, id_=2), *pair, snapshot(5, id_=5), snapshot(6, id_=6)]
    assert expire(history, {"tag": 4}) == [1, 2, 5]


def test_snapshots_that_are_not_on_main_stay() -> None:
    history = [snapshot(1), snapshot(2), snapshot(3), snapshot(4)]
    history.insert(2, snapshot(2, id_=77).model_copy(update={"parent_snapshot_id": 1}))
    assert 77 not in expire(history)


def test_only_a_prefix_leaves_though_a_later_snapshot_looks_older() -> None:
    times = [9_990, 0, 9_995, 9_999]
    assert expire([snapshot(n + 1, time=t) for n, t in enumerate(times)]) == []


def test_one_version_expires_two_hundred_at_most() -> None:
    """So the deletion of what they reached is bounded too; a backlog leaves over several versions."""
    assert expire([snapshot(n) for n in range(1, 301)]) == list(range(1, 201))


def test_the_least_number_to_keep_is_kept() -> None:
    history = [snapshot(n) for n in range(1, 11)]
    assert expire(history, **{properties.MIN_SNAPSHOTS_TO_KEEP: "4"}) == [1, 2, 3, 4, 5, 6]


def test_what_is_staged_beside_main_makes_its_history_no_shorter() -> None:
    """Work items may wait for days, by the hundred, and their tags hold them whatever the bounds are."""
    history = [snapshot(n) for n in range(1, 11)]
    staged = [snapshot(n, id_=n).model_copy(update={"parent_snapshot_id": 3}) for n in range(11, 16)]
    tags = {"main": 10, **{f"wap-app-{n}": n for n in range(11, 16)}}
    young = {properties.MAX_SNAPSHOT_AGE_MS: "100000"}
    assert expire([*history, *staged], tags, **young, **{properties.MAX_SNAPSHOTS: "10"}) == []
    assert expire([*history, *staged], tags, **young, **{properties.MAX_SNAPSHOTS: "8"}) == [1, 2]
    assert expire([*history, *staged], tags, **{properties.MIN_SNAPSHOTS_TO_KEEP: "4"}) == [1, 2, 3, 4, 5, 6]


# version files ------------------------------------------------------------------------------------


def test_old_version_files_are_those_beyond_a_hundred_and_an_hour_or_beyond_nine_hundred() -> None:
    hour = 3_600_000
    log = {n: n * 1000 for n in range(1, 1201)}
    assert versions_to_delete(range(1, 1201), log, 1200, 1_200_000) == list(range(1, 301))
    assert versions_to_delete(range(1, 1201), log, 1200, 600_000 + hour) == list(range(1, 600))
    assert versions_to_delete(range(1, 1201), log, 1200, 10 * hour) == list(range(1, 1101))
    assert versions_to_delete(range(1, 101), log, 100, 100 * hour) == []
    assert versions_to_delete([5, 1200], {}, 1200, 10) == [5]


def test_what_the_log_does_not_know_is_old() -> None:
    assert versions_to_delete([5, 300], {300: 1}, 300, 100_000_000) == [5]


@pytest.mark.parametrize(("commits", "milliseconds"), [(1500, 1), (400, 60_000)])
def test_version_files_stay_bounded_and_the_hint_goes_first(commits: int, milliseconds: int) -> None:
    """Fast commits keep at most a page of them, slow ones the last hundred; all are in metadata-log."""
    lake = Lake()
    table = lake.open(lake.store)
    events: list[tuple[str, str]] = []

    def watch(verb: str, path: str) -> None:
        if verb in ("delete", "overwrite"):
            events.append((verb, path))
        if verb == "delete":
            hint = int(MemoryStore(lake.name).read(HINT_PATH).data)
            number = version_number(path)
            assert number is not None
            assert number <= hint - 100

    lake.store.before = watch
    log = table.log
    most = least = 0
    for step in range(commits):
        lake.clock.now_ms += milliseconds
        table.commit([SetProperties({"step": str(step)})])
        if step % 50 == 49:
            listed = sorted(log.list().versions)
            assert listed == list(range(listed[0], table.head.number + 1))
            most, least = max(most, len(listed)), len(listed)
            logged = {version_number(e.metadata_file) for e in table.head.metadata.metadata_log}
            assert set(listed) <= logged | {table.head.number}
    assert 100 <= least <= most <= 1000
    assert (most > 850) is (milliseconds == 1)
    assert (most < 300) is (milliseconds == 60_000)
    assert int(MemoryStore(lake.name).read(HINT_PATH).data) == table.head.number
    assert any(verb == "delete" for verb, _ in events)
    for entry in table.head.metadata.metadata_log:
        assert entry.metadata_file.startswith("memory://")


def test_no_version_is_deleted_where_the_hint_cannot_be_refreshed() -> None:
    lake = Lake()
    for step in range(178):
        lake.clock.now_ms += 60_000
        lake.table.commit([SetProperties({"step": str(step)})])
    before = len(versions_of(lake.store))
    MemoryStore(lake.name).overwrite(HINT_PATH, b"3")

    def no_hint(verb: str, path: str) -> None:
        assert verb != "delete"
        if (verb, path) == ("overwrite", HINT_PATH):
            raise ConnectionError("no")

    lake.store.before = no_hint
    lake.clock.now_ms += 60_000
    lake.table.commit([SetProperties({"step": "x"})])
    assert lake.table.head.number == 180
    assert len(versions_of(lake.store)) == before + 1


def test_the_hint_never_goes_backwards() -> None:
    """A slow writer that tidies after others went on leaves their hint alone."""
    lake = Lake()
    slow = lake.open()
    for _ in range(3):
        lake.table.commit([SetProperties({"a": "b"})])
    slow.tidy()
    assert MemoryStore(lake.name).read(HINT_PATH).data == b"4"


@pytest.mark.parametrize("before", [b"", b"garbage", b"2\n", b"1"])
def test_the_hint_is_mended_by_the_next_commit_in_digits_without_a_newline(before: bytes) -> None:
    lake = Lake()
    MemoryStore(lake.name).overwrite(HINT_PATH, before)
    lake.table.commit([SetProperties({"a": "b"})])
    lake.table.commit([SetProperties({"a": "c"})])
    assert MemoryStore(lake.name).read(HINT_PATH).data == b"3"


def test_a_new_table_has_a_hint() -> None:
    assert MemoryStore(Lake().name).read(HINT_PATH).data == b"1"


def test_a_version_file_is_plain_json_that_pyiceberg_could_have_written() -> None:
    lake = Lake()
    fill(lake, lake.table)
    stored = json.loads(MemoryStore(lake.name).read(names.version_path(2)).data)
    ours = json.loads(lake.table.head.metadata.model_dump_json())
    assert stored == ours


def test_a_lineage_that_runs_in_a_circle_ends() -> None:
    """Only damage makes one; a commit must not hang on it."""
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    (snapshot,) = lake.table.head.metadata.snapshots
    circle = snapshot.model_copy(update={"parent_snapshot_id": snapshot.snapshot_id})
    assert lineage(circle.snapshot_id, [circle]) == [circle]


def test_a_writer_that_is_far_behind_deletes_no_version_whose_time_it_does_not_know() -> None:
    lake = Lake()
    behind, others = lake.open(), lake.open()
    for step in range(150):
        others.commit([SetProperties({"step": str(step)})])
    listed = behind.log.list()
    behind.delete_expired(listed)
    assert behind.log.list().versions.keys() == listed.versions.keys()
