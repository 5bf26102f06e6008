"""Pure functions from what is known of a table and a batch to frozen plans. Standard library only."""

from planners.forecast import HISTORY_BATCHES, forecast, forecast_error
from planners.inserts import SMALL_FILES_AT_MOST, FillPolicy, plan_inserts
from planners.model import Arrival, Bucket, Decision, InsertPlan, PartitionKey, TableFile, Verdict
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
    "Arrival",
    "Bucket",
    "CommitSize",
    "Decision",
    "FileSizing",
    "FillPolicy",
    "HotRoute",
    "InsertPlan",
    "PartitionKey",
    "Routing",
    "TableFile",
    "Verdict",
    "bytes_per_row",
    "comparable",
    "forecast",
    "forecast_error",
    "parse_bytes",
    "plan_inserts",
    "route_shuffled",
    "route_single",
]
