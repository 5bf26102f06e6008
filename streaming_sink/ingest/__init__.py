"""Buffered ingestion: files of any size wait in a buffer zone, and land in a table as few large ones.

    zone = ingest.BufferZone("s3://lake/_buffer/events", table="s3://lake/events")
    zone.push("s3://partner/drop/part-0001.parquet")
    ingest.run(spark, zone, available_now=True)

Names are loaded when they are asked for, as those of `streaming_sink`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming_sink.ingest.audit import Audit, StagedItem
    from streaming_sink.ingest.compute import dispatch
    from streaming_sink.ingest.definition import ingest_rules as Rules  # noqa: N812
    from streaming_sink.ingest.landed import Landed
    from streaming_sink.ingest.records import Pushed
    from streaming_sink.ingest.running import run
    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.serving.server import serve

_WHERE = {
    "Audit": ("streaming_sink.ingest.audit", "Audit"),
    "BufferZone": ("streaming_sink.ingest.zone", "BufferZone"),
    "Landed": ("streaming_sink.ingest.landed", "Landed"),
    "Pushed": ("streaming_sink.ingest.records", "Pushed"),
    "Rules": ("streaming_sink.ingest.definition", "ingest_rules"),
    "StagedItem": ("streaming_sink.ingest.audit", "StagedItem"),
    "dispatch": ("streaming_sink.ingest.compute", "dispatch"),
    "run": ("streaming_sink.ingest.running", "run"),
    "serve": ("streaming_sink.serving.server", "serve"),
}
__all__ = ["Audit", "BufferZone", "Landed", "Pushed", "Rules", "StagedItem", "dispatch", "run", "serve"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'streaming_sink.ingest' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)
