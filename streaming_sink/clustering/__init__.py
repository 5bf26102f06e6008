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

_SERVICE = "streaming_sink.clustering.service"
_WHERE = {
    "ClusterReport": "streaming_sink.reports.cluster_report",
    "Clustering": "streaming_sink.clustering.passes",
    "Scheduled": "streaming_sink.clustering.scheduling",
    "cancel": _SERVICE,
    "execute": _SERVICE,
    "plan": _SERVICE,
    "schedule": _SERVICE,
    "schedule_and_execute": _SERVICE,
    "show": _SERVICE,
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
    if name not in _WHERE:
        raise AttributeError(f"module 'streaming_sink.clustering' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
