"""The key of a table: the columns by which rows are updated and deleted, as a table property."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.schema import Schema

from timeline.errors import CorruptTableError, MissingMetadataError
from timeline.manifests.contents import ManifestContents, is_data, is_large
from timeline.manifests.entries import LiveFile
from timeline.manifests.lookup import find_files
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

    A file never changes, so what was seen of it stays true, and neither does a manifest. Sequence numbers say
    nothing of what came since: another engine may make files live again that are older than the head, or that
    were on a branch.
    """

    snapshot_id: int | None = None
    """The head's; None where there were no rows."""
    manifests: tuple[ManifestFile, ...] = ()
    """Whose files were all seen."""
    deletes: frozenset[str] = frozenset()
    """The locations of the delete files."""
    spec_id: int | None = None
    """The partition spec, by which keys that are unique in each partition were looked for."""
    rolled_back: str = ""
    """Which rollback of this sink was the newest: main follows it, and deleted rows are live again."""
    at_hand: Mapping[str, ManifestContents] = field(default_factory=dict, compare=False, repr=False)
    """The contents of small manifests that were in memory: such are merged, and leave."""

    @classmethod
    def at(cls, head: Head) -> Looked:
        """Return what a look at a head sees. Reads manifests of delete files that were not read before."""
        known = {it.manifest_path: head.manifest_files.known(it) for it in head.manifests if not is_large(it)}
        return cls(
            head.metadata.current_snapshot_id,
            head.manifests,
            frozenset(file.location for file in head.delete_files()),
            head.spec.spec_id,
            head.properties.get(ROLLED_BACK, ""),
            {path: contents for path, contents in known.items() if contents is not None},
        )

    def was_set_back(self, head: Head) -> bool:
        """Return whether rows that were deleted may be live again in a head, by a rollback of any engine."""
        return head.properties.get(ROLLED_BACK, "") != self.rolled_back or not head.follows(self.snapshot_id)

    def find_unseen(self, head: Head) -> Iterator[str]:
        """Yield the files by which the rows of a head may differ from those that were seen, but for rows that
        were deleted by their positions: data files that are new, deletes by value, and delete files that have
        left while main was set back, so that their rows are live again.
        """
        yield from self.find_added(head)
        for file in head.files_in(it for it in self._not_seen(head) if not is_data(it)):
            if file.content == _BY_VALUE and file.location not in self.deletes:
                yield file.location
        # Where main follows the head that was looked at, a delete file left by a merge, or with its rows.
        if self.deletes and self.was_set_back(head):
            yield from self.deletes - {file.location for file in head.delete_files()}

    def find_added(self, head: Head) -> dict[str, LiveFile]:
        """Return the data files of a head that were not seen, by their locations. A manifest that was seen is
        passed over; the files of others are compared with those of the manifests that have left.

        A file that was seen is returned too where the manifest that had it was deleted, or its name is wrong.
        """
        not_seen = head.files_in(it for it in self._not_seen(head) if is_data(it))
        added = {file.location: file for file in not_seen}
        still = {it.manifest_path for it in head.manifests}
        left = [it for it in self.manifests if is_data(it) and it.manifest_path not in still]
        for contents in filter(None, (self.at_hand.get(it.manifest_path) for it in left)):
            for location in added.keys() & contents.files.keys():
                del added[location]
        unread = [it for it in left if it.manifest_path not in self.at_hand]
        with suppress(MissingMetadataError):
            for location in find_files(head.manifest_files, unread, added, likely=True):
                del added[location]
        return added

    def _not_seen(self, head: Head) -> Iterator[ManifestFile]:
        seen = {it.manifest_path for it in self.manifests}
        return (it for it in head.manifests if it.manifest_path not in seen)
