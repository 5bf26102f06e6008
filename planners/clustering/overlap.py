"""Overlap: which files share sort keys, judged by their bounds alone.

A file's extent is the range of keys that it may hold, as integers that keep the order of the values. Where
rows are sorted by one column after the other, there is one range, of whole keys; along a curve, one per
column. Ranges that only touch share nothing: the end of one sorted file and the start of the next may have
the same key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import takewhile
from typing import Any

from planners.clustering.sort_fields import SortField
from planners.model import TableFile

Range = tuple[int, int]

Extent = tuple[Range | None, ...]
"""One range per dimension; None where it is unknown."""


def extents(files: Sequence[TableFile], sort_by: Sequence[SortField], *, curve: bool) -> list[Extent]:
    """Return each file's extent on these columns, comparable among these files only; () without columns.

    ValueError names the column whose bounds cannot be compared with each other.
    """
    if curve:
        return list(zip(*(_column_ranges(files, field.column) for field in sort_by), strict=True))
    if not sort_by:
        return [()] * len(files)
    # A range of whole keys exists only as far as the columns run in one direction.
    leading = list(takewhile(lambda field: field.descending == sort_by[0].descending, sort_by))
    columns = [_column_ranges(files, field.column) for field in leading]
    if len(columns) == 1:
        return [(each,) for each in columns[0]]
    keys = [_key_range(ranges) for ranges in zip(*columns, strict=True)]
    places = _places(it for key in keys if key for it in key)
    return [((places[key[0]], places[key[1]]) if key else None,) for key in keys]


def neighbours(extents: Sequence[Extent]) -> list[int]:
    """Return for each file how many others share keys with it; in several dimensions an upper bound."""
    counts = [len(extents) - 1] * len(extents)
    for ranges in zip(*extents, strict=True):
        known = [it for it in ranges if it]
        starts = sorted(low for low, high in known if low < high)
        ends = sorted(high for low, high in known if low < high)
        points = sorted(low for low, high in known if low == high)
        unknown = len(ranges) - len(known)
        for at, each in enumerate(ranges):
            if each:
                low, high = each
                wide = bisect_left(starts, high) - bisect_right(ends, low) - (low < high)
                inside = max(0, bisect_left(points, high) - bisect_right(points, low))
                counts[at] = min(counts[at], wide + inside + unknown)
    return counts


def depth(extents: Sequence[Extent]) -> int:
    """Return the most files that a search for one key opens; in several dimensions an upper bound."""
    deepest = len(extents)
    for ranges in zip(*extents, strict=True):
        events = sorted(
            event for each in ranges if each and each[0] < each[1] for event in ((each[0], 1), (each[1], -1))
        )
        reached = most = 0
        for _, change in events:
            reached += change
            most = max(most, reached)
        deepest = min(deepest, max(1, most) + sum(each is None for each in ranges))
    return deepest


def cliques(extents: Sequence[Extent], at_least: int) -> list[list[int]]:
    """Return disjoint sets of indices, each of at least so many files that all share some key.

    A sweep that takes each set where the files are locally deepest; files of unknown extent are in none. In
    one dimension no set remains; in several, a second call without the files of the first may find more.
    """
    known = [at for at, extent in enumerate(extents) if extent and None not in extent]
    sets = [known]
    for dimension in range(len(extents[0]) if known else 0):
        sets = [
            clique
            for places in sets
            for clique in _cliques([(extents[at][dimension] or (0, 0), at) for at in places], at_least)
        ]
    return [places for places in sets if len(places) >= at_least]


def _cliques(ranges: Iterable[tuple[Range, int]], at_least: int) -> list[list[int]]:
    sets: list[list[int]] = []
    active: list[tuple[int, int]] = []
    for (low, high), at in sorted(ranges):
        if active and active[0][0] <= low and len(active) >= at_least:
            sets.append(sorted(place for _, place in active))
            active.clear()
        while active and active[0][0] <= low:
            heappop(active)
        heappush(active, (high, at))
    if len(active) >= at_least:
        sets.append(sorted(place for _, place in active))
    return sets


def _column_ranges(files: Sequence[TableFile], column: str) -> list[Range | None]:
    bounds = [_known_bounds(file, column) for file in files]
    try:
        places = _places(it for pair in bounds if pair for it in pair)
    except TypeError as error:
        raise ValueError(f"the bounds of column {column!r} cannot be compared: {error}") from error
    return [(places[pair[0]], places[pair[1]]) if pair else None for pair in bounds]


def _known_bounds(file: TableFile, column: str) -> tuple[Any, Any] | None:
    for bounds in file.bounds:
        if bounds.column == column:
            low, high = bounds.lower, bounds.upper
            unknown = (
                low is None or high is None or low != low or high != high
            )  # NaN has no place in an order
            return None if unknown else (low, high)
    return None


def _key_range(ranges: Sequence[Range | None]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    known = list(takewhile(lambda it: it is not None, ranges))
    if not known:
        return None
    missing = len(ranges) - len(known)
    lows = tuple(it[0] for it in known if it) + (-1,) * missing
    highs = tuple(it[1] for it in known if it) + (_ABOVE_ALL,) * missing
    return lows, highs


_ABOVE_ALL = 2**62


def _places(values: Iterable[Any]) -> dict[Hashable, int]:
    return {value: place for place, value in enumerate(sorted(set(values)))}
