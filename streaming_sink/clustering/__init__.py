"""Clustering: rewrites files so that rows that are queried together share files.

`plan`, `schedule`, `execute`, `schedule_and_execute`, `show` and `cancel` work on a table; `Clustering`
lets a sink do it. This package runs on the driver; the tasks are in
`streaming_sink.tasks.clustering`.

Names are loaded on first use: imports cost a new Python process time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming_sink.clustering.passes import Clustering
    from streaming_sink.clustering.scheduling import Scheduled
    from streaming_sink.clustering.service import cancel, execute, plan, schedule, schedule_and_execute, show
    from streaming_sink.reports.cluster_report import ClusterReport

_WHERE = {
    "streaming_sink.clustering.passes": ("Clustering",),
    "streaming_sink.clustering.scheduling": ("Scheduled",),
    "streaming_sink.clustering.service": (
        "cancel",
        "execute",
        "plan",
        "schedule",
        "schedule_and_execute",
        "show",
    ),
    "streaming_sink.reports.cluster_report": ("ClusterReport",),
}

__all__ = [
    "ClusterReport",
    "Clustering",
    "Scheduled",
    "cancel",
    "execute",
    "plan",
    "schedule",
    "schedule_and_execute",
    "show",
]


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'streaming_sink.clustering' has no attribute {name!r}")
