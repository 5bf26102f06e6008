"""The changes to a table's pending plans, and to the count of commits that makes a plan due."""

from __future__ import annotations

from dataclasses import dataclass

from timeline import properties
from timeline.changes.changes import Change
from timeline.drafts.draft import Draft
from timeline.versions import pending
from timeline.versions.head import Head


@dataclass(frozen=True)
class Announce(Change):
    """From this version on, the head lists a plan as pending, and its files are reserved (advice, R11)."""

    plan_id: str

    def apply(self, draft: Draft) -> None:
        pending.announce(
            draft.properties, self.plan_id, draft.number, draft.updated_ms, apart=draft.plans_apart
        )


@dataclass(frozen=True)
class Withdraw(Change):
    """The head no longer lists a plan: it completes with this version, or is cancelled. No-op if it was not
    announced.
    """

    plan_id: str

    def find_idleness(self, head: Head) -> str | None:
        if any(plan.plan_id == self.plan_id for plan in pending.pending_plans(head.properties)):
            return None
        return f"the plan is not pending: {self.plan_id}"

    def apply(self, draft: Draft) -> None:
        pending.withdraw(draft.properties, self.plan_id)


@dataclass(frozen=True)
class CountCommit(Change):
    """Increment the count of commits by writers that cluster inline; see `Head.counted_commits`."""

    def apply(self, draft: Draft) -> None:
        draft.properties[properties.CLUSTERING_COUNT] = str(draft.head.counted_commits + 1)
