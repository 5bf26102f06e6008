"""Writes the rows of a work item's files as a sink writes a batch: by key, and with checks of each row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from streaming_sink.ingest.item_source import FittedItem, nothing_written
from streaming_sink.landing.row_writing import RowWriting
from streaming_sink.landing.source import SinkParts
from streaming_sink.landing.stages import Written
from streaming_sink.reports.reporting import Steps
from streaming_sink.spark.jobs import described, map_in_arrow, parallelism
from streaming_sink.spark.worker_failures import SourceUnreadableError
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.ingest.profile_task import SourceRejected
from streaming_sink.tasks.ingest.read_task import ReadJob, SourceReadTask
from streaming_sink.tasks.ingest.sources import Sources
from timeline.versions.work_items import WorkItem

_SHARE_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class RowReading:
    """Reads files in tasks, and writes their rows."""

    session: SparkSession
    sources: Sources
    writing: RowWriting

    def fit(self, parts: SinkParts, fitted: FittedItem) -> FittedItem:
        """Return the target with the rules of its rows, where the table has all columns that they need."""
        came = parts.operation.written_schema(fitted.profiled.columns)
        target = parts.destination.fit(fitted.target, came, self.writing.transaction)
        rules = parts.rules.of(self._rows(fitted), target.schema, target.misfits)
        return replace(fitted, target=target, rules=rules)

    def write(self, parts: SinkParts, fitted: FittedItem, transaction: WorkItem, steps: Steps) -> Written:
        """Write the rows; files that turn out to be damaged are rejected, and the others written again."""
        while fitted.profiled.profiles:
            try:
                with described(self.session, f"{parts.options.location}: work item {transaction.number}"):
                    return self.writing.write(self._rows(fitted), parts, fitted, steps)
            except SourceUnreadableError as damaged:
                fitted.profiled.reject(fitted.work, [SourceRejected(damaged.number, damaged.reason)])
        return nothing_written(parts.options, fitted, transaction)

    def learn(self, written: Written, steps: Steps) -> None:
        """Let the next items be planned by this one."""
        self.writing.learn(written, steps)

    def _rows(self, fitted: FittedItem) -> DataFrame:
        """Return the rows of the files, read by lists in tasks."""
        profiled, item = fitted.profiled, fitted.work.item
        files = [(each.number, item.files[each.number], each.rows) for each in profiled.profiles]
        size = sum(file.bytes for _, file, _ in files)
        shares = max(1, min(len(files), max(parallelism(self.session), -(-size // _SHARE_BYTES))))
        job = ReadJob(
            self.sources,
            tuple(tuple(files[at::shares]) for at in range(shares)),
            arrow_schema(fitted.target.schema),
            to_arrow_schema(profiled.columns),
            fast_workers.is_enabled(),
        )
        return map_in_arrow(self.session.range(0, shares, 1, shares), SourceReadTask(job), profiled.columns)
