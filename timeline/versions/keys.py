"""The key of a table: the columns by which rows are updated and deleted, as a table property."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema

from timeline.errors import CorruptTableError
from timeline.manifests.contents import is_data
from timeline.properties import KEY, ROLLED_BACK
from timeline.versions.head import Head

TABLE_SCOPE = "table"
PARTITION_SCOPE = "partition"
KEY_SCOPES = (TABLE_SCOPE, PARTITION_SCOPE)
_BY_VALUE = DataFileContent.EQUALITY_DELETES


@dataclass(frozen=True)
class TableKey:
    """What all writers of a keyed table agree on. At most one live row has the same values in all columns."""

    column_ids: tuple[int, ...]
    """The field ids of the key's columns, in the order in which they were declared."""
    sequence_id: int | None = None
    """The field id of the column whose larger value wins; None where a later commit wins."""
    scope: str = TABLE_SCOPE
    """Whether a key is unique in the table, or in each partition."""
    partial: bool | tuple[int, ...] = False
    """Which columns keep their value where a change has a null: all but the key and the sequence, those with
    these field ids, in ascending order, or none.
    """

    def to_property(self) -> str:
        stored: dict[str, object] = {
            "columns": list(self.column_ids),
            "sequence": self.sequence_id,
            "scope": self.scope,
        }
        if self.partial:
            stored["partial"] = self.partial
        return json.dumps(stored, separators=(",", ":"))

    def describe(self, schema: Schema) -> str:
        """Return the key for people, by the names of its columns."""
        names = ", ".join(schema.find_column_name(each) or str(each) for each in self.column_ids)
        order = (
            "without a sequence"
            if self.sequence_id is None
            else f"in sequence by {schema.find_column_name(self.sequence_id) or self.sequence_id}"
        )
        where = "the table" if self.scope == TABLE_SCOPE else "a partition"
        return f"({names}) {order}, unique in {where}{self._describe_partial(schema)}"

    def _describe_partial(self, schema: Schema) -> str:
        if isinstance(self.partial, bool):
            return ", updated in part" if self.partial else ""
        names = (schema.find_column_name(each) or str(each) for each in self.partial)
        return f", updated in part: {', '.join(names)}"


def key_of(table_properties: Mapping[str, str]) -> TableKey | None:
    """Return the key that a table declares, or None for a table without one. CorruptTableError where the
    property does not parse: it is the protocol's own.
    """
    text = table_properties.get(KEY)
    if text is None:
        return None
    try:
        stored = json.loads(text)
        columns, sequence, scope = stored["columns"], stored["sequence"], stored["scope"]
        partial = stored.get("partial", False)
        chosen = partial if isinstance(partial, bool) else tuple(map(int, partial))
        return TableKey(tuple(map(int, columns)), sequence, str(scope), chosen)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError(
            f"the table property {KEY} does not parse; restore it from an older version: {text!r}"
        ) from error


@dataclass(frozen=True)
class Looked:
    """The rows that a writer has looked at: those of one head, known by its files (R31).

    A file never changes, so what was seen of it stays true. Sequence numbers say nothing of what came since:
    another engine may make files live again that are older than the head, or that were on a branch.
    """

    snapshot_id: int | None = None
    """The head's; None where there were no rows."""
    manifests: frozenset[str] = frozenset()
    """Whose files were all seen: they are not compared one by one."""
    files: AbstractSet[str] = frozenset()
    """The locations of the data files."""
    deletes: frozenset[str] = frozenset()
    """The locations of the delete files."""
    spec_id: int | None = None
    """The partition spec, by which keys that are unique in each partition were looked for."""
    rolled_back: str = ""
    """Which rollback of this sink was the newest: main follows it, and deleted rows are live again."""

    @classmethod
    def at(cls, head: Head, files: AbstractSet[str] | None = None) -> Looked:
        """Return what a look at a head sees. `files`: the locations of its data files, where they are known.
        Reads the manifests that were not read before.
        """
        return cls(
            head.metadata.current_snapshot_id,
            frozenset(manifest.manifest_path for manifest in head.manifests),
            {file.location for file in head.live_files()} if files is None else files,
            frozenset(file.location for file in head.delete_files()),
            head.spec.spec_id,
            head.properties.get(ROLLED_BACK, ""),
        )

    def was_set_back(self, head: Head) -> bool:
        """Return whether rows that were deleted may be live again in a head, by a rollback of any engine."""
        return head.properties.get(ROLLED_BACK, "") != self.rolled_back or not head.follows(self.snapshot_id)

    def find_unseen(self, head: Head) -> Iterator[str]:
        """Yield the files by which the rows of a head may differ from those that were seen, but for rows that
        were deleted by their positions: data files that are new, deletes by value, and delete files that have
        left while main was set back, so that their rows are live again.
        """
        for manifest in head.manifests:
            if manifest.manifest_path not in self.manifests:
                files = head.manifest_files.contents(manifest).files
                if is_data(manifest):
                    yield from (location for location in files if location not in self.files)
                else:
                    deletes = (file for file in files.values() if file.location not in self.deletes)
                    yield from (each.location for each in deletes if each.content == _BY_VALUE)
        # Where main follows the head that was looked at, a delete file left by a merge, or with its rows.
        if self.deletes and self.was_set_back(head):
            yield from self.deletes - {file.location for file in head.delete_files()}
