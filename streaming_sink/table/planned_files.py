"""The planners' view of one live file of a head, with the delete files that name it alone."""

from __future__ import annotations

from planners.model import FileContent, PositionDeletes, TableFile
from timeline.names import clustering_of
from timeline.versions.entries import LiveFile
from timeline.versions.head import Head


def planned_file(head: Head, file: LiveFile, reserved_by: str | None = None) -> TableFile:
    """Return a live file as planners see it; `reserved_by` is the plan that has it."""
    live_bytes, live_rows = head.live_bytes(file), head.live_rows(file)
    return TableFile(
        path=file.location,
        partition=file.partition,
        bytes=live_bytes,
        rows=live_rows,
        sorted=file.sort_order_id != 0 or clustering_of(file.location) is not None,
        deleted_bytes=file.bytes - live_bytes,
        deleted_rows=file.rows - live_rows,
        deletes=own_deletes(head, file),
        has_shared_deletes=has_shared_deletes(head, file),
        spec_id=file.spec_id,
        encryption=file.encryption,
        reserved_by=reserved_by,
        content=FileContent(file.content.value),
    )


def own_deletes(head: Head, file: LiveFile) -> tuple[PositionDeletes, ...]:
    """Return the delete files that name a data file alone."""
    return tuple(
        PositionDeletes(each.location, each.rows)
        for each in head.deletes_of(file)
        if each.refers_to is not None
    )


def has_shared_deletes(head: Head, file: LiveFile) -> bool:
    """Return whether deletes may apply to a data file that are not of it alone: which of its rows they delete
    is not in the metadata.
    """
    return any(each.refers_to is None for each in head.deletes_of(file))
