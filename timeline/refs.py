"""Set main back, name snapshots by the version of the table that is meant, and take such names away."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from timeline import staging
from timeline.changes.changes import Beside, Change
from timeline.changes.ref_changes import Branch, RemoveRef, Rollback, Tag
from timeline.retention.policy import cut_off, number_of, snapshot_version
from timeline.table import Committed, Table
from timeline.versions.head import Head
from timeline.versions.staged import find_item_of_tag, wap_id_of

_LOG = logging.getLogger("streaming_sink.timeline")
_NAMED = 20


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
        if number_of(snapshot) < committed.version:
            left.append(snapshot.snapshot_id)
    return RolledBack(committed.version, number_of(target), target.snapshot_id, tuple(left))


def set_tag(table: Table, name: str, version: int | None = None) -> int:
    """Let a tag keep what main was in a version, by default now; return the snapshot. As `roll_back`; but a
    version that another name keeps, or has kept until now, may be from before main's history.
    """
    return _name(table, lambda snapshot_id: Tag(name, snapshot_id), version)


def set_branch(table: Table, name: str, version: int | None = None) -> int:
    """Begin a branch at what main was in a version, by default now; return the snapshot. As `set_tag`."""
    return _name(table, lambda snapshot_id: Branch(name, snapshot_id), version)


def remove_ref(table: Table, name: str, kind: SnapshotRefType) -> int:
    """Remove a tag, or a branch beside main; return the snapshot that it named, which stays until a later
    version expires it (R7). It is removed as it was seen here.

    By the tag of a work item that is staged, and not settled, the item is unstaged: its zone's next worker
    writes it again, and where there is no zone any more, none does. One that another engine has brought to
    main is recorded as published (R27). No row is lost or doubled by either. One that others publish or
    discard first stays so, as the log says.

    ValueError for main, and for a name that the table does not have. Raises as `Table.commit`:
    CommitConflictError where others have moved or removed it since.
    """
    head = table.refresh()
    known = head.metadata.refs.get(name)
    if name != MAIN_BRANCH and (known is None or known.snapshot_ref_type != kind):
        raise ValueError(
            f"the table has no {kind} {name!r}, but {_refs_of(head)}; nothing was changed:"
            f" {table.store.location}"
        )
    snapshot_id = 0 if known is None else known.snapshot_id  # of an empty table main is none
    item = find_item_of_tag(head, name)
    if item is None:
        table.commit([RemoveRef(name, snapshot_id, kind)])
    elif staging.settle_picked(table, item) is None:
        done = staging.unstage_item(table, item, snapshot_id)
        became = (
            "is not staged any more; its buffer zone writes it again"
            if isinstance(done, Committed)
            else "was published or discarded before that, and is not written again"
        )
        _LOG.warning("work item %d of %r %s: %s", item.number, item.app_id, became, table.store.location)
    return snapshot_id


def _refs_of(head: Head) -> str:
    """Return the tags and the branches beside main, for people."""
    refs = sorted(head.metadata.refs.items())
    found = [f"{ref.snapshot_ref_type} {name!r}" for name, ref in refs if name != MAIN_BRANCH]
    more = [f"{len(found) - _NAMED:,} more"] if len(found) > _NAMED else []
    return ", ".join([*found[:_NAMED], *more]) or "neither tags nor branches beside main"


def snapshot_at(head: Head, version: int) -> Snapshot:
    """Return the snapshot that main was at in a version. ValueError where it is not in the history."""
    found = next((it for it in head.main_snapshots() if number_of(it) <= version), None)
    if found is None or version > head.number:
        known = [number_of(it) for it in head.main_snapshots()]
        if not known:
            raise ValueError(f"the table has no snapshot yet, so no rows: {head.metadata.location}")
        raise ValueError(
            f"the history has the versions from {min(known)} to {head.number}, and not"
            f" {version}: {head.metadata.location}"
        )
    return found


def _name(table: Table, change: Callable[[int], Change], version: int | None) -> int:
    head = table.refresh()
    kept = None if version is None else _kept_by_a_name(head, version)
    snapshot = kept or snapshot_at(head, head.number if version is None else version)
    wanted = change(snapshot.snapshot_id)
    wanted.check()
    if wanted.find_conflict(head, head.schema.schema_id, Beside({}, frozenset())) is None:
        table.commit([wanted])
    return snapshot.snapshot_id  # which has the name already, where nothing was committed


def _kept_by_a_name(head: Head, version: int) -> Snapshot | None:
    """Return what a version has made of main whose history does not reach so far any more, since a name kept
    it: also one that was removed, until a later version expires what it held.
    """
    before = cut_off(head.metadata.snapshots, [*head.main_snapshots()])
    return next(
        (it for it in reversed(before) if snapshot_version(it) == version and wap_id_of(it) is None), None
    )
