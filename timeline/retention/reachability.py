"""Find the files that no snapshot reaches, by all that the snapshots of a head reach.

Where main has only grown, what left it is known from few lists (garbage.py). Where other engines commit too,
or main was set back, what left may be live again: by a rollback, a cherry-pick, a file that is added once
more. So each snapshot of the head is asked, on main, on a branch, tagged or staged.

What is missing of an expired snapshot is no damage: other engines delete without a grace period.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

from timeline import names
from timeline.errors import MissingMetadataError
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.deletions import DeletedKind, Deletion
from timeline.retention.expired import Note, SnapshotRecord
from timeline.stores.base import Store, find_path
from timeline.versions.head import Head


def find_unreached(
    files: ManifestFiles, head: Head, notes: Sequence[Note], in_grace: Iterable[SnapshotRecord]
) -> list[Deletion]:
    """Return the files of this protocol that the expired snapshots of some notes reach, and that no snapshot
    of the head does, nor one in its grace period; in the order in which they must be deleted.

    Reads the list of each snapshot, and each manifest: 20 µs of processor time a file of the head. Keeps what
    the expired ones alone list. MissingMetadataError where one of the head's is missing.
    """
    store = files.store
    live = {location: files.read_list(location) for location in _lists_of(head)}
    leaving = _find_lists(files, (record.manifest_list for record in in_grace))
    gone = [record.manifest_list for note in notes for record in (*note.expired, *note.unpinned)]
    expired = _find_lists(files, gone)
    needed = _by_path(store, (*leaving.values(), *live.values()))
    manifests = {path: it for path, it in _by_path(store, expired.values()).items() if path not in needed}
    sizes: dict[str, int] = {}
    for manifest in files.ahead(manifests.values(), copies=False):
        for entry in files.find_entries(manifest) or ():
            path = own_path(store, entry.data_file.file_path)
            if path is not None and entry.status != ManifestEntryStatus.DELETED:
                sizes[path] = entry.data_file.file_size_in_bytes
    of_head = {it.manifest_path for it in _by_path(store, live.values()).values()}
    for manifest in files.ahead(needed.values(), copies=False) if sizes else ():
        for location in _read_live(files, manifest, must_exist=manifest.manifest_path in of_head):
            sizes.pop(find_path(store, location) or "", None)
    why = f"no snapshot reaches it since version {max(note.version for note in notes)}"
    lists = {own_path(store, location) for location in expired.keys() - live.keys() - leaving.keys()}
    return [
        *(Deletion(path, DeletedKind.DATA_FILE, size, why) for path, size in sizes.items()),
        *(
            Deletion(path, DeletedKind.MANIFEST, manifest.manifest_length, why)
            for path, manifest in manifests.items()
            if names.written_id(path) is not None
        ),
        *(Deletion(path, DeletedKind.MANIFEST_LIST, None, why) for path in sorted(filter(None, lists))),
    ]


def own_path(store: Store, location: str) -> str | None:
    """Return the path of a file that this protocol wrote below the table; None for all others, which stay."""
    path = find_path(store, location)
    return None if path is None or names.written_id(path) is None else path


def _lists_of(head: Head) -> Iterator[str]:
    return (snapshot.manifest_list for snapshot in head.metadata.snapshots)


def _find_lists(files: ManifestFiles, locations: Iterable[str]) -> dict[str, Sequence[ManifestFile]]:
    """Return what lists hold, without those that were deleted."""
    found = ((location, files.find_list(location)) for location in locations)
    return {location: manifests for location, manifests in found if manifests is not None}


def _by_path(store: Store, lists: Iterable[Sequence[ManifestFile]]) -> dict[str, ManifestFile]:
    """Return manifests by their paths below the table, as engines spell one location in several ways."""
    return {
        find_path(store, manifest.manifest_path) or manifest.manifest_path: manifest
        for manifests in lists
        for manifest in manifests
    }


def _read_live(files: ManifestFiles, manifest: ManifestFile, *, must_exist: bool) -> Iterable[str]:
    """Return the locations of a manifest's live files; none where it was deleted, and may have been."""
    if (known := files.known(manifest)) is not None and not known.is_copy:
        return known.files
    entries = files.find_entries(manifest)
    if entries is None and must_exist:
        raise MissingMetadataError(
            "a manifest that a snapshot needs does not exist, so that reachability cannot be determined;"
            f" nothing was deleted: {manifest.manifest_path}",
            location=files.store.location,
            files=[manifest.manifest_path],
        )
    live = (entry for entry in entries or () if entry.status != ManifestEntryStatus.DELETED)
    return (entry.data_file.file_path for entry in live)
