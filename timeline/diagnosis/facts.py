"""What a diagnosis says of every table: its size, its state, its writers."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadataV2

from timeline.diagnosis.findings import count, some
from timeline.diagnosis.reachable import Reachable, staged_tags
from timeline.diagnosis.state import applications
from timeline.errors import CorruptTableError
from timeline.features import DROPPED, required_features
from timeline.versions.followed import followed_tag, followed_tags
from timeline.versions.outbox import second_tables_of
from timeline.versions.version_file import Version
from timeline.versions.work_items import STAGED_TAG_PREFIX


def facts_of(head: Version, found: Reachable, versions: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield facts as (name, value). `versions`: how many version files are kept, where there are any."""
    metadata = head.metadata
    yield "uuid", str(metadata.table_uuid)
    kept = "" if versions is None else f", of {count(versions, 'version')} that are kept"
    dropped = ", by which the table was dropped" if DROPPED in required_features(metadata.properties) else ""
    yield "version", f"{head.number}{kept}{dropped}"
    yield "snapshots", f"{len(metadata.snapshots):,}"
    if staged := sorted(staged_tags(head).values()):
        yield "staged", some([tag.removeprefix(STAGED_TAG_PREFIX) for tag in staged])
    yield from _followed(metadata)
    if found.is_whole:
        deletes = len(found.delete_files)
        deleted = f", less those of {count(deletes, 'delete file')}" if deletes else ""
        files = f"{count(found.files, 'file')} of {found.bytes:,} bytes"
        yield "current", f"{count(found.rows, 'row')} in {files}{deleted}"
    for app_id, state in applications(head).items():
        if state is not None:
            yield "writer", f"{app_id!r}: batch {state.batch} of query {state.query_id}, epoch {state.epoch}"


def _followed(metadata: TableMetadataV2) -> Iterator[tuple[str, str]]:
    """Yield the tags of change logs, and of which logs the table names none."""
    tags = sorted(followed_tags(metadata.refs))
    try:
        named = {followed_tag(uuid) for uuid in second_tables_of(metadata.properties).values() if uuid}
    except CorruptTableError:
        named = set(tags)  # a finding says so
    for tag in tags:
        yield "followed", tag if tag in named else f"{tag}, of a log that the table does not name"
