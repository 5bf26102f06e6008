"""The ledger of a zone: which files landed in which snapshot, which wait, and what became of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from planners.buffering import PlannedItem
from streaming_sink.ingest.landed import Landed, landed_in, note_path, read_note, with_rejections
from streaming_sink.ingest.records import KIND, Plan
from streaming_sink.ingest.zone import BufferZone
from timeline import names
from timeline.errors import TableNotFoundError
from timeline.plans.claims import all_instants
from timeline.table import Table
from timeline.versions.work_items import NumberSet, published_items

_NOTE = re.compile(r"^landed/([0-9]{12})\.json$")


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
    """ "landed", "rejected", "set apart" (with its whole item), "claimed" or "planned"."""
    why: str = ""
    """Why it was rejected, or its item set apart."""
    version: int | None = None
    """The table's version that holds its rows."""
    snapshot_id: int | None = None


@dataclass
class Ledger:
    """What a zone's logs and its table say of its files. Reads what it needs, once."""

    zone: BufferZone
    _notes: dict[int, Landed | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._table = _open(self.zone)
        self._instants = all_instants(self.zone.store, KIND)

    @property
    def published(self) -> NumberSet:
        """The numbers of the work items that are in the table."""
        if self._table is None:
            return NumberSet()
        return published_items(self._table.head.properties, self.zone.app_id)

    def entries(self) -> Iterator[LedgerEntry]:
        """Yield every file that a plan has, in the order of the plans."""
        for _, plan in self.zone.plans_after(0):
            for item in plan.items:
                yield from self._entries_of(plan, item)

    def find(self, path: str) -> list[LedgerEntry]:
        """Return the versions of a file that plans have."""
        return [entry for entry in self.entries() if entry.path == path]

    def files_of(self, snapshot_id: int) -> list[LedgerEntry]:
        """Return the files whose rows a snapshot has added."""
        return [entry for entry in self.entries() if entry.snapshot_id == snapshot_id]

    def landed(self, number: int) -> Landed | None:
        """Return what became of a work item; None where it is not in the table."""
        if number not in self.published or self._table is None:
            return None
        if number not in self._notes:
            self._notes[number] = read_note(self.zone.store, number)
            if self._notes[number] is None:
                known = landed_in(self._table.head, self.zone.app_id, number)
                self._notes[number] = with_rejections(self.zone.store, known)
        return self._notes[number]

    def last_landed(self, count: int) -> list[Landed]:
        """Return what became of the items that landed last, newest first. One LIST, and a GET for each."""
        listed = (
            _NOTE.match(each.path) for each in self.zone.store.list_folder(note_path(0).rpartition("/")[0])
        )
        numbers = sorted((int(match[1]) for match in listed if match), reverse=True)[:count]
        return [landed for number in numbers if (landed := self.landed(number)) is not None]

    def state_of(self, plan: Plan, item: PlannedItem) -> str:
        """Return how far a work item has come."""
        if item.number in self.published:
            return "landed"
        states = self._instants.get(plan.claim_id(item), {})
        if "cancelled" in states:
            return "set apart"
        return "claimed" if "inflight" in states else "planned"

    def _entries_of(self, plan: Plan, item: PlannedItem) -> Iterator[LedgerEntry]:
        state = self.state_of(plan, item)
        landed = self.landed(item.number) if state == "landed" else None
        why = _why_set_apart(self.zone, plan.claim_id(item)) if state == "set apart" else ""
        for place, file in enumerate(item.files):
            rejected = None if landed is None else landed.reason(place, file.path)
            known = file.path, file.identity, file.bytes, file.arrived_ms, item.number
            if rejected is not None:
                yield LedgerEntry(*known, "rejected", rejected)
            elif landed is not None:
                yield LedgerEntry(*known, state, "", landed.version, landed.snapshot_id)
            else:
                yield LedgerEntry(*known, state, why)


def retry(zone: BufferZone) -> list[int]:
    """Put the work items that were set apart back, for any worker to take; return their numbers."""
    instants = all_instants(zone.store, KIND)
    put_back = []
    for _, plan in zone.plans_after(0):
        for item in plan.items:
            claim_id = plan.claim_id(item)
            states = instants.get(claim_id, {})
            if "cancelled" in states:
                claims = (
                    names.inflight_path(claim_id, number)
                    for number in range(1, states.get("inflight", 0) + 1)
                )
                zone.store.delete([*claims, names.cancelled_path(claim_id)])
                put_back.append(item.number)
    return put_back


def _why_set_apart(zone: BufferZone, claim_id: str) -> str:
    try:
        return zone.store.read(names.cancelled_path(claim_id)).data.decode(errors="replace")
    except FileNotFoundError:
        return ""


def _open(zone: BufferZone) -> Table | None:
    from streaming_sink.ingest.definition import remote
    from timeline.table import open_table

    location = zone.definition.table
    try:
        return open_table(location, remote(location, zone.storage_options))
    except TableNotFoundError:
        return None
