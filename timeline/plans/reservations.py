"""Reservations: the files that the pending plans of a table take, which fills and other plans leave alone.

Advice: a reservation that a writer does not see costs work, since a replace of files that are not live is
dropped (R11, R13).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from timeline import properties
from timeline.errors import StoreUnavailableError
from timeline.names import requested_path
from timeline.plans.plan_file import Plan, UnreadablePlanError
from timeline.plans.registry import find_kind, kind_of
from timeline.retention.policy import SAFE_DISTANCE
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.pending import PendingPlan, pending_plans

_LOG = logging.getLogger("streaming_sink.timeline")


@dataclass
class Reservations:
    """The reservations of all kinds of plans. Reads each plan once: keep one beside each open table."""

    store: Store
    _inputs: dict[str, frozenset[str]] = field(default_factory=dict)

    def files(self, head: Head) -> dict[str, str]:
        """Return location → id of the plan that reserves the file, for the plans that the head announces and
        that have not timed out. Where two plans name a file, the one announced first has it.

        One GET for each plan that was not seen before, and no other request. A plan that cannot be read
        raises nothing: a warning names it, and its files count as free.
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
                self._inputs[plan_id] = _read_inputs(self.store, plan_id)
            except StoreUnavailableError as failure:
                _LOG.warning("the files of plan %s count as free until it can be read: %s", plan_id, failure)
                return frozenset()
        return self._inputs[plan_id]


def _read_inputs(store: Store, plan_id: str) -> frozenset[str]:
    kind = find_kind(plan_id)
    if kind is None:
        _LOG.warning(
            "plan %s is of a kind that this version does not know; its files count as free here", plan_id
        )
        return frozenset()
    plan = read_plan(store, plan_id)
    return frozenset() if plan is None else kind.inputs_of(plan)


def read_plan(store: Store, plan_id: str) -> Plan | None:
    """Return a plan as it was scheduled, or None, with a warning, where its file is lost or unreadable.

    StoreUnavailableError where the store does not answer, ValueError for a plan of an unknown kind.
    """
    kind, path = kind_of(plan_id), requested_path(plan_id)
    try:
        return kind.schema.decode(plan_id, store.read(path).data)
    except FileNotFoundError:
        why = "its file was deleted"
    except UnreadablePlanError as failure:
        why = f"its file cannot be read: {failure}"
    _LOG.warning(
        "%s plan %s is lost, and no row with it: %s. Its files are free for other plans; the next executor"
        " cancels it, or `cancel` does now: %s",
        kind.name,
        plan_id,
        why,
        store.uri(path),
    )
    return None


def has_timed_out(plan: PendingPlan, head: Head) -> bool:
    """Return whether a plan has been pending for longer than the table allows, by the table's own time.

    No plan times out before 100 later commits exist: a writer whose clock is a day ahead must not end all
    plans (R12). Plans of an unknown kind are left to the versions that know it.
    """
    kind = find_kind(plan.plan_id)
    if kind is None:
        return False
    timeout_ms = properties.number(head.properties, kind.timeout_property)
    age_ms = head.metadata.last_updated_ms - plan.time_ms
    return age_ms > timeout_ms and head.version.commits_since(plan.version) >= SAFE_DISTANCE
