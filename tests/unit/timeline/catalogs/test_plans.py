"""Plans of tables in a catalog: announced in commits that move main, and aged by commits, not by numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from tests.unit.timeline.completing import complete_plan
from tests.unit.timeline.logs.kinds import CatalogKind
from tests.unit.timeline.plans import plan_of
from timeline import properties
from timeline.catalogs.catalog_version import CatalogVersion
from timeline.changes.changes import Append, Replace
from timeline.changes.plan_changes import Announce, CountCommit, Withdraw
from timeline.errors import CommitConflictError
from timeline.plans import instants
from timeline.plans.clustering import CLUSTERING
from timeline.plans.instants import State
from timeline.plans.reservations import Reservations, has_timed_out
from timeline.retention.policy import SAFE_DISTANCE
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.pending import pending_plans

HOUR_MS = 3600 * 1000


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


def two_files(kind: CatalogKind, table: Table) -> tuple[DataFile, DataFile]:
    files = kind.file([1]), kind.file([2])
    table.commit([Append(files)])
    return files


def test_a_plan_is_announced_carried_out_and_completed(kind: CatalogKind) -> None:
    table = kind.create()
    files = two_files(kind, table)
    plan_id = instants.schedule_plan(table, plan_of(CLUSTERING, files), CLUSTERING)
    opened = kind.open()
    assert Reservations(opened.store).files(opened.head) == {it.file_path: plan_id for it in files}
    with pytest.raises(CommitConflictError, match="reserved by plan"):
        instants.schedule_plan(opened, plan_of(CLUSTERING, files), CLUSTERING)
    assert instants.claim_plan(opened, plan_id) is not None
    assert instants.claim_plan(table, plan_id) is None
    replace = Replace(frozenset(it.file_path for it in files), (kind.file([1, 2]),))
    committed = complete_plan(opened, plan_id, [replace])
    assert committed.dropped == ()
    assert [it.state for it in instants.show_plan(table, CLUSTERING)] == [State.COMPLETED]
    assert not [key for key in table.head.properties if key.startswith(properties.PENDING_PLANS)]
    assert kind.rows() == [1, 2]


def test_plans_that_are_announced_at_once_are_each_there_in_a_short_property(kind: CatalogKind) -> None:
    table, other = kind.create(), kind.open()
    ids = [f"{number:026}" for number in range(1, 4)]
    kind.answers.append(lambda: other.commit([Announce(ids[0]), Announce(ids[1])]))
    table.commit([Announce(ids[2])])
    head = kind.open().head
    stored = head.properties
    assert [plan.version for plan in pending_plans(stored)] == [1, 1, head.number] == [1, 1, 2]
    assert {plan.plan_id for plan in pending_plans(stored)} == set(ids)
    ours = {key: value for key, value in stored.items() if key.startswith(properties.PENDING_PLANS)}
    assert len(ours) == 3
    assert max(map(len, ours.values())) < 100
    table.commit([Withdraw(ids[0]), Withdraw("0" * 26)])
    assert {plan.plan_id for plan in pending_plans(kind.open().head.properties)} == set(ids[1:])


def test_announcements_are_no_memory_and_may_be_removed_by_hand(kind: CatalogKind) -> None:
    table = kind.create()
    table.commit([Announce("1" * 26)])
    with kind.read().transaction() as edit:
        edit.remove_properties(properties.PENDING_PLAN_PREFIX + "1" * 26)
    opened = kind.open()
    assert pending_plans(opened.head.properties) == ()
    opened.commit([Append((kind.file([1]),))])
    assert kind.rows() == [1]


def test_commits_are_counted_for_clustering_whatever_others_commit(kind: CatalogKind) -> None:
    table = kind.create()
    for row in range(3):
        table.commit([Append((kind.file([row]),)), CountCommit()])
        rows = pa.table({"id": [100], "p": [0]}, schema=pa.schema([("id", pa.int64()), ("p", pa.int32())]))
        kind.read().append(rows)
    assert (table.refresh().counted_commits, table.head.number) == (3, 6)


def snapshots_of(commits: list[tuple[str, int]]) -> list[Snapshot]:
    """Return main's snapshots: of each commit its id, "" for another engine, and how many it adds."""
    made = list[Snapshot]()
    for commit_id, count in commits:
        for _ in range(count):
            number = len(made) + 1
            stated = {properties.COMMIT_ID: commit_id} if commit_id else {}
            made.append(
                Snapshot(
                    snapshot_id=number,
                    parent_snapshot_id=number - 1 or None,
                    sequence_number=number,
                    timestamp_ms=number,
                    manifest_list="",
                    summary=Summary(Operation.APPEND, **stated),
                )
            )
    return made


@pytest.mark.parametrize(
    ("commits", "expired", "counted"),
    [
        ([("a", 1)] + [(f"c{n}", 2) for n in range(60)], 0, 60),  # 120 numbers
        ([("a", 1)] + [("", 1)] * 7, 0, 7),
        ([("a", 1), ("b", 2), ("", 1), ("c", 1)], 0, 3),
        ([("a", 1), ("b", 2), ("", 1), ("c", 1)], 3, 4),  # what has expired counts by its numbers
        ([("a", 1)], 0, 0),
    ],
)
def test_how_long_ago_a_version_was_is_counted_in_commits(
    kind: CatalogKind, commits: list[tuple[str, int]], expired: int, counted: int
) -> None:
    snapshots = snapshots_of(commits)
    empty = kind.create().head.metadata
    update = {
        "snapshots": snapshots[expired:],
        "current_snapshot_id": len(snapshots),
        "last_sequence_number": len(snapshots),
    }
    version = CatalogVersion(len(snapshots), empty.model_copy(update=update))
    assert version.commits_since(1) == counted


def test_what_another_engine_has_beside_main_is_no_commit_where_it_has_expired_main_before_it(
    kind: CatalogKind,
) -> None:
    _, beside, newest = snapshots_of([("a", 1), ("", 1), ("c", 1)])
    newest = newest.model_copy(update={"parent_snapshot_id": 1})
    update = {"snapshots": [beside, newest], "current_snapshot_id": 3, "last_sequence_number": 3}
    version = CatalogVersion(3, kind.create().head.metadata.model_copy(update=update))
    assert version.commits_since(1) == 1


@pytest.mark.parametrize(("commits", "ended"), [(SAFE_DISTANCE - 1, False), (SAFE_DISTANCE, True)])
def test_a_reservation_ends_after_a_hundred_commits_of_two_snapshots(
    kind: CatalogKind, commits: int, ended: bool
) -> None:
    """By numbers it would end after fifty, and so at once for a writer whose clock is ahead."""
    table = kind.create()
    table.commit([Announce("1" * 26)])
    announced = table.head
    snapshots = snapshots_of([("a", 1)] + [(f"c{n}", 2) for n in range(commits)])
    update = {
        "snapshots": snapshots,
        "current_snapshot_id": len(snapshots),
        "last_sequence_number": len(snapshots),
        "last_updated_ms": announced.metadata.last_updated_ms + HOUR_MS + 1,
    }
    later = CatalogVersion(len(snapshots), announced.metadata.model_copy(update=update))
    [plan] = pending_plans(later.metadata.properties)
    assert has_timed_out(plan, Head(later, (), announced.manifest_files)) is ended
