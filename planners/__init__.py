"""Pure functions from what is known of a table and a batch to frozen plans. Standard library only.

What users give to options has its name here, and is loaded on first use: Spark's Python workers import parts
of this package. All else is imported from its module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planners.clustering.plan import ClusteringPlan
    from planners.clustering.policy import All, BySize, ClusteringPolicy, PlanStrategy
    from planners.clustering.selection import ByOverlap, RecentPartitions, SelectedPartitions, plan_strategy
    from planners.clustering.sort_fields import SortField
    from planners.clustering.strategies import Strategy
    from planners.sizing import FileSizing

_WHERE = {
    "All": "planners.clustering.policy",
    "ByOverlap": "planners.clustering.selection",
    "BySize": "planners.clustering.policy",
    "ClusteringPlan": "planners.clustering.plan",
    "ClusteringPolicy": "planners.clustering.policy",
    "FileSizing": "planners.sizing",
    "PlanStrategy": "planners.clustering.policy",
    "RecentPartitions": "planners.clustering.selection",
    "SelectedPartitions": "planners.clustering.selection",
    "SortField": "planners.clustering.sort_fields",
    "Strategy": "planners.clustering.strategies",
    "plan_strategy": "planners.clustering.selection",
}

__all__ = [
    "All",
    "ByOverlap",
    "BySize",
    "ClusteringPlan",
    "ClusteringPolicy",
    "FileSizing",
    "PlanStrategy",
    "RecentPartitions",
    "SelectedPartitions",
    "SortField",
    "Strategy",
    "plan_strategy",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'planners' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
