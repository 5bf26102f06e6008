"""The clustering planner: chooses the files to rewrite together, so that rows that are queried together share
files.

Per partition, with T the target, S the small limit, K `overlap_at_least`, G `max_group_bytes`:

* *New* files, which are not in the wanted order yet, are all taken, in the order of their keys.
* *Small* files of the order, which earlier passes left, join when that is repaid: when all together reach
  S, and so leave full files and one remainder at most; or, where there are at least K of them, in ascending
  size, each that is no larger than everything that joined before it. So a file that is rewritten at least
  doubles.
* *Full* files of the order are sorted again where K of one level (or as many as a group holds, if fewer)
  share a range of keys; the files that result are one level up and that many times narrower. n full files
  are sorted after log n rounds to the base G / T. Two more rounds are allowed, and no others, so bounds too
  coarse to show the order (long common prefixes, for example) cannot keep clustering busy for ever.

Without an order (bin-packing) only small files are joined; full files are left alone. All of this applies to
the files that the plan strategies let through: `BySize`, for example, keeps full files from being sorted
again. Files that different keys encrypt are never joined.

A strategy that rewrites file by file takes the files in which it has something to change, and joins none.

The bounds that follow, for files that come out as planned:

* Bytes written per byte ingested, for passes that find x or more new bytes in a partition: at most

      3 + log2(S / x) + log(n) / log(G / T) + 2

  1 for the first sort; log2 for doubling; 2 for becoming part of a full file, since a pass that makes full
  files rewrites at most as much again that stays small; the rest for the rounds of full files.
* Small files in a partition, after a pass that has taken all new ones: below K, or log2(S / x) + 2, since
  then each is larger than all smaller ones together.
* Without an order a pass does not take all new files, only those that join: x is then the least new file.
* Without new files, passes come to an end: each leaves fewer files, or files one level up, and levels end.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from planners.clustering.candidates import why_refused
from planners.clustering.grouping import PartitionGroups, file_by_file_groups
from planners.clustering.plan import ClusteringGroup, ClusteringPlan, partition_text
from planners.clustering.policy import All, BySize, ClusteringPolicy
from planners.clustering.selection import RecentPartitions, SelectedPartitions
from planners.clustering.strategies import Strategy
from planners.model import Decision, FillVerdict, TableFile, TablePartition, partition_of, sort_key


def plan_clustering(files: Iterable[TableFile], now: int, policy: ClusteringPolicy) -> ClusteringPlan:
    """Return which of these live files are rewritten together, and why each other one is left alone.

    `files` are all of the table, or of the partitions in question; `now` is of the same kind as their
    `committed_at`. Each file is in at most one group, and all files of a group are of one partition, and of
    one partition spec. No group exceeds the policy's limits. Files that are reserved, cannot be
    read, or have deletes that are not of them alone, are left alone. Sizes are live bytes. The plan does not
    depend on the order of the files.

    ValueError: bounds of one column that cannot be compared with each other.
    """
    live, reasons, partitions = _choose(files, now, policy)
    groups: list[ClusteringGroup] = []
    for key in sorted(partitions, key=lambda key: (key[0].spec_id, sort_key(key[0].values), key[1])):
        if policy.file_by_file:
            groups += file_by_file_groups(partitions[key], policy)
            continue
        planned = PartitionGroups(partitions[key], policy)
        groups += planned.groups()
        reasons |= planned.reasons
    groups.sort(key=lambda group: (-Fraction(group.files_saved, max(1, group.bytes)), group.inputs))
    for group in groups[policy.max_groups :]:
        reasons |= dict.fromkeys(group.inputs, f"beyond the {policy.max_groups:,} groups of a plan")
    return ClusteringPlan(
        planned_at=now,
        target_file_bytes=policy.target_file_bytes,
        selected_by=tuple(Strategy(it.name, tuple(sorted(it.parameters.items()))) for it in policy.select),
        groups=tuple(groups[: policy.max_groups]),
        left_out=tuple(
            Decision(it.path, partition_text(it.partition), it.bytes, FillVerdict.KEPT, reasons[it.path])
            for it in live
            if it.path in reasons
        ),
    )


def files_to_compare(files: Iterable[TableFile], now: int, policy: ClusteringPolicy) -> frozenset[str]:
    """Return of which files the bounds decide what is planned; `files` may have none yet.

    Few: which small files join is decided by their sizes, and full ones count where enough are of one level.
    """
    if not policy.sort_by:
        return frozenset()
    files = list(files)
    if any(type(it) not in _BY_OTHER_THAN_BOUNDS for it in policy.select):
        return frozenset(file.path for file in files)
    _, _, partitions = _choose(files, now, policy)
    return frozenset(
        path for each in partitions.values() for path in PartitionGroups(each, policy).compared()
    )


_BY_OTHER_THAN_BOUNDS = (All, BySize, RecentPartitions, SelectedPartitions)
_Partitions = dict[tuple[TablePartition, str], list[TableFile]]


def _choose(
    files: Iterable[TableFile], now: int, policy: ClusteringPolicy
) -> tuple[list[TableFile], dict[str, str], _Partitions]:
    """Return the files in the order of their paths, why some are left alone, and the others by partition."""
    live = sorted(files, key=lambda file: file.path)
    reasons = {file.path: reason for file in live if (reason := why_refused(file, policy)) is not None}
    for strategy in policy.select:
        usable = [file for file in live if file.path not in reasons]
        reasons |= strategy.refused(usable, policy, now)
    partitions: _Partitions = {}
    for file in live:
        if file.path not in reasons:
            key = partition_of(file), file.encryption or ""
            partitions.setdefault(key, []).append(file)
    return live, reasons, partitions
