"""A consolidation worker: claims a work item, lands it, and notes what became of it.

Claims are advice (R11): two workers of one item cost work only, since the table takes an item once. A worker
that dies leaves a claim without heartbeats, and the next one takes over; an item that has failed three
workers is set apart, so that the others go on, until an operator retries it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace

from pyspark.sql import SparkSession

from planners.ingestion.buffering import PlannedItem
from streaming_sink.ingest.item_landing import ItemLanding
from streaming_sink.ingest.publishing import NotWantedError
from streaming_sink.zones.errors import AuditFailedError
from streaming_sink.zones.landed import (
    Landed,
    landed_in,
    read_landed,
    with_arrivals,
    with_rejections,
    write_landed,
)
from streaming_sink.zones.ledger import delete_claims
from streaming_sink.zones.records import KIND, Plan, item_of_claim
from streaming_sink.zones.stored_zone import StoredZone
from streaming_sink.zones.write_audit_publish import unstage_old
from timeline import names, outbox
from timeline.errors import CommitStateUnknownError, StoreUnavailableError, TimelineError
from timeline.plans.claims import Claim, Watch, all_instants, heartbeat, holder_of, instants_of, take_claim
from timeline.stores.base import Store
from timeline.versions.work_items import published_items, settled_items

_LOG = logging.getLogger("streaming_sink")
PATIENCE_SECONDS = 60.0
"""How long a worker sees no heartbeat of another before it takes the item over."""
MOST_TRIES = 3


class Worker:
    """Lands the work items of a zone, one at a time. Any number of workers may run, anywhere."""

    def __init__(
        self, zone: StoredZone, patience_seconds: float = PATIENCE_SECONDS, name: str | None = None
    ) -> None:
        self._zone = zone
        self._name = name or zone.new_id()
        self._landing = ItemLanding(zone)
        self._watch = Watch(zone.environment, patience_seconds)
        self._patience = patience_seconds
        self._open: dict[int, tuple[Plan, PlannedItem]] = {}
        self._plans_read: int | None = None

    def open_items(self) -> dict[int, tuple[Plan, PlannedItem]]:
        """Return the work items that were planned and are not settled, by their number."""
        table = self._landing.table()
        properties = {} if table is None else table.head.properties
        self._zone.check_table(table)
        settled = settled_items(properties, self._zone.app_id)
        if self._plans_read is None:
            self._plans_read = self._first_open(settled.ranges)
        for number, plan in self._zone.plans_after(self._plans_read):
            self._open |= {item.number: (plan, item) for item in plan.items}
            self._plans_read = number
        self._open = {number: each for number, each in self._open.items() if number not in settled}
        return self._open

    def land_next(self, session: SparkSession) -> Landed | None:
        """Land one work item that no other worker has, and return what became of it; None if there is none.

        An item whose audit fails is held: it stays staged, and is set apart until an operator decides.
        Raises what the item's failure raised, after noting it on the item; StoreUnavailableError and
        CommitStateUnknownError note nothing, since the item is not their reason: try again.
        """
        items = self.open_items()
        instants = all_instants(self._zone.store, KIND) if items else {}
        for number in sorted(items):
            plan, item = items[number]
            states = instants.get(plan.claim_id(item), {})
            claim = self._claim(plan, item, states)
            if claim is not None and (landed := self._land(session, plan, item, claim)) is not None:
                return landed
        return None

    def free_and_claimed(self) -> tuple[set[int], set[int]]:
        """Return which open items a worker may take at once, and which a worker that lives has claimed. Those
        that are set apart are neither.

        A claim without heartbeats is noted as failed: a worker that starts now has not watched it, and would
        leave it alone.
        """
        items = self.open_items()
        instants = all_instants(self._zone.store, KIND) if items else {}
        free, claimed = set[int](), set[int]()
        for number, (plan, item) in items.items():
            states = instants.get(plan.claim_id(item), {})
            if "cancelled" in states:
                continue
            held = states.get("inflight", 0)
            (claimed if held and not self._is_over(plan.claim_id(item), held) else free).add(number)
        return free, claimed

    def set_apart(self) -> list[int]:
        """Return the open items that no worker takes until an operator decides, after `free_and_claimed`."""
        free, claimed = self.free_and_claimed()
        return sorted(self._open.keys() - free - claimed)

    def has_more(self) -> bool:
        """Return whether this worker may take an open item now, or soon: one whose worker may be dead, as it
        has shown no heartbeat since this one looks.
        """
        free, claimed = self.free_and_claimed()
        return bool(free) or not all(self._is_alive(*self._open[number]) for number in claimed)

    def _is_alive(self, plan: Plan, item: PlannedItem) -> bool:
        claim_id = plan.claim_id(item)
        held = instants_of(self._zone.store, claim_id).get("inflight", 0)
        return not held or self._watch.has_beaten(claim_id, held)

    def _is_over(self, claim_id: str, held: int) -> bool:
        store = self._zone.store
        if _failure(self._zone, claim_id, held) is not None:
            return True
        if not self._watch.is_abandoned(store, claim_id, held):
            return False
        note_failure(store, claim_id, held, f"it had no heartbeat for {self._patience:g} s")
        return True

    def _first_open(self, settled: tuple[tuple[int, int], ...]) -> int:
        """Return the number of the newest plan that is settled whole, with every plan before it."""
        all_below = settled[0][1] + 1 if settled and settled[0][0] == 0 else 0
        number = self._zone.plans.last()
        while number > 0:
            plan = self._zone.plan(number)
            if plan is not None and plan.items[-1].number < all_below:
                return number
            number -= 1
        return 0

    def _claim(self, plan: Plan, item: PlannedItem, states: dict[str, int]) -> Claim | None:
        claim_id, held = plan.claim_id(item), states.get("inflight", 0)
        if "cancelled" in states:
            return None
        if held:
            failed = _failure(self._zone, claim_id, held)
            if failed is None and not self._watch.is_abandoned(self._zone.store, claim_id, held):
                return None
            if held >= MOST_TRIES:
                why = failed or "its workers died without a word"
                self._set_apart(claim_id, item, f"it has failed {MOST_TRIES} workers: {why}")
                return None
            _LOG.warning("work item %d is taken over after %d tries", item.number, held)
        return take_claim(self._zone.store, claim_id, {}, held + 1, self._name)

    def _set_apart(self, claim_id: str, item: PlannedItem, reason: str) -> None:
        _LOG.error(
            "work item %d is set apart; `streaming-sink ingest retry` frees it, `discard` and, where it is"
            " staged, `publish` settle it: %s",
            item.number,
            reason,
        )
        note = json.dumps({"number": item.number, "reason": reason}).encode()
        self._zone.store.create(names.cancelled_path(claim_id), note)

    def _land(self, session: SparkSession, plan: Plan, item: PlannedItem, claim: Claim) -> Landed | None:
        store = self._zone.store
        try:
            with heartbeat(claim, self._patience / 5) as is_ours:
                landed = self._landing.land(session, item, is_ours)
        except (StoreUnavailableError, CommitStateUnknownError, NotWantedError, KeyboardInterrupt):
            if not self._landing.has_published(item):  # else the claim says whose note is missing
                claim.release()
            raise
        except AuditFailedError as failure:
            self._set_apart(claim.plan_id, item, f"its audit has failed: {failure}")
            return None
        except Exception as failure:
            reason = f"{type(failure).__name__}: {' '.join(str(failure).split())[:500]}"
            note_failure(store, claim.plan_id, claim.number, reason)
            raise
        landed = with_arrivals(with_rejections(store, landed), item)
        landed = replace(landed, planned_ms=names.ulid_time_ms(plan.id))
        try:
            write_landed(store, landed)
            delete_claims(store, claim.plan_id, {"inflight": claim.number})
        except StoreUnavailableError as failure:
            _LOG.warning("work item %d has landed; its note is left to later runs: %s", item.number, failure)
        self._open.pop(item.number, None)
        _LOG.info("%s", landed.line())
        return landed

    def unstage_old(self) -> list[int]:
        """Unstage the items that have been staged for longer than the time-out; return their numbers."""
        table = self._landing.table()
        if table is None:
            return []
        self._zone.check_table(table)
        return unstage_old(table, self._zone.app_id, self._zone.staged_timeout_ms)

    def deliver(self) -> None:
        """Deliver the rows that a worker which died after its commit has left for the quarantine (R24), best
        effort: what is not delivered stays named, and the next call delivers it.
        """
        if (table := self._landing.table()) is None:
            return
        place = self._zone.sink_options.table
        try:
            outbox.deliver(table, self._zone.app_id, lambda address: place.beside(address).open())
        except TimelineError as failure:
            _LOG.warning("rows for the quarantine are delivered later: %s", failure)

    def finish(self) -> None:
        """Wait for what goes on beside the items: fills, and the upkeep of a key index."""
        self._landing.finish()

    def complete_notes(self) -> int:
        """Write the notes that dead workers have not written, and return how many. Which these are the claims
        say: a worker deletes those of an item only after its note. StoreUnavailableError.
        """
        table, count, store = self._landing.table(), 0, self._zone.store
        if table is None:
            return 0
        self._zone.check_table(table)
        published = published_items(table.head.properties, self._zone.app_id)
        for claim_id, states in all_instants(store, KIND).items():
            if "inflight" not in states or (number := item_of_claim(claim_id)) not in published:
                continue
            if read_landed(store, number) is None:
                write_landed(store, with_rejections(store, landed_in(table.head, self._zone.app_id, number)))
                count += 1
            delete_claims(store, claim_id, states)
        return count


def fail_claims(zone: StoredZone, name: str, reason: str) -> int:
    """Note on the claims of a worker that has ended that it failed, and return how many there were. Others
    take its items over at once.
    """
    count = 0
    for claim_id, states in all_instants(zone.store, KIND).items():
        if (held := states.get("inflight", 0)) and holder_of(zone.store, claim_id, held) == name:
            note_failure(zone.store, claim_id, held, reason)
            count += 1
    return count


def note_failure(store: Store, claim_id: str, number: int, reason: str) -> None:
    """Note on a claim that its worker has failed. Another one takes the item over at once."""
    store.overwrite(names.inflight_path(claim_id, number), json.dumps({"failed": reason}).encode())


def _failure(zone: StoredZone, claim_id: str, number: int) -> str | None:
    """Return why the worker of a claim failed; None where it did not say so."""
    try:
        stored = json.loads(zone.store.read(names.inflight_path(claim_id, number)).data)
    except (FileNotFoundError, ValueError):
        return None
    failed = stored.get("failed") if isinstance(stored, dict) else None
    return None if failed is None else str(failed)
