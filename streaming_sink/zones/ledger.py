"""The ledger of a zone: which files landed in which snapshot, which wait, and what became of each.

Plans are found by the index, so that neither a look-up nor the state of the zone reads all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.table.snapshots import Snapshot

from planners.ingestion.buffering import PlannedItem
from streaming_sink.zones.landed import (
    Landed,
    item_of_snapshot,
    landed_in,
    noted_item,
    read_landed,
    with_rejections,
)
from streaming_sink.zones.planning.plan_index import PlanIndex, PlanView
from streaming_sink.zones.records import KIND, ItemSummary, Plan, item_of_claim
from streaming_sink.zones.stored_zone import StoredZone
from timeline import names
from timeline.errors import TableNotFoundError
from timeline.plans.claims import all_instants
from timeline.stores.base import Store, read_if_there
from timeline.table import Table
from timeline.versions.staged import staged_items
from timeline.versions.work_items import NumberSet, discarded_items, published_items


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One version of one source file."""

    path: str
    identity: str
    bytes: int
    arrived_ms: int
    item: int
    """The work item that has it."""
    state: str
    """ "landed", "rejected", "claimed", "planned", or of its whole item: "set apart", "held" after its audit,
    or "discarded".
    """
    why: str = ""
    """Why it was rejected, or its item set apart, held or discarded."""
    version: int | None = None
    """The table's version that holds its rows."""
    snapshot_id: int | None = None


@dataclass
class Ledger:
    """What a zone's logs and its table said of its files when this was made. Reads what it needs, once."""

    zone: StoredZone
    _notes: dict[int, Landed | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._table = open_of(self.zone)
        self.zone.check_table(self._table)
        self._instants = all_instants(self.zone.store, KIND)

    @cached_property
    def _view(self) -> PlanView:
        return PlanIndex(self.zone).view()

    @cached_property
    def published(self) -> NumberSet:
        """The numbers of the work items that are in the table."""
        if self._table is None:
            return NumberSet()
        return published_items(self._table.head.properties, self.zone.app_id)

    @cached_property
    def discarded(self) -> NumberSet:
        """The numbers of the work items that will never be in the table."""
        if self._table is None:
            return NumberSet()
        return discarded_items(self._table.head.properties, self.zone.app_id)

    @cached_property
    def staged(self) -> Mapping[int, Snapshot]:
        """The staged snapshots of work items, by the items' numbers."""
        return {} if self._table is None else staged_items(self._table.head.metadata, self.zone.app_id)

    def entries(self) -> Iterator[LedgerEntry]:
        """Yield every file that a plan has, in the order of the plans. Reads all plans."""
        for _, plan in self.zone.plans_after(0):
            for item in plan.items:
                yield from self._entries_of(plan, item)

    def find(self, path: str) -> list[LedgerEntry]:
        """Return the versions of a file that plans have, by its path as plans spell it
        (`streaming_sink.tasks.ingest.sources.spelled`). Reads a range of each run of the index, and the plans
        that have the file; no source file.
        """
        return [
            entry
            for number in self._view.plans_of_path(path)
            for entry in self._entries_in(self.zone.existing_plan(number), path)
        ]

    def files_of(self, snapshot_id: int) -> list[LedgerEntry]:
        """Return the files whose rows a snapshot has added, also after it has expired. Reads one plan."""
        number = None
        if self._table is not None:
            number = item_of_snapshot(self._table.head, self.zone.app_id, snapshot_id)
        if number is None:
            number = noted_item(self.zone.store, snapshot_id)
        if number is None:
            return []
        return [entry for entry in self.files_of_item(number) if entry.snapshot_id == snapshot_id]

    def files_of_item(self, number: int) -> list[LedgerEntry]:
        """Return the files of a work item; [] where there is none of that number. Reads one plan."""
        found = self._plan_of(number)
        return [] if found is None else list(self._entries_of(*found))

    @cached_property
    def open_numbers(self) -> list[int]:
        """The numbers of the work items that are not in the table, and may come, in order."""
        return [
            number
            for number in range(self._view.next_item)
            if number not in self.published and number not in self.discarded
        ]

    def open_items(self, most: int) -> list[ItemSummary]:
        """Return the first work items that are not in the table, and the first of those that are set apart,
        by their numbers; at most so many of each. Reads the plans of these.
        """
        apart = {item_of_claim(claim) for claim, states in self._instants.items() if "cancelled" in states}
        wanted = [number for number in self.open_numbers if number in apart][:most]
        return self.items({*wanted, *self.open_numbers[:most]})

    def items(self, numbers: Set[int]) -> list[ItemSummary]:
        """Return work items by their numbers, in order. Reads their plans."""
        places = {at for number in numbers if (at := self._view.plan_of_item(number)) is not None}
        return [
            item for at in sorted(places) for item in self.zone.items_of_plan(at) if item.number in numbers
        ]

    def _plan_of(self, number: int) -> tuple[Plan, PlannedItem] | None:
        at = self._view.plan_of_item(number)
        if at is None:
            return None
        plan = self.zone.existing_plan(at)
        return next(((plan, item) for item in plan.items if item.number == number), None)

    def landed(self, number: int) -> Landed | None:
        """Return what became of a work item; None where it is not in the table."""
        if number not in self.published or self._table is None:
            return None
        if number not in self._notes:
            self._notes[number] = read_landed(self.zone.store, number)
            if self._notes[number] is None:
                known = landed_in(self._table.head, self.zone.app_id, number)
                self._notes[number] = with_rejections(self.zone.store, known)
        return self._notes[number]

    def last_landed(self, count: int) -> list[Landed]:
        """Return what became of the items that landed, from the highest number on. A GET for each."""
        found: list[Landed] = []
        for first, last in reversed(self.published.ranges):
            for number in range(last, first - 1, -1):
                if len(found) == count:
                    return found
                if (landed := self.landed(number)) is not None:
                    found.append(landed)
        return found

    def state_of(self, number: int, claim_id: str) -> str:
        """Return how far a work item has come."""
        if number in self.published:
            return "landed"
        if number in self.discarded:
            return "discarded"
        states = self._instants.get(claim_id, {})
        if "cancelled" in states:
            return "held" if number in self.staged else "set apart"
        return "claimed" if "inflight" in states else "planned"

    def reason_of(self, number: int, claim_id: str) -> str:
        """Return why an item was set apart, held or discarded; "" for any other."""
        state = self.state_of(number, claim_id)
        if state not in ("set apart", "held"):
            return "it was discarded" if state == "discarded" else ""
        note = _read_note_of(self.zone, claim_id)
        try:
            return str(json.loads(note)["reason"])
        except (ValueError, KeyError, TypeError):
            return note or "it is not noted why"

    def _entries_in(self, plan: Plan, path: str) -> Iterator[LedgerEntry]:
        for item in plan.items:
            if any(file.path == path for file in item.files):
                yield from (entry for entry in self._entries_of(plan, item) if entry.path == path)

    def _entries_of(self, plan: Plan, item: PlannedItem) -> Iterator[LedgerEntry]:
        state = self.state_of(item.number, plan.claim_id(item))
        landed = self.landed(item.number) if state == "landed" else None
        why = self.reason_of(item.number, plan.claim_id(item))
        for place, file in enumerate(item.files):
            rejected = None if landed is None else landed.reason(place, file.path)
            known = file.path, file.identity, file.bytes, file.arrived_ms, item.number
            if rejected is not None:
                yield LedgerEntry(*known, "rejected", rejected)
            elif landed is not None:
                yield LedgerEntry(*known, state, "", landed.version, landed.snapshot_id)
            else:
                yield LedgerEntry(*known, state, why)


def retry(zone: StoredZone) -> list[int]:
    """Put the work items that were set apart back, for any worker to take; return their numbers."""
    put_back = []
    for claim_id, states in sorted(all_instants(zone.store, KIND).items()):
        if "cancelled" in states:
            delete_claims(zone.store, claim_id, states, names.cancelled_path(claim_id))
            put_back.append(item_of_claim(claim_id))
    return sorted(put_back)


def delete_claims(store: Store, claim_id: str, states: Mapping[str, int], *beside: str) -> None:
    """Delete the claims on a work item, which has such instants, and other files of it."""
    claims = range(1, states.get("inflight", 0) + 1)
    store.delete([*(names.inflight_path(claim_id, number) for number in claims), *beside])


def _read_note_of(zone: StoredZone, claim_id: str) -> str:
    note = read_if_there(zone.store, names.cancelled_path(claim_id)) or b""
    return note.decode(errors="replace")


def open_of(zone: StoredZone) -> Table | None:
    """Return the table of a zone; None where no work item has created it yet."""
    try:
        return zone.sink_options.table.open()
    except TableNotFoundError:
        return None
