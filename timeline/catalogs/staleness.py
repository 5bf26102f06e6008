"""Which of two states of a table is the older one: a cache may answer a load with an old one."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from timeline.versions.head import Head


def is_older(head: Head, known: Head) -> bool:
    """Return whether a load may have brought an older state of the table than one that is known.

    A change that adds no snapshot, such as a rollback, has no number of its own. Then the newer state names
    the older one in its log, where the catalog keeps one, or has a later time.
    """
    now, before = head.metadata, known.metadata
    if now.table_uuid != before.table_uuid or head.number > known.number:
        return False
    if head.number < known.number:
        return True
    is_logged = any(it.metadata_file == known.version.identity for it in now.metadata_log)
    return not (is_as_built(now, before) or is_logged or now.last_updated_ms > before.last_updated_ms)


def is_as_built(now: TableMetadata, base: TableMetadata) -> bool:
    """Return whether the requirements hold of a commit that was built on `base`."""
    return (
        now.current_snapshot_id == base.current_snapshot_id
        and now.current_schema_id == base.current_schema_id
        and now.default_spec_id == base.default_spec_id
    )
