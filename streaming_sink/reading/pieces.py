"""What the snapshots of a table have added and deleted: pieces of data files, from metadata, and from the
delete files that several data files share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation, Snapshot

from timeline.errors import MissingMetadataError
from timeline.manifests.entries import live_file
from timeline.retention.policy import lineage, snapshot_version
from timeline.versions.head import Head

_CHANGES = (Operation.APPEND, Operation.OVERWRITE, Operation.DELETE)
PURGE = "streaming-sink.purge"
"""In the summary of a snapshot whose deletes are for the law: no copy of their rows may be made."""


@dataclass(frozen=True)
class Piece:
    """Rows of one data file that one snapshot has added, or deleted."""

    version: int
    snapshot_id: int
    committed_ms: int
    location: str
    added: bool
    """Whether the snapshot has added the file, without the rows that `deletes` name; else it has deleted the
    rows that they name.
    """
    deletes: tuple[str, ...]
    """Position-delete files of the snapshot."""
    rows: int
    """How many rows these are."""


def changed_pieces(
    head: Head,
    first: int,
    last: int,
    named_in: Callable[[str], Mapping[str, Sized]],
    *,
    purges: bool = True,
) -> list[Piece]:
    """Return what the versions from `first` to `last` have changed, in their order. A replace changes no row.
    `named_in` returns the positions in a shared delete file, by the data files that it names. `purges`: also
    what was deleted for the law.

    ValueError where a version in between is no longer in the history, or removed whole data files, which no
    commit of this protocol does. MissingMetadataError where the head is so old that its manifests were
    deleted.
    """
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in head.metadata.snapshots}
    of_main = lineage(head.metadata.current_snapshot_id, snapshots)
    main = sorted(of_main, key=lambda snapshot: snapshot.sequence_number or 0)
    if main and main[0].parent_snapshot_id is not None and first < snapshot_version(main[0]):
        raise ValueError(
            f"the changes before version {snapshot_version(main[0])} have expired with their snapshots; begin"
            f" there, or keep snapshots for longer (retention): the first version asked for is {first}:"
            f" {head.metadata.location}"
        )
    wanted = (it for it in main if first <= snapshot_version(it) <= last and (purges or not _is_purge(it)))
    return [piece for snapshot in wanted for piece in _pieces(head, snapshot, named_in)]


def _is_purge(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and PURGE in snapshot.summary.additional_properties


def _pieces(
    head: Head, snapshot: Snapshot, named_in: Callable[[str], Mapping[str, Sized]]
) -> Iterator[Piece]:
    if snapshot.summary is None or snapshot.summary.operation not in _CHANGES:
        return
    version = snapshot_version(snapshot)

    def piece(location: str, added: int, deletes: Mapping[str, int]) -> Piece:
        names = tuple(sorted(deletes))
        rows = abs(added - sum(deletes.values()))
        return Piece(version, snapshot.snapshot_id, snapshot.timestamp_ms, location, added > 0, names, rows)

    added, deletes = [], defaultdict[str, dict[str, int]](dict)
    for entry in _entries_of(head, snapshot):
        file = live_file(entry)
        if entry.status == ManifestEntryStatus.DELETED or (file.content == DataFileContent.EQUALITY_DELETES):
            raise ValueError(
                f"version {version} deleted rows in a way that names no rows, as another engine may; its"
                f" changes cannot be shown: {file.location}"
            )
        if file.content == DataFileContent.DATA:
            added.append(file)
        elif file.refers_to is not None:
            deletes[file.refers_to][file.location] = file.rows
        else:
            for location, positions in named_in(file.location).items():
                deletes[location][file.location] = len(positions)
    for file in added:
        yield piece(file.location, file.rows, deletes.pop(file.location, {}))
    for location in sorted(deletes):
        yield piece(location, 0, deletes[location])


def _entries_of(head: Head, snapshot: Snapshot) -> Iterator[ManifestEntry]:
    """Yield the entries that a snapshot has added, or removed."""
    for manifest in head.manifest_files.read_list(snapshot.manifest_list):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            entries = head.manifest_files.find_entries(manifest)
            if entries is None:
                raise MissingMetadataError(
                    f"a manifest of a snapshot that is kept was deleted: {manifest.manifest_path}",
                    **head.where,
                    files=[manifest.manifest_path],
                )
            for entry in entries:
                if entry.snapshot_id in (None, snapshot.snapshot_id) and (
                    entry.status != ManifestEntryStatus.EXISTING
                ):
                    yield entry
