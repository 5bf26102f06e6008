"""When a plan knows enough files: of a million that wait a pass takes as much as it may read, and no more."""

from __future__ import annotations

from planners.clustering.candidates import why_refused
from planners.clustering.planner import plan_clustering
from planners.clustering.policy import All, BySize, ClusteringPolicy
from planners.clustering.selection import SelectedPartitions
from planners.model import TableFile

LEAST_FILES = 10_000
"""So many files that may be rewritten a plan knows in any case. To know a million, and to compare their
bounds, took 45 s of processor time for each plan.
"""
_BY_ITSELF = (All, BySize, SelectedPartitions)
"""The plan strategies that judge each file by itself."""


class PlanBound:
    """The files that a plan may rewrite, as far as they are known, from the newest on.

    They are enough once the others can wait for the next pass: a plan takes all files that are not in its
    order yet; and where it only joins files, those that are known make groups. Plan strategies that judge
    files by one another need all, and so does a strategy that rewrites file by file: whether it has something
    to change in a file is not known yet.
    """

    def __init__(self, policy: ClusteringPolicy, enough_bytes: int) -> None:
        self.is_bounded = all(type(it) in _BY_ITSELF for it in policy.select)
        self._policy, self._enough_bytes = policy, enough_bytes
        self._waiting: list[TableFile] = []
        self._bytes = 0
        self._next_look = LEAST_FILES

    def is_enough_with(self, file: TableFile) -> bool:
        """Take a file into account that passes the policy's plan strategies. Return whether a plan of the
        files so far has `enough_bytes` to rewrite, or as many groups as it may have.
        """
        order = self._policy.order
        if not self.is_bounded or (order and file.clustered_by == order) or why_refused(file, self._policy):
            return False
        self._waiting.append(file)
        self._bytes += file.bytes
        if len(self._waiting) < LEAST_FILES or self._bytes < self._enough_bytes:
            return False
        return order is not None or self._makes_groups()

    def _makes_groups(self) -> bool:
        """Plan the files so far, each time that they are twice as many as when it was last done."""
        if len(self._waiting) < self._next_look:
            return False
        self._next_look = 2 * len(self._waiting)
        groups = plan_clustering(self._waiting, 0, self._policy).groups
        planned = sum(group.bytes for group in groups)
        return len(groups) == self._policy.max_groups or (bool(groups) and planned >= self._enough_bytes)
