"""`IcebergSink`, the function of `DataStreamWriter.foreachBatch`: options, calls, reports."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from planners import FOLD_ABOVE, FileSizing
from streaming_sink.clustering.inline import InlineClustering
from streaming_sink.landing.landing import Landing
from streaming_sink.options import WARN_SMALL_FILES, SinkOptions, sink_options
from streaming_sink.reports.batch_report import BatchReport
from streaming_sink.reports.reporting import MaintenanceReport, OnReport, hand_over
from streaming_sink.spark.batch_claims import claim_batch
from streaming_sink.spark.caller import identify, mint_run_id
from streaming_sink.spark.jobs import described
from streaming_sink.table.contract import SchemaContract
from streaming_sink.table.retention import Retention
from timeline.errors import TimelineError
from timeline.stores import StorageOptions, open_store

_LOG = logging.getLogger("streaming_sink")
_REPORTS_KEPT = 1000


class IcebergSink:
    """Lands a stream in one Apache Iceberg table, as the function of `DataStreamWriter.foreachBatch`.

    Called with a batch, it returns once the batch's rows are durable and part of the table, exactly once: a
    batch that was committed before (a replay after a crash) is skipped. The table is created from the first
    batch that has rows. Files are right-sized as they are written (`sizing`, `fill_policy`); any number of
    sinks and processes may write to one table. `fill` says where small files are merged: "inline", by the
    tasks of a batch, in its commit; "beside" the stream, after the commit, in a commit of its own. There too,
    a file of whose rows more than the share `fold_above` is deleted is rewritten without them.

    `partition_by` lists Iceberg transforms: "region", "day(event_time)", "bucket(16, user_id)", …; the table
    is created with them, and they must equal the table's afterwards. With `evolve_partitioning` a table that
    is partitioned otherwise gets them, in a version of its own before the batch is written; files that it has
    stay as they are. `operation="bulk_insert"` writes one
    file per task and partition, without profile, plan or shuffle; for backfills. `app_id` names the writer
    for exactly-once; by default it is the query's id, which lives in the checkpoint. `takeover_from` is the
    id of a query whose place a fresh checkpoint takes. `retention` sets how long old snapshots stay readable;
    by default, the table's properties do. `clustering` puts rows that are queried together into the same
    files, after every so many commits. A batch after which a partition holds more than `warn_small_files`
    small files warns in its report and in the log; 0 for never. `schema` says what happens where a batch's
    columns differ from the table's: by default it is refused; under `SchemaContract.evolving()` the table's
    schema grows, in a version of its own before the batch is written; a contract may also rescue values that
    do not fit, as JSON in the row, or set their rows aside. `table_properties` are given to a table
    that the sink creates. `storage_options` are obstore's (endpoint, region, credentials), or a picklable
    callable that returns them; the driver and each task call it. `expectations` maps SQL conditions to what
    becomes of a row that does not meet one: "quarantine", "refuse" (the batch) or "drop". `quarantine` is the
    location of the table of quarantined rows, by default that of the table with "__quarantine" at its end;
    with more than `max_quarantined` rows (an int) or that share of them (a float) a batch is refused.
    `on_report` is called with each report once it is finished, in the process where the batches run: of
    batches, of fills and clusterings (from their threads), of deliveries into second tables. What it raises
    is logged, and fails nothing. A report that a killed process has not handed over is in `history`.

    Raises TypeError or ValueError for invalid options; from a batch: SchemaMismatchError, RowsRefusedError,
    CommitConflictError (after three tries), CheckpointRegressionError, FencedError, CommitStateUnknownError,
    StoreUnavailableError, UnsafeStoreError, CorruptTableError (see `streaming_sink.errors`), each with the
    attributes `location`, `app_id` and `batch`. A batch that raised is not committed, or its state is
    unknown; Spark's next try of the batch settles it.

    A sink pickles: it carries its options, never an open client.
    """

    def __init__(
        self,
        location: str,
        *,
        partition_by: Sequence[str] = (),
        evolve_partitioning: bool = False,
        sizing: FileSizing | None = None,
        fill_policy: str = "amortized",
        fill: str | None = None,
        fold_above: float = FOLD_ABOVE,
        operation: str = "insert",
        key: Sequence[str] = (),
        sequence_by: str | None = None,
        delete_where: str | None = None,
        key_scope: str | None = None,
        null_keys: str | None = None,
        except_columns: Sequence[str] = (),
        key_index: str | None = None,
        partial_update: bool | Sequence[str] = False,
        allow_duplicates: bool = False,
        changelog_table: str | None = None,
        app_id: str | None = None,
        takeover_from: str | None = None,
        retention: Retention | None = None,
        clustering: InlineClustering | None = None,
        warn_small_files: int = WARN_SMALL_FILES,
        schema: SchemaContract | None = None,
        table_properties: Mapping[str, str] | None = None,
        storage_options: StorageOptions | None = None,
        expectations: Mapping[str, str] | None = None,
        quarantine: str | None = None,
        max_quarantined: float | None = None,
        on_report: OnReport | None = None,
        **unknown: Any,
    ) -> None:
        self.options: SinkOptions = sink_options(
            location,
            dict(
                partition_by=partition_by,
                evolve_partitioning=evolve_partitioning,
                sizing=FileSizing() if sizing is None else sizing,
                fill_policy=fill_policy,
                fill=fill,
                fold_above=fold_above,
                operation=operation,
                key=key,
                sequence_by=sequence_by,
                delete_where=delete_where,
                key_scope=key_scope,
                null_keys=null_keys,
                except_columns=except_columns,
                key_index=key_index,
                partial_update=partial_update,
                allow_duplicates=allow_duplicates,
                changelog_table=changelog_table,
                app_id=app_id,
                takeover_from=takeover_from,
                retention=retention,
                clustering=clustering,
                warn_small_files=warn_small_files,
                schema=SchemaContract.strict() if schema is None else schema,
                table_properties=table_properties or {},
                storage_options=storage_options,
                expectations=expectations,
                quarantine=quarantine,
                max_quarantined=max_quarantined,
                on_report=on_report,
                **unknown,
            ),
        )
        open_store(location, storage_options)
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

    def finish(self, timeout_seconds: float | None = None) -> tuple[MaintenanceReport, ...]:
        """Wait until the passes beside the stream have ended: fills, and those of `AsyncClustering`. Return
        the reports that no batch's report has. Call it at the end of a job: `spark.stop()` would interrupt a
        pass, whose files then wait for a later batch.

        TimeoutError if a pass takes longer than so many seconds (None: no limit); the pass continues. On
        Spark Connect passes run in the query's process on the server and end with it, so there is nothing to
        wait for here.
        """
        return tuple(self._landing.finish(timeout_seconds))

    def __call__(self, batch: DataFrame, batch_id: int) -> Any:
        """Land one micro-batch, and return its `BatchReport`. Spark calls this once a micro-batch, and again
        after a failure or restart; the report of a batch that was committed before says so.
        """
        # Typed as Any, since PySpark's foreachBatch takes a function that is typed to return None.
        if type(batch_id) is not int or batch_id < 0:
            raise ValueError(
                f"a batch id must be a whole number from 0 on, as Spark counts batches, not {batch_id!r}"
            )
        session = batch.sparkSession
        with self._lock, described(session, f"{self.options.location}: batch {batch_id}"):
            run = identify(session, self.options.app_id, self._minted_run_id)
            location = self._landing.location
            try:
                with claim_batch(location, run, batch_id, batch, self) as given_before:
                    report = self._landing.land(batch, batch_id, run, given_before=given_before)
            except TimelineError as error:
                error.add_batch(location, run.app_id, batch_id)
                raise
            self._reports.append(report)
            _LOG.log(logging.WARNING if report.warning else logging.INFO, "%s", report.line())
            hand_over(self.options.on_report, report)
            return report
