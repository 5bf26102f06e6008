"""The fills of one sink beside the stream: started after commits, awaited only where small files pile up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from planners.fills import FillPlan
from planners.folds import DELETE_FILES_AT_MOST, DELETE_FILES_AT_REST, PASSES_AT_REST
from planners.model import TablePartition, comparable
from planners.sizing import SMALL_FILES_AT_MOST
from streaming_sink.reports.maintenance_report import FillReport
from streaming_sink.reports.reporting import Steps, hand_over
from streaming_sink.spark.jobs import is_stopped, parallelism
from streaming_sink.table.foreign_rewrites import ForeignRewrites, Room
from streaming_sink.upkeep.beside import PassesBeside
from streaming_sink.upkeep.fills import execute_merges, plan_merges
from timeline.errors import CommitStateUnknownError
from timeline.plans.reservations import Reservations
from timeline.table import Table
from timeline.versions.head import Head

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.options.table_options import SinkOptions

_LOG = logging.getLogger("streaming_sink")

SMALL_FILES_WHILE_FILLING = 3 * SMALL_FILES_AT_MOST
"""A batch that leaves more small files in a partition waits for the running pass, and runs one. A pass that
starts at nine, as it should, then takes longer than fifteen batches: merging falls behind the stream."""

SMALL_FILES_WHILE_WAITING = 3 * SMALL_FILES_WHILE_FILLING
"""The same, of a partition in which merging leaves room for other engines."""

DELETE_FILES_WHILE_FILLING = 3 * DELETE_FILES_AT_MOST
"""As above, for the delete files of one data file. A pass that folds a file loses to each batch that deletes
from it before the pass has ended. It cannot lose to a batch that waits for it, and runs one itself."""

IDLE_SECONDS = 60.0
"""A stream that commits nothing for so long is at rest."""


@dataclass(frozen=True)
class _Asked:
    """A pass over the partitions that batches touched."""

    session: SparkSession
    touched: frozenset[TablePartition]
    at_rest: bool = False
    """The stream has ended, or is idle: what is left is what readers find for a while."""


def _crowd(plan: FillPlan, leaves_room: bool) -> str:
    """Return why a batch waits for the fills of a plan; "" if it does not. `leaves_room`: other engines have
    rewritten files in its partitions of late.
    """
    if plan.most_small_files > (SMALL_FILES_WHILE_WAITING if leaves_room else SMALL_FILES_WHILE_FILLING):
        return f"{plan.most_small_files} small files in a partition"
    if plan.most_delete_files > DELETE_FILES_WHILE_FILLING and not plan.is_empty:
        return f"{plan.most_delete_files} delete files of one data file"
    return ""


class Filler:
    """Runs the passes of one sink, one at a time: in a thread, or in a batch that has to wait."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._passes = PassesBeside[_Asked, FillReport]("filling", self._run_beside)
        # `Table` is not safe for use by two threads: this one is used by one pass after the other.
        self._table: Table | None = None
        self._reservations: Reservations | None = None
        self._unfit: frozenset[str] = frozenset()
        # The partitions of the last pass, where it failed or left out a merge, and those in which nothing was
        # merged to leave room for others: no batch may touch them again.
        self._left: frozenset[TablePartition] = frozenset()
        self._waiting: frozenset[TablePartition] = frozenset()
        # The partitions that a stream at rest has merged further, and the timer that ends when it is idle.
        self._restless: _Asked | None = None
        self._idle: threading.Timer | None = None
        self._lock = threading.Lock()
        self._rewrites = ForeignRewrites()
        self._published = threading.Event()

    def after_commit(
        self,
        session: SparkSession,
        table: Table,
        reservations: Reservations,
        touched: Collection[TablePartition],
        steps: Steps,
    ) -> list[FillReport]:
        """Have the partitions that the batch `touched` filled, where they need it, and those of a pass that
        failed. Return the reports of the passes that ended since the last call.

        Afterwards none of these partitions has more than `SMALL_FILES_WHILE_FILLING` small files that may be
        merged, or three times as many where others rewrite files, and no data file in them more than
        `DELETE_FILES_WHILE_FILLING` delete files, unless the batch brought several to one, or a pass failed,
        which is reported and not raised.
        """
        if not self._options.fills_beside:
            return []
        reports = self._passes.ended()
        touched = {
            TablePartition(spec_id, comparable(values))
            for spec_id, values in (*touched, *self._left, *self._waiting)
        }
        plan, room = self._plan(table, reservations, touched)
        self._waiting = room.waiting & touched
        leaves_room = not room.rewritten.isdisjoint(touched)
        if _crowd(plan, leaves_room):
            with steps("fill"):
                self._passes.wait()
                reports += self._passes.ended()
                table.refresh()
                if crowd := _crowd(self._plan(table, reservations, touched)[0], leaves_room):
                    reports += self._run(session, touched, waited=crowd)
                    table.refresh()
        elif not plan.is_empty:
            self._passes.ask(_Asked(session, frozenset(touched)))
        self._put_off_rest(session, touched if plan.most_delete_files > DELETE_FILES_AT_REST else ())
        return reports

    def has_published(self) -> bool:
        """Return whether a pass has made a version since the last call."""
        if not self._published.is_set():
            return False
        self._published.clear()
        return True

    def finish(self, timeout_seconds: float | None, *, at_rest: bool = True) -> list[FillReport]:
        """Wait for the passes beside the stream; return their reports unless they were returned before.
        TimeoutError if they take longer. `at_rest`: no batch follows soon, so a pass merges what else slows
        readers down.
        """
        if at_rest:
            self._rest()
        self._passes.wait(timeout_seconds)
        return self._passes.ended()

    def _put_off_rest(self, session: SparkSession, touched: Collection[TablePartition]) -> None:
        """Have a pass over these partitions, too, once the stream is at rest."""
        with self._lock:
            before = frozenset() if self._restless is None else self._restless.touched
            if not (touched or before):
                return
            self._restless = _Asked(session, before.union(touched), at_rest=True)
            if self._idle is not None:
                self._idle.cancel()
            self._idle = threading.Timer(IDLE_SECONDS, self._rest)
            self._idle.daemon = True  # a process that ends does not wait for it
            self._idle.start()

    def _rest(self) -> None:
        with self._lock:
            asked, self._restless = self._restless, None
            if self._idle is not None:
                self._idle.cancel()
        if asked is not None:
            with suppress(RuntimeError):  # no thread can start: the next batch asks for a pass again
                self._passes.ask(asked)

    def _plan(
        self,
        table: Table,
        reservations: Reservations,
        touched: Collection[TablePartition],
        *,
        at_rest: bool = False,
    ) -> tuple[FillPlan, Room]:
        """Return the merges that the partitions need on the known head, and where these leave room."""

        def planned(head: Head) -> tuple[FillPlan, Room]:
            room = self._rewrites.room(head, self._options.sizing.small_file_bytes)
            reserved = reservations.files(head)
            known = head, touched, self._options, reserved, self._unfit, room.waiting
            return plan_merges(*known, at_rest=at_rest), room

        return table.on_head(planned)

    def _run_beside(self, requests: Sequence[_Asked]) -> list[FillReport]:
        session = requests[-1].session
        touched = {partition for asked in requests for partition in asked.touched}
        at_rest = any(asked.at_rest for asked in requests)
        # Half of the cores while batches come: Spark gives an earlier job's tasks all that are free, and the
        # next batch would wait for the end of one.
        of_cores = 1 if requests[-1].at_rest else 2
        passes = PASSES_AT_REST if at_rest else 1
        ran = [self._run(session, touched, of_cores, at_rest=at_rest) for _ in range(passes)]
        return [report for reports in ran for report in reports]

    def _run(
        self,
        session: SparkSession,
        touched: Collection[TablePartition],
        of_cores: int = 1,
        waited: str = "",
        *,
        at_rest: bool = False,
    ) -> list[FillReport]:
        """Run one pass on one in so many cores, and return its report, one of a failure too; none where there
        was nothing to do.
        """
        self._left = frozenset()
        if is_stopped(session):
            return []  # the pass that it was stopped under has said so
        began = perf_counter()
        tasks = max(1, parallelism(session) // of_cores)
        report = self._carry_out(session, touched, tasks, at_rest=at_rest)
        if not (waited or report.line()):
            return []
        milliseconds = round((perf_counter() - began) * 1000)
        called = self._options.table.called(report.table)
        report = replace(report, table=called, waited=waited, milliseconds=milliseconds)
        hand_over(self._options.on_report, report)
        return [report]

    def _carry_out(
        self, session: SparkSession, touched: Collection[TablePartition], tasks: int, *, at_rest: bool
    ) -> FillReport:
        try:
            table, reservations = self._open()
            table.refresh()
            plan, room = self._plan(table, reservations, touched, at_rest=at_rest)
            if not room.waiting.isdisjoint(touched):
                self._left = room.waiting.intersection(touched)
            if plan.is_empty:
                return FillReport(table=self._options.location, outcome="nothing")
            done = execute_merges(session, table, plan, self._options, reservations, tasks)
        except Exception as failure:  # noqa: BLE001 - the batches are committed: no failure is theirs
            self._table, self._left = None, frozenset(touched)
            return self._explain(session, failure)
        self._unfit |= done.culprits
        if done.report.problems:
            self._left = frozenset(touched)
        if done.report.version is not None:
            self._published.set()
        return done.report

    def _open(self) -> tuple[Table, Reservations]:
        if self._table is None or self._reservations is None:
            self._table = self._options.table.open()
            self._reservations = Reservations(self._table.store)
        return self._table, self._reservations

    def _explain(self, session: SparkSession, failure: Exception) -> FillReport:
        if is_stopped(session):
            why = "filling beside the stream was abandoned, since Spark was stopped; a later batch does it"
            _LOG.warning("%s: %s", why, self._options.location)
            return FillReport(table=self._options.location, outcome="abandoned", why=why)
        outcome, what = (
            ("unknown", "may have been published, and no file was deleted")
            if isinstance(failure, CommitStateUnknownError)
            else ("failed", "failed, and is planned again after the next batch")
        )
        why = f"filling beside the stream {what}: {type(failure).__name__}: {failure}"
        _LOG.warning("%s", why, exc_info=failure)
        return FillReport(table=self._options.location, outcome=outcome, why=why)
