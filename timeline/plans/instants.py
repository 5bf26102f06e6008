"""Instants: the life of a plan, of any kind: requested, inflight, and completed or cancelled.

The versions are the source of truth; the files here only log intentions. The head decides which plans are
pending, and so reserve their files, and which files are live, so that a plan completes at most once. Losing
or corrupting any file of these folders costs work, never a row (R11).

======================================  ====================================================================
_timeline/<kind>/<plan>-…               written
======================================  ====================================================================
requested.avro                          once, before the version that announces the plan
inflight-<n>.json                       by the executor that claims the plan, and again at each heartbeat;
                                        one that takes over creates n + 1
completed.json, cancelled.json          once, after the version that withdraws the plan
======================================  ====================================================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from timeline import names
from timeline.changes.plan_changes import Announce, Withdraw
from timeline.drafts import succession
from timeline.errors import CommitConflictError, CorruptTableError, StoreUnavailableError, TimelineError
from timeline.features import check_features_are_known
from timeline.plans.claims import Claim, Watch, all_instants, instants_of, take_claim
from timeline.plans.kinds import PlanKind
from timeline.plans.plan_file import Plan
from timeline.plans.registry import kind_of
from timeline.plans.reservations import Reservations, has_timed_out, read_plan
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.pending import PendingPlan, pending_plans

_LOG = logging.getLogger("streaming_sink.timeline")

KEPT_MS = 7 * 24 * 3600 * 1000
"""How long the files of an ended plan are kept, for people, by the table's own time."""


class State(str, Enum):
    """How far a plan has come."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Announced, but its file is lost: the next executor cancels it."""
    ENDED = "ended"
    """Not announced, and no note says how it ended."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One plan as the head and the files show it."""

    plan_id: str
    state: State
    announced: PendingPlan | None
    """Its announcement in the head; None where the head has none."""
    timed_out: bool
    """It no longer reserves files, and the next scheduler cancels it."""
    claim: int
    """How often it was claimed: more than once where it was taken over."""


def schedule_plan(table: Table, plan: Mapping[str, object], kind: PlanKind) -> str:
    """Save a plan, announce it, and return its id. Once this returns, its files are reserved.

    `plan` is plain data of the kind's schema. The same version cancels the plans, of any kind, that have
    timed out; the files of this kind's plans that ended a week ago are deleted. ValueError for a plan that
    has no work items or does not fit the schema. CommitConflictError where another pending plan has one of
    its files: plan again, without the files that `Reservations.files` names.
    """
    environment, head = table.log.environment, table.refresh()
    check_features_are_known(head.properties, table.store.location)
    ulid = environment.new_id(succession.commit_time(environment, head))
    plan_id = names.plan_id(kind.name, ulid)
    data = kind.schema.encode(plan_id, head.number, plan)
    inputs = kind.inputs_of(dict(plan))
    if not inputs:
        raise ValueError(f"a plan without {kind.items} changes nothing; do not schedule it")
    reservations = Reservations(table.store)
    _check_not_reserved(table, reservations.files(head), inputs)
    try:
        table.log.manifest_files.write_fresh(names.requested_path(plan_id), data)
    except CorruptTableError as damage:
        raise CommitConflictError(
            f"another process damaged the plan while it was saved; plan again: {damage}",
            location=table.store.location,
        ) from None
    overdue = [each.plan_id for each in pending_plans(head.properties) if has_timed_out(each, head)]
    table.commit([Announce(plan_id), *map(Withdraw, overdue)])
    for each in overdue:
        _LOG.warning("%s plan %s was not executed in time and is cancelled", names.plan_kind(each), each)
        _note(table.store, names.cancelled_path(each), {"reason": "it was not executed in time"})
    try:
        # Another scheduler may have announced the same files since the check above: the first has them.
        _check_not_reserved(table, reservations.files(table.head), inputs, but=plan_id)
    except CommitConflictError:
        cancel_plan(table, plan_id, reason="another plan was first")
        raise
    _delete_old_instants(table, kind)
    return plan_id


def claim_plan(
    table: Table,
    plan_id: str,
    watch: Watch | None = None,
    check: Callable[[Plan], object] = lambda _: None,
) -> Claim | None:
    """Claim a pending plan; return the claim, or None where there is nothing to do.

    There is nothing to do where the plan is not pending, has timed out, or another executor has it and
    `watch` has not yet found its claim abandoned. The plan is still pending after the claim was created: an
    executor that slept until the plan had ended, and its instants were deleted, gets no claim. A plan whose
    file is lost is cancelled. `check` raises for a plan that this executor cannot execute, and leaves it to
    others. ValueError for a plan of an unknown kind.
    """
    kind = kind_of(plan_id)
    head = table.refresh()
    pending = _find(head, plan_id)
    if pending is None or has_timed_out(pending, head):
        return None
    check_features_are_known(head.properties, table.store.location)
    held = instants_of(table.store, plan_id).get("inflight", 0)
    if held and not (watch is not None and watch.is_abandoned(table.store, plan_id, held)):
        return None
    plan = read_plan(table.store, plan_id)
    if plan is None:
        cancel_plan(table, plan_id, reason="its file is lost")
        return None
    check(plan)
    environment = table.log.environment
    executor = environment.new_id(succession.commit_time(environment, head))
    if held:
        _LOG.warning("%s plan %s has no heartbeat and is taken over", kind.name, plan_id)
    taken = take_claim(table.store, plan_id, plan, held + 1, executor)
    if taken is None:
        return None
    try:
        is_pending = _find(table.refresh(), plan_id) is not None
    except TimelineError:
        taken.release()
        raise
    if not is_pending:
        taken.release()
    return taken if is_pending else None


def note_completed(table: Table, plan_id: str, *, version: int, done: int, dropped: int) -> None:
    """Write the instant `completed` for an executor that committed the plan and withdrew it by itself. `done`
    and `dropped` count work items.
    """
    note = {"version": version, kind_of(plan_id).items: done, "dropped": dropped}
    _note(table.store, names.completed_path(plan_id), note)


def cancel_plan(table: Table, plan_id: str, *, reason: str = "a user cancelled it") -> bool:
    """Withdraw a plan and free its files; False where it is not pending.

    Its executor stops at its next heartbeat. One that does not see the cancellation may still complete the
    plan, which is safe: its inputs must be live.
    """
    if _find(table.refresh(), plan_id) is None:
        return False
    table.commit([Withdraw(plan_id)])
    _note(table.store, names.cancelled_path(plan_id), {"reason": reason})
    return True


def pending_of(head: Head, kind: PlanKind) -> list[PendingPlan]:
    """Return the plans of a kind that the head announces, in the order of their announcements."""
    return [each for each in pending_plans(head.properties) if names.plan_kind(each.plan_id) == kind.name]


def show_plan(table: Table, kind: PlanKind) -> tuple[Instant, ...]:
    """Return the plans of a kind that are pending or have left files, oldest first. Two LISTs."""
    head = table.refresh()
    files = all_instants(table.store, kind.name)
    announced = {pending.plan_id: pending for pending in pending_of(head, kind)}
    return tuple(
        Instant(
            plan_id,
            _state(files.get(plan_id, {}), pending := announced.get(plan_id)),
            pending,
            pending is not None and has_timed_out(pending, head),
            files.get(plan_id, {}).get("inflight", 0),
        )
        for plan_id in sorted(files.keys() | announced.keys())
    )


def _state(files: Mapping[str, int], pending: PendingPlan | None) -> State:
    # The head decides whether a plan is pending; the files only show how far it came.
    if pending is None:
        ended = (state for state in (State.COMPLETED, State.CANCELLED) if state.value in files)
        return next(ended, State.ENDED)
    if "requested" not in files:
        return State.LOST
    return State.INFLIGHT if "inflight" in files else State.REQUESTED


def _find(head: Head, plan_id: str) -> PendingPlan | None:
    return next((each for each in pending_plans(head.properties) if each.plan_id == plan_id), None)


def _check_not_reserved(
    table: Table, reserved: Mapping[str, str], inputs: frozenset[str], but: str = ""
) -> None:
    taken = sorted(location for location in inputs & reserved.keys() if reserved[location] != but)
    if taken:
        holder = reserved[taken[0]]
        raise CommitConflictError(
            f"a file of this plan is reserved by plan {holder}; plan again without it: {taken[0]}",
            location=table.store.location,
            files=taken,
        )


def _note(store: Store, path: str, content: Mapping[str, object]) -> None:
    """Record how a plan ended. The version has recorded the end already: a note that fails is only logged."""
    try:
        store.create(path, json.dumps(content).encode())
    except StoreUnavailableError as failure:
        _LOG.warning("the plan has ended; its note failed, which needs no repair: %s: %s", path, failure)


def _delete_old_instants(table: Table, kind: PlanKind) -> None:
    """Delete the files of plans that are not pending and are older than a week of the table's time."""
    head = table.head
    pending = {each.plan_id for each in pending_of(head, kind)}
    oldest = names.ulid_floor(max(head.metadata.last_updated_ms - KEPT_MS, 0))
    try:
        listed = [entry.path for entry in table.store.list_folder(kind.folder)]
        table.store.delete(
            path
            for path in listed
            if (named := names.instant_of(path)) is not None
            and names.plan_ulid(named[0]) < oldest
            and named[0] not in pending
        )
    except StoreUnavailableError as failure:
        _LOG.warning("the files of old plans stay until the next plan is scheduled: %s", failure)


__all__ = [
    "Claim",
    "Instant",
    "Plan",
    "State",
    "Watch",
    "cancel_plan",
    "claim_plan",
    "note_completed",
    "pending_of",
    "schedule_plan",
    "show_plan",
]
