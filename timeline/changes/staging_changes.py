"""The changes of write-audit-publish: stage the files of a work item beside main, publish or discard them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.manifest import DataFile

from timeline.changes.changes import Append, Beside, Change, Over
from timeline.drafts.draft import Draft
from timeline.errors import CommitConflictError
from timeline.versions.head import Head
from timeline.versions.staged import find_picked, find_staged
from timeline.versions.work_items import WorkItem


@dataclass(frozen=True)
class Stage(Change):
    """Add files of new rows in a snapshot beside main, held by the item's tag. Main does not move."""

    over: ClassVar[Over] = Over(
        schema="checked again",
        others="refused",
        when="where they staged or settled the item",
    )

    item: WorkItem
    files: tuple[DataFile, ...]

    @property
    def staged_files(self) -> tuple[DataFile, ...]:
        return self.files

    def check(self) -> None:
        if not self.files:
            raise ValueError("a work item without files has nothing to stage; publish it by Append")


@dataclass(frozen=True)
class Publish(Append):
    """Append the files that are staged in `snapshot_id`, and drop its tag. Refused where the item is not
    staged there: its files may be deleted then; and where another engine has brought them to main.
    """

    over: ClassVar[Over] = Over(
        schema="checked again",
        others="refused",
        when="where they settled or unstaged the item, staged other files of it, or cherry-picked it",
    )

    item: WorkItem
    snapshot_id: int

    @property
    def fenced_files(self) -> tuple[DataFile, ...]:
        """None: the tag has kept the files from the cleaner, at any age (R6)."""
        return ()

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        staged, picked = find_staged(head, self.item), find_picked(head, self.item)
        if staged is None or staged.snapshot_id != self.snapshot_id or picked is not None:
            how = (
                f"is no longer staged in snapshot {self.snapshot_id}"
                if picked is None
                else f"was staged in snapshot {picked.snapshot_id}, which another engine has brought to main"
            )
            raise CommitConflictError(
                f"work item {self.item.number} of {self.item.app_id!r} {how}; nothing of this commit is live:"
                f" {head.metadata.location}",
                **head.where,
                files=[file.file_path for file in self.files],
            )
        return None

    def apply(self, draft: Draft) -> None:
        draft.drop_ref(self.item.tag)


@dataclass(frozen=True)
class Discard(Change):
    """Drop the tag of what is staged of a work item; of `snapshot_id` alone, where it is given. The commit's
    transaction says whether the item may be staged again. Refused where another engine has brought its files
    to main: what is live is neither discarded nor written again. With `was_picked`, where the transaction
    says that they are live, refused where they are not.
    """

    over: ClassVar[Over] = Over(
        others="dropped",
        when="where what it names is not staged any more; refused where it was cherry-picked",
    )

    item: WorkItem
    snapshot_id: int | None = None
    was_picked: bool = False

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        picked = find_picked(head, self.item)
        if self.was_picked != (picked is not None):
            how = (
                "is not in main any more, where another engine had brought it; nothing was recorded"
                if picked is None
                else f"was staged in snapshot {picked.snapshot_id}, which another engine has brought to main:"
                " it has landed, and nothing of it was discarded"
            )
            raise CommitConflictError(
                f"work item {self.item.number} of {self.item.app_id!r} {how}: {head.metadata.location}",
                **head.where,
            )
        ref = head.metadata.refs.get(self.item.tag)
        if self.snapshot_id is None or (ref is not None and ref.snapshot_id == self.snapshot_id):
            return None
        return f"work item {self.item.number} is no longer staged in snapshot {self.snapshot_id}"

    def apply(self, draft: Draft) -> None:
        draft.drop_ref(self.item.tag)
