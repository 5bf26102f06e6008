"""What tests read of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming_sink.reports.reporting import Report


def lines(reports: Iterable[Report]) -> list[str]:
    """Return the reports as lines of a log."""
    return [report.line() for report in reports]


def said(reports: Iterable[Report]) -> str:
    """Return the reports as a batch's line has them."""
    return "; ".join(lines(reports))
