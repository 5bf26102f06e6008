"""When files of a platform arrive, for which of its datasets: a Poisson process, skewed, with bursts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

_FILES_A_DELIVERY = 20
_SKEW = 0.8
"""The dataset of rank n gets its share in proportion to n to the power of minus this."""
_START_SECONDS = 300.0
"""Of the platform's own time, within which each dataset gets its first delivery: datasets of a platform have
not begun at one moment, at which the rules of all of them would be met for ever after.
"""
_BURST_EVERY, _BURST_SECONDS, _BURST_TIMES = 600.0, 120.0, 8
"""Of the platform's own time, between the starts of two bursts and for how long; how many times the rate."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Files that a producer announces together."""

    at_seconds: float
    dataset: int
    files: range
    """Their numbers, counted over all deliveries."""


def deliveries(
    random: np.random.Generator, *, seconds: float, datasets: int, files_a_second: float, factor: float
) -> list[Delivery]:
    """Return what arrives in so many seconds, in the order of time. Bursts are shorter, and come sooner, by
    `factor` than in the platform's own time.
    """
    shares = np.arange(1, datasets + 1) ** -_SKEW
    rates = files_a_second / _FILES_A_DELIVERY * shares / shares.sum()
    begins = random.uniform(0, min(seconds, _START_SECONDS / factor), datasets)
    arrivals: list[tuple[float, int]] = []
    for place, rate in enumerate(rates):
        arrivals += _poisson(random, place, rate, begins[place], seconds)
    for start in random.uniform(0, seconds, random.poisson(seconds * factor / _BURST_EVERY)):
        place, end = int(random.integers(datasets)), min(seconds, start + _BURST_SECONDS / factor)
        arrivals += _poisson(random, place, (_BURST_TIMES - 1) * rates[place], start, end)
    found, first = [], 0
    for at, place in sorted(arrivals):
        files = range(first, first + int(random.geometric(1 / _FILES_A_DELIVERY)))
        found.append(Delivery(at, place, files))
        first = files.stop
    return found


def _poisson(
    random: np.random.Generator, place: int, rate: float, start: float, end: float
) -> Iterable[tuple[float, int]]:
    times = random.uniform(start, end, random.poisson(rate * (end - start)))
    return [(float(at), place) for at in times]


def items_without_delay(arrived_ms: Iterable[int], *, max_files: int, max_age_ms: int) -> int:
    """Return how many work items a planner makes that acts at the very moment when a rule is met. One that
    acts later may make fewer.
    """
    items = waiting = oldest = 0
    for at in sorted(arrived_ms):
        if waiting and at >= oldest + max_age_ms:
            items, waiting = items + 1, 0
        oldest = oldest if waiting else at
        waiting += 1
        if waiting >= max_files:
            items, waiting = items + 1, 0
    return items + (waiting > 0)
