"""What a sink does for its table after a commit: clusters, fills, mirrors it, and counts small files."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planners.model import TablePartition
from streaming_sink.clustering.passes import BESIDE, Clustering, failed_pass, run_pass
from streaming_sink.reports.cluster_report import ClusterReport
from streaming_sink.reports.reporting import MaintenanceReport, Steps, hand_over
from streaming_sink.table.foreign_rewrites import ForeignRewrites
from streaming_sink.upkeep.beside import PassesBeside
from streaming_sink.upkeep.filler import Filler
from streaming_sink.upkeep.mirroring import Mirroring
from streaming_sink.upkeep.small_files import SmallFiles, count_small_files
from timeline.clock import SYSTEM
from timeline.plans.claims import Watch
from timeline.plans.reservations import Reservations
from timeline.table import Table
from timeline.versions.head import Head

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.options.table_options import SinkOptions


_Request = tuple[Clustering, "SparkSession"]


class Clusterer:
    """Runs the passes of one sink, one at a time: in a batch (when due, or with too many small files), or in
    a thread.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._watch = Watch(SYSTEM)
        self._rewrites = ForeignRewrites()
        self._passes = PassesBeside[_Request, ClusterReport]("clustering", self._run_beside)

    def after_commit(
        self,
        session: SparkSession,
        table: Table,
        reservations: Reservations,
        touched: Collection[TablePartition],
        steps: Steps,
    ) -> list[ClusterReport]:
        """Run or start the pass that is due, or that is needed because the partitions that the batch
        `touched` hold too many small files. Return the reports, with those of passes that ended beside the
        stream since the last call.

        A pass that fails is reported, and does not raise.
        """
        asked = self._options.clustering
        if asked is None:
            return []
        reports = self._passes.ended()
        if crowd := self._crowd(asked, table.head, touched):
            with steps("cluster"):
                self._passes.wait()  # the running one may already be rewriting these small files
                reports += self._passes.ended()
                why = f"{crowd}, more than when_small_files={asked.when_small_files:,}"
                reports += self._run(asked, session, table, reservations, why)
        elif asked.is_due(table.head):
            with steps("cluster"):
                reports += self._run_or_start(asked, session, table, reservations)
        return reports

    def finish(self, timeout_seconds: float | None) -> list[ClusterReport]:
        """Wait for the pass beside the stream; return its reports unless they were returned before.
        TimeoutError if it takes longer.
        """
        self._passes.wait(timeout_seconds)
        return self._passes.ended()

    def _crowd(self, asked: Clustering, head: Head, touched: Collection[TablePartition]) -> SmallFiles | None:
        """Return the count of small files if it exceeds `when_small_files`, else None."""
        if asked.when_small_files is None:
            return None
        counted = count_small_files(head, touched, self._options.small_below_bytes)
        return counted if counted.most > asked.when_small_files else None

    def _run_or_start(
        self, asked: Clustering, session: SparkSession, table: Table, reservations: Reservations
    ) -> list[ClusterReport]:
        if asked.run != BESIDE:
            return self._run(asked, session, table, reservations)
        location = self._options.table.called(table.store.location)
        if self._passes.is_running:
            why = "clustering: the previous pass is still running"
            return [ClusterReport(table=location, outcome="running", why=why)]
        self._passes.ask((asked, session))
        return [ClusterReport(table=location, outcome="started", why="clustering: started beside the stream")]

    def _run_beside(self, requests: Sequence[_Request]) -> list[ClusterReport]:
        [(asked, session)] = requests
        # A `Table` is not safe for use by two threads, so this thread opens its own.
        try:
            table = self._options.table.open()
        except Exception as failure:  # noqa: BLE001 - the next report shows it; a dead thread would not
            report = failed_pass(self._options.location, failure)
            hand_over(self._options.on_report, report)
            return [report]
        return self._run(asked, session, table, Reservations(table.store))

    def _run(
        self,
        asked: Clustering,
        session: SparkSession,
        table: Table,
        reservations: Reservations,
        waited: str = "",
    ) -> list[ClusterReport]:
        # A pass that the user's bound on small files makes necessary does not wait.
        rewrites = None if waited else self._rewrites
        reports = run_pass(asked, session, table, reservations, self._watch, rewrites)
        called = self._options.table.called
        reports = [replace(report, table=called(report.table), waited=waited) for report in reports]
        for report in reports:
            hand_over(self._options.on_report, report)
        return reports


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
