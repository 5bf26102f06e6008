"""The changes of a purge: what a removed file was leaves the manifests, and earlier snapshots may expire."""

from __future__ import annotations

from datetime import timedelta

from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.snapshots import Operation

from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.world import Lake, raw_entries
from timeline.changes.changes import Append, Replace
from timeline.changes.purge_changes import AppendNothing, RewriteManifests
from timeline.changes.row_deltas import RowDelta
from timeline.maintenance.expiry import expire_snapshots


def named(lake: Lake) -> set[str]:
    """Every file that a manifest of the head names, as live or as removed."""
    head = lake.open().head
    return {entry.data_file.file_path for each in head.manifests for entry in raw_entries(lake.store, each)}


def removed(lake: Lake) -> set[str]:
    head = lake.open().head
    return {
        entry.data_file.file_path
        for each in head.manifests
        for entry in raw_entries(lake.store, each)
        if entry.status == ManifestEntryStatus.DELETED
    }


def test_a_removed_file_is_named_until_its_manifest_is_written_again() -> None:
    lake = Lake()
    old, other = lake.file(3), lake.file(3)
    lake.table.commit([Append((old, other))])
    lake.table.commit([Replace(frozenset({old.file_path}), (lake.merged(old),))])
    lake.table.commit([Append((lake.file(1),))])
    assert old.file_path in named(lake)
    before = lake.live_rows()
    mixed = frozenset(each.manifest_path for each in lake.table.head.manifests)
    lake.table.commit([RewriteManifests(mixed)])
    assert old.file_path not in named(lake)
    assert lake.live_rows() == before
    snapshot = lake.table.head.snapshot
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation == Operation.REPLACE


def test_what_a_purge_itself_removes_leaves_with_the_next_snapshot() -> None:
    lake = Lake()
    old, other = lake.file(3), lake.file(3)
    lake.table.commit([Append((old, other))])
    deletes = lake.deletes(old, 1)
    kept = [lake.rows[old.file_path][at] for at in (0, 2)]
    fold = Replace(frozenset({old.file_path}), (lake.file(kept),), frozenset({deletes.file_path}), 1)
    lake.table.commit([RowDelta((), (deletes,)), fold, RewriteManifests()])
    assert removed(lake) == {old.file_path, deletes.file_path}
    before = lake.live_rows()
    assert sum(before.values()) == 5
    lake.table.commit([AppendNothing()])
    assert {old.file_path, deletes.file_path} & named(lake) == set()
    assert lake.live_rows() == before


def test_an_append_of_nothing_lets_the_snapshot_before_it_expire() -> None:
    lake = Shore()
    lake.append()
    changed = lake.table.head.metadata.current_snapshot_id
    for _ in range(2):
        lake.pass_versions(101)
        expire_snapshots(lake.table, max_snapshot_age=timedelta(0), min_snapshots_to_keep=1)
        kept = {each.snapshot_id for each in lake.table.head.metadata.snapshots}
        if changed not in kept:
            break
        lake.table.commit([AppendNothing()])
    assert changed not in kept
    newest = lake.table.head.snapshot
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary.operation == Operation.APPEND
    assert newest.summary["total-records"] == "10"


def test_manifests_that_another_commit_has_rewritten_are_left_out() -> None:
    lake = Lake()
    old = lake.file(3)
    lake.table.commit([Append((old, lake.file(2)))])
    stale = frozenset(each.manifest_path for each in lake.table.head.manifests)
    other = lake.open()
    other.commit([Replace(frozenset({old.file_path}), (lake.merged(old),))])
    before, new = lake.live_rows(), lake.file(1)
    lake.table.commit([RewriteManifests(stale), Append((new,))])
    assert lake.live_rows() == before + lake.rows_of(new)
