"""What a sink keeps from one pass of clustering to the next, and the thread of passes beside the stream."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from streaming_sink.clustering.inline import AsyncClustering, InlineClustering, run_pass
from timeline.claims import Watch
from timeline.clock import SYSTEM
from timeline.errors import TimelineError
from timeline.reservations import Reservations
from timeline.stores import open_store
from timeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.options import SinkOptions


class Clusterer:
    """Runs the passes of one sink: in the batch that is due, or in a thread of its own, one at a time."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._watch = Watch(SYSTEM)
        self._thread: threading.Thread | None = None
        self._ended: list[str] = []

    def after_commit(self, session: SparkSession, table: Table, reservations: Reservations) -> str:
        """Run or start the pass that is due, and return what came of it. Never raises for one that fails."""
        asked = self._options.clustering
        assert asked is not None
        if not isinstance(asked, AsyncClustering):
            return run_pass(asked, session, table, reservations, self._watch)
        if self._thread is not None and self._thread.is_alive():
            return "clustering: the pass before is still under way"
        # Not a daemon's work: a process that ends lets a pass that has begun come to its end.
        self._thread = threading.Thread(target=self._beside, args=(asked, session), name="clustering")
        self._thread.start()
        return "clustering: begun beside the stream"

    def news(self) -> str:
        """Return, once, what came of the passes beside the stream that have ended."""
        ended, self._ended = self._ended, []
        return "; ".join(ended)

    def _beside(self, asked: InlineClustering, session: SparkSession) -> None:
        # A table is not for two threads, so this opens its own.
        try:
            table = Table.open(open_store(self._options.location, self._options.storage_options))
        except TimelineError as failure:
            self._ended.append(f"clustering failed, and is tried again when it is due: {failure}")
            return
        self._ended.append(run_pass(asked, session, table, Reservations(table.store), self._watch))
