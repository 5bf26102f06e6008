"""The clustering plans of a table: how far each came, and what it rewrites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeline import names
from timeline.plans.clustering import CLUSTERING
from timeline.plans.instants import Instant, show_plan
from timeline.plans.plan_file import Plan, UnreadablePlanError
from timeline.stores.base import Store
from timeline.table import Table


@dataclass(frozen=True, kw_only=True)
class PlanDetails:
    """One plan. What it rewrites is None where its file is lost."""

    plan_id: str
    state: str
    """"requested", "inflight", "completed", "cancelled", "lost" or "ended"."""
    pending: bool
    timed_out: bool
    """It no longer reserves files, and the next scheduler cancels it."""
    claims: int
    """How often an executor took it: more than once where it was taken over."""
    since_version: int | None
    """The version that announced it; None where it is not pending."""
    planned_ms: int
    """When, by the table's time, in milliseconds since the epoch."""
    age_seconds: int
    strategy: str | None
    """Several with commas."""
    groups: int | None
    files: int | None
    rows: int | None
    bytes: int | None


def list_plans(table: Table, now_ms: int) -> list[PlanDetails]:
    """Return the plans that are pending, and those of the last week, oldest first. Two LISTs, and one GET a
    plan.
    """
    return [_details(table.store, instant, now_ms) for instant in show_plan(table, CLUSTERING)]


def _details(store: Store, instant: Instant, now_ms: int) -> PlanDetails:
    plan = _read(store, instant.plan_id)
    groups: Sequence[Plan] | None = None if plan is None else plan[CLUSTERING.items]
    planned_ms = names.ulid_time_ms(names.plan_ulid(instant.plan_id))
    return PlanDetails(
        plan_id=instant.plan_id,
        state=instant.state.value,
        pending=instant.announced is not None,
        timed_out=instant.timed_out,
        claims=instant.claim,
        since_version=None if instant.announced is None else instant.announced.version,
        planned_ms=planned_ms,
        age_seconds=max(0, now_ms - planned_ms) // 1000,
        strategy=None if groups is None else ",".join(sorted({it["strategy"]["name"] for it in groups})),
        groups=None if groups is None else len(groups),
        files=None if groups is None else sum(len(it["inputs"]) for it in groups),
        rows=None if groups is None else sum(it["rows"] for it in groups),
        bytes=None if groups is None else sum(it["bytes"] for it in groups),
    )


def _read(store: Store, plan_id: str) -> Plan | None:
    """Return a plan as it was scheduled; None where its file is deleted or unreadable."""
    try:
        return CLUSTERING.schema.decode(plan_id, store.read(names.requested_path(plan_id)).data)
    except (FileNotFoundError, UnreadablePlanError):
        return None
