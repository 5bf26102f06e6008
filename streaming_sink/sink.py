"""`IcebergSink`: one micro-batch after another into one table. Orchestration, and nothing else."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from planners import Arrival, FileSizing
from planners.model import PartitionKey
from streaming_sink import outcomes
from streaming_sink.arrow_types import arrow_schema
from streaming_sink.clustering.clusterer import Clusterer
from streaming_sink.clustering.inline import InlineClustering
from streaming_sink.crowding import SmallFiles, small_files
from streaming_sink.datafiles import data_file
from streaming_sink.options import WARN_SMALL_FILES, SinkOptions, StorageOptions, sink_options
from streaming_sink.planning import Experience, Planned, bulk_plan, plan_batch
from streaming_sink.profile import Profile, count_rows
from streaming_sink.report import EPOCH_ID, QUERY_ID, BatchReport
from streaming_sink.retention import Retention
from streaming_sink.run import (
    OUTSIDE,
    Run,
    described,
    given_once,
    given_twice,
    identify,
    mint_run_id,
    parallelism,
)
from streaming_sink.schema import check_batch
from streaming_sink.settings import without_adaptive_execution
from streaming_sink.spec import partition_sources
from streaming_sink.steps import Steps
from streaming_sink.target import Destination, Target
from streaming_sink.writejob import FileIds
from streaming_sink.writer import WriteJob, WriteResult, write
from timeline.changes import Append, Change, CountCommit, Replace, SetProperties
from timeline.clock import SYSTEM
from timeline.errors import CommitConflictError
from timeline.head import Head
from timeline.stores import open_store
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.transactions import Transaction, check_transaction, epoch_after_skip

_LOG = logging.getLogger("streaming_sink")
_REPORTS_KEPT = 1000
_CONFLICT_TRIES = 3


@dataclass
class _RunState:
    """What the sink knows of one run of one query."""

    epoch: int | None = None
    last_tried: int | None = None
    last_batch: int | None = None
    experience: Experience = field(default_factory=Experience)


class IcebergSink:
    """Lands a stream in one Apache Iceberg table, as the function of `DataStreamWriter.foreachBatch`.

    Called with a batch, it returns once the batch's rows are durable and part of the table, exactly once: a
    batch that was committed before (a replay after a crash) is skipped. The table is created from the first
    batch that has rows. Files are right-sized as they are written (`sizing`, `fill_policy`); any number of
    sinks and processes may write to one table.

    `partition_by` holds Iceberg transforms by name: "region", "day(event_time)", "bucket(16, user_id)", …; it
    counts when the table is created, and must agree with the table afterwards. `operation="bulk_insert"`
    writes as tasks come: no profile, no plan, no shuffle; for backfills. `app_id` names the writer for
    exactly-once; by default it is the query's id, which lives in the checkpoint. `takeover_from` is the id of
    a query whose place a fresh checkpoint takes. `retention` says how long old states stay readable; by
    default, the table's properties do. `clustering` puts rows that are asked for together into the same
    files, after every so many commits. A batch after which a partition holds more than `warn_small_files`
    small files says so, in its report and as a warning in the log; 0 for never. `table_properties` are given
    to a table that the sink creates. `storage_options` are obstore's (endpoint, region, credentials), or a
    picklable callable that returns them, called where they are needed.

    Raises TypeError or ValueError for options that cannot be; at a batch: SchemaMismatchError,
    CheckpointRegressionError, FencedError, CommitStateUnknownError, StoreUnavailableError, UnsafeStoreError,
    CorruptTableError (see `streaming_sink.errors`). A batch that raised is not committed, or not known to be;
    Spark's next try of it finds out.

    A sink pickles: it carries its options, never an open client.
    """

    def __init__(
        self,
        location: str,
        *,
        partition_by: Sequence[str] = (),
        sizing: FileSizing | None = None,
        fill_policy: str = "amortized",
        operation: str = "insert",
        app_id: str | None = None,
        takeover_from: str | None = None,
        retention: Retention | None = None,
        clustering: InlineClustering | None = None,
        warn_small_files: int = WARN_SMALL_FILES,
        table_properties: Mapping[str, str] | None = None,
        storage_options: StorageOptions | None = None,
        **unknown: Any,
    ) -> None:
        self.options: SinkOptions = sink_options(
            location,
            dict(
                partition_by=partition_by,
                sizing=FileSizing() if sizing is None else sizing,
                fill_policy=fill_policy,
                operation=operation,
                app_id=app_id,
                takeover_from=takeover_from,
                retention=retention,
                clustering=clustering,
                warn_small_files=warn_small_files,
                table_properties=table_properties or {},
                storage_options=storage_options,
                **unknown,
            ),
        )
        open_store(location, storage_options)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._minted_run_id = mint_run_id()
        self._runs: dict[Run, _RunState] = {}
        self._destination = Destination(self.options)
        self._clusterer = Clusterer(self.options)
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

    def finish_clustering(self, timeout_seconds: float | None = None) -> str:
        """Wait until the pass of `AsyncClustering` that is under way has ended; return what came of it, "" if
        there was none. For the end of a job: `spark.stop()` would cut the pass off.

        TimeoutError where it takes longer than so many seconds (None: however long); the pass goes on. On
        Spark Connect a pass runs in the query's process on the server, and ends with it: there is none to
        wait for here, and a plan that was cut off is taken over by a pass that sees its heartbeat stand
        still.
        """
        return self._clusterer.finish(timeout_seconds)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Land one micro-batch. Called by Spark, once per micro-batch and again for one that may not have
        ended.
        """
        if type(batch_id) is not int or batch_id < 0:
            raise ValueError(
                f"a batch id is a whole number from 0 on, as Spark counts them, not {batch_id!r}"
            )
        session = batch.sparkSession
        with self._lock, described(session, f"{self.options.location}: batch {batch_id}"):
            run = identify(session, self.options.app_id, self._minted_run_id)
            state = self._state_of(run)
            with given_once(self._destination.store.location, run, batch_id, batch, self) as again:
                report = self._land(batch, batch_id, run, state, again)
            state.last_batch = batch_id
            self._reports.append(report)
            _LOG.log(logging.WARNING if report.warning else logging.INFO, "%s", report.line())

    def _land(self, batch: DataFrame, batch_id: int, run: Run, state: _RunState, again: bool) -> BatchReport:
        steps = Steps()
        tried_before, state.last_tried = again or state.last_tried == batch_id, batch_id
        transaction = Transaction(
            run.app_id, run.query_id, run.run_id, batch_id, state.epoch, self.options.takeover_from
        )
        with steps("head"):
            target = self._destination.target(batch.schema, fresh=state.last_batch is None)
            skipped = target.table is not None and (
                check_transaction(target.table.head.transaction(run.app_id), transaction) is None
            )
            if not skipped:
                check_batch(target.schema, batch.schema)
                self._check_clustering(target, state)
        if skipped and target.table is not None:
            if not tried_before:
                _check_is_a_replay(target.table.head, batch_id, run)
            known = target.table.head.transaction(run.app_id)
            state.epoch = epoch_after_skip(known, transaction)
            return self._skipped(batch, transaction, target.table, steps)
        session = batch.sparkSession
        cores = parallelism(session)
        for tries in range(1, _CONFLICT_TRIES + 1):
            expected = None if self.options.bulk else state.experience.expected()
            read_twice = expected is None and not self.options.bulk
            # What the batch itself shuffles is a job of its own under adaptive execution, also where it is
            # kept and counted.
            with without_adaptive_execution(batch.sparkSession), _computed_once(batch, read_twice) as rows:
                planned = self._plan(rows, target, expected, state.experience.fits_one_task(), cores, steps)
                with steps("write"):
                    result = write(rows, self._job(target, planned, transaction))
            if not result.rows:
                return outcomes.empty(transaction, steps)
            draft = outcomes.written(transaction, result, planned, target, steps)
            try:
                with steps("commit"):
                    table = target.table or self._destination.create(target)
                    committed = self._commit(table, target, result, transaction, draft)
                break
            except CommitConflictError as conflict:
                if tries == _CONFLICT_TRIES:
                    raise
                _LOG.warning(
                    "batch %d of %s is planned and written again: %s", batch_id, run.app_id, conflict
                )
                self._destination.refresh()
                target = self._destination.target(batch.schema, fresh=False)
                check_batch(target.schema, batch.schema)
        if isinstance(committed, AlreadyCommitted):
            if not tried_before:
                _check_is_a_replay(table.head, batch_id, run, result)
            state.epoch = committed.epoch
            return self._skipped(batch, transaction, table, steps)
        state.epoch = committed.epoch
        state.experience.add(result, planned, steps.seconds("write"), cores)
        touched = {file.partition for file in result.new}
        clustering, small = self._look_after(session, table, touched, steps)
        return outcomes.committed(draft, committed, small, self.options, clustering, steps)

    def _look_after(
        self, session: SparkSession, table: Table, touched: Collection[PartitionKey], steps: Steps
    ) -> tuple[str, SmallFiles]:
        """Cluster where that is due, and count small files. The batch is committed: what fails here is told,
        and no error of it.
        """
        clustering = ""
        try:
            clustering = self._clusterer.after_commit(
                session, table, self._destination.reservations, touched, steps
            )
            return clustering, small_files(table.head, touched, self.options.small_below_bytes)
        except Exception as failure:  # noqa: BLE001 - the batch is committed, whatever fails here
            said = f"looking after the table failed: {type(failure).__name__}: {failure}"
            _LOG.warning("the batch is committed; %s", said, exc_info=failure)
            return "; ".join(text for text in (clustering, said) if text), SmallFiles()

    def _plan(
        self,
        batch: DataFrame,
        target: Target,
        expected: tuple[Arrival, ...] | None,
        one_task: bool,
        cores: int,
        steps: Steps,
    ) -> Planned:
        """Return where the rows go: as expected, or, where nothing is, as counted."""
        if self.options.bulk:
            return bulk_plan(self.options)
        arrivals: tuple[Arrival, ...] | Profile | None = expected
        if arrivals is None:
            with steps("profile"), described(batch.sparkSession, f"{self.options.location}: counting rows"):
                arrivals = count_rows(
                    batch, arrow_schema(target.schema), partition_sources(target.schema, target.spec)
                )

        def planned(head: Head | None) -> Planned:
            reserved = {} if head is None else self._destination.reservations.files(head)
            return plan_batch(head, arrivals, self.options, cores, one_task, reserved)

        with steps("plan"):
            return planned(None) if target.table is None else target.table.on_head(planned)

    def _job(self, target: Target, planned: Planned, transaction: Transaction) -> WriteJob:
        # The time in the files' names runs with the table, so that the garbage fence can tell old from new
        # (R6).
        last_ms = 0 if target.head is None else target.head.metadata.last_updated_ms
        return WriteJob(
            store=self._destination.store,
            schema=target.schema,
            spec=target.spec,
            properties=target.properties,
            plan=planned.plan,
            routing=planned.routing,
            ids=FileIds(max(SYSTEM.now_ms(), last_ms + 1), transaction.app_id, transaction.batch),
        )

    def _commit(
        self, table: Table, target: Target, result: WriteResult, transaction: Transaction, draft: BatchReport
    ) -> Committed | AlreadyCommitted:
        files = {file.path: data_file(file, target.spec) for file in result.new}
        fills = [
            Replace(frozenset([*merge.inputs, merge.new]), (data_file(merge.merged, target.spec),))
            for merge in result.merges
        ]
        summary = {**draft.to_summary(), EPOCH_ID: str(transaction.batch)}
        if transaction.query_id != OUTSIDE:
            summary[QUERY_ID] = transaction.query_id
        counted: list[Change] = [] if self.options.clustering is None else [CountCommit()]
        return table.commit(
            [Append(tuple(files.values())), *fills, *counted, *self._retention_change(table, transaction)],
            schema_id=target.schema.schema_id,
            transaction=transaction,
            summary=summary,
            open_below_bytes=self.options.sizing.small_file_bytes,
        )

    def _retention_change(self, table: Table, transaction: Transaction) -> list[SetProperties]:
        """Say the policy in the table with a run's first commit, where the table says another one."""
        if self.options.retention is None or transaction.epoch is not None:
            return []
        wanted, said = self.options.retention.table_properties, table.head.properties
        updates = {key: value for key, value in wanted.items() if said.get(key) != value}
        return [SetProperties(updates)] if updates else []

    def _check_clustering(self, target: Target, state: _RunState) -> None:
        """Raise ValueError at a run's first batch for a column to sort by that the table does not have."""
        if self.options.clustering is not None and state.last_batch is None:
            self.options.clustering.asked.check_columns(arrow_schema(target.schema))

    def _skipped(self, batch: DataFrame, transaction: Transaction, table: Table, steps: Steps) -> BatchReport:
        """Complete what a crash may have cut off after the batch's commit; there is nothing else to do."""
        with steps("commit"):
            table.tidy()
        clustering = self._clusterer.after_commit(
            batch.sparkSession, table, self._destination.reservations, (), steps
        )
        return outcomes.skipped(transaction, table, clustering, steps)

    def _state_of(self, run: Run) -> _RunState:
        """Return what is known of a run. A new one begins with what the last run of the same application has
        learnt.

        An earlier run keeps its epoch: should it call once more, it must find itself fenced, and not pass for
        a newer run.
        """
        if run not in self._runs:
            fresh = _RunState()
            for other, state in self._runs.items():
                if other.app_id == run.app_id:
                    fresh.experience = state.experience
            self._runs[run] = fresh
        return self._runs[run]


def _check_is_a_replay(head: Head, batch_id: int, run: Run, written: WriteResult | None = None) -> None:
    """Raise ValueError if this very run has committed the batch by another call: a skip would lose the rows
    of this one.

    `written` is what this call wrote: where its files are live, the commit is its own, acknowledged late.
    """
    known = head.transaction(run.app_id)
    if known is None or known.run_id != run.run_id:
        return
    paths = (
        []
        if written is None
        else [*(file.path for file in written.new), *(merge.merged.path for merge in written.merges)]
    )
    if not any(head.find_live(path) for path in paths):
        raise given_twice(run, batch_id)


@contextmanager
def _computed_once(batch: DataFrame, read_twice: bool) -> Iterator[DataFrame]:
    """Yield the batch, kept where it will be read twice (counted, then written), so that its source is read
    once.
    """
    # Not `is_cached`, which is about this Python object alone: what is kept goes by its plan, and what the
    # user keeps, under whatever name, would be thrown away below.
    level = batch.storageLevel if read_twice else None
    if level is None or level.useMemory or level.useDisk:
        yield batch
        return
    kept = batch.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
