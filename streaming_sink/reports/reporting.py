"""Hands finished reports to the sink's `on_report`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from streaming_sink.reports.batch_report import BatchReport
from streaming_sink.reports.cluster_report import ClusterReport
from streaming_sink.reports.maintenance_report import DeliveryReport, FillReport, MirrorReport

_LOG = logging.getLogger("streaming_sink")

MaintenanceReport = FillReport | ClusterReport | MirrorReport
Report = BatchReport | FillReport | ClusterReport | MirrorReport | DeliveryReport
"""What a sink reports. `kind` is "batch", "fill", "cluster", "mirror" or "deliver"."""
OnReport = Callable[[Report], object]


def hand_over(on_report: OnReport | None, report: Report) -> None:
    """Call the sink's function with a report that is finished. What it raises is logged: what is reported has
    happened, and no batch may fail for it.
    """
    if on_report is None:
        return
    try:
        on_report(report)
    except Exception as failure:  # noqa: BLE001 - it is the caller's function, and the rows are in the table
        _LOG.warning("on_report failed, and the stream goes on: %r", failure, exc_info=failure)
