"""Flux: decides which files that wait in a buffer zone become work items, and records its plans.

Any number of processes may run it. A plan is an entry of the zone's plan log, created before any worker sees
its items: of two planners that plan at once, the second finds the entry taken, applies it, and plans again.
So a file is in one work item at most, in any order in which announcements are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b

from planners.buffering import Buffer, BufferedFile, FileKey, PlannedItem
from streaming_sink.ingest.records import Plan, encode_plan
from streaming_sink.ingest.zone import BufferZone

_LOG = logging.getLogger("streaming_sink")


class Flux:
    """One planner's knowledge of a zone, which a restart rebuilds from the two logs."""

    def __init__(self, zone: BufferZone) -> None:
        self._zone = zone
        self._planned: set[bytes] = set()
        self._paths: set[bytes] = set()
        self._buffer = Buffer(zone.rules, lambda key: _digest(key) in self._planned)
        self._plans_read = self._log_read = self._next_item = 0
        self._waiting_of: dict[int, int] = {}
        self._entry_of: dict[FileKey, int] = {}
        self._catch_up_with_plans()

    @property
    def buffer(self) -> Buffer:
        """What waits, as this planner knows it."""
        return self._buffer

    def knows(self, key: FileKey) -> bool:
        """Return whether a version of a file waits, or a plan has it, as far as this planner has read."""
        return self._buffer.waits(key) or _digest(key) in self._planned

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
            items = self._buffer.due(now, self._next_item, flush=flush)
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

    def _catch_up_with_plans(self) -> None:
        for number, plan in self._zone.plans_after(self._plans_read):
            self._apply(number, plan)

    def _apply(self, number: int, plan: Plan) -> None:
        files = [file for item in plan.items for file in item.files]
        for file in files:
            self._planned.add(_digest(file.key))
            self._paths.add(_digest(FileKey(file.path, "")))
        self._forget(file.key for file in files)
        self._plans_read = number
        self._next_item = plan.items[-1].number + 1
        # Another planner may have read further than this one: what it has read and not planned waits there.
        self._log_read = max(self._log_read, int(plan.position))

    def _receive(self, number: int, files: list[BufferedFile]) -> None:
        # A producer's clock that is ahead would let its files wait so much longer than the rules say.
        now_ms = self._zone.environment.now_ms()
        files = [replace(each, arrived_ms=min(each.arrived_ms, now_ms)) for each in files]
        for file in files:
            if not self._buffer.waits(file.key) and self._is_replaced(file):
                _LOG.warning("a source file was replaced and lands again, as another one: %s", file.path)
        self._buffer.receive(files)
        for file in files:
            if self._buffer.waits(file.key) and file.key not in self._entry_of:
                self._entry_of[file.key] = number
                self._waiting_of[number] = self._waiting_of.get(number, 0) + 1
        self._log_read = number

    def _is_replaced(self, file: BufferedFile) -> bool:
        return _digest(file.key) not in self._planned and _digest(FileKey(file.path, "")) in self._paths

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


def _digest(key: FileKey) -> bytes:
    return blake2b(f"{key.path}\0{key.identity}".encode(), digest_size=16).digest()
