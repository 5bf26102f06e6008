"""Flux: decides which files that wait in a buffer zone become work items, and records its plans.

Any number of processes may run it. A plan is an entry of the zone's plan log, created before any worker sees
its items: of two planners that plan at once, the second finds the entry taken, applies it, and plans again.
So a file is in one work item at most, in any order in which announcements are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from planners.ingestion.buffering import Buffer, BufferedFile, FileKey, PlannedItem
from planners.ingestion.plan_runs import uncovered
from streaming_sink.tasks.ingest.sources import identity_of_bytes
from streaming_sink.zones.planning.digests import PlannedFiles
from streaming_sink.zones.planning.index_run import run_of_plan
from streaming_sink.zones.planning.plan_index import PlanIndex
from streaming_sink.zones.records import Plan, encode_plan
from streaming_sink.zones.stored_zone import StoredZone

_LOG = logging.getLogger("streaming_sink")
_FILES_A_PLAN = 100_000
"""A plan has no further item beyond so many files: a look-up of one of them reads the plan whole."""


class Flux:
    """One planner's knowledge of a zone, which a restart rebuilds from the two logs and the index of plans.

    `plans`: whether this process plans, and so keeps the index; else it only looks, and writes nothing.
    """

    def __init__(self, zone: StoredZone, *, plans: bool = True) -> None:
        self._zone, self._plans = zone, plans
        self._index = PlanIndex(zone)
        self._planned = PlannedFiles()
        self._in_plans: set[FileKey] = set()
        self._buffer = Buffer(zone.rules, self._in_plans.__contains__)
        self._plans_read = self._log_read = self._next_item = 0
        self._waiting_of: dict[int, int] = {}
        self._entry_of: dict[FileKey, int] = {}
        self._load_index()
        self._catch_up_with_plans()

    @property
    def buffer(self) -> Buffer:
        """What waits, as this planner knows it."""
        return self._buffer

    def known(self, keys: Sequence[FileKey]) -> set[FileKey]:
        """Return which of these versions of files wait, or are in a plan, as far as this planner has read."""
        return self._planned.known(keys)[0].union(key for key in keys if self._buffer.waits(key))

    def catch_up(self) -> None:
        """Read the plans and the announcements that are new."""
        self._catch_up_with_plans()
        for number, files in self._zone.announced_after(self._log_read):
            self._receive(number, files)

    def plan(self, *, flush: bool = False) -> Plan | None:
        """Record the work items that are due, and return the plan; None where none is. `flush`: all that
        waits is due.

        Once this returns, workers see the items. StoreUnavailableError where the store does not answer: plan
        again.
        """
        while True:
            self.catch_up()
            now = self._zone.environment.now_ms()
            items = _first_of(self._buffer.due(now, self._next_item, flush=flush))
            if not items:
                return None
            plan = Plan(self._zone.new_id(), str(self._position_after(items)), items)
            number = self._plans_read + 1
            if self._zone.plans.create(number, encode_plan(plan)):
                self._apply(number, plan)
                for item in items:
                    _LOG.info("work item %d: %d files, %s", item.number, len(item.files), item.why)
                return plan
            _LOG.info("another planner has recorded plan %d; this one plans again", number)

    def _load_index(self) -> None:
        runs = self._index.load(repair=self._plans)
        for facts, files in runs:
            self._planned.add(files)
            self._next_item = max(self._next_item, facts.next_item)
            self._log_read = max(self._log_read, facts.position)
            self._plans_read = facts.last
        for number in uncovered([facts.place for facts, _ in runs], self._plans_read):
            self._index_plan(number, self._zone.existing_plan(number))

    def _index_plan(self, number: int, plan: Plan) -> None:
        if self._plans:
            run = self._index.add(number, plan)
        else:
            run = run_of_plan(self._zone.definition.id, number, plan)
        self._planned.add(run.rows.files)

    def _catch_up_with_plans(self) -> None:
        for number, plan in self._zone.plans_after(self._plans_read):
            self._apply(number, plan)

    def _apply(self, number: int, plan: Plan) -> None:
        self._index_plan(number, plan)
        self._forget(file.key for item in plan.items for file in item.files)
        self._plans_read = number
        self._next_item = plan.items[-1].number + 1
        # Another planner may have read further than this one: what it has read and not planned waits there.
        self._log_read = max(self._log_read, int(plan.position))

    def _receive(self, number: int, files: list[BufferedFile]) -> None:
        # A producer's clock that is ahead would let its files wait so much longer than the rules say.
        now_ms = self._zone.environment.now_ms()
        files = [replace(each, arrived_ms=min(each.arrived_ms, now_ms)) for each in files]
        planned, paths = self._planned.known([file.key for file in files])
        for file in files:
            again = identity_of_bytes(file.identity) != file.identity
            if (
                file.path in paths
                and not again
                and file.key not in planned
                and not self._buffer.waits(file.key)
            ):
                _LOG.warning("a source file was replaced and lands again, as another one: %s", file.path)
        self._in_plans |= planned
        self._buffer.receive(files)
        self._in_plans.clear()
        for file in files:
            if self._buffer.waits(file.key) and file.key not in self._entry_of:
                self._entry_of[file.key] = number
                self._waiting_of[number] = self._waiting_of.get(number, 0) + 1
        self._log_read = number

    def _forget(self, keys: Iterable[FileKey]) -> None:
        for key in keys:
            self._buffer.forget([key])
            if (entry := self._entry_of.pop(key, None)) is not None:
                self._waiting_of[entry] -= 1
                if not self._waiting_of[entry]:
                    del self._waiting_of[entry]

    def _position_after(self, items: tuple[PlannedItem, ...]) -> int:
        """Return the number up to which no announcement has a file that waits, these items aside."""
        taken: dict[int, int] = {}
        for file in (file for item in items for file in item.files):
            entry = self._entry_of[file.key]
            taken[entry] = taken.get(entry, 0) + 1
        waiting = [entry for entry, count in self._waiting_of.items() if count > taken.get(entry, 0)]
        return min(waiting) - 1 if waiting else self._log_read


def _first_of(items: tuple[PlannedItem, ...]) -> tuple[PlannedItem, ...]:
    """Return the first items, up to the one that brings them to the files of a plan."""
    files = 0
    for at, item in enumerate(items):
        files += len(item.files)
        if files >= _FILES_A_PLAN:
            return items[: at + 1]
    return items
