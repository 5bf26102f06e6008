"""Percentiles of lags, as reports show them: p50, p95 and the maximum."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil


def percentiles(values: Iterable[int]) -> dict[str, int]:
    """Return the smallest values that at least half, 95 % and all of them do not exceed; {} of none."""
    ordered = sorted(values)
    if not ordered:
        return {}
    shares = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    return {name: ordered[max(0, ceil(share * len(ordered)) - 1)] for name, share in shares.items()}
