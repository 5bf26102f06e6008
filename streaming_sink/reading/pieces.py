"""What the snapshots of a table have added and deleted: pieces of data files, from metadata, and from the
delete files that several data files share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from dataclasses import replace
from functools import cached_property
from typing import Any

from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.snapshots import Operation, Snapshot

from streaming_sink.tasks.files.change_task import ChangedRows
from timeline.errors import MissingMetadataError
from timeline.manifests.contents import is_data
from timeline.manifests.deletes import DeleteIndex, live_rows
from timeline.manifests.entries import LiveFile, live_file
from timeline.manifests.lookup import find_files
from timeline.properties import ROLLED_BACK_TO
from timeline.retention.policy import lineage, number_of, snapshot_version
from timeline.versions.head import Head
from timeline.versions.version_file import stated_by

_CHANGES = (Operation.APPEND, Operation.OVERWRITE, Operation.DELETE)
PURGE = "streaming-sink.purge"
"""In the summary of a snapshot whose deletes are for the law: no copy of their rows may be made."""


NamedIn = Callable[[str], Mapping[str, Sized]]
"""Returns the positions in a shared delete file, by the data files that it names."""


def changed_pieces(
    head: Head,
    first: int,
    last: int,
    named_in: NamedIn,
    *,
    purges: bool = True,
) -> list[ChangedRows]:
    """Return what the versions from `first` to `last` have changed, in their order; those of other engines
    too. A replace changes no row. `purges`: also what was deleted for the law.

    ValueError where a version in between is no longer in the history, or rows were deleted by their values.
    MissingMetadataError where the head is so old that its manifests were deleted.
    """
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in head.metadata.snapshots}
    of_main = lineage(head.metadata.current_snapshot_id, head.metadata.snapshots)
    main = sorted(of_main, key=lambda snapshot: snapshot.sequence_number or 0)
    if main and first < number_of(main[0]) and _has_older(head, main[0]):
        raise ValueError(
            f"the changes before version {number_of(main[0])} have expired with their snapshots; begin"
            f" there, or keep snapshots for longer (retention): the first version asked for is {first}:"
            f" {head.metadata.location}"
        )
    wanted = (it for it in main if first <= number_of(it) <= last and (purges or not _is_purge(it)))
    return [piece for snapshot in wanted for piece in _pieces(head, snapshot, snapshots, named_in)]


def _has_older(head: Head, oldest: Snapshot) -> bool:
    """Return whether snapshots from before the oldest of main have expired: some catalogs set its parent to
    null then, and its files have older numbers all the same.
    """
    if oldest.parent_snapshot_id is not None:
        return True
    if not head.version.is_shared:
        return False
    listed = head.manifest_files.read_list(oldest.manifest_list)
    return any(it.min_sequence_number < (oldest.sequence_number or 0) for it in listed)


def _is_purge(snapshot: Snapshot) -> bool:
    return PURGE in stated_by(snapshot)


def _pieces(
    head: Head, snapshot: Snapshot, snapshots: Mapping[int, Snapshot], named_in: NamedIn
) -> Iterator[ChangedRows]:
    if snapshot.summary is None or snapshot.summary.operation not in _CHANGES:
        return
    version = number_of(snapshot)

    is_ours = bool(snapshot_version(snapshot))

    def piece(location: str, rows: int, deletes: Iterable[str], **kind: Any) -> ChangedRows:
        names, of = tuple(sorted(deletes)), snapshot
        return ChangedRows(
            version, of.snapshot_id, of.timestamp_ms, location, deletes=names, rows=rows, **kind
        )

    added: list[LiveFile] = []
    removed: list[LiveFile] = []
    new, restored = _Positions(named_in), _Positions(named_in)
    for entry in _entries_of(head, snapshot):
        file, left = live_file(entry), entry.status == ManifestEntryStatus.DELETED
        if file.content == DataFileContent.EQUALITY_DELETES or (left and is_ours):
            raise _rolled_back(version) if _is_rollback(snapshot) else _nameless(version, file.location)
        if file.content == DataFileContent.DATA:
            (removed if left else added).append(file)
        else:
            (restored if left else new).add(file)
    for file in added:
        deletes = new.found.pop(file.location, {})
        yield piece(file.location, file.rows - sum(deletes.values()), deletes, added=True)
    before = _Before(head, snapshot, snapshots)
    for file in removed:
        applied = before.deletes_of(file)
        yield piece(file.location, live_rows(file, applied), [it.location for it in applied], added=False)
    for location, deletes in sorted(new.found.items()):
        # This sink deletes no row twice; another engine may name rows again that were deleted.
        known = () if is_ours else before.names_near(location, new.files[location])
        yield piece(location, sum(deletes.values()), deletes, added=False, whole=False, before=known)
    live = _live_of(head, snapshot, restored.found)
    for location, deletes in sorted(restored.found.items()):
        if location in live:  # else the delete file has left after its data file
            kept = before.names_near(location, restored.files[location])
            now = tuple(sorted({*new.found.get(location, {}), *kept} - deletes.keys()))
            yield piece(location, sum(deletes.values()), deletes, added=True, whole=False, before=now)


def _is_rollback(snapshot: Snapshot) -> bool:
    return ROLLED_BACK_TO in stated_by(snapshot)


def _rolled_back(version: int) -> ValueError:
    return ValueError(
        f"version {version} is a rollback, which takes whole files away and back; its changes cannot be"
        f" shown: read on from version {version + 1}, and begin a new change log"
    )


def _nameless(version: int, location: str) -> ValueError:
    return ValueError(
        f"version {version} deleted rows in a way that names no rows, as another engine may; its changes"
        f" cannot be shown: {location}"
    )


class _Positions:
    """Position-delete files of a snapshot, by the data files that they name."""

    def __init__(self, named_in: NamedIn) -> None:
        self._named_in = named_in
        self.found: dict[str, dict[str, int]] = defaultdict(dict)
        """Data file → delete file → how many rows."""
        self.files: dict[str, LiveFile] = {}
        """One delete file of each data file."""

    def add(self, file: LiveFile) -> None:
        own = file.refers_to
        named = self._named_in(file.location) if own is None else {own: range(file.rows)}
        for location, positions in named.items():
            self.found[location][file.location] = len(positions)
            self.files[location] = file


class _Before:
    """The delete files of the snapshot before another engine's, which is read when it is asked for."""

    def __init__(self, head: Head, snapshot: Snapshot, snapshots: Mapping[int, Snapshot]) -> None:
        self._head, self._snapshot = head, snapshot
        self._parent = snapshots.get(snapshot.parent_snapshot_id or 0)

    @cached_property
    def _index(self) -> DeleteIndex:
        if self._parent is None:
            if _has_older(self._head, self._snapshot):
                raise ValueError(
                    f"the snapshot before version {number_of(self._snapshot)} has expired, so that which"
                    " rows it deleted cannot be shown; begin after it, or keep snapshots for longer:"
                    f" {self._head.metadata.location}"
                )
            return DeleteIndex(())
        files = self._head.manifest_files
        manifests = [it for it in files.read_list(self._parent.manifest_list) if not is_data(it)]
        return DeleteIndex(live_file(entry) for it in manifests for entry in _live_entries(self._head, it))

    def deletes_of(self, file: LiveFile) -> list[LiveFile]:
        """Return the position-delete files that may apply to a data file. ValueError where rows of it may
        have been deleted by their values.
        """
        found = self._index.find(file)
        if any(it.content == DataFileContent.EQUALITY_DELETES for it in found):
            raise _nameless(number_of(self._snapshot), file.location)
        return found

    def names_near(self, location: str, delete: LiveFile) -> tuple[str, ...]:
        """Return those of a data file, of which a delete file is known, which is in the same partition."""
        file = replace(
            delete, location=location, content=DataFileContent.DATA, sequence_number=0, applies_to=None
        )
        return tuple(sorted(it.location for it in self.deletes_of(file)))


def _live_of(head: Head, snapshot: Snapshot, locations: Collection[str]) -> Collection[str]:
    """Return those of these data files that are live in a snapshot."""
    if not locations:
        return ()
    listed = head.manifest_files.read_list(snapshot.manifest_list)
    return find_files(head.manifest_files, filter(is_data, listed), locations).keys()


def _entries_of(head: Head, snapshot: Snapshot) -> Iterator[ManifestEntry]:
    """Yield the entries that a snapshot has added, or removed."""
    for manifest in head.manifest_files.read_list(snapshot.manifest_list):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in _all_entries(head, manifest):
                if entry.snapshot_id in (None, snapshot.snapshot_id) and (
                    entry.status != ManifestEntryStatus.EXISTING
                ):
                    yield entry


def _live_entries(head: Head, manifest: ManifestFile) -> Iterator[ManifestEntry]:
    return (it for it in _all_entries(head, manifest) if it.status != ManifestEntryStatus.DELETED)


def _all_entries(head: Head, manifest: ManifestFile) -> Iterator[ManifestEntry]:
    entries = head.manifest_files.find_entries(manifest)
    if entries is None:
        raise MissingMetadataError(
            f"a manifest of a snapshot that is kept was deleted: {manifest.manifest_path}",
            **head.where,
            files=[manifest.manifest_path],
        )
    for entry in entries:
        entry.data_file.spec_id = manifest.partition_spec_id
        if entry.sequence_number is None and entry.status == ManifestEntryStatus.ADDED:
            entry.sequence_number = manifest.sequence_number
        yield entry
