"""When what is left of a purge leaves, for people."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from streaming_sink.removal.leftovers import Leftover, LeftoverKind, Leftovers
from streaming_sink.removal.places import is_elsewhere
from timeline import names, properties
from timeline.maintenance.orphans import LEAST_AGE
from timeline.retention.policy import SAFE_DISTANCE, find_memories, snapshot_version
from timeline.versions.head import Head

OLDER = (LeftoverKind.HISTORY, LeftoverKind.BOUNDS)
"""What leaves once the snapshots that have it have expired."""


def orphaned_until_ms(orphan: Leftover) -> int | None:
    """Return from which time of the table on an orphan may be deleted (R6); None for one that this sink did
    not write, and leaves alone.
    """
    file_id = names.written_id(orphan.path)
    least_ms = LEAST_AGE // timedelta(milliseconds=1)
    return None if file_id is None else names.ulid_time_ms(file_id) + least_ms + 1


def until(each: Leftover, left: Leftovers) -> str:
    """Return what has to happen before something leaves."""
    head = left.table.head
    grace = timedelta(milliseconds=properties.number(head.properties, properties.DELETION_GRACE_MS))
    if each.kind in OLDER and each.newest:
        expired = f"its snapshots expire {_expiring(head, each.newest)}"
        if stays := _stays(each, head):
            return f"{expired}; {stays}"
        return f"{expired}; the file is deleted {SAFE_DISTANCE} versions and {grace} after that"
    if each.kind in (LeftoverKind.HISTORY, LeftoverKind.EXPIRED, LeftoverKind.BOUNDS):
        if stays := _stays(each, head):
            return f"its snapshots have expired; {stays}"
        return (
            f"deleted {SAFE_DISTANCE} versions and {grace} after its snapshots expired; what such a deletion"
            " misses a day after it was written, by the next purge"
        )
    due_ms = orphaned_until_ms(each) if each.kind is LeftoverKind.ORPHAN else None
    if due_ms is not None:
        at = datetime.fromtimestamp(due_ms / 1000, tz=timezone.utc)
        return f"a writer may still commit it; purge again after {at:%Y-%m-%d %H:%M:%SZ} of the table's time"
    return _UNTIL[each.kind]


def _expiring(head: Head, newest: int) -> str:
    """Return when the snapshots up to one expire; `newest` is its sequence number."""
    by_number = {it.sequence_number: it for it in head.metadata.snapshots}
    if not head.version.is_shared:
        version = snapshot_version(by_number[newest]) if newest in by_number else head.number
        return f"at version {version + SAFE_DISTANCE:,} or later (now {head.number:,})"
    main = list(head.main_snapshots())
    memories = [it for it in main if it.snapshot_id in find_memories(main)]
    if kept := [it for it in memories if (it.sequence_number or 0) <= newest]:
        return (
            f"once the engine that remembers its commits in snapshot {kept[-1].snapshot_id} has made a newer"
            " one; where it has left for good, Spark's expire_snapshots removes it"
        )
    return f"{SAFE_DISTANCE} commits later, of any engine (now {head.version.commits_since(newest):,} are)"


def _stays(each: Leftover, head: Head) -> str:
    """Return who deletes a file that this sink does not; "" for its own."""
    if is_elsewhere(each.path):
        return "the file stays until its owner deletes it"
    if head.version.is_shared and names.written_id(each.path) is None:
        return "the file is another engine's: run its remove_orphan_files after that"
    return ""


_UNTIL = {
    LeftoverKind.LIVE: "a purge deletes the rows and rewrites the file; problems say why one could not",
    LeftoverKind.DELETED: "a purge rewrites the file; problems say why one could not",
    LeftoverKind.REF: "the tag or branch is dropped (drop-tag, drop-branch); then purge again",
    LeftoverKind.STAGED: "the staged snapshot is published or dropped; then purge again",
    LeftoverKind.UNDELIVERED: "the stream, or the next purge, delivers it",
    LeftoverKind.FOREIGN: "its owner deletes it: this sink did not write it. Where another engine did, and no"
    " snapshot needs it any more, its remove_orphan_files does",
    LeftoverKind.REFERENCE: "its owner deletes it; one that is written anew under its name lands again",
    LeftoverKind.DELETE_FILE: "the engine that wrote it rewrites its data files",
    LeftoverKind.INDEX: "purge again: the stream has built it since",
    LeftoverKind.NOT_CHECKED: "it can be read: restore it, or delete it if it is not needed",
    LeftoverKind.TOMBSTONE: "tombstones have outlived their time to live; it is a hash, and no value",
}
