"""Which versions the mirrors of a table name, as notes below `_timeline/mirrors/` say (R36).

A note is durable before the catalog's pointer is moved to its version, and is deleted once the pointer is
known to be on a later one. So what a mirror names has a note, whichever process has moved it. A note holds
its version, and the files that it reaches, for a day of the table's time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from timeline.names import MIRROR_FOLDER, mirror_fork_path, mirrored_parts, mirrored_path, version_number
from timeline.stores.base import Store, read_if_there
from timeline.versions.head import Head
from timeline.versions.mirrors import mirrors_of
from timeline.versions.version_file import Version

HELD_MS = 24 * 3_600_000
_DIGEST_BYTES = 6


class MirrorNote(NamedTuple):
    """A version that a mirror names, or is about to."""

    digest: str
    """The mirror, as `mirror_digest` has it."""
    version: int
    time_ms: int
    """When that version was committed, by the table's time."""

    @property
    def path(self) -> str:
        return mirrored_path(*self)


class MirrorState(NamedTuple):
    """What the notes say of a mirror."""

    mirror: str
    version: int | None
    """The version that it names: of several notes the oldest, which the catalog was last known to have. None
    where it has named none yet, or its notes were deleted.
    """
    time_ms: int | None
    """When that version was committed."""
    fork: str
    """What it was found to name, where that is no version of the table; "" where it was not."""
    is_outdated: bool
    """Whether what it names may be deleted, since that was superseded more than a day ago."""

    def behind_ms(self, head: Version) -> int | None:
        """Return how much older than a head the version is, by the table's time."""
        return None if self.time_ms is None else head.metadata.last_updated_ms - self.time_ms


def mirror_digest(mirror: str, table_uuid: UUID) -> str:
    """Return what notes call the mirror of a table. Its name may have any characters; and a table that was
    dropped has left notes of versions that are not those of the one in its place.
    """
    return blake2b(f"{table_uuid} {mirror}".encode(), digest_size=_DIGEST_BYTES).hexdigest()


def list_mirror_notes(store: Store) -> list[MirrorNote]:
    """Return the notes on all mirrors of a table, by mirror and version. One LIST."""
    listed = [mirrored_parts(entry.path) for entry in store.list_folder(MIRROR_FOLDER)]
    return sorted(MirrorNote(*parts) for parts in listed if parts is not None)


def notes_of_mirror(store: Store, digest: str) -> list[MirrorNote]:
    """Return the notes on one mirror, by version. One LIST."""
    return [note for note in list_mirror_notes(store) if note.digest == digest]


def read_mirrors(store: Store, head: Head | Version) -> list[MirrorState]:
    """Return what the notes say of each mirror that a head has. No request where it has none."""
    mirrors, uuid = mirrors_of(head.metadata.properties), head.metadata.table_uuid
    notes = {note.digest: note for note in reversed(notes_of_mirrors(store, head))}
    found = {mirror: mirror_digest(mirror, uuid) for mirror in mirrors}
    return [
        MirrorState(
            mirror,
            (note := notes.get(digest)) and note.version,
            note and note.time_ms,
            read_fork(store, digest),
            note is not None and is_outdated(note, head),
        )
        for mirror, digest in found.items()
    ]


def notes_of_mirrors(store: Store, head: Head | Version) -> list[MirrorNote]:
    """Return the notes on the mirrors that a head has. No request where it has none.

    A process that deletes asks once it knows the head by which it deletes: another one that moves a mirror
    looks, once its note is there, whether the version is still one of the last hundred.
    """
    metadata = head.metadata
    digests = {mirror_digest(it, metadata.table_uuid) for it in mirrors_of(metadata.properties)}
    return [note for note in list_mirror_notes(store) if note.digest in digests] if digests else []


def held_versions(notes: Sequence[MirrorNote], head: Head | Version) -> frozenset[int]:
    """Return the versions that notes hold, as a head's time has it."""
    return frozenset(note.version for note in notes if not is_outdated(note, head))


def is_outdated(note: MirrorNote, head: Head | Version) -> bool:
    """Return whether a version was superseded more than a day ago, so that what a note names may be deleted.
    However long the table has rested before: its readers had the newest version until then. A head knows when
    for a thousand versions; after these the version's own time counts.
    """
    successor = note.version + 1
    if successor >= head.number:
        return False
    log = ((version_number(it.metadata_file), it.timestamp_ms) for it in head.metadata.metadata_log)
    since_ms = next((time_ms for number, time_ms in log if number == successor), note.time_ms)
    return head.metadata.last_updated_ms - since_ms > HELD_MS


def write_fork(store: Store, digest: str, mirror: str, found: str) -> None:
    """Note what a mirror was found to name, which is no version of the table."""
    stored = json.dumps({"mirror": mirror, "found": found}).encode()
    store.overwrite(mirror_fork_path(digest), stored)


def read_fork(store: Store, digest: str) -> str:
    """Return what `write_fork` has noted; "" where there is no such note, or it is damaged."""
    data = read_if_there(store, mirror_fork_path(digest))
    with suppress(ValueError, KeyError, TypeError):
        return "" if data is None else str(json.loads(data)["found"])
    return ""


def forget_outdated(store: Store, head: Head | Version, notes: Sequence[MirrorNote]) -> None:
    """Delete the notes that are outdated, but for the newest of each mirror, which says how old the
    mirror is.
    """
    newest = {note.digest: note for note in notes}.values()
    old = [note.path for note in notes if is_outdated(note, head) and note not in newest]
    if old:
        store.delete(old)
