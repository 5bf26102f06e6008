"""Whether main was continued at each change of a table, by the metadata files that its log names (R30).

Where all files were written again, and all snapshots from before have expired, the head alone does not show
whether it is another table. Each metadata file has the table as one change left it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from timeline.stores.base import Store
from timeline.versions.head import Head

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class _State:
    """The snapshots of a table after one change."""

    main: int | None
    parents: Mapping[int, int | None]
    """Snapshot → its parent."""


def was_continued(head: Head, snapshot_id: int) -> bool | None:
    """Return whether main was continued at each change since it had a snapshot, which may have expired: set
    to a descendant of what it was, or to an ancestor, or to another line from there.

    None where the log does not reach so far, a file of it cannot be read, or a change does not show it. Reads
    the metadata files one by one, newest first.
    """
    later = _state_of(head.metadata)
    for earlier in _read_past(head):
        if earlier is None:
            return None
        continued = _continues(earlier, later)
        if not continued:
            return continued
        if snapshot_id in _line(earlier.main, earlier.parents):
            return True
        later = earlier
    return None


def _continues(earlier: _State, later: _State) -> bool | None:
    """Return whether one change has continued main. None where it has removed what would show it."""
    if earlier.main is None:
        return True
    if later.main is None:
        return False
    # Some catalogs cut the link to a parent that they remove: the earlier state has it.
    parents = {**later.parents, **earlier.parents}
    if set(_line(later.main, parents)) & set(_line(earlier.main, parents)):
        return True
    return False if earlier.main in later.parents else None


def _line(snapshot_id: int | None, parents: Mapping[int, int | None]) -> Iterator[int]:
    while snapshot_id is not None and snapshot_id in parents:
        yield snapshot_id
        snapshot_id = parents[snapshot_id]


def _read_past(head: Head) -> Iterator[_State | None]:
    """Yield the states before a head, newest first; None where one cannot be read."""
    store = head.manifest_files.store
    for entry in reversed(head.metadata.metadata_log):
        yield _read_state(store, entry.metadata_file)


def _read_state(store: Store, location: str) -> _State | None:
    try:
        data = store.read(store.relative(location)).data
        stated = json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
        parents = {it["snapshot-id"]: it.get("parent-snapshot-id") for it in stated.get("snapshots") or ()}
        main = stated.get("current-snapshot-id")
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return None  # deleted, or damaged in whichever way
    return _State(None if main == -1 else main, parents)


def _state_of(metadata: TableMetadata) -> _State:
    parents = {it.snapshot_id: it.parent_snapshot_id for it in metadata.snapshots}
    return _State(metadata.current_snapshot_id, parents)
