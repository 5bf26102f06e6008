"""The planners' view of live files of a head, with the delete files that may apply to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from pyiceberg.manifest import DataFileContent

from planners.model import FileContent, PositionDeletes, TableFile, TablePartition, comparable
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
        deletes=as_planned(deletes),
        has_deletes_by_value=has_deletes_by_value(deletes),
        spec_id=file.spec_id,
        encryption=file.encryption,
        reserved_by=reserved_by,
        content=FileContent(file.content.value),
    )


def as_planned(applied: Iterable[LiveFile]) -> tuple[PositionDeletes, ...]:
    """Return those of the delete files that are by position, as planners and tasks see them."""
    return tuple(
        PositionDeletes(each.location, each.rows, None if each.refers_to else each.sequence_number)
        for each in applied
        if each.content == DataFileContent.POSITION_DELETES
    )


def has_deletes_by_value(deletes: Iterable[LiveFile]) -> bool:
    """Return whether there are equality deletes among the delete files of a data file. They are never applied
    here.
    """
    return any(each.content == DataFileContent.EQUALITY_DELETES for each in deletes)


def small_files(
    head: Head, partitions: Collection[TablePartition], below_bytes: int, reserved: Mapping[str, str]
) -> Iterator[TableFile]:
    """Yield the data files of these partitions that were written with fewer bytes, whichever of their rows
    are deleted; sorted ones where they are at hand. The values of `partitions` are comparable.
    """
    for file in head.files_below(below_bytes, partitions, fillable=True):
        if TablePartition(file.spec_id, comparable(file.partition)) in partitions:
            yield planned_file(head, file, reserved.get(file.location))


def files_to_fold(
    head: Head, partitions: Collection[TablePartition], from_bytes: int, reserved: Mapping[str, str]
) -> Iterator[TableFile]:
    """Yield the other data files of these partitions, and the sorted ones, that delete files may apply to."""
    for file in head.files_with_deletes(partitions):
        if (file.bytes >= from_bytes or file.sort_order_id) and TablePartition(
            file.spec_id, comparable(file.partition)
        ) in partitions:
            yield planned_file(head, file, reserved.get(file.location))
