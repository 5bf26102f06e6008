"""The states of a table in a catalog before its head: the metadata files that its log names."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.version_file import stated_by

SOURCE_SNAPSHOT_ID = "source-snapshot-id"
"""In the summary of a snapshot that was cherry-picked, or published: which one's files it has."""
_GZIP = b"\x1f\x8b"
_DAMAGED = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class PastState:
    """The snapshots of a table after one change."""

    main: int | None
    parents: Mapping[int, int | None]
    """Snapshot → its parent."""
    sources: Mapping[int, str]
    """Snapshot → the id, as text, of the one whose files it has brought to main; those that state one."""


def read_past(head: Head) -> Iterator[PastState | None]:
    """Yield the states before a head, newest first; None where one cannot be read. Each is one request."""
    store = head.manifest_files.store
    for entry in reversed(head.metadata.metadata_log):
        yield _read_state(store, entry.metadata_file)


def main_since(head: Head, starts: Set[int | None]) -> tuple[Set[int], Mapping[int, str]]:
    """Return main's snapshots back to all of `starts`, expired ones included, and what sources they state, as
    far as the metadata files that the log names say so. Each of them is read once a process.
    """
    known, now = head.manifest_files.past, past_state_of(head.metadata)
    known.bound()
    known.add(head.version.identity, now.parents, now.sources)
    line, store = set(line_of(now.main, known.parents)), head.manifest_files.store
    for entry in reversed(head.metadata.metadata_log):
        if starts <= line:
            break
        if entry.metadata_file in known.files:
            continue
        if (state := _read_state(store, entry.metadata_file)) is not None:
            known.add(entry.metadata_file, state.parents, state.sources)
            line = set(line_of(now.main, known.parents))
    return line, known.sources


def past_state_of(metadata: TableMetadata) -> PastState:
    parents = {it.snapshot_id: it.parent_snapshot_id for it in metadata.snapshots}
    stated = ((it.snapshot_id, stated_by(it).get(SOURCE_SNAPSHOT_ID)) for it in metadata.snapshots)
    return PastState(metadata.current_snapshot_id, parents, {key: it for key, it in stated if it is not None})


def line_of(snapshot_id: int | None, parents: Mapping[int, int | None]) -> Iterator[int]:
    """Yield a snapshot and its ancestors, as far as they are known. Ends on damaged metadata too, where an
    ancestor names its descendant as its parent.
    """
    seen = set[int]()
    while snapshot_id is not None and snapshot_id in parents and snapshot_id not in seen:
        seen.add(snapshot_id)
        yield snapshot_id
        snapshot_id = parents[snapshot_id]


def find_uuid(store: Store, path: str) -> str | None:
    """Return the uuid that a metadata file states; None where it was deleted, or cannot be read."""
    try:
        return str(_read_stated(store, path)["table-uuid"])
    except _DAMAGED:
        return None


def _read_stated(store: Store, path: str) -> Any:
    """Return what a metadata file states. Raises one of `_DAMAGED` where it was deleted, or is damaged in
    whichever way.
    """
    data = store.read(path).data
    return json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)


def _read_state(store: Store, location: str) -> PastState | None:
    try:
        stated = _read_stated(store, store.relative(location))
        snapshots = {it["snapshot-id"]: it for it in stated.get("snapshots") or ()}
        parents = {key: it.get("parent-snapshot-id") for key, it in snapshots.items()}
        summaries = ((key, it.get("summary") or {}) for key, it in snapshots.items())
        sources = {key: it[SOURCE_SNAPSHOT_ID] for key, it in summaries if SOURCE_SNAPSHOT_ID in it}
        main = stated.get("current-snapshot-id")
    except _DAMAGED:
        return None
    return PastState(None if main == -1 else main, parents, sources)
