"""Files by reference: data files outside of a table's location, which are their owners' (R28)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.manifest import DataFile

from timeline.changes.changes import Change
from timeline.changes.intent import Intent
from timeline.drafts.draft import Draft
from timeline.errors import CommitConflictError
from timeline.features import BY_REFERENCE, require_feature, required_features
from timeline.versions.head import Head


@dataclass(frozen=True)
class AllowReferences(Change):
    """Let the table have data files by reference, from the next version on. A writer that does not know them
    could delete one, or fail to read it, so the table requires the feature of all writers, for good.
    """

    precedes_files: ClassVar[bool] = True

    def find_idleness(self, head: Head) -> str | None:
        return "the table allows files by reference" if allows_references(head) else None

    def apply(self, draft: Draft) -> None:
        require_feature(draft.properties, BY_REFERENCE)


def allows_references(head: Head) -> bool:
    return BY_REFERENCE in required_features(head.properties)


def is_reference(table: str, location: str) -> bool:
    """Return whether a file lies outside of a table's location."""
    return not location.startswith(f"{table}/")


def check_references_are_allowed_and_new(head: Head, files: Iterable[DataFile]) -> None:
    """A new file outside of the table's location needs a table that allows it, and is not in the table
    already (R28): its name is its owner's, so two commits may bring the same one.
    """
    references = sorted({it.file_path for it in files if is_reference(head.metadata.location, it.file_path)})
    if references and not allows_references(head):
        raise CommitConflictError(
            "this file lies outside of the table's location, and the table does not allow files by"
            f" reference; nothing of the commit is live, commit AllowReferences first: {references[0]}",
            **head.where,
            files=references[:1],
        )
    if live := sorted(head.find_all_live(references)):
        raise CommitConflictError(
            "this file is in the table already, by reference, and its rows would count twice; nothing"
            f" more of the commit is live: {live[0]}",
            **head.where,
            files=live,
        )


def without_references(head: Head, intent: Intent) -> list[DataFile]:
    """Return the files of a commit that the garbage fence is for (R6): all but its new rows by reference,
    which no cleaner deletes. What it leaves for a second table lies elsewhere, too, and is for the fence.
    """
    table, new = head.metadata.location, {file.file_path for file in intent.new_files}
    return [
        file
        for file in intent.fenced_files
        if file.file_path not in new or not is_reference(table, file.file_path)
    ]
