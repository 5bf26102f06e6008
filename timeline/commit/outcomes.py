"""The outcome of a commit, as a caller of `Table.commit` sees it."""

from __future__ import annotations

from dataclasses import dataclass

from timeline.changes.intent import Dropped
from timeline.commit.publish import Published
from timeline.retention.deletions import Deletions


@dataclass(frozen=True)
class Committed:
    """What a commit did. All of it is durable and acknowledged."""

    version: int
    """The version that carries the commit."""
    attempts: int
    epoch: int | None
    appended_snapshot_id: int | None
    """The snapshot of new rows, and of rows that are deleted by position."""
    replaced_snapshot_id: int | None
    staged_snapshot_id: int | None
    """The snapshot of new rows that wait beside main."""
    dropped: tuple[Dropped, ...]
    """The replaces that were left out because their inputs were no longer live; the appends are in."""
    expired_snapshots: int
    history_cut: bool
    """The bound on the number of snapshots removed some that are younger than the promised age."""
    deleted: Deletions
    """The files deleted after this commit: of snapshots that had expired long before, and old versions."""

    @classmethod
    def of(cls, published: Published, deleted: Deletions) -> Committed:
        """Return the outcome of a commit, after which these files were deleted."""
        candidate, expiry = published.candidate, published.candidate.expiry
        # One that had to be sent again to a catalog has expired nothing.
        left = {it.snapshot_id for it in published.head.metadata.snapshots} if expiry.snapshot_ids else set()
        return cls(
            version=candidate.head.number,
            attempts=published.attempts,
            epoch=candidate.epoch,
            appended_snapshot_id=candidate.appended_snapshot_id,
            replaced_snapshot_id=candidate.replaced_snapshot_id,
            staged_snapshot_id=candidate.staged_snapshot_id,
            dropped=candidate.dropped,
            expired_snapshots=len(expiry.snapshot_ids - left),
            history_cut=expiry.cut_by_number,
            deleted=deleted,
        )


@dataclass(frozen=True)
class AlreadyCommitted:
    """The batch was committed before; nothing was written."""

    version: int
    """A version whose lineage holds the batch."""
    epoch: int | None = None
    """The epoch that the run's next commit must name: its own, if it has one."""
