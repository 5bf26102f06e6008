"""The kinds of change that a commit consists of. Each kind is one class: its checks, when it no longer fits a
head, and what it does to the next version.

All are frozen: a retry builds a new draft from (changes, head), and never edits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table.sorting import SortOrder

from timeline import properties
from timeline.commit.draft import Draft
from timeline.versions.evolution import find_unread_column
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction


class Change:
    """The base of all kinds. A kind overrides what concerns it; the defaults are those of a change that
    brings no file, fits every head and does nothing.

    A new kind needs its class alone, where it changes metadata. Where it adds a snapshot, it also needs a
    writer in `attempts.SNAPSHOT_WRITERS`.
    """

    @property
    def appended_files(self) -> tuple[DataFile, ...]:
        """Files of rows that the table does not hold yet."""
        return ()

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        """Files of rows that the table holds already, in `inputs`."""
        return ()

    @property
    def fenced_files(self) -> tuple[DataFile, ...]:
        """Files that must be above the table's garbage cutoff (R6)."""
        return (*self.appended_files, *self.rewritten_files)

    @property
    def inputs(self) -> frozenset[str]:
        """Locations of live files that leave the table with this change."""
        return frozenset()

    @property
    def precedes_files(self) -> bool:
        """Whether files depend on the change, so that no file is in the same commit."""
        return False

    def check(self) -> None:
        """Raise ValueError or TypeError for a change that fits no table. Called before any request."""

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:
        """Return why the commit must leave this change out on this head, or None where it fits.

        Raises ValueError or CommitConflictError where the whole commit must fail.
        """

    def find_idleness(self, head: Head) -> str | None:
        """Return why a version after `head` would not differ by this change, or None where it would."""

    def apply(self, draft: Draft) -> None:
        """Change the draft's properties or metadata. Its snapshots have been added before."""


@dataclass(frozen=True)
class Beside:
    """What a change has beside it in its commit."""

    appended: Mapping[str, int]
    """The rows of each file that the commit appends, by location."""
    taken: AbstractSet[str]
    """The inputs of earlier changes of the commit."""


@dataclass(frozen=True)
class Append(Change):
    """Add files of new rows, in one snapshot with all other appends of the commit.

    Rebases over everything but a change of schema or partition spec that the files do not fit.
    """

    files: tuple[DataFile, ...]

    @property
    def appended_files(self) -> tuple[DataFile, ...]:
        return self.files


@dataclass(frozen=True)
class Replace(Change):
    """Replace the files `removed` by `added`, rows unchanged: one fill, or one group of a clustering.

    Dropped, alone, if a removed file is no longer live, has deletes, or may hold a column that the writer did
    not know, when the commit lands: the other changes of the commit are committed without it (R13). `removed`
    may name files that the same commit appends.
    """

    removed: frozenset[str]
    """Locations of the files, as manifests spell them."""
    added: tuple[DataFile, ...]

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        return self.added

    @property
    def inputs(self) -> frozenset[str]:
        return self.removed

    def check(self) -> None:
        if not self.removed:
            raise ValueError("a replace removes nothing; use Append for new rows")

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:
        rows = 0
        for location in sorted(self.removed):
            if location in beside.taken:
                return f"another replace of this commit takes the same file: {location}"
            if location in beside.appended:
                rows += beside.appended[location]
                continue
            live = head.find_live(location)
            if live is None:
                return f"another commit has replaced an input: {location}"
            if head.has_deletes(live):
                return f"an input has deletes: {location}"
            if lost := find_unread_column(head, live, schema_id):
                return lost
            rows += live.rows
        self._check_keeps_rows(rows)
        return None

    def _check_keeps_rows(self, removed: int) -> None:
        """Raise ValueError unless as many rows are added as removed: the planner is at fault."""
        added = sum(file.record_count for file in self.added)
        if removed != added:
            raise ValueError(
                f"a replace must keep its rows: it removes {removed} and adds {added} rows; removed"
                f" {sorted(self.removed)}"
            )


@dataclass(frozen=True)
class SetProperties(Change):
    """Set and remove table properties; those of the protocol are refused."""

    updates: Mapping[str, str] = field(default_factory=dict)
    removals: frozenset[str] = frozenset()

    def check(self) -> None:
        properties.check_keys(self.removals)
        properties.check_properties(self.updates)

    def apply(self, draft: Draft) -> None:
        draft.properties.update(self.updates)
        for key in self.removals:
            draft.properties.pop(key, None)


@dataclass(frozen=True)
class AddSortOrder(Change):
    """Register an order that files may be sorted in; no-op where the table has one of the same fields.

    The order gets the next free id, and the table's default order does not change: look the id up by
    `Head.sort_order_id` afterwards. An order never leaves the table, so that files may refer to it for good.
    """

    order: SortOrder

    def apply(self, draft: Draft) -> None:
        draft.update_metadata(sort_orders=self.added_to(draft.metadata.sort_orders))

    def added_to(self, known: Sequence[SortOrder]) -> list[SortOrder]:
        """Return the table's orders after the change."""
        if any(each.fields == self.order.fields for each in known):
            return list(known)
        free = max((each.order_id for each in known), default=0) + 1
        return [*known, self.order.model_copy(update={"order_id": free})]


@dataclass(frozen=True)
class ExpireSnapshots(Change):
    """Expire old snapshots with this commit, and not only at every twentieth version (R7)."""

    policy: Mapping[str, str] = field(default_factory=dict)
    """The properties that bound the history, where this commit uses others than the table's."""

    def apply(self, draft: Draft) -> None:
        draft.request_expiry(self.policy)


@dataclass(frozen=True)
class RaiseFence(Change):
    """From this version on, refuse files whose ids are below the cutoff (R6). It never sinks."""

    cutoff: str

    def apply(self, draft: Draft) -> None:
        known = draft.head.properties.get(properties.GC_CUTOFF, "")
        draft.properties[properties.GC_CUTOFF] = max(known, self.cutoff)


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
    transaction: Transaction | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    """Extra entries for the summary of the commit's first snapshot."""
    open_below_bytes: int = 0
    """Files below this size may be filled later; their manifest entries are kept apart from the others."""

    @property
    def appended_files(self) -> tuple[DataFile, ...]:
        return tuple(file for change in self.changes for file in change.appended_files)

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        return tuple(file for change in self.changes for file in change.rewritten_files)

    @property
    def fenced_files(self) -> tuple[DataFile, ...]:
        return tuple(file for change in self.changes for file in change.fenced_files)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(location for change in self.changes for location in change.inputs)


def check_changes(changes: Sequence[Change]) -> None:
    """Raise ValueError or TypeError for changes that fit no table."""
    appended = [file.file_path for change in changes for file in change.appended_files]
    if len(set(appended)) < len(appended):
        raise ValueError(
            f"a file is appended twice, and its rows would count twice: {max(appended, key=appended.count)}"
        )
    if appended and any(change.precedes_files for change in changes):
        raise ValueError(
            "a schema or partition spec changes in a version of its own, before files are written under it:"
            " the table assigns the ids that are in the files"
        )
    for change in changes:
        change.check()
