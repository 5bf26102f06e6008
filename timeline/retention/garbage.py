"""Find the files that only expired snapshots reach, and delete them after their grace period (R7).

Snapshots leave main as a prefix, and each takes over only manifests of its parent (R8). So for the expired
snapshots S1 … Sk, and S the oldest that main kept, what later snapshots still reach of them is in S's list:

* a manifest that is in a list of S1 … Sk and not in that of S is garbage;
* a data file that one of S2 … Sk, S removed is garbage: manifests name what their snapshot removed;
* the lists of S1 … Sk are garbage.

Nothing else of the table is read, however large it is. Snapshots that do not descend from S (branches, tags,
staged ones) pin what they reach; so do those that a tag had kept, in a grace period of their own. This holds
while main only grows; where it may not have, all snapshots are asked (reachability.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

from timeline import names, properties
from timeline.errors import ErrorKind, TimelineError
from timeline.manifests.contents import ManifestContents
from timeline.manifests.copies import copy_path
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.deletions import DeletedKind, Deletion, Deletions, by_kind
from timeline.retention.expired import Note, Pending, SnapshotRecord, pending_notes, read_expiry_notes
from timeline.retention.grace import GracePeriods
from timeline.retention.policy import lineage, snapshot_version
from timeline.retention.reachability import find_unreached
from timeline.stores.base import Store, find_path
from timeline.versions.head import Head

_LOG = logging.getLogger("streaming_sink.timeline")
_DELETION_ORDER = (DeletedKind.DATA_FILE, DeletedKind.MANIFEST, DeletedKind.MANIFEST_LIST)


class GarbageUnknownError(TimelineError):
    """The list of the oldest kept snapshot is missing: reachability cannot be determined."""

    kind = ErrorKind.TRY_AGAIN


def sweep(
    files: ManifestFiles,
    head: Head,
    *,
    at_most: int | None = None,
    grace_ms: int | None = None,
    dry_run: bool = False,
) -> Deletions:
    """Delete the files that only snapshots reach whose grace period is over, of at most so many expiries.

    `head` is the newest that is known; a later one only pins less. One LIST, and then the notes that are due.
    Where main may not only have grown, all snapshots are asked: with `at_most` once a grace period, so that
    several expiries are paid for at once.
    """
    if head.version.keeps_files:
        return Deletions(dry_run=dry_run)
    grace = GracePeriods.of(files.store, head, grace_ms)
    waiting: list[Pending] = []
    due: list[Pending] = []
    for pending in pending_notes(files.store, head.version.owner):
        if grace.has_lost(pending):
            if not dry_run:
                files.store.delete([pending.path])
        else:
            (waiting if grace.has(pending) else due).append(pending)
    deleted: list[Deletion] = []
    if due:
        read, _ = read_expiry_notes(files.store, (*due, *waiting))
        notes_of_main = _notes_of_main(read.values(), head)
        # A commit that lost may have noted long ago, or late under an old number, what another one has
        # expired only now, or a tag has kept until now: the grace period is that of the one that expired it,
        # whose note is in the store too. All notes of a snapshot wait for the last of their grace periods:
        # one that was deleted at once, for another's, would leave what it names to the orphan cleaner. Where
        # one that may have landed cannot be read, what is in its grace is not known, and all of them wait.
        live = {snapshot.snapshot_id for snapshot in head.metadata.snapshots}
        waits = [read[each] for each in waiting if each in read]
        unpinned = [record for note in waits for record in note.unpinned]
        left = [*(record for note in waits for record in note.expired), *unpinned]
        in_grace = {record.snapshot_id for record in left}
        unknown = any(each not in read and grace.has_of_commit(each) for each in waiting)
        ripe = [] if unknown else [each for each in due if _of_none(read.get(each), in_grace)]
        waiting += [each for each in due if each not in ripe]
        doubtful = {
            each: note for each in ripe if (note := read.get(each)) and _may_return(head, note, notes_of_main)
        }
        if doubtful and (at_most is None or max(map(grace.age_ms, doubtful)) >= 2 * grace.grace_ms):
            notes = [note for note in doubtful.values() if _of_none(note, live)]
            garbage = find_unreached(files, head, notes, left) if notes else []
            if not dry_run:
                _delete(files.store, garbage, doubtful)
            deleted += garbage
        for pending in [each for each in ripe if each not in doubtful][:at_most]:
            note = read.get(pending)
            garbage = []
            if note in notes_of_main and _of_none(note, live):
                garbage = _find_garbage_of(files, head, note, unpinned)
            if head.version.is_shared:  # what other engines have written is theirs to delete (R32)
                garbage = [each for each in garbage if names.written_id(each.path) is not None]
            if not dry_run:
                _delete(files.store, garbage, [pending])
            deleted += garbage
    return Deletions(tuple(deleted), waiting=len(waiting), dry_run=dry_run)


def _of_none(note: Note | None, snapshot_ids: Collection[int]) -> bool:
    """Return whether a note expired none of these snapshots."""
    return note is None or not any(each.snapshot_id in snapshot_ids for each in note.expired)


def _notes_of_main(notes: Iterable[Note], head: Head) -> list[Note]:
    """Return the notes whose kept snapshot is one of main's: it is live, or expired by a later such note.

    A fork may have kept a snapshot of its own, and that removed files which main still has: its note, late
    under an old number, says nothing about main. The orphan cleaner deletes what it names.

    A list identifies a snapshot, and its id does not: all attempts of a commit give its snapshot one id, and
    the list of the attempt that lost may lack manifests that the one which won has.
    """
    of_main = {snapshot.manifest_list for snapshot in head.metadata.snapshots}
    found = []
    for note in sorted(notes, key=lambda note: note.version, reverse=True):
        if note.kept.manifest_list in of_main:
            of_main |= {record.manifest_list for record in note.gone}
            found.append(note)
    return found


def _find_garbage_of(
    files: ManifestFiles, head: Head, note: Note, unpinned: Sequence[SnapshotRecord]
) -> list[Deletion]:
    try:
        return find_garbage(files, head, note, unpinned) if note.expired else []
    except GarbageUnknownError as unknown:
        _LOG.info("the rest of %s is left to the orphan cleaner: %s", note.path, unknown)
    return []


def _may_return(head: Head, note: Note, notes: Sequence[Note]) -> bool:
    """Return whether a file that a note's snapshots reach may have left main and have come back since: by a
    rollback of this sink, which says so, or by another engine.

    Where other engines commit too, it cannot have where each sequence number since is known to be of this
    protocol and on main: a snapshot that they have made or removed is there, or leaves a gap.
    """
    if not note.expired:
        return False
    if int(head.properties.get(properties.ROLLED_BACK, 0)) > note.expired[0].sequence_number:
        return True
    if not head.version.is_shared:
        return False
    ours = {snapshot.sequence_number for snapshot in head.main_snapshots() if snapshot_version(snapshot)}
    if len(ours) < len(head.metadata.snapshots):
        return True
    later = [each for each in notes if each.version >= note.version and not each.theirs]
    known = ours.union(record.sequence_number for each in later for record in each.expired)
    return not known.issuperset(range(note.expired[0].sequence_number, head.number + 1))


def _delete(store: Store, garbage: list[Deletion], pending: Iterable[Pending]) -> None:
    """Delete what notes name, and then the notes."""
    # First, since they are not found again once the lists have been deleted.
    store.delete([copy_path(file.path) for file in by_kind(garbage, DeletedKind.MANIFEST)])
    for kind in _DELETION_ORDER:
        store.delete([file.path for file in by_kind(garbage, kind)])
    store.delete([each.path for each in pending])


def find_garbage(
    files: ManifestFiles, head: Head, note: Note, unpinned: Sequence[SnapshotRecord]
) -> list[Deletion]:
    """Return the files that only the note's snapshots reach, in the order in which they must be deleted.

    Data files come before the manifests that name them, and those before the lists: a deletion that was cut
    off is found again. Files that are missing were deleted by a run that got further. `head` pins, and so do
    the `unpinned` that are in their grace period. GarbageUnknownError where another run has got beyond this
    note.
    """
    kept = files.find_list(note.kept.manifest_list)
    if kept is None:
        raise GarbageUnknownError(f"the list of snapshot {note.kept.snapshot_id} is missing")
    lists = {
        expired.manifest_list: manifests
        for expired in note.expired
        if (manifests := files.find_list(expired.manifest_list)) is not None
    }
    pins = [(pin, files.read_list(pin.manifest_list)) for pin in _find_pins(head, note)]
    leaving = [(pin, files.find_list(pin.manifest_list) or ()) for pin in unpinned]
    carried = {manifest.manifest_path for manifest in kept}
    needed = carried.union(
        manifest.manifest_path for _, manifests in (*pins, *leaving) for manifest in manifests
    )
    listed = {manifest.manifest_path: manifest for manifests in lists.values() for manifest in manifests}
    removed = _find_removed(files, [*listed.values(), *kept], note)
    for pin, manifests in pins:
        own = [each for each in manifests if each.manifest_path not in carried]
        _spare(removed, pin, own, files.read_contents)
    for pin, manifests in leaving:
        # A commit that lost may note late what was deleted long ago: such a snapshot has no readers any more.
        own = [each for each in manifests if each.manifest_path not in carried]
        _spare(removed, pin, own, files.find_contents)
    why = f"only snapshots that version {note.version} expired reach it"
    found = [(location, DeletedKind.DATA_FILE, file.bytes) for location, file in removed.items()]
    found += [
        (path, DeletedKind.MANIFEST, manifest.manifest_length)
        for path, manifest in listed.items()
        if path not in needed
    ]
    garbage = [
        Deletion(path, kind, size, why)
        for location, kind, size in found
        if (path := find_path(files.store, location)) is not None
    ]
    return garbage + [
        Deletion(path, DeletedKind.MANIFEST_LIST, None, why)
        for location in lists
        if (path := find_path(files.store, location)) is not None
    ]


class _Removed(NamedTuple):
    """What is kept of a file that a snapshot removed: there may be a million."""

    bytes: int
    added_at: int
    """The sequence number of the snapshot that added it."""


def _find_removed(files: ManifestFiles, manifests: Iterable[ManifestFile], note: Note) -> dict[str, _Removed]:
    """Return the files that the expired snapshots after the first, or the oldest kept one, removed."""
    after, until = note.expired[0].sequence_number, note.kept.sequence_number
    deleting = {
        manifest.manifest_path: manifest
        for manifest in manifests
        if manifest.deleted_files_count != 0 and after < manifest.sequence_number <= until
    }
    return {
        entry.data_file.file_path: _Removed(
            entry.data_file.file_size_in_bytes, entry.file_sequence_number or 0
        )
        for manifest in files.ahead(deleting.values(), copies=False)
        for entry in files.find_entries(manifest) or ()
        if entry.status == ManifestEntryStatus.DELETED
    }


def _find_pins(head: Head, note: Note) -> list[SnapshotRecord]:
    """Return the snapshots that do not descend from the oldest that the note's version kept on main."""
    main = {s.snapshot_id for s in lineage(head.metadata.current_snapshot_id, head.metadata.snapshots)}
    return [
        SnapshotRecord.of(snapshot)
        for snapshot in head.metadata.snapshots
        if snapshot.snapshot_id not in main or (snapshot.sequence_number or 0) < note.kept.sequence_number
    ]


def _spare(
    removed: dict[str, _Removed],
    pin: SnapshotRecord,
    manifests: Iterable[ManifestFile],
    contents: Callable[[ManifestFile], ManifestContents | None],
) -> None:
    """Remove from `removed` the files that a pinned snapshot reads.

    What it has of its ancestors was added before it. What it has added itself may have been added to main
    later: a staged file is, when it is published (R27).
    """
    older = any(file.added_at <= pin.sequence_number for file in removed.values())
    for manifest in manifests:
        if older or manifest.added_snapshot_id == pin.snapshot_id:
            found = contents(manifest)
            for location in () if found is None else found.files:
                removed.pop(location, None)
