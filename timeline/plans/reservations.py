"""Which files the pending plans of a table reserve, so that fills and other plans leave them alone. Advice: a
reservation that nobody sees costs work, since a replace of files that are gone is dropped (R11, R13).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from timeline import properties
from timeline.errors import StoreUnavailableError
from timeline.names import requested_path
from timeline.plans.plan_file import Plan, UnreadablePlanError, decode
from timeline.retention.policy import SAFE_DISTANCE
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.pending import PendingPlan, pending_plans

_LOG = logging.getLogger("streaming_sink.timeline")


@dataclass
class Reservations:
    """Reads each pending plan once in its life. Keep one beside each open table."""

    store: Store
    _inputs: dict[str, frozenset[str]] = field(default_factory=dict)

    def files(self, head: Head) -> dict[str, str]:
        """Return location → id of the plan that reserves the file, of those that the head announces and that
        have not timed out. Where two plans name a file, the one announced first has it.

        No request, but one GET for each plan that was not seen before. Never raises for a plan that cannot be
        read: a warning says so, and its files count as free.
        """
        plans = pending_plans(head.properties)
        announced = {plan.plan_id for plan in plans}
        self._inputs = {known: files for known, files in self._inputs.items() if known in announced}
        reserved: dict[str, str] = {}
        for plan in plans:
            if not has_timed_out(plan, head):
                for location in self._read(plan.plan_id):
                    reserved.setdefault(location, plan.plan_id)
        return reserved

    def _read(self, plan_id: str) -> frozenset[str]:
        if plan_id not in self._inputs:
            try:
                plan = read_plan(self.store, plan_id)
            except StoreUnavailableError as failure:
                _LOG.warning("the files of plan %s count as free until it can be read: %s", plan_id, failure)
                return frozenset()
            self._inputs[plan_id] = frozenset() if plan is None else inputs_of(plan)
        return self._inputs[plan_id]


def read_plan(store: Store, plan_id: str) -> Plan | None:
    """Return a plan as it was scheduled, or None, with a warning, where its file is lost or unreadable.

    StoreUnavailableError where the store does not answer.
    """
    path = requested_path(plan_id)
    try:
        return decode(plan_id, store.read(path).data)
    except FileNotFoundError:
        why = "its file has gone"
    except UnreadablePlanError as failure:
        why = f"its file cannot be read: {failure}"
    _LOG.warning(
        "clustering plan %s is lost, and no row with it: %s. Its files are free for other plans; the next"
        " executor cancels it, or `cancel` does now: %s",
        plan_id,
        why,
        store.uri(path),
    )
    return None


def inputs_of(plan: Plan) -> frozenset[str]:
    """Return the locations of the files that a plan rewrites."""
    return frozenset(location for group in plan["groups"] for location in group["inputs"])


def has_timed_out(plan: PendingPlan, head: Head) -> bool:
    """Return whether a plan has been pending for longer than the table allows, by the table's own time.

    And until 100 later versions exist none has: a writer whose clock is a day ahead must not end them all
    (R12).
    """
    timeout_ms = properties.number(head.properties, properties.RESERVATION_TIMEOUT_MS)
    age_ms = head.metadata.last_updated_ms - plan.time_ms
    return age_ms > timeout_ms and head.number - plan.version >= SAFE_DISTANCE
