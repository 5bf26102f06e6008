"""The clustering API, on a table. Streams and other calls may run at the same time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from planners.clustering.plan import ClusteringPlan
from streaming_sink.clustering.options import Pass, PassOptions, execution_of, pass_of
from streaming_sink.clustering.scheduling import Scheduled, nothing_to_do, plan_pass, schedule_pass, taken
from streaming_sink.options.values.tables import AnyTable, as_table
from streaming_sink.reports.cluster_report import ClusterReport
from streaming_sink.tasks.clustering.strategies import Factory
from timeline.plans import instants
from timeline.plans.claims import Watch
from timeline.plans.clustering import CLUSTERING
from timeline.plans.instants import Instant
from timeline.plans.reservations import Reservations
from timeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from streaming_sink.tasks.encryption import Keys

_LOG = logging.getLogger("streaming_sink")


def plan(table: AnyTable, **options: Unpack[PassOptions]) -> ClusteringPlan:
    """Return the plan of a pass, and change nothing. Print its `explain()`.

    For the options see `PassOptions`: TypeError and ValueError for impossible ones, with the nearest name.
    TableNotFoundError where there is no table.
    """
    asked, opened = pass_of(**options), as_table(table).open()
    return plan_pass(opened, Reservations(opened.store), asked)


def schedule(table: AnyTable, **options: Unpack[PassOptions]) -> Scheduled | None:
    """Plan a pass, and save the plan on the table's timeline, for `execute` here or elsewhere; None where
    there is nothing to do, and the log says why. Its files are reserved: no fill and no other plan takes
    them.

    Raises as `plan`, and as a commit does.
    """
    asked, opened = pass_of(**options), as_table(table).open()
    scheduled = _scheduled(opened, asked, executes=False)
    return scheduled if isinstance(scheduled, Scheduled) else None


def execute(
    session: SparkSession,
    table: AnyTable,
    plan_id: str,
    *,
    memory_bytes: int | str = "512MiB",
    checksum: bool = False,
    strategies: Mapping[str, Factory] | None = None,
    max_commits: int = 1,
    keys: Keys | None = None,
    watch: Watch | None = None,
) -> ClusterReport | None:
    """Execute a plan of the timeline, as one version with one REPLACE, or as up to `max_commits` of them;
    None where there is nothing to do: it is no longer pending, or another executor has it.

    A process that calls this repeatedly with one `watch` takes over the plan of a dead executor. The report
    has the groups that were dropped (their files were not live) or failed; any other error is raised, and the
    plan stays pending.
    """
    from streaming_sink.clustering.execution import execute_plan  # needs pyspark, which planning does not

    how, place = execution_of(memory_bytes, checksum, strategies, max_commits, keys), as_table(table)
    report = execute_plan(session, place.open(), plan_id, how, watch)
    return None if report is None else replace(report, table=place.called(report.table))


def schedule_and_execute(
    session: SparkSession,
    table: AnyTable,
    **options: Unpack[PassOptions],
) -> ClusterReport:
    """Plan a pass, save the plan, execute it, and return the report of the pass.

    Where there is nothing to do its outcome is "nothing", and `why` has the reason; it is "taken" where
    another executor has claimed the plan first.
    """
    from streaming_sink.clustering.execution import execute_plan

    asked = pass_of(**options)
    asked.check_keys()
    place = as_table(table)
    opened = place.open()
    report: ClusterReport | None
    if isinstance(scheduled := _scheduled(opened, asked, executes=True), ClusterReport):
        report = scheduled
    else:
        report = execute_plan(session, opened, scheduled.plan_id, asked.execution)
        report = taken(opened.store.location, scheduled.plan_id) if report is None else report
    return replace(report, table=place.called(report.table))


def _scheduled(table: Table, asked: Pass, *, executes: bool) -> Scheduled | ClusterReport:
    """Return the plan that was saved, or the report, which is logged too, that there is nothing to do."""
    scheduled = schedule_pass(table, Reservations(table.store), asked, executes=executes)
    if isinstance(scheduled, Scheduled):
        return scheduled
    report = nothing_to_do(table.store.location, scheduled)
    _LOG.info("%s: %s", report.table, report.why)
    return report


def show(table: AnyTable) -> tuple[Instant, ...]:
    """Return the plans that are pending, and those that ended in the last week, oldest first."""
    return instants.show_plan(as_table(table).open(), CLUSTERING)


def cancel(table: AnyTable, plan_id: str) -> bool:
    """Withdraw a pending plan and free its files; False where it is not pending. Its executor, if there is
    one, stops at its next heartbeat.
    """
    return instants.cancel_plan(as_table(table).open(), plan_id)
