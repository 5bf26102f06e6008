"""Forget a mirror: nothing is kept for it any more (R36)."""

from __future__ import annotations

from contextlib import suppress

from timeline.changes.mirror_changes import RemoveMirror
from timeline.errors import CommitConflictError
from timeline.names import mirror_fork_path
from timeline.retention.mirrored import mirror_digest, notes_of_mirror
from timeline.table import Table
from timeline.versions.mirrors import mirrors_of


def forget_mirror(table: Table, name: str) -> None:
    """Keep nothing for a mirror from now on. What its catalog has stays there. ValueError for a name that is
    no mirror of the table, and else as `Table.commit`; a call that failed is completed by the next one.
    """
    known = mirrors_of(table.refresh().properties)
    if name not in known and not notes_of_mirror(table.store, _digest(table, name)):
        raise ValueError(
            f"the table has no mirror {name}; it has {', '.join(known) or 'none'}: {table.store.location}"
        )
    take_back(table, name)


def take_back(table: Table, name: str) -> None:
    """Keep nothing for a mirror, if the table has it."""
    if name in mirrors_of(table.refresh().properties):
        with suppress(CommitConflictError):  # another process was first
            table.commit([RemoveMirror(name)])
    digest = _digest(table, name)
    notes = [note.path for note in notes_of_mirror(table.store, digest)]
    table.store.delete([*notes, mirror_fork_path(digest)])


def _digest(table: Table, name: str) -> str:
    return mirror_digest(name, table.head.metadata.table_uuid)
