"""Dispatching: for which buffer zones new workers start, within bounds for each zone and in all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """What one zone needs, and has."""

    zone: str
    free_items: int
    """Work items that no live worker has claimed, and that a worker may take."""
    workers: int
    """That this dispatcher has started, and that run."""
    claims: int
    """Of work items by workers that live."""


def workers_to_start(demands: Iterable[Demand], *, most_each: int, most: int) -> tuple[str, ...]:
    """Return the zone of each worker that is to start now; a zone may be there several times.

    A zone gets a worker for each free item, less those that run and have claimed none yet: these will. It has
    `most_each` workers at most, and all zones together `most`. Where these are too few, the zone with the
    fewest workers comes first, and of those with as many the one with the most free items, so that no zone
    waits for ever behind a busy one.
    """
    running, wanted = dict[str, int](), dict[str, int]()
    for demand in demands:
        running[demand.zone] = demand.workers
        starting = max(0, demand.workers - demand.claims)
        wanted[demand.zone] = min(demand.free_items - starting, most_each - demand.workers)
    started: list[str] = []
    left = most - sum(running.values())
    while left > 0 and (short := [zone for zone, count in wanted.items() if count > 0]):
        zone = min(short, key=lambda each: (running[each], -wanted[each], each))
        started.append(zone)
        running[zone] += 1
        wanted[zone] -= 1
        left -= 1
    return tuple(started)
