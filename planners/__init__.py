"""Pure functions from what is known of a table and a batch to frozen plans. Standard library only.

`planners.clustering.curves`, which needs numpy, is imported by its own name.
"""

from planners.clustering.plan import ClusteringGroup, ClusteringPlan, Strategy
from planners.clustering.planner import plan_clustering
from planners.clustering.policy import ClusteringPolicy, SortField, plan_strategy
from planners.clustering.strategies import (
    All,
    ByOverlap,
    BySize,
    PlanStrategy,
    RecentPartitions,
    SelectedPartitions,
)
from planners.forecast import HISTORY_BATCHES, forecast, forecast_error
from planners.inserts import SMALL_FILES_AT_MOST, FillPolicy, plan_inserts
from planners.model import (
    Arrival,
    Bucket,
    ColumnBounds,
    Decision,
    FileContent,
    InsertPlan,
    PartitionKey,
    TableFile,
    Verdict,
)
from planners.partitions import comparable
from planners.routing import SLOTS, HotRoute, Routing, route_shuffled, route_single
from planners.sizing import (
    DEFAULT_BYTES_PER_ROW,
    HISTORY_COMMITS,
    CommitSize,
    FileSizing,
    bytes_per_row,
    parse_bytes,
)

__all__ = [
    "DEFAULT_BYTES_PER_ROW",
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
    "FillPolicy",
    "HotRoute",
    "InsertPlan",
    "PartitionKey",
    "PlanStrategy",
    "RecentPartitions",
    "Routing",
    "SelectedPartitions",
    "SortField",
    "Strategy",
    "TableFile",
    "Verdict",
    "bytes_per_row",
    "comparable",
    "forecast",
    "forecast_error",
    "parse_bytes",
    "plan_clustering",
    "plan_inserts",
    "plan_strategy",
    "route_shuffled",
    "route_single",
]
