"""Remove orphan files: files that nothing refers to, behind a fence that stops late writers (R6).

A file that an outbox names is in no snapshot of the second table yet. So the cleaner of a second table looks
in this order (R24):

1. it raises the fence of each main table: no later commit there names a file below the cutoff;
2. it reads their outboxes: what they name stays;
3. it reads the second table: what an outbox named before was delivered before it left the outbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from timeline import names, properties
from timeline.catalogs.state_files import state_files_of
from timeline.changes.changes import RaiseFence
from timeline.errors import CorruptTableError, TableNotFoundError, UnsupportedTableError
from timeline.features import check_features_are_known
from timeline.maintenance.expiry import check_files_may_go
from timeline.manifests.copies import copy_path
from timeline.outbox import OpenTable, open_if_there
from timeline.retention.deletions import DeletedKind, Deletion, Deletions
from timeline.retention.expired import pending_notes, read_expiry_notes
from timeline.retention.grace import GracePeriods
from timeline.retention.path_index import PathIndex
from timeline.table import Table, open_table
from timeline.versions.head import Head
from timeline.versions.outbox import mains_of, outbox_apps
from timeline.versions.tombstones import tombstones_of

LEAST_AGE = timedelta(hours=24)
_FOLDERS = (names.DATA_FOLDER, names.MANIFEST_FOLDER, names.COPY_FOLDER)
_FOLDERS_IN_CATALOGS = (names.TOMBSTONE_FOLDER, names.OUTBOX_FOLDER, names.STATE_FOLDER)
"""What a table in a catalog has there, since other engines take away what no snapshot names elsewhere."""


def remove_orphan_files(
    table: Table,
    *,
    older_than: timedelta = timedelta(days=3),
    dry_run: bool = False,
    open_table: OpenTable = open_table,
) -> Deletions:
    """Delete the data files, manifests and lists of this protocol that nothing refers to, where they are
    older than `older_than` by the ids in their names and the table's own time.

    Batches that failed, commits that lost, and crashes leave them. First a version raises the table's garbage
    cutoff: from then on no commit accepts an older file, and a writer that slept too long writes its batch
    again. Then the files are deleted that no snapshot of that version or a later one refers to (on main, on a
    branch, tagged or staged), nor one in its grace period after expiry.

    Lists everything below data/ and metadata/m/, and reads every manifest of every snapshot, for 30 µs of
    processor time and 20 bytes of memory a file: once a day is often enough. Writers may go on. Nothing else
    is ever deleted: no version, hint or file of `_timeline`, and no file whose name this protocol does not
    write. With `dry_run` nothing changes at all.

    Where other tables deliver into this one (R24), the fence rises in them too, and what their outboxes name
    stays; `open_table` opens them. TableNotFoundError where one is missing: nothing was deleted.

    ValueError for less than 24 hours, UnsupportedTableError where no file of a table in a catalog may be
    deleted, or another table has its files in the same folder. Raises as `Table.commit` does; what was not
    deleted is found again.
    """
    if older_than < LEAST_AGE:
        raise ValueError(
            f"older_than must be at least {LEAST_AGE}, not {older_than}: every batch that takes longer than"
            " that to write would be written again"
        )
    store = table.store
    head = table.refresh()
    check_files_may_go(head)
    if other := table.log.find_sharer(head):
        raise UnsupportedTableError(
            f"{other} has its files in the same folder: which of them no table needs cannot be decided here."
            f" Nothing was changed; copy one of the two into a table elsewhere: {head.metadata.location}",
            location=head.metadata.location,
        )
    if not dry_run:
        check_features_are_known(head.properties, store.location)
    cutoff = _cutoff(head, older_than)
    referred = _Referred(table)
    referred.add(head)
    folders = (*_FOLDERS, *(_FOLDERS_IN_CATALOGS if head.version.is_shared else ()))
    old = {
        listed.path: (file_id, listed.size)
        for folder in folders
        for listed in store.list_below(folder)
        if (file_id := names.written_id(listed.path)) is not None
        and file_id < cutoff
        and listed.path not in referred.paths
    }
    orphans = set(old)
    # A table is registered before its first file is written here, so it is if that file was listed.
    mains = open_mains(table.refresh(), open_table) if orphans else []
    cutoff = min([cutoff, *(_cutoff(main.head, older_than) for main in mains)])
    orphans = {path for path in orphans if old[path][0] < cutoff}
    if orphans and not dry_run:
        for each in (*mains, table):
            _raise_fence(each, cutoff)
    for main in mains:
        referred.add_locations(locations_in_outboxes(main))
    if orphans:
        # Later commits add no file below the cutoff, so this state decides.
        referred.add(table.refresh())
        referred.add_locations(locations_named_by(table.head))
        orphans = {path for path in orphans if path not in referred.paths}
    if orphans and not dry_run:
        store.delete(sorted(orphans))
    why = f"nothing refers to it, and its id is below the table's garbage cutoff {cutoff}"
    return Deletions(
        tuple(Deletion(path, _kind(path), old[path][1], why) for path in sorted(orphans)), dry_run=dry_run
    )


def locations_named_by(head: Head) -> Iterator[str]:
    """Yield the location of each file that a head names itself, and no snapshot of it does."""
    yield from (file.location for file in tombstones_of(head.properties))
    if head.version.is_shared:
        yield from map(head.manifest_files.store.uri, state_files_of(head))


def _cutoff(head: Head, older_than: timedelta) -> str:
    """Return the id that trails a head's time by so much."""
    return names.ulid_floor(max(head.metadata.last_updated_ms - older_than // timedelta(milliseconds=1), 0))


def _raise_fence(table: Table, cutoff: str) -> None:
    if table.head.properties.get(properties.GC_CUTOFF, "") < cutoff:
        table.commit([RaiseFence(cutoff)])


@dataclass
class _Referred:
    """The paths that snapshots refer to. Grows only, and reads each list and manifest once."""

    table: Table
    paths: PathIndex = field(default_factory=PathIndex)
    _read: set[str] = field(default_factory=set)
    """The lists and manifests, by name: one that passed for read by its hash would leave its files to be
    deleted.
    """

    def add(self, head: Head) -> None:
        """Add what the snapshots of a version refer to, and what those do that expired and may still be read.

        CorruptTableError where a snapshot's files are missing, or a note on what has expired is damaged:
        reachability cannot be determined then.
        """
        for snapshot in reversed(head.metadata.snapshots):  # the newest has most manifests, read ahead
            # A snapshot that expired while this cleaner slept needs no files any more.
            if not self._add_snapshot(snapshot.manifest_list) and snapshot in self._now():
                raise CorruptTableError(
                    f"the list of snapshot {snapshot.snapshot_id}, or a manifest in it, is missing, so that"
                    " reachability cannot be determined; nothing was deleted:"
                    f" {snapshot.manifest_list}",
                    location=self.table.store.location,
                    version=head.number,
                    files=[snapshot.manifest_list],
                )
        store = self.table.store
        notes, damaged = read_expiry_notes(store, pending_notes(store, head.version.owner))
        grace = GracePeriods.of(store, head)
        if unknown := [pending.path for pending in damaged if grace.has_of_commit(pending)]:
            raise CorruptTableError(
                f"{', '.join(unknown[:3])} cannot be read, so that it is not known which snapshots have"
                " expired that readers may still read; nothing was deleted. It is in the way until its grace"
                " period is over; where no reader reads what has expired, delete it now",
                location=store.location,
                version=head.number,
                files=unknown,
            )
        for note in notes.values():
            for record in note.gone:
                self._add_snapshot(record.manifest_list)

    def add_locations(self, locations: Iterable[str]) -> None:
        """Add files that no snapshot refers to yet."""
        for location in locations:
            self._add_path(location)

    def _now(self) -> list[Snapshot]:
        return self.table.refresh().metadata.snapshots

    def _add_snapshot(self, location: str) -> bool:
        """Add what one snapshot refers to; False where its list or a manifest is missing."""
        if location in self._read:
            return True
        self._add_path(location)
        if (manifests := self.table.log.manifest_files.find_list(location)) is None:
            return False
        self._read.add(location)
        unread = [manifest for manifest in manifests if manifest.manifest_path not in self._read]
        files = self.table.log.manifest_files
        missing = [it for it in files.ahead(unread, copies=False) if not self._add_manifest(it)]
        return not missing

    def _add_manifest(self, manifest: ManifestFile) -> bool:
        self._read.add(manifest.manifest_path)
        self._add_path(manifest.manifest_path)
        if (entries := self.table.log.manifest_files.find_entries(manifest)) is None:
            return False
        self._add_path(self.table.store.uri(copy_path(manifest.manifest_path)))
        for entry in entries:
            if entry.status != ManifestEntryStatus.DELETED:
                self._add_path(entry.data_file.file_path)
        return True

    def _add_path(self, location: str) -> None:
        with suppress(ValueError):  # outside the table, where this cleaner deletes nothing
            self.paths.add(self.table.store.relative(location))


def _kind(path: str) -> DeletedKind:
    if path.startswith((names.DATA_FOLDER, names.TOMBSTONE_FOLDER, names.OUTBOX_FOLDER)):
        return DeletedKind.DATA_FILE
    if path.startswith(names.STATE_FOLDER):
        return DeletedKind.STATE_FILE
    return DeletedKind.MANIFEST_LIST if names.is_manifest_list(path) else DeletedKind.MANIFEST


def open_mains(second: Head, open_table: OpenTable) -> list[Table]:
    """Open the main tables that deliver into a second one.

    TableNotFoundError where one is missing, or another table is in its place: reachability cannot be
    determined then.
    """
    registered = sorted(mains_of(second.properties).items())
    return [
        _open(second, uuid, location, open_table) for uuid, location in registered if location is not None
    ]


def locations_in_outboxes(main: Table) -> Iterator[str]:
    """Yield the location of every file that the outbox of a main table names, delivered since or not."""
    for app_id in outbox_apps(main.head.properties):
        if (entry := main.head.outbox(app_id)) is not None:
            yield from (file.file_path for file in entry.files)


def _open(second: Head, main_uuid: str, location: str, open_table: OpenTable) -> Table:
    found = open_if_there(open_table, location)
    if found is None or str(found.head.metadata.table_uuid) != main_uuid:
        raise TableNotFoundError(
            f"table {main_uuid} delivers into this one and is not at its location, so that reachability"
            " cannot be determined; nothing was deleted. Restore it; or, if it was dropped for good, call"
            f" timeline.outbox.retire_main: {second.metadata.location}, and missing is {location}",
            **second.where,
        )
    return found
