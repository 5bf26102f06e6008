"""Lands the rows of a work item as a sink lands a batch: by key, and with checks of each row."""

from __future__ import annotations

import time
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from streaming_sink.ingest.profiling import Profiled, Work
from streaming_sink.ingest.publishing import Publishing, Written, since
from streaming_sink.landing.landing import Landing
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.spark.jobs import described, parallelism
from streaming_sink.spark.worker_failures import SourceUnreadableError
from streaming_sink.spark.worker_python import map_in_arrow
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.ingest.profile_task import SourceRejected
from streaming_sink.tasks.ingest.read_task import ReadJob, ReadTask
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.writing.target import Destination
from streaming_sink.zones.landed import Landed, summary_of
from timeline.versions.work_items import WorkItem

_SHARE_BYTES = 128 * 1024 * 1024


class ItemBatches:
    """Lands work items of one zone, one at a time, under the options of its sink."""

    def __init__(
        self, options: SinkOptions, destination: Destination, sources: Sources, publishing: Publishing
    ) -> None:
        self._options, self._sources, self._publishing = options, sources, publishing
        self._destination = destination
        self._landing = Landing(options, destination)

    def land(self, session: SparkSession, work: Work, profiled: Profiled, spent: dict[str, int]) -> Landed:
        """Commit the rows of the profiled files, exactly once, and return what became of the item. Files that
        turn out to be damaged are rejected. Raises as `IcebergSink` does.
        """
        began, item = time.perf_counter(), WorkItem(self._publishing.app_id, work.item.number)
        assert profiled.target is not None
        while profiled.profiles:
            known = self._publishing.described(profiled.target, work, Written())
            stated = sum(profile.rows for profile in profiled.profiles)
            try:
                with described(session, f"{self._options.location}: work item {item.number}"):
                    rows = self._rows(session, work, profiled)
                    summary = summary_of(item.app_id, known)
                    report = self._landing.land_item(rows, item, stated, summary)
            except SourceUnreadableError as damaged:
                profiled.reject(work, [SourceRejected(damaged.number, damaged.reason)])
                continue
            table = self._destination.table
            assert table is not None
            landed = self._publishing.landed(table, work.item)
            if report.outcome == "skipped":
                return landed
            return replace(
                landed,
                published_before=False,
                version=report.version or landed.version,
                files_in=known.files_in,
                bytes_in=known.bytes_in,
                quarantined=report.quarantined,
                dropped=report.dropped,
                oldest_ms=known.oldest_ms,
                rejected=known.rejected,
                rejected_places=known.rejected_places,
                rejected_in=known.rejected_in,
                landed_ms=time.time_ns() // 1_000_000,
                milliseconds={**spent, "land": since(began)},
            )
        return self._publishing.publish(session, profiled.target, work, Written(), spent)

    def rehearse(self, session: SparkSession, work: Work, profiled: Profiled) -> None:
        """Write the rows as `land` does, and commit nothing. Raises as `land`, for damaged files, too."""
        item = WorkItem(self._publishing.app_id, work.item.number)
        with described(session, f"{self._options.location}: work item {item.number}"):
            stated = sum(profile.rows for profile in profiled.profiles)
            self._landing.land_item(self._rows(session, work, profiled), item, stated, {}, rehearsed=True)

    def finish(self) -> None:
        """Wait for the passes beside the items."""
        self._landing.finish(None)

    def _rows(self, session: SparkSession, work: Work, profiled: Profiled) -> DataFrame:
        """Return the rows of the files, read by lists in tasks."""
        assert profiled.target is not None
        files = [(each.number, work.item.files[each.number], each.rows) for each in profiled.profiles]
        size = sum(file.bytes for _, file, _ in files)
        shares = max(1, min(len(files), max(parallelism(session), -(-size // _SHARE_BYTES))))
        job = ReadJob(
            self._sources,
            tuple(tuple(files[at::shares]) for at in range(shares)),
            arrow_schema(profiled.target.schema),
            to_arrow_schema(profiled.columns),
            fast_workers.is_enabled(),
        )
        return map_in_arrow(session.range(0, shares, 1, shares), ReadTask(job), profiled.columns)
