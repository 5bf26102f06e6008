"""The key of a table: the columns by which rows are updated and deleted, as a table property."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema

from timeline.errors import CorruptTableError
from timeline.manifests.entries import LiveFile
from timeline.manifests.manifests import is_data
from timeline.properties import KEY
from timeline.versions.head import Head

TABLE_SCOPE = "table"
PARTITION_SCOPE = "partition"
KEY_SCOPES = (TABLE_SCOPE, PARTITION_SCOPE)


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


def files_added_since(head: Head, sequence_number: int) -> Iterator[LiveFile]:
    """Yield the live data files that commits after this sequence number have added, by whichever change."""
    if head.metadata.last_sequence_number <= sequence_number:
        return
    for manifest in head.manifests:
        # The sequence number of a manifest is that of its newest entry, or a later one.
        if is_data(manifest) and (manifest.sequence_number or 0) > sequence_number:
            for file in head.manifest_files.contents(manifest).files.values():
                if file.sequence_number > sequence_number:
                    yield file
