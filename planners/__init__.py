"""Pure functions from what is known of a table and a batch to frozen plans. Standard library only.

`planners.clustering.curves`, which needs numpy, is imported by its own name. Names are loaded on first use:
Spark's Python workers import parts of this package, and need few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planners.clustering.plan import ClusteringGroup, ClusteringPlan
    from planners.clustering.planner import plan_clustering
    from planners.clustering.policy import All, BySize, ClusteringPolicy, PlanStrategy
    from planners.clustering.selection import (
        ByOverlap,
        RecentPartitions,
        SelectedPartitions,
        plan_strategy,
    )
    from planners.clustering.sort_fields import SortField
    from planners.clustering.strategies import Strategy
    from planners.coalesced import has_room, plan_coalesced, tasks_that_fit
    from planners.fills import FillPlan, PlannedFill, plan_fills
    from planners.folds import DELETE_FILES_AT_MOST, PlannedDeleteMerge
    from planners.forecast import HISTORY_BATCHES, forecast_error
    from planners.inserts import plan_inserts
    from planners.model import (
        Arrival,
        Bucket,
        ColumnBounds,
        Decision,
        FileContent,
        FillVerdict,
        InputFile,
        InsertPlan,
        PartitionKey,
        PositionDeletes,
        TableFile,
        TablePartition,
    )
    from planners.partitions import comparable, partition_of
    from planners.routing import SLOTS, HotRoute, Routing, route_shuffled, route_single
    from planners.shared_deletes import PlannedRunMerge, own_from, share_delete_files
    from planners.sizing import (
        DEFAULT_BYTES_PER_ROW,
        FOLD_ABOVE,
        HISTORY_COMMITS,
        CommitSize,
        FileSizing,
        bytes_per_row,
        parse_bytes,
    )
    from planners.small_files import SMALL_FILES_AT_MOST, FillPolicy

# No name may also be a module's: importing the module would put it in the name's place.
_WHERE = {
    "DEFAULT_BYTES_PER_ROW": "planners.sizing",
    "DELETE_FILES_AT_MOST": "planners.folds",
    "FOLD_ABOVE": "planners.sizing",
    "HISTORY_BATCHES": "planners.forecast",
    "HISTORY_COMMITS": "planners.sizing",
    "SLOTS": "planners.routing",
    "SMALL_FILES_AT_MOST": "planners.small_files",
    "All": "planners.clustering.policy",
    "Arrival": "planners.model",
    "Bucket": "planners.model",
    "ByOverlap": "planners.clustering.selection",
    "BySize": "planners.clustering.policy",
    "ClusteringGroup": "planners.clustering.plan",
    "ClusteringPlan": "planners.clustering.plan",
    "ClusteringPolicy": "planners.clustering.policy",
    "ColumnBounds": "planners.model",
    "CommitSize": "planners.sizing",
    "Decision": "planners.model",
    "FileContent": "planners.model",
    "FileSizing": "planners.sizing",
    "FillPlan": "planners.fills",
    "FillPolicy": "planners.small_files",
    "HotRoute": "planners.routing",
    "InputFile": "planners.model",
    "InsertPlan": "planners.model",
    "PartitionKey": "planners.model",
    "PlanStrategy": "planners.clustering.policy",
    "PositionDeletes": "planners.model",
    "PlannedFill": "planners.fills",
    "PlannedDeleteMerge": "planners.folds",
    "PlannedRunMerge": "planners.shared_deletes",
    "RecentPartitions": "planners.clustering.selection",
    "Routing": "planners.routing",
    "SelectedPartitions": "planners.clustering.selection",
    "SortField": "planners.clustering.sort_fields",
    "Strategy": "planners.clustering.strategies",
    "TableFile": "planners.model",
    "TablePartition": "planners.model",
    "FillVerdict": "planners.model",
    "bytes_per_row": "planners.sizing",
    "comparable": "planners.partitions",
    "forecast_error": "planners.forecast",
    "has_room": "planners.coalesced",
    "own_from": "planners.shared_deletes",
    "parse_bytes": "planners.sizing",
    "partition_of": "planners.partitions",
    "plan_clustering": "planners.clustering.planner",
    "plan_coalesced": "planners.coalesced",
    "plan_fills": "planners.fills",
    "plan_inserts": "planners.inserts",
    "plan_strategy": "planners.clustering.selection",
    "route_shuffled": "planners.routing",
    "route_single": "planners.routing",
    "share_delete_files": "planners.shared_deletes",
    "tasks_that_fit": "planners.coalesced",
}

__all__ = [
    "DEFAULT_BYTES_PER_ROW",
    "DELETE_FILES_AT_MOST",
    "FOLD_ABOVE",
    "HISTORY_BATCHES",
    "HISTORY_COMMITS",
    "SLOTS",
    "SMALL_FILES_AT_MOST",
    "All",
    "Arrival",
    "Bucket",
    "ByOverlap",
    "BySize",
    "ClusteringGroup",
    "ClusteringPlan",
    "ClusteringPolicy",
    "ColumnBounds",
    "CommitSize",
    "Decision",
    "FileContent",
    "FileSizing",
    "FillPlan",
    "FillPolicy",
    "FillVerdict",
    "HotRoute",
    "InputFile",
    "InsertPlan",
    "PartitionKey",
    "PlanStrategy",
    "PlannedDeleteMerge",
    "PlannedFill",
    "PlannedRunMerge",
    "PositionDeletes",
    "RecentPartitions",
    "Routing",
    "SelectedPartitions",
    "SortField",
    "Strategy",
    "TableFile",
    "TablePartition",
    "bytes_per_row",
    "comparable",
    "forecast_error",
    "has_room",
    "own_from",
    "parse_bytes",
    "partition_of",
    "plan_clustering",
    "plan_coalesced",
    "plan_fills",
    "plan_inserts",
    "plan_strategy",
    "route_shuffled",
    "route_single",
    "share_delete_files",
    "tasks_that_fit",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'planners' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
