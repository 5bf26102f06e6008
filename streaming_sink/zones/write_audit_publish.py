"""The order of write-audit-publish for a work item: settled, staged, or neither (R27)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Snapshot

from streaming_sink.zones.errors import StagedFilesLostError
from timeline import staging
from timeline.changes.changes import Change
from timeline.changes.references import is_reference
from timeline.errors import CommitConflictError, CorruptTableError
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.staged import find_staged, staged_files, staged_items
from timeline.versions.work_items import WorkItem

Check = Callable[[Snapshot, Sequence[DataFile]], None]
"""Raises AuditFailedError, or StagedFilesLostError."""


def settle(
    table: Table, item: WorkItem, check: Check, open_below_bytes: int, beside: Sequence[Change] = ()
) -> Committed | AlreadyCommitted | None:
    """Publish what is staged of an item once it passes the check, with other changes `beside` it;
    AlreadyCommitted where the known head has it as settled, and None where it is not staged: then it is to be
    written. One that another engine has brought to main is recorded as published, as it is.

    What is staged and cannot be read, or has a file by reference that the table has got since, is unstaged,
    with a CommitConflictError: the item is to be written again. Raises what the check raises, and as
    `Table.commit`; the item stays staged then.
    """
    if item.check(table.head.properties) is None:
        return AlreadyCommitted(table.head.number)
    if (picked := staging.settle_picked(table, item)) is not None:
        return picked
    try:
        staged = find_staged(table.head, item)
        if staged is None:
            return None
        files = staged_files(table.head, staged)
        _check_references_are_new(table, files)
        check(staged, files)
    except (CorruptTableError, StagedFilesLostError) as damage:
        staging.unstage_item(table, item, table.head.metadata.refs[item.tag].snapshot_id)
        raise CommitConflictError(
            f"what was staged of work item {item.number} cannot be published; it is written again: {damage}"
        ) from damage
    return staging.publish_item(
        table,
        item,
        snapshot_id=staged.snapshot_id,
        open_below_bytes=open_below_bytes,
        beside=beside,
    )


def _check_references_are_new(table: Table, files: Sequence[DataFile]) -> None:
    """Another item may have brought the same file (R28): this one is never published as it is staged."""
    paths = (file.file_path for file in files)
    live = table.head.find_all_live(it for it in paths if is_reference(table.store.location, it))
    if live:
        raise StagedFilesLostError(f"the table has this file by reference already: {min(live)}")


def unstage_old(table: Table, app_id: str, timeout_ms: int) -> list[int]:
    """Unstage the items that have been staged for longer than the time-out, by the table's own time, and
    return their numbers. An item that another process settles at that moment is left to it; one that another
    engine has brought to main is recorded as published, since without its tag nothing may show that.
    """
    metadata, unstaged = table.refresh().metadata, []
    for number, staged in staged_items(metadata, app_id).items():
        if metadata.last_updated_ms - staged.timestamp_ms > timeout_ms:
            item = WorkItem(app_id, number)
            try:
                if staging.settle_picked(table, item) is not None:
                    continue
                staging.unstage_item(table, item, staged.snapshot_id)
            except CommitConflictError:
                continue
            unstaged.append(number)
    return unstaged
