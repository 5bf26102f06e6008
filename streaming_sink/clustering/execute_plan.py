"""The execution of a clustering plan on the timeline: claim, heartbeat, rewrite, REPLACE, completion."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from planners.clustering.plan import ClusteringPlan
from streaming_sink.clustering.dispatch import prepare_jobs
from streaming_sink.clustering.execution import execute_groups
from streaming_sink.clustering.options import Execution
from streaming_sink.reports.cluster_report import ClusterReport
from timeline import names
from timeline.changes.plan_changes import Withdraw
from timeline.plans import instants
from timeline.plans.claims import PATIENCE_SECONDS, Watch, all_instants, heartbeat
from timeline.plans.clustering import CLUSTERING
from timeline.plans.plan_file import Plan
from timeline.table import Table

_LOG = logging.getLogger("streaming_sink")
BEAT_SECONDS = PATIENCE_SECONDS / 5
"""A claim is abandoned after `PATIENCE_SECONDS` without a heartbeat: two failures of the store do no harm."""


def execute_plan(
    session: SparkSession, table: Table, plan_id: str, how: Execution, watch: Watch | None = None
) -> ClusterReport | None:
    """Claim a pending plan, rewrite its groups, and complete it in the last version that has some of them;
    None where there is nothing to do: it is not pending, or another executor has it (see `instants.claim`).
    ValueError for a plan of another kind.

    Raises as `execute`; the plan then stays pending, and other executors, or `cancel`, may take it.
    """

    if not names.is_plan_id(plan_id):
        return None
    if names.plan_kind(plan_id) != CLUSTERING.name:
        raise ValueError(f"not a clustering plan, but of kind {names.plan_kind(plan_id)!r}: {plan_id}")

    def check(plan: Plan) -> None:
        prepare_jobs(table.head, table, ClusteringPlan.from_dict(plan), how)

    claim = instants.claim_plan(table, plan_id, watch, check)
    if claim is None:
        return None
    plan, also = ClusteringPlan.from_dict(claim.plan), [Withdraw(plan_id)]
    try:
        with heartbeat(claim, BEAT_SECONDS) as is_ours:
            report = execute_groups(session, table, plan, how, plan_id=plan_id, also=also, is_wanted=is_ours)
    except BaseException:
        claim.release()
        raise
    if report.version is not None:
        done = len(report.committed)
        dropped = len(report.groups) - done
        instants.note_completed(table, plan_id, version=report.version, done=done, dropped=dropped)
    return report


def take_over(session: SparkSession, table: Table, how: Execution, watch: Watch) -> list[ClusterReport]:
    """Execute the pending plans whose claims `watch` has found abandoned.

    Plans without a claim are left to the executor that they were scheduled for; plans that need a strategy or
    keys that this process lacks, to other executors. No request where no plan is pending.
    """
    pending = [each.plan_id for each in instants.pending_of(table.head, CLUSTERING)]
    known = all_instants(table.store, CLUSTERING.name) if pending else {}
    claimed = [plan_id for plan_id in pending if "inflight" in known.get(plan_id, {})]
    reports = []
    for plan_id in claimed:
        try:
            reports.append(execute_plan(session, table, plan_id, how, watch))
        except ValueError as unfit:
            _LOG.warning("clustering plan %s is left to others: %s", plan_id, unfit)
    return [report for report in reports if report is not None]
