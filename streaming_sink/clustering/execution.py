"""One pass over a plan: claims it, rewrites its groups under a heartbeat, commits those that succeeded by a
REPLACE, and reports all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from pyspark.sql import SparkSession

from planners.clustering.plan import ClusteringPlan
from planners.clustering.strategies import traits
from streaming_sink.clustering.dispatch import prepare_jobs, rewrite_groups
from streaming_sink.clustering.groups import LiveGroup, match_groups
from streaming_sink.clustering.options import Execution
from streaming_sink.clustering.sort_orders import sort_order_ids
from streaming_sink.reports.cluster_report import ClusterReport, GroupReport, summary
from streaming_sink.table.data_files import data_file
from timeline import names
from timeline.changes.changes import Change
from timeline.changes.plan_changes import Withdraw
from timeline.errors import CommitConflictError
from timeline.plans import instants
from timeline.plans.claims import PATIENCE_SECONDS, Watch, all_instants, heartbeat
from timeline.plans.clustering import CLUSTERING
from timeline.plans.plan_file import Plan
from timeline.table import Committed, Table
from timeline.versions.head import Head

_LOG = logging.getLogger("streaming_sink")
_UNWANTED = "the plan was cancelled, or taken over by another executor"


def execute_groups(
    session: SparkSession,
    table: Table,
    plan: ClusteringPlan,
    how: Execution,
    *,
    plan_id: str,
    also: Sequence[Change] = (),
    is_wanted: Callable[[], bool] = lambda: True,
) -> ClusterReport:
    """Rewrite the groups of a plan in parallel, and commit all that succeeded as one REPLACE version.

    A group is one Spark task, or several, each with a range of its order, where cores are idle or the group
    is large. It is published as a whole, and only with exactly the live rows of its inputs, by their number;
    with `how.checksum` only if the files, read back, hold the same rows. A group whose inputs are not live,
    or got deletes while it ran, whose worker died or whose strategy failed is reported, and its files stay as
    they are; the others commit. Files
    of a dead worker or of a dropped group are not part of the table; `remove_orphan_files` deletes them.

    With `how.max_commits` above 1 the groups are committed in up to so many versions, the first of them while
    others are still being rewritten: a later failure does not affect them. `also` goes into the last version.
    `is_wanted` is called before each task and before each commit; once it returns False, nothing more is
    done.

    ValueError, before anything is written, for an unknown strategy or column, and for a strategy that sets
    keys where there are none. Otherwise raises as `Table.commit`, except for conflicts, which are reported.
    """
    began = perf_counter()
    head = table.refresh()
    jobs = prepare_jobs(head, table, plan, how)
    table.ensure_store_is_safe()
    groups = match_groups(head, plan, has_keys=how.keys is not None)
    order_ids = sort_order_ids(table, [it.planned for it in groups if not it.dropped])
    commits = _Commits(table, head, plan_id, order_ids, len(groups))
    ended = rewrite_groups(session, table.store, groups, plan, jobs, is_wanted, _UNWANTED)
    reports: list[GroupReport] = []
    for portion, is_last in _portions(ended, len(groups), how.max_commits):
        if is_wanted():
            reports += commits.commit(portion, also if is_last else ())
        else:
            reports += [_dropped(group.report(), _UNWANTED) for group in portion]
    report = ClusterReport(
        table=table.store.location,
        plan_id=plan_id,
        version=commits.version,
        snapshot_id=commits.snapshot_id,
        groups=tuple(reports),
        milliseconds=round((perf_counter() - began) * 1000),
    )
    _LOG.info("%s", report.line())
    return report


def _portions(groups: Iterable[LiveGroup], count: int, most: int) -> Iterator[tuple[list[LiveGroup], bool]]:
    """Divide the groups into at most so many portions of about equal number; True marks the last one."""
    portion: list[LiveGroup] = []
    ends = [count * (place + 1) // min(most, max(1, count)) for place in range(min(most, max(1, count)))]
    for number, group in enumerate(groups, start=1):
        portion.append(group)
        if number in ends[:-1]:
            yield portion, False
            portion = []
    yield portion, True


class _Commits:
    """The versions of one pass: groups that succeeded become their REPLACE."""

    def __init__(
        self,
        table: Table,
        head: Head,
        plan_id: str,
        order_ids: Mapping[tuple[str, ...], int],
        planned: int,
    ) -> None:
        self._table = table
        self._head = head
        self._plan_id = plan_id
        self._order_ids = order_ids
        self._planned = planned
        self.version: int | None = None
        """The last version that was committed, and its snapshot."""
        self.snapshot_id: int | None = None

    def commit(self, groups: Sequence[LiveGroup], also: Sequence[Change]) -> list[GroupReport]:
        """Commit the groups that succeeded and `also`, if there are any, and report all groups."""
        replaces = {group.index: self._change(group) for group in groups if group.succeeded}
        reports = [group.report() for group in groups]
        if not replaces and not also:
            return reports
        try:
            committed = self._table.commit(
                [*replaces.values(), *also],
                schema_id=self._head.schema.schema_id,
                summary=summary(
                    self._plan_id, self._planned, [group.planned for group in groups if group.succeeded]
                ),
            )
        except CommitConflictError as conflict:
            return [_dropped(it, str(conflict)) if it.index in replaces else it for it in reports]
        assert isinstance(committed, Committed)
        self.version = committed.version
        self.snapshot_id = committed.replaced_snapshot_id or self.snapshot_id
        lost: dict[Change, str] = {dropped.change: dropped.reason for dropped in committed.dropped}
        return [
            _dropped(it, lost[replaces[it.index]]) if replaces.get(it.index) in lost else it for it in reports
        ]

    def _change(self, group: LiveGroup) -> Change:
        planned = group.planned
        needs = traits(planned.strategy.name)
        if needs.file_by_file:
            ids = [group.inputs[file.bucket].sort_order_id for file in group.files]
        else:
            order_id = self._order_ids.get(planned.sort_by, 0) if needs.is_iceberg_order else 0
            ids = [order_id] * len(group.files)
        spec = self._head.metadata.specs()[group.spec_id]
        files = [data_file(file, spec, it) for file, it in zip(group.files, ids, strict=True)]
        return CLUSTERING.change(planned.to_dict(), files, group.applied, group.deleted_rows)


def _dropped(report: GroupReport, why: str) -> GroupReport:
    return replace(report, outcome="dropped", why=why, output_files=0, output_bytes=0)


BEAT_SECONDS = PATIENCE_SECONDS / 5
"""A claim is abandoned after `PATIENCE_SECONDS` without a heartbeat: two failures of the store do no harm."""


def execute_plan(
    session: SparkSession, table: Table, plan_id: str, how: Execution, watch: Watch | None = None
) -> ClusterReport | None:
    """Claim a pending plan, rewrite its groups, and complete it in the last version that has some of them;
    None where there is nothing to do: it is not pending, or another executor has it (see `instants.claim`).
    ValueError for a plan of another kind, and for what is no plan's id.

    Raises as `execute`; the plan then stays pending, and other executors, or `cancel`, may take it.
    """
    if not names.is_plan_id(plan_id):
        raise ValueError(f"not the id of a plan; `streaming-sink plans` lists those that wait: {plan_id!r}")
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
