"""A Spark Structured Streaming sink for plain Apache Iceberg tables: right-sized files, exactly once, no JAR,
no catalog.

    query = stream.writeStream.foreachBatch(IcebergSink("s3://lake/events")).option("checkpointLocation",
    ...).start()

Names are loaded when they are asked for: Spark's Python workers import parts of this package, and need few of
them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planners import FileSizing
    from streaming_sink.clustering.passes import Clustering
    from streaming_sink.options.table_options import TableOptions
    from streaming_sink.options.values.checks import Checks
    from streaming_sink.options.values.contract import SchemaContract
    from streaming_sink.options.values.retention import Retention
    from streaming_sink.options.values.tables import CatalogTable, PathTable
    from streaming_sink.options.values.writes import Append, BulkInsert, Delete, Upsert
    from streaming_sink.parsing.rows import ParsedJson, parse_json
    from streaming_sink.reading.changes import changes
    from streaming_sink.removal.cleaning import drop, expire_snapshots, remove_orphan_files
    from streaming_sink.removal.earlier_versions import branch, rollback, tag
    from streaming_sink.removal.gone import check_gone
    from streaming_sink.removal.purge import purge
    from streaming_sink.replaying.replay import replay
    from streaming_sink.reports.batch_report import BatchReport, history
    from streaming_sink.reports.cluster_report import ClusterReport
    from streaming_sink.reports.maintenance_report import DeliveryReport, FillReport, MirrorReport
    from streaming_sink.sink import IcebergSink
    from streaming_sink.upkeep.mirroring import mirror, unmirror

# No name may also be a module's: importing the module would put it in the name's place.
_WHERE = {
    "Append": "streaming_sink.options.values.writes",
    "BatchReport": "streaming_sink.reports.batch_report",
    "BulkInsert": "streaming_sink.options.values.writes",
    "CatalogTable": "streaming_sink.options.values.tables",
    "Checks": "streaming_sink.options.values.checks",
    "ClusterReport": "streaming_sink.reports.cluster_report",
    "Clustering": "streaming_sink.clustering.passes",
    "Delete": "streaming_sink.options.values.writes",
    "DeliveryReport": "streaming_sink.reports.maintenance_report",
    "FileSizing": "planners",
    "FillReport": "streaming_sink.reports.maintenance_report",
    "IcebergSink": "streaming_sink.sink",
    "MirrorReport": "streaming_sink.reports.maintenance_report",
    "ParsedJson": "streaming_sink.parsing.rows",
    "PathTable": "streaming_sink.options.values.tables",
    "Retention": "streaming_sink.options.values.retention",
    "SchemaContract": "streaming_sink.options.values.contract",
    "TableOptions": "streaming_sink.options.table_options",
    "Upsert": "streaming_sink.options.values.writes",
    "branch": "streaming_sink.removal.earlier_versions",
    "changes": "streaming_sink.reading.changes",
    "check_gone": "streaming_sink.removal.gone",
    "drop": "streaming_sink.removal.cleaning",
    "expire_snapshots": "streaming_sink.removal.cleaning",
    "history": "streaming_sink.reports.batch_report",
    "mirror": "streaming_sink.upkeep.mirroring",
    "parse_json": "streaming_sink.parsing.rows",
    "purge": "streaming_sink.removal.purge",
    "remove_orphan_files": "streaming_sink.removal.cleaning",
    "replay": "streaming_sink.replaying.replay",
    "rollback": "streaming_sink.removal.earlier_versions",
    "tag": "streaming_sink.removal.earlier_versions",
    "unmirror": "streaming_sink.upkeep.mirroring",
}

__all__ = [
    "Append",
    "BatchReport",
    "BulkInsert",
    "CatalogTable",
    "Checks",
    "ClusterReport",
    "Clustering",
    "Delete",
    "DeliveryReport",
    "FileSizing",
    "FillReport",
    "IcebergSink",
    "MirrorReport",
    "ParsedJson",
    "PathTable",
    "Retention",
    "SchemaContract",
    "TableOptions",
    "Upsert",
    "branch",
    "changes",
    "check_gone",
    "drop",
    "expire_snapshots",
    "history",
    "mirror",
    "parse_json",
    "purge",
    "remove_orphan_files",
    "replay",
    "rollback",
    "tag",
    "unmirror",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'streaming_sink' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
