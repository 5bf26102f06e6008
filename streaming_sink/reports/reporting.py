"""Hands finished reports to the sink's `on_report`, and takes the time of a batch's steps for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

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


class Steps:
    """Adds up the wall time of named steps. The first use of a name fixes its place in the order."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the block's time under `name`, also if it fails."""
        began = perf_counter()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + perf_counter() - began

    def seconds(self, name: str) -> float:
        return self._spent.get(name, 0.0)

    @property
    def milliseconds(self) -> dict[str, int]:
        """Return step → milliseconds so far, and the total since the stopwatch was made."""
        spent = {name: round(seconds * 1000) for name, seconds in self._spent.items()}
        return {**spent, "total": round((perf_counter() - self._started) * 1000)}
