"""A commit as it was asked for: its changes, and what is stored with them; what of it was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from timeline.changes.changes import Change
from timeline.manifests.entries import DeleteFile
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem


@dataclass(frozen=True)
class Dropped:
    """A change that the commit left out, and why."""

    change: Change
    reason: str


@dataclass(frozen=True)
class Intent:
    """What a commit wants to do to which table, and the schema that its files were written under."""

    changes: tuple[Change, ...]
    schema_id: int
    table_uuid: str
    transaction: Transaction | WorkItem | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    """Extra entries for the summary of the commit's first snapshot."""
    open_below_bytes: int = 0
    """Files below this size may be filled later; their manifest entries are kept apart from the others."""
    written: Schema | None = None
    """The schema of that id as the table had it when the commit was asked for: an id is given again where
    another engine has removed the newest schemas. None where it is not known.
    """

    @property
    def appended_files(self) -> tuple[DataFile, ...]:
        return tuple(file for change in self.changes for file in change.appended_files)

    @property
    def staged_files(self) -> tuple[DataFile, ...]:
        return tuple(file for change in self.changes for file in change.staged_files)

    @property
    def new_files(self) -> tuple[DataFile, ...]:
        """Files of rows that the table does not hold yet, on main or beside it."""
        return (*self.appended_files, *self.staged_files)

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        return tuple(file for change in self.changes for file in change.rewritten_files)

    @property
    def delete_files(self) -> tuple[DeleteFile, ...]:
        return tuple(file for change in self.changes for file in change.delete_files)

    @property
    def fenced_files(self) -> tuple[DataFile, ...]:
        return tuple(file for change in self.changes for file in change.fenced_files)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(location for change in self.changes for location in change.inputs)
