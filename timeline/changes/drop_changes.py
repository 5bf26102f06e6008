"""The drop of a table: a last version, above which the numbers go on if the table is created again (R17)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from timeline.changes.changes import Change, Over
from timeline.drafts.draft import Draft
from timeline.errors import TableDroppedError, TableNotFoundError
from timeline.features import DROPPED, require_feature, required_features
from timeline.versions.head import Head
from timeline.versions.outbox import identifier_of


@dataclass(frozen=True)
class Drop(Change):
    """Let the version be the last one of the table: it has no rows, and no writer builds on it. Its files
    stay, and so do its number and what is left for second tables.
    """

    over: ClassVar[Over] = Over(when="what they have added is dropped too")

    def apply(self, draft: Draft) -> None:
        # A writer that does not know it would go on, and its rows would be those of a new table.
        require_feature(draft.properties, DROPPED)
        draft.manifests = ()
        draft.update_metadata(current_snapshot_id=None, refs={}, snapshots=[], snapshot_log=[])


def is_dropped(head: Head) -> bool:
    """Return whether a version says that the table was dropped."""
    return DROPPED in required_features(head.properties)


def check_not_dropped(head: Head) -> None:
    """Raise TableDroppedError for the last version of a table that was dropped."""
    if is_dropped(head):
        raise TableDroppedError(
            f"the table was dropped, by version {head.number}; nothing was written. Stop what writes to it; a"
            " stream that is started again makes a new, empty table here, which has none of the batches"
            f" before: {head.metadata.location}",
            **head.where,
        )


def table_vanished(address: str, location: str) -> TableNotFoundError:
    """Return the error for a table that was open, and of which there is nothing any more."""
    if identifier := identifier_of(address):
        return TableNotFoundError(
            "the catalog has the table no more: it was dropped, or has another name. Nothing was written."
            " Start the query again if a new table is to be made in its place, or give it the other name:"
            f" {'.'.join(identifier)}",
            location=location,
        )
    return TableNotFoundError(
        "the table has vanished: no version of it is left. Nothing was written; unless it was dropped on"
        f" purpose, restore metadata/ from a copy before a writer starts: {location}",
        location=location,
    )
