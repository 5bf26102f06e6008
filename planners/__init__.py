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
    "planners.clustering.plan": ("ClusteringPlan",),
    "planners.clustering.policy": ("All", "BySize", "ClusteringPolicy", "PlanStrategy"),
    "planners.clustering.selection": ("ByOverlap", "RecentPartitions", "SelectedPartitions", "plan_strategy"),
    "planners.clustering.sort_fields": ("SortField",),
    "planners.clustering.strategies": ("Strategy",),
    "planners.sizing": ("FileSizing",),
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
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'planners' has no attribute {name!r}")
