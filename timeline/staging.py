"""Write-audit-publish: stage the files of a work item beside main, and publish or discard them (R27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.manifest import DataFile

from timeline.changes.changes import Change
from timeline.changes.staging_changes import Discard, Publish, Stage
from timeline.errors import CommitConflictError
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.head import Head
from timeline.versions.past import SOURCE_SNAPSHOT_ID
from timeline.versions.staged import (
    PUBLISHED_WAP_ID,
    find_picked,
    find_staged,
    staged_files,
    stated_of,
)
from timeline.versions.work_items import DiscardedItem, OpenItem, WorkItem


def stage_item(
    table: Table,
    item: WorkItem,
    files: Sequence[DataFile],
    *,
    schema_id: int | None = None,
    summary: Mapping[str, str] | None = None,
) -> Committed | AlreadyCommitted:
    """Add the files in a snapshot beside main, held by the item's tag; AlreadyCommitted where the item is
    settled. Raises as `Table.commit`: CommitConflictError where another worker has staged the item.
    """
    return table.commit(
        [Stage(item, tuple(files))],
        schema_id=schema_id,
        transaction=OpenItem(item.app_id, item.number, item.plan),
        summary={**(summary or {}), table.log.wap_id_key: item.wap_id},
    )


def publish_item(
    table: Table,
    item: WorkItem,
    *,
    snapshot_id: int | None = None,
    open_below_bytes: int = 0,
    beside: Sequence[Change] = (),
) -> Committed | AlreadyCommitted:
    """Append the files that are staged of an item to main, with what its staged snapshot states of them: of
    `snapshot_id` alone, where it was audited. `beside` are other changes of the same commit.
    AlreadyCommitted where the item is settled.

    Raises as `Table.commit`: CommitConflictError where the item is neither staged there nor settled, where
    another engine has brought its files to main (`settle_picked`), and where they no longer fit the table;
    they stay staged then.
    """

    def look(head: Head) -> tuple[Publish, int | None, Mapping[str, str]]:
        staged = find_staged(head, item)
        if staged is None or snapshot_id not in (None, staged.snapshot_id):
            raise CommitConflictError(
                f"work item {item.number} of {item.app_id!r} is not staged"
                f"{'' if snapshot_id is None else f' in snapshot {snapshot_id}'}: {head.metadata.location}",
                **head.where,
            )
        published = Publish(staged_files(head, staged), item, staged.snapshot_id)
        wap = {PUBLISHED_WAP_ID: item.wap_id, SOURCE_SNAPSHOT_ID: str(staged.snapshot_id)}
        return published, staged.schema_id, {**stated_of(staged), **wap}

    if item.check(table.refresh().properties) is None:
        return AlreadyCommitted(table.head.number)
    change, schema_id, summary = table.on_head(look)
    return table.commit(
        [change, *beside],
        schema_id=schema_id,
        transaction=item,
        summary=summary,
        open_below_bytes=open_below_bytes,
    )


def settle_picked(table: Table, item: WorkItem) -> Committed | AlreadyCommitted | None:
    """Record an item as published whose staged files another engine has brought to main, and drop its tag;
    None where none has. Its files are never appended again. CommitConflictError where main was rolled back
    since.
    """
    if not table.on_head(lambda head: find_picked(head, item)):
        return None
    return table.commit([Discard(item, was_picked=True)], transaction=item)


def discard_item(table: Table, item: WorkItem) -> Committed | AlreadyCommitted:
    """Settle an item without its rows, staged or not: its number is refused for ever. AlreadyCommitted where
    it is settled, and maybe published; CommitConflictError where another engine has brought its files to main
    (`settle_picked`).
    """
    return table.commit([Discard(item)], transaction=DiscardedItem(item.app_id, item.number, item.plan))


def unstage_item(table: Table, item: WorkItem, snapshot_id: int) -> Committed | AlreadyCommitted:
    """Forget what is staged of an item in a snapshot, so that the item is written and staged again.

    CommitConflictError where it is not staged there, and where another engine has brought its files to main.
    """
    return table.commit(
        [Discard(item, snapshot_id)], transaction=OpenItem(item.app_id, item.number, item.plan)
    )
