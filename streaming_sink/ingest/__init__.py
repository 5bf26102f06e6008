"""Buffered ingestion: files of any size wait in a buffer zone, and land in a table as few large ones.

    zone = ingest.BufferZone("s3://lake/_buffer/events", "s3://lake/events")
    zone.push("s3://partner/drop/part-0001.parquet")
    ingest.run(spark, zone, available_now=True)

Names are loaded when they are asked for, as those of `streaming_sink`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming_sink.ingest.compute import dispatch
    from streaming_sink.ingest.running import run
    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.serving.server import serve
    from streaming_sink.zones.audit import Audit, StagedItem
    from streaming_sink.zones.landed import Landed
    from streaming_sink.zones.records import Pushed
    from streaming_sink.zones.zone_options import KafkaTopic, Rules, SourceFolders

_WHERE = {
    "streaming_sink.ingest.compute": ("dispatch",),
    "streaming_sink.ingest.running": ("run",),
    "streaming_sink.ingest.zone": ("BufferZone",),
    "streaming_sink.serving.server": ("serve",),
    "streaming_sink.zones.audit": ("Audit", "StagedItem"),
    "streaming_sink.zones.landed": ("Landed",),
    "streaming_sink.zones.records": ("Pushed",),
    "streaming_sink.zones.zone_options": ("KafkaTopic", "Rules", "SourceFolders"),
}
__all__ = [
    "Audit",
    "BufferZone",
    "KafkaTopic",
    "Landed",
    "Pushed",
    "Rules",
    "SourceFolders",
    "StagedItem",
    "dispatch",
    "run",
    "serve",
]


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'streaming_sink.ingest' has no attribute {name!r}")
