"""How a version succeeds its parent: its time, its ids, its lineage properties, and its logs."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry

from timeline import properties
from timeline.clock import Environment
from timeline.versions.head import Head
from timeline.versions.version_file import Version

_PROBES_KEPT = 8


def lineage_properties(commit_id: str, parent: Version | None, probed: str | None) -> dict[str, str]:
    """Return the properties that state a version's place after its parent."""
    recent = () if parent is None else parent.recent_commits[1 - properties.RECENT_COMMITS_KEPT :]
    stated = {
        properties.VERSION: str(1 if parent is None else parent.number + 1),
        properties.COMMIT_ID: commit_id,
        properties.RECENT_COMMITS: ",".join([*recent, commit_id]),
        properties.PARENT_VERSION: str(0 if parent is None else parent.number),
        properties.PARENT_COMMIT_ID: "" if parent is None else parent.commit_id,
    }
    if probed is not None:
        stated[properties.PROBED_STORES] = probed
    return stated


def probed_stores(table_properties: Mapping[str, str]) -> list[str]:
    """Return the signatures of the stores that the table has recorded a probe of (R18)."""
    return [text for text in table_properties.get(properties.PROBED_STORES, "").split(",") if text]


def record_probe(table_properties: Mapping[str, str], signature: str) -> str:
    """Return the table's record of probes with one more, without the oldest."""
    return ",".join([*probed_stores(table_properties), signature][-_PROBES_KEPT:])


def commit_time(environment: Environment, head: Head | None) -> int:
    """Return the time of a commit after `head`: this machine's, but never at or before the head's (R12).

    None where there is no table yet. The ids of the commit's files carry the same time (R6).
    """
    if head is None:
        return environment.now_ms()
    return max(environment.now_ms(), head.metadata.last_updated_ms + 1)


def new_snapshot_id(environment: Environment) -> int:
    """Return an id that no snapshot of the table has."""
    # 62 random bits: two of a table's thousands of snapshots share one less often than a disk lies.
    return 1 + environment.random.getrandbits(62)


def metadata_log(
    metadata: TableMetadataV2, location: str, table_properties: Mapping[str, str]
) -> list[MetadataLogEntry]:
    """Return the metadata log of the version that follows `metadata`, whose file is at `location`."""
    most = properties.number(table_properties, properties.PREVIOUS_VERSIONS_MAX)
    entry = MetadataLogEntry(metadata_file=location, timestamp_ms=metadata.last_updated_ms)
    return [*metadata.metadata_log[max(0, len(metadata.metadata_log) + 1 - most) :], entry]


def drop_expired_snapshots(snapshots: list[Snapshot], expired: frozenset[int]) -> list[Snapshot]:
    """Return the snapshots that have not expired."""
    return [s for s in snapshots if s.snapshot_id not in expired] if expired else snapshots


def drop_expired_log_entries(log: list[SnapshotLogEntry], expired: frozenset[int]) -> list[SnapshotLogEntry]:
    """Return the snapshot log after the last expired snapshot: earlier entries would leave gaps."""
    if not expired:
        return log
    last = max((i for i, entry in enumerate(log) if entry.snapshot_id in expired), default=-1)
    return log[last + 1 :]
