"""The changes of a keyed table: its key is declared once, and rows land whose keys were looked for before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from timeline import features, names, properties
from timeline.changes.changes import Beside, Change, Over
from timeline.drafts.draft import Draft
from timeline.errors import CommitConflictError, KeyConflictError, RowsChangedError
from timeline.versions.head import Head
from timeline.versions.keys import PARTITION_SCOPE, Looked, TableKey, key_of
from timeline.versions.tombstones import TombstoneFile, tombstones_of, tombstones_to_property

_NO_ROWS = Looked()
_NAMED = 20
"""Files that an error names at most; the attribute `files` has all."""


@dataclass(frozen=True)
class DeclareKey(Change):
    """Declare the key of a table, and require of its writers that they know of keys.

    The rows that were `checked` are known to have each key once: none, for a table without rows. Left out
    where the table has declared the same key. KeyConflictError where it has declared another one;
    RowsChangedError where rows came since.
    """

    over: ClassVar[Over] = Over(
        appends="refused",
        replaces="refused",
        others="refused",
        when=(
            "unless what they added came before the rows were checked; over another key; left out over the "
            "same one"
        ),
    )

    key: TableKey
    checked: Looked = _NO_ROWS

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        declared = key_of(head.properties)
        if declared == self.key:
            return "the table has declared this key already"
        check_key_is(declared or self.key, self.key, head)
        if next(self.checked.find_unseen(head), None) is not None:
            raise RowsChangedError(
                "the table has rows of which it is not known that each key is there once; nothing was"
                " declared. `streaming-sink key LOCATION --columns ... --declare` checks them, and declares"
                " the key",
                **head.where,
            )
        return None

    def apply(self, draft: Draft) -> None:
        draft.properties[properties.KEY] = self.key.to_property()
        for name, value in properties.KEYED_DEFAULTS.items():
            draft.properties.setdefault(name, value)
        features.require_feature(draft.properties, features.KEYS)


@dataclass(frozen=True)
class KeysResolved(Change):
    """State that the rows which this commit adds and deletes were found by their keys, in the live rows of
    one head.

    Refused with RowsChangedError where the head has other files, with their locations (R31): they may hold
    the same keys. The writer looks for its keys in them, and commits again.
    """

    over: ClassVar[Over] = Over(
        appends="refused",
        replaces="refused",
        deletes="refused",
        schema="checked again",
        specs="refused",
        others="refused",
        when=(
            "until the writer has looked for its keys in what they added; over deletes from a file that it "
            "deletes from, keys that they deleted, another key, a column of the key that they dropped, and a "
            "spec where a key is unique in each partition"
        ),
    )
    knows_keys: ClassVar[bool] = True

    key: TableKey
    looked: Looked
    """Where the writer has looked for its keys."""
    tombstones: frozenset[str] = frozenset()
    """The locations of the files of deleted keys that the writer has seen."""

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        check_key_is(key_of(head.properties) or self.key, self.key, head)
        check_key_has_its_columns(self.key, head)
        if self.key.scope == PARTITION_SCOPE and self.looked.spec_id != head.spec.spec_id:
            raise KeyConflictError(
                "another engine has changed the table's partition spec since the keys of this commit were"
                " looked for, and a key is unique in its partition; nothing of the commit is live. Change the"
                ' spec back, or write the table again with key_scope="table":'
                f" {head.metadata.location}",
                **head.where,
            )
        unseen = sorted(self.looked.find_unseen(head))
        if unseen:
            raise RowsChangedError(
                f"{len(unseen)} files came or left since this commit's keys were looked for, and may hold the"
                f" same keys; nothing of the commit is live, look again: {', '.join(unseen[:_NAMED])}",
                **head.where,
                files=unseen,
            )
        deleted = sorted({file.location for file in tombstones_of(head.properties)} - self.tombstones)
        if deleted:
            raise RowsChangedError(
                "keys were deleted since this commit's keys were looked for, maybe the same ones; nothing of"
                f" the commit is live, look into {deleted[0]}",
                **head.where,
                files=deleted,
            )
        return None

    def find_idleness(self, head: Head) -> str | None:  # noqa: ARG002 - as the base
        return "it only checks"


@dataclass(frozen=True)
class PutTombstones(Change):
    """Remember keys that this commit deletes, until the table's time has passed by its tombstones' time to
    live, from this commit on. Files of which all keys are older are forgotten.
    """

    location: str
    """Of the file of keys, as `tombstone_path` names it."""
    rows: int
    merged: frozenset[str] = frozenset()
    """Locations of files whose keys this one holds too: they are forgotten. Another commit may have merged
    them first; a key that two files hold does no harm.
    """

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        cutoff = head.properties.get(properties.GC_CUTOFF, "")
        if (names.file_id(self.location) or cutoff) < cutoff:
            raise CommitConflictError(
                f"this file was written before the table's garbage cutoff {cutoff} and may be deleted"
                f" already; nothing of the commit is live, write the batch again: {self.location}",
                **head.where,
                files=[self.location],
            )
        return None

    def apply(self, draft: Draft) -> None:
        oldest = draft.now_ms - properties.number(draft.properties, properties.TOMBSTONE_TTL_MS)
        kept = [
            file
            for file in tombstones_of(draft.properties)
            if file.location not in self.merged and file.newest_ms >= oldest
        ]
        # A batch may have begun long before: its deletes are as old as the version that makes them.
        added = TombstoneFile(self.location, self.rows, draft.now_ms)
        draft.properties[properties.TOMBSTONES] = tombstones_to_property([*kept, added])


@dataclass(frozen=True)
class AllowDuplicates(Change):
    """Let the commit append rows to a keyed table without a look at their keys."""

    knows_keys: ClassVar[bool] = True

    def find_idleness(self, head: Head) -> str | None:  # noqa: ARG002 - as the base
        return "it only allows"


def check_key_is(declared: TableKey, wanted: TableKey, head: Head) -> None:
    """Raise KeyConflictError unless a table's key is the one that a writer uses."""
    if declared != wanted:
        raise KeyConflictError(
            f"the key of the table is {declared.describe(head.schema)}, and this writer's is"
            f" {wanted.describe(head.schema)}; nothing was written. Give this sink the table's key,"
            f" sequence_by, key_scope and partial_update: {head.metadata.location}",
            **head.where,
        )


def check_key_has_its_columns(key: TableKey, head: Head) -> None:
    """Raise KeyConflictError where another engine has dropped a column of the table's key. One that it has
    renamed is the same column, by its field id.
    """
    wanted = {*key.column_ids} if key.sequence_id is None else {*key.column_ids, key.sequence_id}
    if gone := sorted(wanted - {field.field_id for field in head.schema.fields}):
        names = ", ".join(_last_name(head, each) for each in gone)
        raise KeyConflictError(
            f"the key of the table is {key.describe(head.schema)}, and its columns {names} were dropped;"
            " nothing was written. A column that is added under the name is another one: restore the table to"
            f" a version that has it, or write another table: {head.metadata.location}",
            **head.where,
        )


def _last_name(head: Head, field_id: int) -> str:
    """Return how the newest schema that has a field calls it."""
    known = sorted(head.metadata.schemas, key=lambda schema: -schema.schema_id)
    names = (schema.find_column_name(field_id) for schema in known)
    return next((name for name in names if name), f"with the field id {field_id}")
