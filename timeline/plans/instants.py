"""The life of a clustering plan beside the versions: requested, inflight, and completed or cancelled.

The versions are the only truth, and the files here a log of intentions. What counts is in the head: which
plans are pending (so their files are reserved), and which files are live (so a plan completes at most once).
Losing or corrupting any file of this folder costs work, never a row (R11).

======================================  ====================================================================
_timeline/clustering/<plan>-…           written
======================================  ====================================================================
requested.avro                          once, before the version that announces the plan
inflight-<n>.json                       by the executor that claimed the plan, and again at each sign of
                                        life; one that takes over creates n + 1
completed.json, cancelled.json          once, after the version that withdraws the plan
======================================  ====================================================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from timeline import names
from timeline.commit import succession
from timeline.commit.changes import Announce, Replace, Withdraw
from timeline.errors import CommitConflictError, CorruptTableError, StoreUnavailableError, TimelineError
from timeline.plans.claims import Claim, Watch, all_instants, instants_of, take_claim
from timeline.plans.plan_file import Plan, encode
from timeline.plans.reservations import Reservations, has_timed_out, inputs_of, read_plan
from timeline.stores.base import Store
from timeline.table import Committed, Table
from timeline.versions.head import Head
from timeline.versions.pending import PendingPlan, pending_plans

_LOG = logging.getLogger("streaming_sink.timeline")

KEPT_MS = 7 * 24 * 3600 * 1000
"""How long the files of a finished plan are kept, for people, by the table's own time."""


class State(str, Enum):
    """How far a plan has come."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Announced, but its file has gone: the next executor cancels it."""
    ENDED = "ended"
    """No longer announced, or never; no note says how it ended."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One plan as the head and the files show it."""

    plan_id: str
    state: State
    announced: PendingPlan | None
    """Where the head announces it."""
    timed_out: bool
    """It reserves nothing any more, and the next scheduler cancels it."""
    claim: int
    """How often it was claimed: more than once where it was taken over."""


def schedule(table: Table, plan: Mapping[str, object]) -> str:
    """Save a plan, announce it, and return its id. Once this returns, its files are reserved.

    `plan` is what `ClusteringPlan.to_dict` gives. Plans that have timed out are cancelled by the same
    version, and the files of plans that ended a week ago are deleted. ValueError for a plan that has no
    groups or does not fit the schema. CommitConflictError where another pending plan has one of its files:
    plan again, without the files that `Reservations.files` names.
    """
    environment, head = table.log.environment, table.refresh()
    plan_id = succession.new_id(environment, succession.commit_time(environment, head))
    data = encode(plan_id, head.number, plan)
    inputs = inputs_of(dict(plan))
    if not inputs:
        raise ValueError("a plan without groups reserves nothing and rewrites nothing; do not schedule it")
    reservations = Reservations(table.store)
    _check_not_reserved(reservations.files(head), inputs)
    try:
        table.log.manifest_files.write_fresh(names.requested_path(plan_id), data)
    except CorruptTableError as damage:
        raise CommitConflictError(
            f"somebody damaged the plan while it was saved; plan again: {damage}"
        ) from None
    overdue = [each.plan_id for each in pending_plans(head.properties) if has_timed_out(each, head)]
    table.commit([Announce(plan_id), *map(Withdraw, overdue)])
    for each in overdue:
        _LOG.warning("clustering plan %s was not carried out in time and is cancelled", each)
        _note(table.store, names.cancelled_path(each), {"reason": "it was not carried out in time"})
    try:
        # Another scheduler may have announced the same files meanwhile: the first has them.
        _check_not_reserved(reservations.files(table.head), inputs, but=plan_id)
    except CommitConflictError:
        cancel(table, plan_id, reason="another plan was first")
        raise
    _forget_old(table)
    return plan_id


def claim(
    table: Table,
    plan_id: str,
    watch: Watch | None = None,
    check: Callable[[Plan], object] = lambda _: None,
) -> Claim | None:
    """Return this executor's hold on a pending plan, or None where there is nothing to do.

    That is: the plan is not pending (any more), has timed out, or another executor has it and `watch` has not
    seen it stand still for long enough. It was pending when the claim was made: who slept until it had ended,
    and its files had gone, does not work for nothing. A plan whose file is lost is cancelled. What `check`
    raises of a plan that this executor cannot carry out leaves it to others.
    """
    head = table.refresh()
    pending = _find(head, plan_id)
    if pending is None or has_timed_out(pending, head):
        return None
    held = instants_of(table.store, plan_id).get("inflight", 0)
    if held and not (watch is not None and watch.is_abandoned(table.store, plan_id, held)):
        return None
    plan = read_plan(table.store, plan_id)
    if plan is None:
        cancel(table, plan_id, reason="its file is lost")
        return None
    check(plan)
    environment = table.log.environment
    executor = succession.new_id(environment, succession.commit_time(environment, head))
    if held:
        _LOG.warning("clustering plan %s shows no sign of life and is taken over", plan_id)
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


def complete(
    table: Table,
    plan_id: str,
    replaces: Sequence[Replace],
    *,
    schema_id: int | None = None,
    summary: Mapping[str, str] | None = None,
) -> Committed:
    """Commit what a plan's groups have written, and withdraw the plan, in one version.

    Groups whose inputs are gone are dropped and told. CommitConflictError where that is all of them and the
    plan is no longer pending: another executor has completed it, and nothing of this call is live. Else as
    `Table.commit`.
    """
    committed = table.commit([*replaces, Withdraw(plan_id)], schema_id=schema_id, summary=summary)
    assert isinstance(committed, Committed)  # without a transaction nothing was committed before
    done = len(replaces) - len(committed.dropped)
    note_completed(table, plan_id, version=committed.version, groups=done, dropped=len(committed.dropped))
    return committed


def note_completed(table: Table, plan_id: str, *, version: int, groups: int, dropped: int) -> None:
    """Leave the instant `completed` of a plan whose executor committed, and withdrew it, by itself."""
    note = {"version": version, "groups": groups, "dropped": dropped}
    _note(table.store, names.completed_path(plan_id), note)


def cancel(table: Table, plan_id: str, *, reason: str = "somebody asked for it") -> bool:
    """Withdraw a plan and free its files; False where it is not pending.

    Its executor stops at its next sign of life. One that does not see it may still complete the plan, which
    is safe: its inputs must be live.
    """
    if _find(table.refresh(), plan_id) is None:
        return False
    table.commit([Withdraw(plan_id)])
    _note(table.store, names.cancelled_path(plan_id), {"reason": reason})
    return True


def show(table: Table) -> tuple[Instant, ...]:
    """Return the plans that are pending, and those that have left files, oldest first. Two LISTs."""
    head = table.refresh()
    files = all_instants(table.store)
    announced = {pending.plan_id: pending for pending in pending_plans(head.properties)}
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


def _state(kinds: Mapping[str, int], pending: PendingPlan | None) -> State:
    # The head decides whether a plan is pending; the files only tell how far it came.
    if pending is None:
        ended = (state for state in (State.COMPLETED, State.CANCELLED) if state.value in kinds)
        return next(ended, State.ENDED)
    if "requested" not in kinds:
        return State.LOST
    return State.INFLIGHT if "inflight" in kinds else State.REQUESTED


def _find(head: Head, plan_id: str) -> PendingPlan | None:
    return next((each for each in pending_plans(head.properties) if each.plan_id == plan_id), None)


def _check_not_reserved(reserved: Mapping[str, str], inputs: frozenset[str], but: str = "") -> None:
    for location in sorted(inputs & reserved.keys()):
        if reserved[location] != but:
            raise CommitConflictError(
                f"a file of this plan is reserved by plan {reserved[location]}; plan again without it:"
                f" {location}"
            )


def _note(store: Store, path: str, content: Mapping[str, object]) -> None:
    """Say how a plan ended. The version has said so already: a note that fails is only logged."""
    try:
        store.create(path, json.dumps(content).encode())
    except StoreUnavailableError as failure:
        _LOG.warning("the plan has ended, and no file says how; nothing is to be done: %s: %s", path, failure)


def _forget_old(table: Table) -> None:
    """Delete the files of plans that are not pending and are older than a week of the table's time."""
    head = table.head
    pending = {each.plan_id for each in pending_plans(head.properties)}
    oldest = names.ulid_floor(max(head.metadata.last_updated_ms - KEPT_MS, 0))
    try:
        listed = [entry.path for entry in table.store.list_folder(names.CLUSTERING_FOLDER)]
        table.store.delete(
            path
            for path in listed
            if (named := names.instant_of(path)) is not None and named[0] < oldest and named[0] not in pending
        )
    except StoreUnavailableError as failure:
        _LOG.warning("the files of old plans stay until the next plan is scheduled: %s", failure)


__all__ = [
    "Claim",
    "Instant",
    "Plan",
    "State",
    "Watch",
    "cancel",
    "claim",
    "complete",
    "note_completed",
    "schedule",
    "show",
]
