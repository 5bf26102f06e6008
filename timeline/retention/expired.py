"""The note on the snapshots that a version expires: written before the version, kept until the files are
deleted.

After a crash the next run continues from it. A note may be of a commit that lost; a note that is lost itself
costs files that only `remove_orphan_files` finds, never rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from timeline.errors import CorruptTableError, StoreUnavailableError
from timeline.manifests.manifests import ManifestFiles
from timeline.names import expired_folder, expired_path, expired_version
from timeline.retention.policy import (
    NOTHING_EXPIRED,
    Expiry,
    lineage,
    snapshot_version,
    snapshots_to_expire,
)
from timeline.stores.base import Store, find_path

_LOG = logging.getLogger("streaming_sink.timeline")


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """The record of a snapshot that is no longer in the metadata."""

    snapshot_id: int
    sequence_number: int
    manifest_list: str

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotRecord:
        return cls(snapshot.snapshot_id, snapshot.sequence_number or 0, snapshot.manifest_list)

    @classmethod
    def read(cls, stored: dict[str, object]) -> SnapshotRecord:
        """Return what `asdict` made of one. TypeError for anything else."""
        found = cls(**stored)  # type: ignore[arg-type]
        if [type(value) for value in (found.snapshot_id, found.sequence_number)] != [int, int]:
            raise TypeError(f"not the numbers of a snapshot: {found}")
        if type(found.manifest_list) is not str:
            raise TypeError(f"not the list of a snapshot: {found}")
        return found


@dataclass(frozen=True, slots=True)
class Note:
    """The snapshots that one version expired, oldest first, and the oldest of main that it kept."""

    version: int
    commit_id: str
    expired: tuple[SnapshotRecord, ...]
    """Those of main's lineage."""
    kept: SnapshotRecord
    unpinned: tuple[SnapshotRecord, ...] = ()
    """Those from before it, which a tag had kept. `remove_orphan_files` deletes what only they reach."""
    theirs: bool = False
    """Whether another engine has made any of them."""
    owner: str = ""
    """As in `expired_folder`."""

    @property
    def path(self) -> str:
        return expired_path(self.version, self.commit_id, self.owner)

    @property
    def gone(self) -> tuple[SnapshotRecord, ...]:
        """All snapshots that the version expired."""
        return (*self.expired, *self.unpinned)

    @property
    def records(self) -> tuple[SnapshotRecord, ...]:
        return (*self.gone, self.kept)

    def encode(self) -> bytes:
        stored = asdict(self)
        for name in ("theirs", "owner"):
            if not stored[name]:
                del stored[name]
        return json.dumps(stored, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Note | None:
        """Return the note that `encode` wrote, or None where the bytes are no note."""
        try:
            stored = json.loads(data)
            expired, unpinned = stored["expired"], stored.get("unpinned", [])
            kinds = [type(value) for value in (stored["version"], stored["commit_id"], expired, unpinned)]
            if kinds != [int, str, list, list]:
                return None
            return cls(
                stored["version"],
                stored["commit_id"],
                tuple(map(SnapshotRecord.read, expired)),
                SnapshotRecord.read(stored["kept"]),
                tuple(map(SnapshotRecord.read, unpinned)),
                stored.get("theirs") is True,
                str(stored.get("owner", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


class Pending(NamedTuple):
    """A note in the store, whose files may exist too."""

    version: int
    commit_id: str
    path: str


def pending_notes(store: Store, owner: str = "") -> list[Pending]:
    """Return a table's notes in the store, by version. One LIST. `owner` as in `expired_folder`."""
    listed = [entry.path for entry in store.list_folder(expired_folder(owner))]
    return sorted(Pending(*named, path) for path in listed if (named := expired_version(path)) is not None)


def read_expiry_notes(store: Store, pending: Iterable[Pending]) -> tuple[dict[Pending, Note], list[Pending]]:
    """Return the notes that are there, and those that are damaged, or name what is not below the table, so
    that what they name is not known. One that was deleted since is in neither.
    """
    notes: dict[Pending, Note] = {}
    damaged = []
    for each in pending:
        try:
            data = store.read(each.path).data
        except FileNotFoundError:
            continue
        note = Note.decode(data)
        is_own = note is not None and note.path == each.path
        if note is not None and is_own and all(find_path(store, it.manifest_list) for it in note.records):
            notes[each] = note
        else:
            damaged.append(each)
    return notes, damaged


def expire(
    files: ManifestFiles,
    version: int,
    commit_id: str,
    snapshots: Sequence[Snapshot],
    refs: Mapping[str, SnapshotRef],
    policy: Mapping[str, str],
    now_ms: int,
    owner: str = "",
) -> Expiry:
    """Choose the snapshots that a version being built expires, and note them durably.

    Where the store refuses the note, or the note is damaged, nothing expires: a later version tries again.
    """
    expiry = snapshots_to_expire(snapshots, refs, policy, version, now_ms)
    if not expiry.snapshot_ids:
        return expiry
    tip = refs["main"].snapshot_id
    main = {s.snapshot_id for s in lineage(tip, snapshots)}
    gone = [s for s in snapshots if s.snapshot_id in expiry.snapshot_ids]
    left = [s for s in snapshots if s.snapshot_id not in expiry.snapshot_ids]
    note = Note(
        version,
        commit_id,
        tuple(SnapshotRecord.of(s) for s in gone if s.snapshot_id in main),
        SnapshotRecord.of(lineage(tip, left)[-1]),
        tuple(SnapshotRecord.of(s) for s in gone if s.snapshot_id not in main),
        not all(map(snapshot_version, gone)),
        owner,
    )
    try:
        files.write_fresh(note.path, note.encode())
    except (StoreUnavailableError, CorruptTableError) as failure:
        _LOG.warning("snapshots stay in the metadata until their expiry can be noted: %s", failure)
        return NOTHING_EXPIRED
    return expiry
