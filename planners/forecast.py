"""The forecast of a batch: its rows per partition, from those of the last batches.

Streams are similar from batch to batch, and a plan survives a wrong forecast (see `planners.inserts`); the
cost of a bad one is uneven tasks. So a forecast is simple, and there is none only where it would be
worthless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import median_low

from planners.model import Arrival, PartitionKey, comparable, sort_key

Batch = Mapping[PartitionKey, int]
"""The rows that one batch brought to each partition."""

FORECAST_BATCHES = 5
"""A forecast looks at this many latest batches."""

HISTORY_BATCHES = FORECAST_BATCHES + 2
"""The number of latest batches to keep: those that `forecast` looks at, and two to test itself on."""

_WORTHLESS = Fraction(3, 4)


def forecast(history: Sequence[Batch]) -> tuple[Arrival, ...] | None:
    """Return the rows that the next batch is expected to bring, or None if it should be counted.

    `history` holds the batches that brought rows, oldest first. Per partition the answer is the lower
    median of its rows in the last five batches, counted from the first of these that has it, and 0 for one
    that lacks it; so a new partition is expected from its first batch on, and one that stays away is
    dropped by the third.

    None means: no batch is known, or the forecasts of both of the last two batches, computed
    from the batches before each, were worthless: `forecast_error` above 3/4.
    """
    batches = [_canonical(batch) for batch in history[-HISTORY_BATCHES:]]
    if not batches:
        return None
    tried = [
        forecast_error(_expected(batches[:at]), batches[at])
        for at in range(max(1, len(batches) - 2), len(batches))
    ]
    if len(tried) == 2 and min(tried) > _WORTHLESS:
        return None
    return _expected(batches)


def forecast_error(expected: Sequence[Arrival], actual: Batch) -> Fraction:
    """Return how wrong a forecast was, from 0 (right) to 1 (nothing in common).

    It is the rows by which expected and actual differ, over the larger of both, each summed over all
    partitions.
    """
    rows = _canonical(actual)
    foreseen = {comparable(arrival.partition): arrival.rows for arrival in expected}
    pairs = [(foreseen.get(key, 0), rows.get(key, 0)) for key in foreseen.keys() | rows.keys()]
    larger = sum(max(pair) for pair in pairs)
    return 1 - Fraction(sum(min(pair) for pair in pairs), larger) if larger else Fraction(0)


def _expected(batches: Sequence[Batch]) -> tuple[Arrival, ...]:
    recent = batches[-FORECAST_BATCHES:]
    first_seen: dict[PartitionKey, int] = {}
    for at, batch in enumerate(recent):
        for key in batch:
            first_seen.setdefault(key, at)
    expected = (
        Arrival(key, median_low([batch.get(key, 0) for batch in recent[first:]]))
        for key, first in first_seen.items()
    )
    return tuple(sorted((it for it in expected if it.rows), key=lambda it: sort_key(it.partition)))


def _canonical(batch: Batch) -> dict[PartitionKey, int]:
    return {comparable(key): rows for key, rows in batch.items()}
