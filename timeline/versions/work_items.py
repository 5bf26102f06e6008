"""Exactly-once for work that lands in any order: which numbered work items of an application a table holds.

The work items of one application have numbers without gaps, and each lands once, by whichever worker is
first. The table remembers all of their numbers, as ranges: few, since items land in nearly the order of their
numbers. A number is never forgotten, so that no item lands again after its snapshots have expired.

An item is *settled* once it is published or discarded: `streaming-sink.items.<app>` has the numbers of both,
and `streaming-sink.discarded.<app>` those that were discarded. Before, it may be staged (`staged.py`).

A number means an item in the log of plans that gave it. Where that log was set back to an older state, or
copied, it gives numbers again that the table has. So `streaming-sink.plan.<app>` names the newest plan of
which an item is settled or staged, by its number and its mark, and a log that has another plan there is
refused.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from timeline.errors import CorruptTableError
from timeline.properties import DISCARDED_ITEMS_PREFIX, PLAN_OF_ITEMS_PREFIX, WORK_ITEMS_PREFIX

STAGED_TAG_PREFIX = "wap-"
"""How the tags of staged snapshots begin; the wap id follows."""
_TEXT = re.compile(r"(?:\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)?")


@dataclass(frozen=True, slots=True)
class NumberSet:
    """A set of whole numbers from 0 on, as ranges: ascending, disjoint, and not adjacent."""

    ranges: tuple[tuple[int, int], ...] = ()
    """(first, last), both included."""

    @classmethod
    def of(cls, numbers: Iterable[int]) -> NumberSet:
        made = cls()
        for number in numbers:
            made = made.with_number(number)
        return made

    @classmethod
    def parse(cls, text: str) -> NumberSet:
        """Return what `to_text` spelled. ValueError for anything else."""
        if not _TEXT.fullmatch(text):
            raise ValueError(f"not a set of numbers: {text[:100]!r}")
        ends = (each.partition("-") for each in text.split(",") if each)
        ranges = tuple((int(first), int(last or first)) for first, _, last in ends)
        bounds = [bound for each in ranges for bound in each]
        apart = all(after[0] > before[1] + 1 for before, after in pairwise(ranges))
        if bounds != sorted(bounds) or not apart:
            raise ValueError(f"not a set of numbers in ascending ranges: {text[:100]!r}")
        return cls(ranges)

    def to_text(self) -> str:
        """Return the ranges, such as "0-411,413"."""
        return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in self.ranges)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.ranges, (number, number)) - 1
        around = self.ranges[max(place, 0) : place + 2]
        return any(first <= number <= last for first, last in around)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def without(self, others: NumberSet) -> NumberSet:
        """Return the numbers that are not in another set."""
        kept = list(self.ranges)
        for first, last in others.ranges:
            cut = [((low, min(high, first - 1)), (max(low, last + 1), high)) for low, high in kept]
            kept = [part for parts in cut for part in parts if part[0] <= part[1]]
        return NumberSet(tuple(kept))

    def with_number(self, number: int) -> NumberSet:
        """Return the set with one number more."""
        if number < 0:
            raise ValueError(f"numbers count from 0, not {number}")
        if number in self:
            return self
        first = last = number
        apart = []
        for low, high in self.ranges:
            if high == number - 1:
                first = low
            elif low == number + 1:
                last = high
            else:
                apart.append((low, high))
        return NumberSet(tuple(sorted([*apart, (first, last)])))


@dataclass(frozen=True, slots=True)
class PlanOfItem:
    """The plan that has a work item, in its log of plans."""

    number: int
    mark: str
    """No other plan of any log has it."""
    mark_of: Callable[[int], str | None] = field(compare=False, repr=False)
    """Returns the mark of a plan of the same log by its number; None where the log has none such."""


def check_lineage(
    properties: Mapping[str, str], app_id: str, mark_of: Callable[[int], str | None]
) -> tuple[int, str] | None:
    """Return the newest plan of which the table has an item, its number and mark; None where it names none.

    CorruptTableError where the log of plans has another one there, or none: numbers of its items may be those
    of other files, that are in the table.
    """
    text = properties.get(PLAN_OF_ITEMS_PREFIX + app_id, "")
    if not text:
        return None
    number, _, mark = text.partition(" ")
    if not number.isdecimal() or mark_of(int(number)) != mark:
        raise CorruptTableError(
            f"the table has work items of plan {text!r} of {app_id!r}, and this log of plans has another one"
            " there, or none: it was set back to an older state, or it is a copy of a log that is in use, so"
            " that its items have numbers of others. Nothing was changed. Restore the newest state of the"
            " buffer zone; where there is none, make a new zone for the same table, and push the files to it"
            " that are not in the table",
            app_id=app_id,
        )
    return int(number), mark


@dataclass(frozen=True, slots=True)
class WorkItem:
    """The work item that a commit publishes, in the place of a `Transaction`; of the kinds below, one that it
    does not publish.
    """

    app_id: str
    number: int
    plan: PlanOfItem | None = None
    """None where nothing is known of a log of plans, and so nothing of it is checked."""

    @property
    def key(self) -> str:
        return WORK_ITEMS_PREFIX + self.app_id

    @property
    def wap_id(self) -> str:
        """Iceberg's name for it while it is staged."""
        return f"{self.app_id}-{self.number}"

    @property
    def tag(self) -> str:
        """The tag that holds its staged snapshot."""
        return STAGED_TAG_PREFIX + self.wap_id

    @property
    def batch(self) -> int:
        return self.number

    @property
    def epoch(self) -> int | None:
        return None

    @property
    def preparing(self) -> None:
        """What a commit carries that prepares the item: nothing, since any worker may do it."""
        return None

    def check(self, properties: Mapping[str, str]) -> int | None:
        """Return the epoch to commit the item under, always 1; None where it is settled. Raises as
        `check_lineage` for an item of another log than the table knows.
        """
        if self.plan is not None:
            check_lineage(properties, self.app_id, self.plan.mark_of)
        return None if self.number in settled_items(properties, self.app_id) else 1

    def record(self, properties: dict[str, str], epoch: int, commit_id: str) -> None:  # noqa: ARG002
        """Remember that the item is settled, and the newest plan that the table has an item of."""
        properties[self.key] = settled_items(properties, self.app_id).with_number(self.number).to_text()
        self._name_plan(properties)

    def _name_plan(self, properties: dict[str, str]) -> None:
        if self.plan is None:
            return
        known = check_lineage(properties, self.app_id, self.plan.mark_of)
        if known is None or known[0] < self.plan.number:
            properties[PLAN_OF_ITEMS_PREFIX + self.app_id] = f"{self.plan.number} {self.plan.mark}"

    def epoch_after_skip(self, properties: Mapping[str, str]) -> int | None:  # noqa: ARG002
        """Return None: workers need no epochs, since the first to publish an item has published it."""
        return None


@dataclass(frozen=True, slots=True)
class OpenItem(WorkItem):
    """A work item that a commit stages, or unstages, and does not settle."""

    def record(self, properties: dict[str, str], epoch: int, commit_id: str) -> None:  # noqa: ARG002
        """Remember its plan alone: the tag says whether the item is staged, and by its number, which another
        log of plans gives to other files.
        """
        self._name_plan(properties)


@dataclass(frozen=True, slots=True)
class DiscardedItem(WorkItem):
    """A work item that a commit settles without its rows."""

    def record(self, properties: dict[str, str], epoch: int, commit_id: str) -> None:
        """Remember that the item is settled, and that it was discarded."""
        WorkItem.record(self, properties, epoch, commit_id)
        discarded = discarded_items(properties, self.app_id).with_number(self.number)
        properties[DISCARDED_ITEMS_PREFIX + self.app_id] = discarded.to_text()


def published_items(properties: Mapping[str, str], app_id: str) -> NumberSet:
    """Return the numbers of the work items that a table holds. Raises as `settled_items`."""
    return settled_items(properties, app_id).without(discarded_items(properties, app_id))


def discarded_items(properties: Mapping[str, str], app_id: str) -> NumberSet:
    """Return the numbers of the work items that will never land. Raises as `settled_items`."""
    return _numbers(properties.get(DISCARDED_ITEMS_PREFIX + app_id, ""), app_id)


def settled_items(properties: Mapping[str, str], app_id: str) -> NumberSet:
    """Return the numbers of the work items of an application that are published or discarded.

    CorruptTableError where that cannot be read: then no worker may publish one.
    """
    return _numbers(properties.get(WORK_ITEMS_PREFIX + app_id, ""), app_id)


def _numbers(text: str, app_id: str) -> NumberSet:
    try:
        return NumberSet.parse(text)
    except ValueError as failure:
        raise CorruptTableError(
            f"which work items of {app_id!r} are in the table cannot be read, so whether this one is is not"
            f" known; nothing was changed. Restore the newest version from a copy: {text[:200]!r}",
            app_id=app_id,
        ) from failure


def applications_of_items(properties: Mapping[str, str]) -> list[str]:
    """Return the applications that have settled work items."""
    found = (key.removeprefix(WORK_ITEMS_PREFIX) for key in properties if key.startswith(WORK_ITEMS_PREFIX))
    return sorted(found)
