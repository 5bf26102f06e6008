"""Which files of a table a plan depends on: a caller reads no others.

A plan strategy that judges each file by itself narrows what those after it see. So `BySize` and
`SelectedPartitions` bound what is read, as long as none before them looks at files together.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from planners.clustering.policy import All, BySize, ClusteringPolicy
from planners.clustering.selection import RecentPartitions, SelectedPartitions, brought_at, last_written_first
from planners.model import TableFile, TablePartition, describe_deletes, partition_of


@dataclass(frozen=True)
class Candidates:
    """The files that a plan may choose, or whose neighbours it judges by them."""

    below_bytes: int | None = None
    """Live bytes that all of them are below; None for files of any size."""
    selected: tuple[SelectedPartitions, ...] = ()
    """Their partitions are in each of these."""
    recent: RecentPartitions | None = None
    """Their partitions are among the last that were written, as `Recency` finds them."""
    is_exact: bool = False
    """Each of them passes the policy's plan strategies, whichever others there are."""

    def holds(self, partition: TablePartition) -> bool:
        """Return whether files of a partition may be among them."""
        return all(each.holds(partition) for each in self.selected)


def candidates(policy: ClusteringPolicy, specs: Collection[int]) -> Candidates:
    """Return which files a plan depends on, of a table whose live files are of these partition specs.

    The plan of these files, and of any others, has the groups of the plan of all.
    """
    below_bytes, selected = None, list[SelectedPartitions]()
    for strategy in policy.select:
        if type(strategy) is BySize:
            below_bytes = policy.small_file_bytes
        elif type(strategy) is SelectedPartitions and not (callable(strategy.keep) and len(specs) > 1):
            selected.append(strategy)
        elif type(strategy) is RecentPartitions and below_bytes is None and not policy.file_by_file:
            return Candidates(None, tuple(selected), strategy)
        elif type(strategy) is not All:
            return Candidates(below_bytes, tuple(selected))
    return Candidates(below_bytes, tuple(selected), is_exact=True)


class Recency:
    """The partitions that `RecentPartitions` counts, found from files that come about newest first."""

    def __init__(self, strategy: RecentPartitions, policy: ClusteringPolicy) -> None:
        self._counted = strategy.skip_latest + strategy.look_back
        self._policy = policy
        self._latest: dict[TablePartition, tuple[bool, int]] = {}

    def add(self, file: TableFile) -> None:
        """Take a file into account."""
        if why_refused(file, self._policy) is None:
            key = partition_of(file)
            self._latest[key] = max(brought_at(file), self._latest.get(key, (False, 0)))

    def is_settled(self, committed_at: int) -> bool:
        """Return whether no file that was committed at a time, or before it, can change the answer."""
        last = self._ordered()[self._counted - 1 : self._counted]
        return bool(last) and self._latest[last[0]] > (True, committed_at)

    def partitions(self) -> frozenset[TablePartition]:
        """Return the partitions that are looked back on, and those that are skipped."""
        return frozenset(self._ordered()[: self._counted])

    def _ordered(self) -> list[TablePartition]:
        return last_written_first(self._latest)


def why_refused(file: TableFile, policy: ClusteringPolicy) -> str | None:
    """Return why this file is never rewritten, or None if it may be."""
    if file.reserved_by is not None:
        return f"reserved by plan {file.reserved_by}"
    if file.unfit is not None:
        return file.unfit
    if (deletes := describe_deletes(file)) is not None:
        return deletes
    if file.bytes > policy.max_group_bytes:
        return f"above the {policy.max_group_bytes:,} bytes of a group"
    if policy.file_by_file and file.outdated is None:
        return f"{policy.strategy.name} has nothing to change in it"
    return None
