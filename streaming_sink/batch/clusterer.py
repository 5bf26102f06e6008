"""What a sink keeps from one pass of clustering to the next, and the thread of passes beside the stream."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from planners import PartitionKey
from streaming_sink.batch.small_files import SmallFiles, small_files
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


class Clusterer:
    """Runs the passes of one sink, one at a time: in the batch that is due or too full, or in a thread."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._watch = Watch(SYSTEM)
        self._thread: threading.Thread | None = None
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def after_commit(
        self,
        session: SparkSession,
        table: Table,
        reservations: Reservations,
        touched: Collection[PartitionKey],
        steps: Steps,
    ) -> str:
        """Run or start the pass that is due, or that small files ask for in the partitions that the batch
        `touched`. Return what there is to tell, of passes that ended beside the stream too; "" for nothing.

        Never raises for a pass that fails.
        """
        asked = self._options.clustering
        if asked is None:
            return ""
        told = self._news()
        if crowd := self._crowd(asked, table.head, touched):
            with steps("cluster"):
                if self._thread is not None:  # what it has taken is small no more
                    self._thread.join()
                    told += self._news()
                ran = run_pass(asked, session, table, reservations, self._watch)
            told.append(f"{crowd}, more than when_small_files={asked.when_small_files:,}, so now: {ran}")
        elif asked.is_due(table.head):
            with steps("cluster"):
                told.append(self._due(asked, session, table, reservations))
        return "; ".join(told)

    def finish(self, timeout_seconds: float | None) -> str:
        """Wait for the pass beside the stream; return what came of it and was not told, "" for nothing.
        TimeoutError where it takes longer.
        """
        if self._thread is not None:
            self._thread.join(timeout_seconds)
            if self._thread.is_alive():
                raise TimeoutError(
                    f"the clustering pass is still under way after {timeout_seconds} s, and goes on; wait"
                    f" longer, or stop Spark: what is left of it is planned again: {self._options.location}"
                )
        return "; ".join(self._news())

    def _crowd(
        self, asked: InlineClustering, head: Head, touched: Collection[PartitionKey]
    ) -> SmallFiles | None:
        """Return the small files that are too many for a batch to go on, or None."""
        if asked.when_small_files is None:
            return None
        found = small_files(head, touched, self._options.small_below_bytes)
        return found if found.most > asked.when_small_files else None

    def _due(
        self, asked: InlineClustering, session: SparkSession, table: Table, reservations: Reservations
    ) -> str:
        if not isinstance(asked, AsyncClustering):
            return run_pass(asked, session, table, reservations, self._watch)
        if self._thread is not None and self._thread.is_alive():
            return "clustering: the pass before is still under way"
        # Not a daemon's work: a process that ends lets a pass that has begun come to its end.
        self._thread = threading.Thread(target=self._beside, args=(asked, session), name="clustering")
        self._thread.start()
        return "clustering: begun beside the stream"

    def _news(self) -> list[str]:
        """Return, once, what came of the passes beside the stream that have ended."""
        told = []
        with suppress(queue.Empty):
            while True:
                told.append(self._ended.get_nowait())
        return told

    def _beside(self, asked: InlineClustering, session: SparkSession) -> None:
        # A table is not for two threads, so this opens its own.
        try:
            table = open_table(self._options.location, self._options.storage_options)
        except Exception as failure:  # noqa: BLE001 - told in the next report; a thread's death is told nowhere
            said = (
                f"clustering failed, and is tried again when it is due: {type(failure).__name__}: {failure}"
            )
            _LOG.warning("%s", said, exc_info=failure)
            self._ended.put(said)
            return
        self._ended.put(run_pass(asked, session, table, Reservations(table.store), self._watch))
