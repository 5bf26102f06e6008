"""The kinds of plans that this version knows, by name."""

from __future__ import annotations

from timeline import names
from timeline.plans.clustering import CLUSTERING
from timeline.plans.kinds import PlanKind

KINDS: dict[str, PlanKind] = {kind.name: kind for kind in (CLUSTERING,)}


def find_kind(plan_id: str) -> PlanKind | None:
    """Return the kind of a plan; None for a kind that only newer versions know."""
    return KINDS.get(names.plan_kind(plan_id))


def kind_of(plan_id: str) -> PlanKind:
    """Return the kind of a plan. ValueError for a kind that only newer versions know."""
    kind = find_kind(plan_id)
    if kind is None:
        raise ValueError(
            f"this version knows no plans of kind {names.plan_kind(plan_id)!r}, only of"
            f" {', '.join(sorted(KINDS))}; use the version that scheduled it: {plan_id}"
        )
    return kind
