"""The plans that a table's head announces as pending, encoded in one property; in a catalog in one for each.

The properties are advice (R11): an entry that cannot be read is as if it were not there, and costs work only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from timeline import names, properties

_ENTRY = re.compile(r"^(.+)@([0-9]{1,18})@([0-9]{1,18})$")


@dataclass(frozen=True, slots=True)
class PendingPlan:
    """A plan that is neither completed nor cancelled, and the version that announced it."""

    plan_id: str
    version: int
    time_ms: int
    """That version's `last-updated-ms`."""

    def __str__(self) -> str:
        return f"{self.plan_id}@{self.version}@{self.time_ms}"


def pending_plans(table_properties: Mapping[str, str]) -> tuple[PendingPlan, ...]:
    """Return the announced plans, in the order of their announcements."""
    entries = table_properties.get(properties.PENDING_PLANS, "").split(",")
    apart = (
        value for key, value in table_properties.items() if key.startswith(properties.PENDING_PLAN_PREFIX)
    )
    return *_parsed(entries), *sorted(_parsed(apart), key=lambda plan: (plan.version, plan.plan_id))


def _parsed(entries: Iterable[str]) -> Iterator[PendingPlan]:
    for entry in entries:
        if (match := _ENTRY.match(entry)) is not None and names.is_plan_id(match.group(1)):
            yield PendingPlan(match.group(1), int(match.group(2)), int(match.group(3)))


def announce(
    table_properties: dict[str, str], plan_id: str, version: int, time_ms: int, *, apart: bool = False
) -> None:
    """Add a plan that `version`, of that time, announces; one that is announced already stays as it is.
    `apart`: in a property of its own.
    """
    known, plan = pending_plans(table_properties), PendingPlan(plan_id, version, time_ms)
    if any(each.plan_id == plan_id for each in known):
        return
    if apart:
        table_properties[properties.PENDING_PLAN_PREFIX + plan_id] = str(plan)
    else:
        _store(table_properties, (*known, plan))


def withdraw(table_properties: dict[str, str], plan_id: str) -> None:
    """Take a plan out; a property goes with its last one."""
    if table_properties.pop(properties.PENDING_PLAN_PREFIX + plan_id, None) is None:
        known = pending_plans(table_properties)
        _store(table_properties, tuple(plan for plan in known if plan.plan_id != plan_id))


def _store(table_properties: dict[str, str], plans: tuple[PendingPlan, ...]) -> None:
    if plans:
        table_properties[properties.PENDING_PLANS] = ",".join(map(str, plans))
    else:
        table_properties.pop(properties.PENDING_PLANS, None)
