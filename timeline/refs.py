"""Set main back, and name snapshots: by the version of the table that is meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table.snapshots import Snapshot

from timeline.changes.changes import Change
from timeline.changes.ref_changes import Branch, Rollback, Tag
from timeline.retention.policy import snapshot_version
from timeline.table import Committed, Table
from timeline.versions.head import Head


@dataclass(frozen=True)
class RolledBack:
    """What a rollback did."""

    version: int
    """The version that has the old content."""
    to_version: int
    """The version whose content it is."""
    snapshot_id: int
    left: tuple[int, ...]
    """The snapshots whose rows are no longer in the table, newest first, as far as history shows them."""


def roll_back(table: Table, to_version: int) -> RolledBack:
    """Give main the content that it had in a version, in a new version. Writers may go on: what they have
    added since that version leaves, and their batches are not written again.

    ValueError for a version that is not in the history. Raises as `Table.commit` does.
    """
    head = table.refresh()
    target = snapshot_at(head, to_version)
    if target is head.snapshot:
        raise ValueError(f"main has the content of version {to_version} already: {head.metadata.location}")
    committed = table.commit([Rollback(target.snapshot_id)])
    assert isinstance(committed, Committed)
    left = []
    for snapshot in table.head.main_snapshots():
        if snapshot.snapshot_id == target.snapshot_id:
            break
        if _number(snapshot) < committed.version:
            left.append(snapshot.snapshot_id)
    return RolledBack(committed.version, _number(target), target.snapshot_id, tuple(left))


def set_tag(table: Table, name: str, version: int | None = None) -> int:
    """Let a tag keep what main was in a version, by default now; return the snapshot. As `roll_back`."""
    return _name(table, lambda snapshot_id: Tag(name, snapshot_id), version)


def set_branch(table: Table, name: str, version: int | None = None) -> int:
    """Begin a branch at what main was in a version, by default now; return the snapshot. As `roll_back`."""
    return _name(table, lambda snapshot_id: Branch(name, snapshot_id), version)


def snapshot_at(head: Head, version: int) -> Snapshot:
    """Return the snapshot that main was at in a version. ValueError where it is not in the history."""
    found = next((it for it in head.main_snapshots() if _number(it) <= version), None)
    if found is None or version > head.number:
        known = [_number(it) for it in head.main_snapshots()]
        raise ValueError(
            f"the history has the versions from {min(known, default=head.number)} to {head.number}, and not"
            f" {version}: {head.metadata.location}"
        )
    return found


def _name(table: Table, change: Callable[[int], Change], version: int | None) -> int:
    head = table.refresh()
    snapshot = snapshot_at(head, head.number if version is None else version)
    table.commit([change(snapshot.snapshot_id)])
    return snapshot.snapshot_id


def _number(snapshot: Snapshot) -> int:
    """Return the version of a snapshot; of another engine's in a catalog its sequence number."""
    return snapshot_version(snapshot) or snapshot.sequence_number or 0
