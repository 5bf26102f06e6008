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
    "Audit": ("streaming_sink.zones.audit", "Audit"),
    "BufferZone": ("streaming_sink.ingest.zone", "BufferZone"),
    "Landed": ("streaming_sink.zones.landed", "Landed"),
    "Pushed": ("streaming_sink.zones.records", "Pushed"),
    "KafkaTopic": ("streaming_sink.zones.zone_options", "KafkaTopic"),
    "Rules": ("streaming_sink.zones.zone_options", "Rules"),
    "SourceFolders": ("streaming_sink.zones.zone_options", "SourceFolders"),
    "StagedItem": ("streaming_sink.zones.audit", "StagedItem"),
    "dispatch": ("streaming_sink.ingest.compute", "dispatch"),
    "run": ("streaming_sink.ingest.running", "run"),
    "serve": ("streaming_sink.serving.server", "serve"),
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
    if name not in _WHERE:
        raise AttributeError(f"module 'streaming_sink.ingest' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)
