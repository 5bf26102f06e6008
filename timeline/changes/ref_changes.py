"""A rollback of main, and the names of snapshots: tags and branches, given and taken away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from timeline import properties
from timeline.changes.changes import Beside, Change, Over
from timeline.drafts.draft import Draft
from timeline.errors import CommitConflictError
from timeline.features import ROLLBACK, require_feature
from timeline.versions.followed import FOLLOWED_TAG_PREFIX
from timeline.versions.head import Head
from timeline.versions.staged import find_item_of_tag
from timeline.versions.work_items import STAGED_TAG_PREFIX


@dataclass(frozen=True)
class Rollback(Change):
    """Give main the content of an earlier snapshot again, in a new one: main only grows. What others have
    added since leaves too. What applications have committed stays known (R16): batches are not written again.

    CommitConflictError where the snapshot has expired.
    """

    over: ClassVar[Over] = Over(
        when="what they have added leaves too; refused where they have expired its snapshot"
    )

    snapshot_id: int

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        find_snapshot(head, self.snapshot_id)
        return None

    def apply(self, draft: Draft) -> None:
        # A writer that does not know it would delete files that are live again (R7).
        require_feature(draft.properties, ROLLBACK)
        draft.properties[properties.ROLLED_BACK] = str(draft.sequence_number)


@dataclass(frozen=True)
class _Name(Change):
    """Give a snapshot a name."""

    name: str
    snapshot_id: int
    kind: ClassVar[SnapshotRefType]

    def check(self) -> None:
        ours = (STAGED_TAG_PREFIX, FOLLOWED_TAG_PREFIX)
        if not self.name.strip() or self.name == MAIN_BRANCH or self.name.startswith(ours):
            raise ValueError(
                f"a {self.kind} needs a name of its own, not {MAIN_BRANCH!r}, and not one that begins with"
                f" {' or '.join(map(repr, ours))}, as those of staged work items and of change logs do:"
                f" {self.name!r}"
            )

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        find_snapshot(head, self.snapshot_id)
        known = head.metadata.refs.get(self.name)
        if known is not None and (known.snapshot_id, known.snapshot_ref_type) != (
            self.snapshot_id,
            self.kind,
        ):
            raise CommitConflictError(
                f"the table has a {known.snapshot_ref_type} of this name, of snapshot {known.snapshot_id};"
                f" nothing was changed, use another name: {self.name}",
                **head.where,
            )
        return "the snapshot has this name already" if known is not None else None

    def apply(self, draft: Draft) -> None:
        ref = SnapshotRef.model_validate({"snapshot-id": self.snapshot_id, "type": self.kind.value})
        draft.update_metadata(refs={**draft.metadata.refs, self.name: ref})


@dataclass(frozen=True)
class Tag(_Name):
    """Let a tag keep a snapshot: it does not expire while the tag is there (R7)."""

    over: ClassVar[Over] = Over(
        others="refused", when="where they have given the name to another snapshot, or have expired this one"
    )
    kind: ClassVar[SnapshotRefType] = SnapshotRefType.TAG


@dataclass(frozen=True)
class Branch(_Name):
    """Begin a branch at a snapshot. This sink writes to main alone; other engines may write to a branch in a
    catalog.
    """

    over: ClassVar[Over] = Over(
        others="refused", when="where they have given the name to another snapshot, or have expired this one"
    )
    kind: ClassVar[SnapshotRefType] = SnapshotRefType.BRANCH


@dataclass(frozen=True)
class RemoveRef(Change):
    """Remove a tag, or a branch beside main, as its remover has seen it. What it alone held expires with a
    later version, as all else does (R7).

    CommitConflictError where it names another snapshot by now, and for the tag of a work item that is staged:
    `Discard` removes that one, since it looks whether the item has landed (R27).
    """

    over: ClassVar[Over] = Over(
        others="refused",
        when="where they have given the name to another snapshot; dropped where they have removed it",
    )

    name: str
    snapshot_id: int
    kind: SnapshotRefType

    def check(self) -> None:
        if self.name == MAIN_BRANCH:
            raise ValueError("main is the table, and is never removed; `drop` ends a table")

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        known = head.metadata.refs.get(self.name)
        if known is None:
            return f"the {self.kind} was removed: {self.name}"
        if (known.snapshot_id, known.snapshot_ref_type) != (self.snapshot_id, self.kind):
            raise CommitConflictError(
                f"the {self.kind} was of snapshot {self.snapshot_id}, and is a {known.snapshot_ref_type} of"
                f" snapshot {known.snapshot_id} by now; nothing was changed: {self.name}",
                **head.where,
            )
        if (item := find_item_of_tag(head, self.name)) is not None:
            raise CommitConflictError(
                f"the tag holds what is staged of work item {item.number} of {item.app_id!r}; nothing was"
                f" changed, publish, discard or unstage the item: {self.name}",
                **head.where,
            )
        return None

    def apply(self, draft: Draft) -> None:
        draft.release_ref(self.name)


def find_snapshot(head: Head, snapshot_id: int) -> Snapshot:
    """Return a snapshot of a head by its id. CommitConflictError where it has expired."""
    found = (each for each in head.metadata.snapshots if each.snapshot_id == snapshot_id)
    snapshot = next(found, None)
    if snapshot is None:
        raise CommitConflictError(
            f"the snapshot has expired; nothing was changed: {snapshot_id}, in {head.metadata.location}",
            **head.where,
        )
    return snapshot
