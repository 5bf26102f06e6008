"""The state of a zone at a glance: what waits, what is planned, what landed, and how long files waited."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice

from planners.percentiles import percentiles
from streaming_sink.zones.landed import Landed
from streaming_sink.zones.ledger import Ledger, LedgerEntry
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.records import ItemSummary
from streaming_sink.zones.stored_zone import StoredZone

_LAST = 100
_OPEN = 20
_TRIGGER_MS = 1000


@dataclass(frozen=True, slots=True)
class Waiting:
    """The files of one group that no work item has yet."""

    group: str
    files: int
    bytes: int
    oldest_ms: int
    """How long the oldest of them has waited."""


@dataclass(frozen=True, slots=True)
class OpenItemStatus:
    """One work item that is not in the table."""

    number: int
    state: str
    files: int
    bytes: int
    why: str
    """Why it was planned."""
    reason: str = ""
    """Why it was set apart or held; "" for one that workers may take."""


@dataclass(frozen=True)
class ZoneStatus:
    """A zone as its logs and its table show it."""

    location: str
    table: str
    rules: Mapping[str, int]
    watched: Sequence[tuple[str, str]]
    waiting: Sequence[Waiting]
    open_items: Sequence[OpenItemStatus]
    """The first 20, and the first 20 of those that are set apart."""
    open_count: int
    landed_items: int
    last_landed: Sequence[Landed]
    """Of the last 100, the newest first."""
    lag_ms: Mapping[str, int]
    """From a file's announcement to the commit, of the oldest file of each of them: p50, p95, max."""
    kept: int
    """How many of them were planned within the rules' `max_age` and a second."""
    rejected: Sequence[LedgerEntry] = ()
    """Files that one of these has rejected, and that no work item has taken again since; the first 20."""


def status(zone: StoredZone, flux: Flux | None = None) -> ZoneStatus:
    """Return the state of a zone. Reads the index of its plans, the plans of open items, the announcements
    that may wait, and what became of the last items. `flux` knows of the plans and announcements already, but
    for those that are new.
    """
    flux = Flux(zone, plans=False) if flux is None else flux
    ledger, now_ms = Ledger(zone), time.time_ns() // 1_000_000
    flux.catch_up()
    rules = asdict(zone.rules)
    open_items = [_open_item(ledger, item) for item in ledger.open_items(_OPEN)]
    last = ledger.last_landed(_LAST)
    return ZoneStatus(
        location=zone.store.location,
        table=zone.sink_options.location,
        rules=dict(rules),
        watched=zone.watched(),
        waiting=[
            Waiting(name, files, size, max(0, now_ms - oldest))
            for name, (files, size, oldest) in sorted(flux.buffer.waiting.items())
        ],
        open_items=open_items,
        open_count=len(ledger.open_numbers),
        landed_items=len(ledger.published),
        last_landed=last,
        lag_ms=percentiles(landed.lag_ms for landed in last if landed.oldest_ms),
        rejected=list(islice(_rejected(ledger, last), _OPEN)),
        kept=sum(it.waited_ms <= int(rules["max_age_ms"]) + _TRIGGER_MS for it in last),
    )


def _rejected(ledger: Ledger, last: Sequence[Landed]) -> Iterator[LedgerEntry]:
    """Yield the newest version of each file that was rejected, unless it was planned since. Looks for the
    first 100 of them.
    """
    paths = dict.fromkeys(path for landed in last for path in landed.rejected)
    for path in islice(paths, _LAST):
        newest = max(ledger.find(path), key=lambda entry: entry.item, default=None)
        if newest is not None and newest.state == "rejected":
            yield newest


def _open_item(ledger: Ledger, item: ItemSummary) -> OpenItemStatus:
    state = ledger.state_of(item.number, item.claim_id)
    reason = ledger.reason_of(item.number, item.claim_id)
    return OpenItemStatus(item.number, state, item.files, item.bytes, item.why, reason)
