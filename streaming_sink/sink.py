"""`IcebergSink`, the function of `DataStreamWriter.foreachBatch`: options, calls, reports."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from planners import FileSizing
from streaming_sink.clustering.passes import Clustering
from streaming_sink.landing.landing import Landing
from streaming_sink.options.table_options import SinkOptions, TableOptions, sink_options, unknown_option
from streaming_sink.options.values.checks import Checks
from streaming_sink.options.values.contract import SchemaContract
from streaming_sink.options.values.retention import Retention
from streaming_sink.options.values.tables import AnyTable
from streaming_sink.options.values.writes import Write
from streaming_sink.reports.batch_report import BatchReport
from streaming_sink.reports.reporting import MaintenanceReport, OnReport, hand_over
from streaming_sink.spark.batch_claims import claim_batch
from streaming_sink.spark.caller import identify, mint_run_id
from streaming_sink.spark.interruption import brief_interruption
from streaming_sink.spark.jobs import described
from timeline.errors import TimelineError

_LOG = logging.getLogger("streaming_sink")
_REPORTS_KEPT = 1000
_PARAMETERS = (
    *(each.name for each in fields(TableOptions)),
    "options",
    "app_id",
    "takeover_from",
    "on_report",
)


class IcebergSink:
    """Lands a stream in one Apache Iceberg table, as the function of `DataStreamWriter.foreachBatch`.

    Called with a batch, it returns once the batch's rows are durable and part of the table, exactly once: a
    batch that was committed before (a replay after a crash) is skipped. The table is created from the first
    batch that has rows. Files are right-sized as they are written; any number of sinks and processes may
    write to one table.

    `table` is its location, a `PathTable`, or a `CatalogTable`. `write` says what becomes of the rows:
    `Append()`, which is the default, `BulkInsert()`, `Upsert(key=…)` or `Delete(key=…)`. For `partition_by`,
    `sizing`, `contract`, `checks`, `clustering`, `retention` and `table_properties` see `TableOptions`;
    `options` has all of these, and the write, as one value in their place. `app_id` names the writer for
    exactly-once; by default it is the query's id, which lives in the checkpoint. `takeover_from` is the id of
    a query whose place a fresh checkpoint takes. `on_report` is called with each report once it is finished,
    in the process where the batches run: of batches, of fills and clusterings (from their threads), of
    deliveries into second tables. What it raises is logged, and fails nothing. A report that a killed process
    has not handed over is in `history`.

    Raises TypeError or ValueError for invalid options; from a batch: SchemaMismatchError, RowsRefusedError,
    CommitConflictError (after three tries), CheckpointRegressionError, FencedError, CommitStateUnknownError,
    StoreUnavailableError, UnsafeStoreError, CorruptTableError (see `streaming_sink.errors`), each with the
    attributes `location`, `app_id` and `batch`. A batch that raised is not committed, or its state is
    unknown; Spark's next try of the batch settles it.

    A sink pickles: it carries its options, never an open client.
    """

    def __init__(
        self,
        table: AnyTable,
        write: Write | None = None,
        *,
        partition_by: Sequence[str] = (),
        sizing: FileSizing | None = None,
        contract: SchemaContract | None = None,
        checks: Checks | None = None,
        clustering: Clustering | None = None,
        retention: Retention | None = None,
        table_properties: Mapping[str, str] | None = None,
        options: TableOptions | None = None,
        app_id: str | None = None,
        takeover_from: str | None = None,
        on_report: OnReport | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise TypeError(unknown_option("IcebergSink", next(iter(unknown)), _PARAMETERS))
        given = {
            "write": write,
            "partition_by": None if partition_by in ((), []) else partition_by,
            "sizing": sizing,
            "contract": contract,
            "checks": checks,
            "clustering": clustering,
            "retention": retention,
            "table_properties": table_properties,
        }
        self.options = sink_options(
            table, given, options, app_id=app_id, takeover_from=takeover_from, on_report=on_report
        )
        self.options.table.check()
        self._begin()

    @classmethod
    def of(cls, options: SinkOptions) -> IcebergSink:
        """Return a sink of options that were checked before."""
        sink = cls.__new__(cls)
        sink.__setstate__({"options": options})
        return sink

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._minted_run_id = mint_run_id()
        self._landing = Landing(self.options)
        self._reports: deque[BatchReport] = deque(maxlen=_REPORTS_KEPT)

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.options = state["options"]
        self._begin()

    def __repr__(self) -> str:
        return f"IcebergSink({self.options.location!r})"

    @property
    def reports(self) -> tuple[BatchReport, ...]:
        """The reports of the last 1,000 batches that this object landed, oldest first.

        On Spark Connect the batches run in another process: `streaming_sink.history(location)` shows them
        from anywhere.
        """
        return tuple(self._reports)

    def known_schema(self) -> Schema | None:
        """Return the table's schema as this process knows it, or None where there is no table yet."""
        with self._lock:
            return self._landing.known_schema()

    def finish(
        self, timeout_seconds: float | None = None, *, at_rest: bool = True
    ) -> tuple[MaintenanceReport, ...]:
        """Wait until the passes beside the stream have ended: fills, and clusterings. Return the reports that
        no batch's report has. Call it at the end of a job: `spark.stop()` would interrupt a pass, whose files
        then wait for a later batch.

        A last pass merges delete files of the data files that have more than two, as one does once the stream
        has brought nothing for a minute. With `at_rest=False` there is none: the stream goes on at once.

        TimeoutError if a pass takes longer than so many seconds (None: no limit); the pass continues. On
        Spark Connect passes run in the query's process on the server and end with it, so there is nothing to
        wait for here.
        """
        return tuple(self._landing.finish(timeout_seconds, at_rest=at_rest))

    def __call__(self, batch: DataFrame, batch_id: int) -> Any:
        """Land one micro-batch, and return its `BatchReport`. Spark calls this once a micro-batch, and again
        after a failure or restart; the report of a batch that was committed before says so.
        """
        # Typed as Any, since PySpark's foreachBatch takes a function that is typed to return None.
        if type(batch_id) is not int or batch_id < 0:
            raise ValueError(
                f"a batch id must be a whole number from 0 on, as Spark counts batches, not {batch_id!r}"
            )
        session = getattr(batch, "sparkSession", None)
        if session is None:
            raise TypeError(f"a batch must be a DataFrame of Spark, as foreachBatch gives it, not {batch!r}")
        text = f"{self.options.location}: batch {batch_id}"
        with brief_interruption(batch_id), self._lock, described(session, text):
            run = identify(session, self.options.app_id, self._minted_run_id)
            location = self._landing.location
            try:
                with claim_batch(location, run, batch_id, batch, self) as given_before:
                    report = self._landing.land_batch(batch, batch_id, run, given_before=given_before)
            except TimelineError as error:
                error.add_batch(location, run.app_id, batch_id)
                raise
            self._reports.append(report)
            _LOG.log(logging.WARNING if report.warning else logging.INFO, "%s", report.line())
            hand_over(self.options.on_report, report)
            return report
