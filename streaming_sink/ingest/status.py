"""The state of a zone at a glance: what waits, what is planned, what landed, and how long files waited."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from streaming_sink.ingest.flux import Flux
from streaming_sink.ingest.landed import Landed
from streaming_sink.ingest.ledger import Ledger
from streaming_sink.ingest.zone import BufferZone

_LAST = 100
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
class OpenItem:
    """One work item that is not in the table."""

    number: int
    state: str
    files: int
    bytes: int
    why: str
    """Why it was planned."""


@dataclass(frozen=True)
class ZoneStatus:
    """A zone as its logs and its table show it."""

    location: str
    table: str
    rules: Mapping[str, int]
    watched: Sequence[tuple[str, str]]
    waiting: Sequence[Waiting]
    open_items: Sequence[OpenItem]
    landed_items: int
    last_landed: Sequence[Landed]
    """Of the last 100, the newest first."""
    lag_ms: Mapping[str, int]
    """From a file's announcement to the commit, of the oldest file of each of them: p50, p95, max."""
    kept: int
    """How many of them were planned within the rules' `max_age` and a second."""


def status(zone: BufferZone) -> ZoneStatus:
    """Return the state of a zone. Reads its logs from the beginning."""
    flux, ledger, now_ms = Flux(zone), Ledger(zone), time.time_ns() // 1_000_000
    flux.catch_up()
    rules = zone.definition.rules
    open_items = [
        OpenItem(item.number, ledger.state_of(plan, item), len(item.files), item.bytes, item.why)
        for _, plan in zone.plans_after(0)
        for item in plan.items
        if item.number not in ledger.published
    ]
    last = ledger.last_landed(_LAST)
    lags = sorted(landed.lag_ms for landed in last if landed.oldest_ms)
    return ZoneStatus(
        location=zone.store.location,
        table=zone.definition.table,
        rules=dict(rules),
        watched=zone.watched(),
        waiting=[
            Waiting(name, files, size, max(0, now_ms - oldest))
            for name, (files, size, oldest) in sorted(flux.buffer.waiting.items())
        ],
        open_items=open_items,
        landed_items=len(ledger.published),
        last_landed=last,
        lag_ms={"p50": _at(lags, 0.5), "p95": _at(lags, 0.95), "max": _at(lags, 1.0)} if lags else {},
        kept=sum(it.waited_ms <= int(rules["max_age_ms"]) + _TRIGGER_MS for it in last),
    )


def _at(sorted_values: Sequence[int], share: float) -> int:
    return sorted_values[max(0, ceil(share * len(sorted_values)) - 1)]
