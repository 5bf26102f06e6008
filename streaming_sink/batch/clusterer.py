"""The clustering passes of one sink: inline in a batch, or in a thread beside the stream."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from planners import TablePartition
from streaming_sink.batch.beside import PassesBeside
from streaming_sink.batch.small_files import SmallFiles, count_small_files
from streaming_sink.batch.steps import Steps
from streaming_sink.clustering.inline import AsyncClustering, InlineClustering, run_pass
from timeline.clock import SYSTEM
from timeline.plans.claims import Watch
from timeline.plans.reservations import Reservations
from timeline.table import Table, open_table
from timeline.versions.head import Head

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.options import SinkOptions


_LOG = logging.getLogger("streaming_sink")


_Request = tuple[InlineClustering, "SparkSession"]


class Clusterer:
    """Runs the passes of one sink, one at a time: in a batch (when due, or with too many small files), or in
    a thread.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._watch = Watch(SYSTEM)
        self._passes = PassesBeside[_Request]("clustering", self._run_beside)

    def after_commit(
        self,
        session: SparkSession,
        table: Table,
        reservations: Reservations,
        touched: Collection[TablePartition],
        steps: Steps,
    ) -> str:
        """Run or start the pass that is due, or that is needed because the partitions that the batch
        `touched` hold too many small files. Return a summary, which includes passes that ended beside the
        stream since the last call; "" for none.

        A pass that fails is reported, and does not raise.
        """
        asked = self._options.clustering
        if asked is None:
            return ""
        summaries = self._passes.ended()
        if crowd := self._crowd(asked, table.head, touched):
            with steps("cluster"):
                self._passes.wait()  # the running one may already be rewriting these small files
                summaries += self._passes.ended()
                ran = run_pass(asked, session, table, reservations, self._watch)
            summaries.append(f"{crowd}, more than when_small_files={asked.when_small_files:,}, so now: {ran}")
        elif asked.is_due(table.head):
            with steps("cluster"):
                summaries.append(self._run_or_start(asked, session, table, reservations))
        return "; ".join(summaries)

    def finish(self, timeout_seconds: float | None) -> list[str]:
        """Wait for the pass beside the stream; return its summary unless that was returned before.
        TimeoutError if it takes longer.
        """
        self._passes.wait(timeout_seconds)
        return self._passes.ended()

    def _crowd(
        self, asked: InlineClustering, head: Head, touched: Collection[TablePartition]
    ) -> SmallFiles | None:
        """Return the count of small files if it exceeds `when_small_files`, else None."""
        if asked.when_small_files is None:
            return None
        counted = count_small_files(head, touched, self._options.small_below_bytes)
        return counted if counted.most > asked.when_small_files else None

    def _run_or_start(
        self, asked: InlineClustering, session: SparkSession, table: Table, reservations: Reservations
    ) -> str:
        if not isinstance(asked, AsyncClustering):
            return run_pass(asked, session, table, reservations, self._watch)
        if self._passes.is_running:
            return "clustering: the previous pass is still running"
        self._passes.ask((asked, session))
        return "clustering: started beside the stream"

    def _run_beside(self, requests: Sequence[_Request]) -> str:
        [(asked, session)] = requests
        # A `Table` is not safe for use by two threads, so this thread opens its own.
        try:
            table = open_table(self._options.location, self._options.storage_options)
        except Exception as failure:  # noqa: BLE001 - the next report shows it; a dead thread would not
            problem = (
                f"clustering failed, and is tried again when it is due: {type(failure).__name__}: {failure}"
            )
            _LOG.warning("%s", problem, exc_info=failure)
            return problem
        return run_pass(asked, session, table, Reservations(table.store), self._watch)
