"""When a plan knows enough files: of a million that wait a pass takes as much as it may read, and no more."""

from __future__ import annotations

from planners.clustering.candidates import why_refused
from planners.clustering.plan import ClusteringGroup
from planners.clustering.planner import plan_clustering
from planners.clustering.policy import ClusteringPolicy
from planners.model import TableFile

LEAST_FILES = 10_000
"""So many files that may be rewritten a plan knows in any case. To know a million, and to compare their
bounds, took 45 s of processor time for each plan.
"""


class PlanBound:
    """The files that a plan may rewrite, as far as they are known, from the newest on.

    They are enough once the others can wait for the next pass, since the known ones make groups that are
    worth it. In a table of many partitions, each of which gets a file of every commit, the newest files are
    one of each: a plan of these would rewrite files alone, as few as it may have groups, and fall behind the
    stream. A strategy that rewrites file by file needs all files: whether it has something to change in one
    is not known yet.
    """

    def __init__(self, policy: ClusteringPolicy, enough_bytes: int) -> None:
        self._policy = policy
        self._enough_bytes = min(enough_bytes, policy.max_groups * policy.max_group_bytes)
        self._enough_files = min(LEAST_FILES, policy.max_groups * policy.max_group_files // 2)
        self._waiting: list[TableFile] = []
        self._bytes = 0
        self._next_look = LEAST_FILES

    def is_enough_with(self, file: TableFile) -> bool:
        """Take a file into account that passes the policy's plan strategies, whichever others there are.
        Return whether a plan of the files so far has groups enough: half of `enough_bytes`, or as many as it
        may have with some thousand files, are of groups that are worth it.
        """
        order = self._policy.order
        if (order and file.clustered_by == order) or why_refused(file, self._policy):
            return False
        self._waiting.append(file)
        self._bytes += file.bytes
        if len(self._waiting) < self._next_look or self._bytes < self._enough_bytes:
            return False
        self._next_look = 2 * len(self._waiting)
        return self._makes_groups()

    def _makes_groups(self) -> bool:
        """Plan the files so far; each time that they are twice as many as when it was last done."""
        policy = self._policy
        groups = [it for it in plan_clustering(self._waiting, 0, policy).groups if self._is_worth_it(it)]
        if groups and 2 * sum(it.bytes for it in groups) >= self._enough_bytes:
            return True
        return len(groups) == policy.max_groups and sum(len(it.inputs) for it in groups) >= self._enough_files

    def _is_worth_it(self, group: ClusteringGroup) -> bool:
        """Return whether a group joins some files, or is about as large as it may be."""
        policy = self._policy
        joins = len(group.inputs) >= min(policy.overlap_at_least, policy.max_group_files)
        return joins or not group.remainder or 2 * group.bytes >= policy.max_group_bytes
