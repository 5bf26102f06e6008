"""The kinds of change that a commit consists of. Each kind is one class: its checks, when it no longer fits a
head, and what it does to the next version.

All are frozen: a retry builds a new draft from (changes, head), and never edits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from pyiceberg.manifest import DataFile, DataFileContent

from timeline import properties
from timeline.drafts.draft import Draft
from timeline.manifests.entries import DeleteFile
from timeline.versions.evolution import find_unread_column
from timeline.versions.head import Head
from timeline.versions.partitioning import find_lost_types


class Over(NamedTuple):
    """What becomes of a change where others have committed since its head, by what they did: a row of the
    conflict table.
    """

    appends: str = "ok"
    replaces: str = "ok"
    """Over fills and clusterings."""
    deletes: str = "ok"
    schema: str = "ok"
    specs: str = "ok"
    others: str = "ok"
    """Over expiry, properties, and changes of its own kind."""
    when: str = ""


class Change:
    """The base of all kinds. A kind overrides what concerns it; the defaults are those of a change that
    brings no file, fits every head and does nothing.

    A new kind needs its class alone, where it changes metadata. Where it adds a snapshot, it also needs a
    writer in `attempts.SNAPSHOT_WRITERS`.
    """

    over: ClassVar[Over] = Over()
    knows_keys: ClassVar[bool] = False
    """Whether the commit may append to a table with a key: it says what it knows of its rows' keys."""
    precedes_files: ClassVar[bool] = False
    """Whether files depend on the change, so that no file is in the same commit."""

    @property
    def appended_files(self) -> tuple[DataFile, ...]:
        """Files of rows that the table does not hold yet."""
        return ()

    @property
    def staged_files(self) -> tuple[DataFile, ...]:
        """Files of rows that wait beside main."""
        return ()

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        """Files of rows, or of positions of deleted rows, that the table holds already, in `inputs`."""
        return ()

    @property
    def delete_files(self) -> tuple[DeleteFile, ...]:
        """Files of the positions of rows that leave the table."""
        return ()

    @property
    def fenced_files(self) -> tuple[DataFile, ...]:
        """Files that must be above the table's garbage cutoff (R6)."""
        return (*self.appended_files, *self.staged_files, *self.rewritten_files, *self.delete_files)

    @property
    def inputs(self) -> frozenset[str]:
        """Locations of live files that leave the table with this change."""
        return frozenset()

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
    deletes: Mapping[str, Sequence[DeleteFile]] = field(default_factory=dict)
    """The position-delete files that the commit adds, by the location of their data file."""


@dataclass(frozen=True)
class Append(Change):
    """Add files of new rows, in one snapshot with all other appends of the commit.

    Rebases over everything but a change of schema or partition spec that the files do not fit.
    """

    over: ClassVar[Over] = Over(
        schema="checked again",
        when="the files keep the partition spec that they were written under",
    )

    files: tuple[DataFile, ...]

    @property
    def appended_files(self) -> tuple[DataFile, ...]:
        return self.files


@dataclass(frozen=True)
class Replace(Change):
    """Replace the files `removed` by `added`, rows unchanged: one fill, or one group of a clustering.

    Dropped, alone, if a removed file is no longer live, has other deletes than `applied`, may hold a column
    that the writer did not know, or is in a manifest that cannot be written again, when the commit lands: the
    other changes of the commit are committed without it (R13). `removed` may name files that the same commit
    appends. The position-delete files of a removed file leave the table with it.
    """

    over: ClassVar[Over] = Over(
        replaces="dropped",
        deletes="dropped",
        schema="dropped",
        when=(
            "unless its inputs are live, it has applied all of their deletes, none may hold a column that "
            "its writer did not know, and the types of their partitions are known"
        ),
    )

    removed: frozenset[str]
    """Locations of the files, as manifests spell them."""
    added: tuple[DataFile, ...]
    applied: frozenset[str] = frozenset()
    """Locations of the delete files whose rows `added` leaves out, those of the same commit included: all
    that may apply to one of the removed files.
    """
    deleted_rows: int = 0
    """How many rows that is, as the writer has counted them."""

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
        rows, deletes = 0, list[tuple[int, int]]()
        unknown = set(self.applied)
        known = head.find_all_live(self.removed - beside.appended.keys(), likely=True)
        if lost := find_lost_types(head.metadata, known.values()):
            return lost
        for location in sorted(self.removed):
            if location in beside.taken:
                return f"another replace of this commit takes the same file: {location}"
            if location in beside.appended:
                rows += beside.appended[location]
                continue
            live = known.get(location)
            if live is None:
                return f"another commit has replaced an input: {location}"
            found = head.deletes_of(live)
            if any(each.content == DataFileContent.EQUALITY_DELETES for each in found):
                return f"an input has deletes by value: {location}"
            sizes = {each.location: each.rows for each in found}
            added = {each.file_path: each.rows_of[location] for each in beside.deletes.get(location, ())}
            sizes |= added
            if sizes.keys() - self.applied:
                return f"an input has deletes that the replace has not applied: {location}"
            if sizes.keys() & beside.taken:
                return f"another change of this commit merges the deletes of an input: {location}"
            unknown -= sizes.keys()
            if lost := find_unread_column(head, live, schema_id):
                return lost
            rows += live.rows
            own = added | {each.location: each.rows for each in found if each.refers_to is not None}
            most = min(live.rows, sum(sizes.values()))
            deletes.append((min(most, max(own.values(), default=0)), most))
        if unknown:
            return f"rows that the replace leaves out are live again: {min(unknown)}"
        self._check_keeps_rows(rows, deletes)
        return None

    def _check_keeps_rows(self, removed: int, deletes: Sequence[tuple[int, int]]) -> None:
        """Raise ValueError unless the rows that are added are the live ones of those removed: the planner is
        at fault. `deletes`: how many rows of each input are deleted, at least and at most. Two delete files
        of another engine may delete one row, and a shared one may delete rows of other data files alone.
        """
        added = sum(file.record_count for file in self.added)
        least, most = sum(few for few, _ in deletes), sum(many for _, many in deletes)
        if removed != added + self.deleted_rows or not least <= self.deleted_rows <= most:
            raise ValueError(
                f"a replace must keep its live rows: it removes {removed} and adds {added} rows, and leaves"
                f" out {self.deleted_rows} of the {least} to {most} that are deleted; removed"
                f" {sorted(self.removed)}"
            )


@dataclass(frozen=True)
class SetProperties(Change):
    """Set and remove table properties; those of the protocol are refused."""

    updates: Mapping[str, str] = field(default_factory=dict)
    removals: frozenset[str] = frozenset()

    def check(self) -> None:
        properties.check_property_names(self.removals)
        properties.check_properties(self.updates)

    def apply(self, draft: Draft) -> None:
        draft.properties.update(self.updates)
        for key in self.removals:
            draft.properties.pop(key, None)


@dataclass(frozen=True)
class ExpireSnapshots(Change):
    """Expire old snapshots with this commit, and not only at every twentieth version (R7)."""

    over: ClassVar[Over] = Over(when="what others keep by a tag or a branch stays")

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
