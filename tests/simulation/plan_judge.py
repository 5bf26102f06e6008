"""The judge of clustering plans: what the head announces of them, and what executors were told (R11)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.raw import OURS, Member, ViolationError

PLAN_ID = OURS + "clustering.plan-id"


@dataclass
class PlanJudge:
    """Follows every plan through the lineage."""

    safe_distance: int
    met: Counter[str]
    completed: dict[str, int] = field(default_factory=dict)
    """Every plan that was ever announced → the version that completed it; 0 before."""
    spoiled: set[str] = field(default_factory=set)
    """Plans of which somebody has deleted or damaged a file."""
    _claims: dict[tuple[str, int], str] = field(default_factory=dict)
    """Plan, number of the claim → the executor that was told that it has it."""

    def check(self, before: Member, member: Member) -> None:
        """What the head announces comes and goes as it should, and a plan completes once, at most (R11)."""
        self.check_announced(before, member)
        self.check_completed(before, member)

    def check_announced(self, before: Member, member: Member) -> None:
        old, new = before.pending, member.pending
        for plan in new.keys() - old.keys():
            if new[plan] != (member.number, member.updated_ms):
                raise ViolationError(f"version {member.number} announces plan {plan} as of {new[plan]}")
            self.completed.setdefault(plan, 0)
        if any(old[plan] != new[plan] for plan in old.keys() & new.keys()):
            raise ViolationError(f"version {member.number} changes what is announced: {old}, then {new}")
        if new.keys() - old.keys():  # a scheduler withdraws those only that have timed out
            timeout_ms = int(member.properties[OURS + "clustering.reservation-timeout-ms"])
            for plan in old.keys() - new.keys():
                version, time_ms = old[plan]
                if before.number - version < self.safe_distance or before.updated_ms - time_ms <= timeout_ms:
                    raise ViolationError(
                        f"version {member.number} gives plan {plan} up, of version {version} and"
                        f" {before.updated_ms - time_ms} ms before (R12)"
                    )
                self.met["plan timed out"] += 1

    def check_completed(self, before: Member, member: Member) -> None:
        old, new = before.pending, member.pending
        for key, snapshot in member.snapshots.items():
            plan = snapshot["summary"].get(PLAN_ID) if key not in before.snapshots else None
            if plan is None:
                continue
            if earlier := self.completed.get(plan):
                raise ViolationError(
                    f"version {member.number} completes plan {plan}, as version {earlier} did (R11)"
                )
            if plan in new:
                raise ViolationError(f"version {member.number} completes plan {plan}, which stays pending")
            self.met["plan completed" if plan in old else "plan completed after it was given up"] += 1
            self.completed[plan] = member.number

    def claimed(self, plan: str, number: int, executor: str) -> None:
        """An executor was told that it has a plan: nobody else has the same claim, unless files were lost."""
        if self._claims.setdefault((plan, number), executor) != executor and plan not in self.spoiled:
            raise ViolationError(f"two executors have claim {number} of plan {plan} (R11)")
        self.met["plan claimed" if number == 1 else "plan taken over"] += 1
