"""The tags that hold, in a main table, what its change logs have followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

FOLLOWED_TAG_PREFIX = "followed-"
"""How these tags begin; the uuid of the change log follows."""
_KEPT_MS = 30 * 24 * 3_600_000


def followed_tag(log_uuid: str) -> str:
    """Return the name of a change log's tag."""
    return FOLLOWED_TAG_PREFIX + log_uuid


def followed_ref(snapshot_id: int) -> SnapshotRef:
    """Return the tag itself. It ends by its age, by which every engine's expiry removes it: a main table
    does not learn that a log was dropped.
    """
    stated = {"snapshot-id": snapshot_id, "type": "tag", "max-ref-age-ms": _KEPT_MS}
    return SnapshotRef.model_validate(stated)


def followed_tags(refs: Mapping[str, SnapshotRef]) -> dict[str, int]:
    """Return the tags of change logs, and which snapshot each holds."""
    return {name: ref.snapshot_id for name, ref in refs.items() if name.startswith(FOLLOWED_TAG_PREFIX)}


def outlived_tags(refs: Mapping[str, SnapshotRef], snapshots: Sequence[Snapshot], now_ms: int) -> list[str]:
    """Return those whose snapshots are older than they are to be held, by the table's time (R12)."""
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in snapshots}
    return [
        name
        for name, snapshot_id in followed_tags(refs).items()
        if now_ms - times.get(snapshot_id, 0) > (refs[name].max_ref_age_ms or _KEPT_MS)
    ]
