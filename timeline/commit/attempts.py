"""The attempts of one commit: the next version's bytes, as a function of (intent, head).

Nothing here decides whether an attempt wins; `publish` does. A retry calls `build` again with a newer head:
everything that depends on the head (carried manifests, sequence numbers, totals, the replaces that still fit)
is computed again, and the one thing that does not, the manifest of appended files, is written once (R8, R15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyiceberg.table.snapshots import Operation

from timeline.changes.intent import Dropped, Intent
from timeline.clock import Environment
from timeline.commit.conflicts import check_conflicts
from timeline.commit.snapshots import (
    AppendWriter,
    ReplaceWriter,
    RollbackWriter,
    SnapshotWriter,
    StageWriter,
)
from timeline.drafts.draft import Draft
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.policy import NOTHING_EXPIRED, Expiry
from timeline.versions.head import Head

SNAPSHOT_WRITERS = (AppendWriter, ReplaceWriter, StageWriter, RollbackWriter)
"""The writers of a commit's snapshots, in the order in which a version adds them."""


@dataclass(frozen=True)
class Candidate:
    """The next version, ready to be published; `head` is the head that it becomes if it wins."""

    head: Head
    data: bytes
    base: Head | None = None
    """The head that it follows."""
    epoch: int | None = None
    dropped: tuple[Dropped, ...] = ()
    expiry: Expiry = NOTHING_EXPIRED
    appended_snapshot_id: int | None = None
    """The snapshot of new rows, and of rows that are deleted by position."""
    replaced_snapshot_id: int | None = None
    staged_snapshot_id: int | None = None


@dataclass
class Attempts:
    """Builds the attempts of one commit. Holds only what all of them share."""

    intent: Intent
    manifest_files: ManifestFiles
    environment: Environment
    draft: type[Draft] = Draft
    """The kind of draft that the log takes."""
    _writers: Sequence[SnapshotWriter] = field(init=False)

    def __post_init__(self) -> None:
        shared = self.intent, self.manifest_files, self.environment
        self._writers = [writer(*shared) for writer in SNAPSHOT_WRITERS]

    def prepare(self, head: Head) -> None:
        """Write what no retry writes again. `head` may be stale."""
        for writer in self._writers:
            writer.prepare(head)

    def build(self, head: Head, probed: str | None) -> Candidate | None:
        """Return the version after `head`; None where the batch was committed before. `probed`: the stores
        that were probed, where that changed.

        Raises as `check_conflicts` where the intent no longer fits the head; nothing of it is then live.
        """
        intent, verdict = self.intent, check_conflicts(self.intent, head)
        if verdict is None:
            return None
        draft = self.draft.begin(head, self.manifest_files, self.environment, intent.summary)
        for writer in self._writers:
            writer.add_snapshot(draft, verdict.kept)
        draft.continue_lineage(probed)
        for change in verdict.kept:
            change.apply(draft)
        if intent.transaction is not None and verdict.epoch is not None:
            intent.transaction.record(draft.properties, verdict.epoch, draft.commit_id)
        next_head, data, expiry = draft.finish()
        return Candidate(
            next_head,
            data,
            head,
            verdict.epoch,
            verdict.dropped,
            expiry,
            draft.snapshot_id(Operation.APPEND, Operation.OVERWRITE, Operation.DELETE),
            draft.snapshot_id(Operation.REPLACE),
            draft.staged[-1].snapshot_id if draft.staged else None,
        )


def rehearse(
    intent: Intent,
    head: Head,
    manifest_files: ManifestFiles,
    environment: Environment,
    draft: type[Draft] = Draft,
) -> None:
    """Build the version that a commit of the intent would publish on this head, and publish nothing. Raises
    what building it raises. The manifests that it writes are orphans.
    """
    attempts = Attempts(intent, manifest_files, environment, draft)
    attempts.prepare(head)
    attempts.build(head, None)
