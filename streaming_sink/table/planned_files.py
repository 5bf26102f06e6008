"""The planners' view of one live file of a head, with the delete files that may apply to it."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.manifest import DataFileContent

from planners.model import FileContent, PositionDeletes, TableFile
from timeline.manifests.deletes import live_bytes, live_rows
from timeline.manifests.entries import LiveFile
from timeline.names import clustering_of
from timeline.versions.head import Head


def planned_file(head: Head, file: LiveFile, reserved_by: str | None = None) -> TableFile:
    """Return a live file as planners see it; `reserved_by` is the plan that has it."""
    deletes = head.deletes_of(file)
    rows = live_rows(file, deletes)
    size = live_bytes(file, rows)
    return TableFile(
        path=file.location,
        partition=file.partition,
        bytes=size,
        rows=rows,
        sorted=file.sort_order_id != 0 or clustering_of(file.location) is not None,
        deleted_bytes=file.bytes - size,
        deleted_rows=file.rows - rows,
        deletes=tuple(
            PositionDeletes(each.location, each.rows, None if each.refers_to else each.sequence_number)
            for each in deletes
            if each.content == DataFileContent.POSITION_DELETES
        ),
        has_deletes_by_value=has_deletes_by_value(deletes),
        spec_id=file.spec_id,
        encryption=file.encryption,
        reserved_by=reserved_by,
        content=FileContent(file.content.value),
    )


def has_deletes_by_value(deletes: Iterable[LiveFile]) -> bool:
    """Return whether there are equality deletes among the delete files of a data file. They are never applied
    here.
    """
    return any(each.content == DataFileContent.EQUALITY_DELETES for each in deletes)
