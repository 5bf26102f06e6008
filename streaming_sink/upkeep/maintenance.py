"""What a sink does for its table after a commit: clusters, fills, mirrors it, and counts small files."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planners.model import TablePartition
from streaming_sink.reports.reporting import MaintenanceReport, Steps
from streaming_sink.upkeep.clusterer import Clusterer
from streaming_sink.upkeep.filler import Filler
from streaming_sink.upkeep.mirroring import Mirroring
from streaming_sink.upkeep.small_files import SmallFiles, count_small_files
from timeline.plans.reservations import Reservations
from timeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.options.table_options import SinkOptions

_LOG = logging.getLogger("streaming_sink")


@dataclass(frozen=True)
class Maintained:
    """What the report of a batch says of it."""

    reports: tuple[MaintenanceReport, ...]
    small: SmallFiles
    problem: str = ""
    """Why it failed, "" where it did not."""


class Maintenance:
    """The passes of one sink, and the threads that run them."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._clusterer = Clusterer(options)
        self._filler = Filler(options)
        self._mirroring = Mirroring(options)

    def has_published(self) -> bool:
        """Return whether a fill beside the stream has made a version since the last call, which the caller's
        table does not know.
        """
        return self._filler.has_published()

    def catch_up(self, table: Table) -> None:
        """Refresh a table of which a fill beside the stream has made a version: cheaper than to lose a race
        to it.
        """
        if self.has_published():
            table.refresh()

    def after_commit(
        self,
        session: SparkSession,
        table: Table,
        reservations: Reservations,
        touched: Collection[TablePartition],
        steps: Steps,
    ) -> Maintained:
        """Cluster where that is due, fill where that is needed, mirror, and count small files. The batch is
        committed: a failure here is reported, and is no error of the batch.
        """
        reports: list[MaintenanceReport] = []
        try:
            reports += self._clusterer.after_commit(session, table, reservations, touched, steps)
            reports += self._filler.after_commit(session, table, reservations, touched, steps)
            reports += self._mirroring.after_commit()
            small = count_small_files(table.head, touched, self._options.small_below_bytes)
            return Maintained(tuple(reports), small)
        except Exception as failure:  # noqa: BLE001 - the batch is committed, so no failure may raise
            problem = f"maintenance after the commit failed: {type(failure).__name__}: {failure}"
            _LOG.warning("the batch is committed; %s", problem, exc_info=failure)
            return Maintained(tuple(reports), SmallFiles(), problem)

    def finish(self, timeout_seconds: float | None, *, at_rest: bool) -> list[MaintenanceReport]:
        """Wait for the passes beside the stream, with a last one of fills if the stream is `at_rest`; return
        their reports unless they were returned before. TimeoutError if they take longer.
        """
        return [
            *self._clusterer.finish(timeout_seconds),
            *self._filler.finish(timeout_seconds, at_rest=at_rest),
            *self._mirroring.finish(timeout_seconds),
        ]
