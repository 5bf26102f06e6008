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
    from streaming_sink.removal.earlier_versions import branch, drop_branch, drop_tag, rollback, tag
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
    "planners": ("FileSizing",),
    "streaming_sink.clustering.passes": ("Clustering",),
    "streaming_sink.options.table_options": ("TableOptions",),
    "streaming_sink.options.values.checks": ("Checks",),
    "streaming_sink.options.values.contract": ("SchemaContract",),
    "streaming_sink.options.values.retention": ("Retention",),
    "streaming_sink.options.values.tables": ("CatalogTable", "PathTable"),
    "streaming_sink.options.values.writes": ("Append", "BulkInsert", "Delete", "Upsert"),
    "streaming_sink.parsing.rows": ("ParsedJson", "parse_json"),
    "streaming_sink.reading.changes": ("changes",),
    "streaming_sink.removal.cleaning": ("drop", "expire_snapshots", "remove_orphan_files"),
    "streaming_sink.removal.earlier_versions": ("branch", "drop_branch", "drop_tag", "rollback", "tag"),
    "streaming_sink.removal.gone": ("check_gone",),
    "streaming_sink.removal.purge": ("purge",),
    "streaming_sink.replaying.replay": ("replay",),
    "streaming_sink.reports.batch_report": ("BatchReport", "history"),
    "streaming_sink.reports.cluster_report": ("ClusterReport",),
    "streaming_sink.reports.maintenance_report": ("DeliveryReport", "FillReport", "MirrorReport"),
    "streaming_sink.sink": ("IcebergSink",),
    "streaming_sink.upkeep.mirroring": ("mirror", "unmirror"),
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
    "drop_branch",
    "drop_tag",
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
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'streaming_sink' has no attribute {name!r}")
