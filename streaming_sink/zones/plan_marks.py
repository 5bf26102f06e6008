"""The marks of a zone's plans, by which a table knows the log of plans that gave the numbers of its items."""

from __future__ import annotations

import os

from streaming_sink.zones.records import MARK_BYTES, Plan, mark_of
from timeline.errors import StoreUnavailableError
from timeline.slots.numbered import NumberedLog
from timeline.versions.work_items import PlanOfItem


class PlanMarks:
    """What a process has read of the plans of a zone. None changes, so nothing here is out of date."""

    def __init__(self, plans: NumberedLog) -> None:
        self._plans = plans
        self._marks: dict[int, str] = {}
        self._plan_of: dict[int, int] = {}
        """The number of the plan of each item of the plans that were read."""

    def know(self, number: int, plan: Plan) -> None:
        """Take note of a plan that was read."""
        self._marks[number] = mark_of(plan)
        self._plan_of |= {item.number: number for item in plan.items}

    def plan_of(self, item: int) -> PlanOfItem:
        """Return the plan that has a work item. It must have been read: KeyError."""
        number = self._plan_of[item]
        return PlanOfItem(number, self._marks[number], self.of)

    def of(self, number: int) -> str | None:
        """Return the mark of a plan; None where the zone has none of this number. Reads a few bytes of one
        that was not read before.
        """
        if number not in self._marks:
            try:
                with self._plans.open(number) as file:
                    file.seek(max(0, file.seek(0, os.SEEK_END) - MARK_BYTES))
                    self._marks[number] = file.read(MARK_BYTES).decode("ascii", errors="replace")
            except FileNotFoundError:
                return None
            except OSError as failure:
                raise StoreUnavailableError(
                    f"a plan of the buffer zone cannot be read; try again: {failure}:"
                    f" {self._plans.path(number)}"
                ) from failure
        return self._marks[number]
