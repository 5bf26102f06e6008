"""Room for other engines: the partitions that merging leaves alone for a while, since others rewrite there.

An engine that deletes, updates, merges or compacts reads files, writes others in their place, and fails where
one of them was merged away in between. It may be at work again for as long as it took since its last
commit. So after a commit of another engine that removed files, or deleted rows from some, merging in their
partitions waits for twice the distance of its commits. It waits no longer than ten minutes, and not where
small files, or delete files of one data file, become too many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from planners.model import TablePartition
from planners.sizing import SMALL_FILES_AT_MOST

DISTANCES = 2
"""So many commit distances merging waits: a job that begins right after a commit ends within one."""
FIRST_DISTANCE_MS = 30_000
"""Taken for the distance after a first commit."""
LONGEST_WAIT_MS = 600_000
SMALL_FILES_WHILE_WAITING = 8 * SMALL_FILES_AT_MOST
"""Above it nothing waits: with what comes while the pass runs, a partition stays within three times the bound
that holds without others.
"""
DELETE_FILES_WHILE_WAITING = 16
"""Above it nothing waits: delete files of one data file."""
_GAPS = 3


@dataclass(frozen=True, slots=True)
class ForeignRewrite:
    """A commit of another engine that removed files, or deleted rows from some."""

    time_ms: int
    partitions: frozenset[TablePartition]
    """Those of the files; their values are comparable."""


@dataclass(frozen=True, slots=True)
class Crowding:
    """How much there is to merge in a partition."""

    small_files: int = 0
    delete_files: int = 0
    """The most of one data file."""


def partitions_that_wait(
    rewrites: Iterable[ForeignRewrite], now_ms: int, crowding: Mapping[TablePartition, Crowding]
) -> frozenset[TablePartition]:
    """Return the partitions in which nothing is merged now. `now_ms` is of the same clock as the commits.

    The distance is the longest of the last three, since a job that failed in between left no commit.
    """
    times: dict[TablePartition, list[int]] = defaultdict(list)
    for rewrite in sorted(rewrites, key=lambda each: each.time_ms):
        for partition in rewrite.partitions:
            times[partition].append(rewrite.time_ms)
    return frozenset(
        partition
        for partition, known in times.items()
        if now_ms - known[-1] < _wait_ms(known) and not _is_full(crowding.get(partition, Crowding()))
    )


def _wait_ms(times: list[int]) -> int:
    last = times[-_GAPS - 1 :]
    gaps = [later - earlier for earlier, later in pairwise(last)]
    return min(LONGEST_WAIT_MS, DISTANCES * max(gaps, default=FIRST_DISTANCE_MS))


def _is_full(crowding: Crowding) -> bool:
    return (
        crowding.small_files > SMALL_FILES_WHILE_WAITING or crowding.delete_files > DELETE_FILES_WHILE_WAITING
    )
