"""The driver's side of clustering: a plan's groups in parallel, then one commit of those that succeeded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.util import inheritable_thread_target

from planners.clustering_model import ClusteringGroup, ClusteringPlan
from planners.clustering_policy import SortField
from streaming_sink import fast_workers
from streaming_sink.arrow_types import arrow_schema
from streaming_sink.clustering.job import GroupFailed, GroupJob, GroupResult, GroupWritten, Input, decode
from streaming_sink.clustering.options import memory_bound
from streaming_sink.clustering.ordering import sortable
from streaming_sink.clustering.report import ClusterReport, GroupReport, summary
from streaming_sink.clustering.sort_orders import sort_order_ids
from streaming_sink.clustering.strategies import Factory, strategy_of
from streaming_sink.clustering.task import ClusterTask
from streaming_sink.datafiles import data_file
from streaming_sink.parquet_properties import metrics_modes, parquet_settings
from streaming_sink.run import described, parallelism
from streaming_sink.worker_failures import explain_worker_failure
from streaming_sink.writejob import RESULT_COLUMN, FileIds, TaskBuckets, WorkerJob
from streaming_sink.writer import partition_sources
from timeline.changes import Change, Replace
from timeline.clock import SYSTEM
from timeline.errors import CommitConflictError
from timeline.head import Head
from timeline.manifests import LiveFile
from timeline.table import Committed, Table

_LOG = logging.getLogger("streaming_sink")
_APP_ID = "cluster"
_RESULT = StructType([StructField(RESULT_COLUMN, BinaryType())])
_UNWANTED = "the plan was cancelled, or taken over by another executor"


@dataclass(frozen=True)
class _Group:
    """A group of the plan with what the head knows of its files, and what came of it so far."""

    index: int
    planned: ClusteringGroup
    inputs: tuple[LiveFile, ...] = ()
    dropped: str = ""
    result: GroupResult | None = None


def execute(
    session: SparkSession,
    table: Table,
    plan: ClusteringPlan,
    *,
    plan_id: str,
    memory_bytes: int | str = "512MiB",
    checksum: bool = False,
    strategies: Mapping[str, Factory] | None = None,
    also: Sequence[Change] = (),
    is_wanted: Callable[[], bool] = lambda: True,
) -> ClusterReport:
    """Rewrite the groups of a plan in parallel, and commit all that succeeded as one REPLACE version.

    A group is one Spark task, which holds about `memory_bytes` of Arrow. It is published only with exactly as
    many rows as its inputs, and with `checksum` only with the same rows, read back. A group whose inputs are
    gone, whose worker died or whose strategy failed is reported and left as it was; the others commit. What
    a dead worker or a dropped group wrote is not part of the table; `remove_orphan_files` deletes it.

    `strategies` are the user's own, by name, beside the built-in ones. `also` goes into the same version.
    `is_wanted` is asked before each group and before the commit: after a False nothing more is done.
    ValueError, before anything is written, for a strategy or a column that there is not, and for a memory
    bound below 1 MiB. Else raises as `Table.commit`, but for a conflict, which is what the report tells.
    """
    memory = memory_bound(memory_bytes)
    head = table.refresh()
    jobs = _jobs(head, table, plan, memory, checksum, strategies or {})
    table.ensure_store_is_safe()
    groups = _found(head, plan)
    order_ids = sort_order_ids(table, [it.planned for it in groups if not it.dropped])
    groups = _rewritten(session, groups, jobs, table.store.location, is_wanted)
    report = (
        _commit(table, head, groups, order_ids, plan_id, also) if is_wanted() else _unwanted(groups, plan_id)
    )
    _LOG.info("%s", report.line())
    return report


def _jobs(
    head: Head, table: Table, plan: ClusteringPlan, memory: int, checksum: bool, more: Mapping[str, Factory]
) -> Callable[[_Group], GroupJob]:
    """Return what makes a group's job. ValueError if the plan asks for what there is not."""
    schema = arrow_schema(head.schema)
    worker = WorkerJob(
        store=table.store,
        schema=schema,
        partition_by=partition_sources(head.schema, head.spec),
        parquet=parquet_settings(head.properties),
        metrics=metrics_modes(head.schema, head.properties),
        # The time in the files' names runs with the table (R6).
        ids=FileIds(max(SYSTEM.now_ms(), head.metadata.last_updated_ms + 1), _APP_ID, 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=0,
        max_file_bytes=plan.target_file_bytes,
        fast_workers=fast_workers.wanted(),
    )
    made = {}
    for group in plan.groups:
        for text in group.sort_by:
            sortable(schema, SortField.parse(text).column)
        if group.strategy not in made:
            made[group.strategy] = strategy_of(group.strategy, more)

    def job(group: _Group) -> GroupJob:
        planned = group.planned
        return GroupJob(
            index=group.index,
            worker=worker,
            inputs=tuple(Input(file.location, file.rows) for file in group.inputs),
            partition=group.inputs[0].partition,
            sort_by=tuple(SortField.parse(text) for text in planned.sort_by),
            strategy_name=planned.strategy.name,
            strategy=made[planned.strategy],
            rows_per_file=_rows_per_file(group, plan.target_file_bytes),
            memory_bytes=memory,
            checksum=checksum,
            order=planned.order,
            level=planned.level,
        )

    return job


def _rows_per_file(group: _Group, target_bytes: int) -> int:
    """Files of equal size; where the plan names a remainder, full files and a last one that stays small."""
    rows = sum(file.rows for file in group.inputs)
    size = sum(file.bytes for file in group.inputs)
    files = group.planned.output_files
    if group.planned.remainder and files > 1:
        return max(1, -(-rows * target_bytes // size))
    return max(1, -(-rows // files))


def _found(head: Head, plan: ClusteringPlan) -> list[_Group]:
    """Return the groups with their live files, or why they must be left out before any work."""
    wanted = {path for group in plan.groups for path in group.inputs}
    live = {file.location: file for file in head.live_files() if file.location in wanted}
    groups = []
    for index, planned in enumerate(plan.groups):
        gone = next((path for path in planned.inputs if path not in live), None)
        if gone is not None:
            groups.append(_Group(index, planned, dropped=f"an input is gone: {gone}"))
            continue
        inputs = tuple(live[path] for path in planned.inputs)
        groups.append(_Group(index, planned, inputs, _why_unfit(head, inputs)))
    return groups


def _why_unfit(head: Head, inputs: Sequence[LiveFile]) -> str:
    for file in inputs:
        if file.spec_id != head.spec.spec_id:
            return f"an input is of another partition spec than the table's current one: {file.location}"
        if file.partition != inputs[0].partition:
            return f"the inputs are of several partitions: {inputs[0].location} and {file.location}"
        if head.has_deletes(file):
            return f"an input has deletes: {file.location}"
    return ""


def _rewritten(
    session: SparkSession,
    groups: list[_Group],
    jobs: Callable[[_Group], GroupJob],
    location: str,
    is_wanted: Callable[[], bool],
) -> list[_Group]:
    """Run every group that has its files, and return all with their results.

    Each is a Spark job of its own, so that one that fails takes no other with it.
    """

    def run(group: _Group) -> GroupResult:
        if not is_wanted():
            return GroupFailed(_UNWANTED)
        with described(session, f"{location}: clustering group {group.index}"):
            one = session.range(0, 1, 1, 1)
            rows = one.mapInArrow(ClusterTask(jobs(group)), _RESULT).collect()
        return decode(bytes(rows[0][0]))

    # A streaming query that is stopped cancels the jobs of its threads, and of theirs.
    running = inheritable_thread_target(session)(run)
    with ThreadPoolExecutor(max_workers=parallelism(session), thread_name_prefix="clustering") as pool:
        futures = {group.index: pool.submit(running, group) for group in groups if not group.dropped}
        return [
            replace(group, result=_result(futures[group.index])) if group.index in futures else group
            for group in groups
        ]


def _result(future: Future[GroupResult]) -> GroupResult:
    failure = future.exception()
    if failure is None:
        return future.result()
    if not isinstance(failure, Exception):
        raise failure
    said = explain_worker_failure(failure) or failure
    return GroupFailed(f"its task failed, nothing of it is published: {_told(str(said))}")


def _told(text: str) -> str:
    """Return the line of a failure that says what it was: the last one of a Python worker's traceback."""
    lines = [line.strip() for line in text.partition("\n\n\tat ")[0].splitlines()]
    raised = [line for line in lines if line and not line.startswith(("at ", "File ", "Driver stacktrace"))]
    errors = [line for line in raised if "Error: " in line or "Exception: " in line]
    return (errors or raised or [text])[-1]


def _commit(
    table: Table,
    head: Head,
    groups: list[_Group],
    order_ids: Mapping[tuple[str, ...], int],
    plan_id: str,
    also: Sequence[Change],
) -> ClusterReport:
    replaces = {group.index: _replace(head, group, order_ids) for group in groups if _succeeded(group)}
    reports = [_report(group) for group in groups]
    if not replaces and not also:
        return ClusterReport(plan_id=plan_id, version=None, snapshot_id=None, groups=tuple(reports))
    rewritten = [group.planned for group in groups if group.index in replaces]
    try:
        committed = table.commit(
            [*replaces.values(), *also],
            schema_id=head.schema.schema_id,
            summary=summary(plan_id, len(groups), rewritten),
        )
    except CommitConflictError as conflict:
        lost = [_dropped(it, str(conflict)) if it.index in replaces else it for it in reports]
        return ClusterReport(plan_id=plan_id, version=None, snapshot_id=None, groups=tuple(lost))
    assert isinstance(committed, Committed)
    reasons = {dropped.replace: dropped.reason for dropped in committed.dropped}
    told = [
        _dropped(it, reasons[replaces[it.index]]) if replaces.get(it.index) in reasons else it
        for it in reports
    ]
    return ClusterReport(
        plan_id=plan_id,
        version=committed.version,
        snapshot_id=committed.replaced_snapshot_id,
        groups=tuple(told),
    )


def _unwanted(groups: list[_Group], plan_id: str) -> ClusterReport:
    lost = tuple(_dropped(_report(group), _UNWANTED) for group in groups)
    return ClusterReport(plan_id=plan_id, version=None, snapshot_id=None, groups=lost)


def _succeeded(group: _Group) -> bool:
    return isinstance(group.result, GroupWritten)


def _replace(head: Head, group: _Group, order_ids: Mapping[tuple[str, ...], int]) -> Replace:
    assert isinstance(group.result, GroupWritten)
    order_id = order_ids.get(group.planned.sort_by, 0) if group.planned.strategy.name == "sort" else 0
    files = [data_file(file, head.spec, order_id) for file in group.result.files]
    return Replace(frozenset(group.planned.inputs), tuple(files))


def _report(group: _Group) -> GroupReport:
    known = GroupReport(
        index=group.index,
        partition=group.planned.partition,
        outcome="dropped",
        why=group.dropped,
        input_files=len(group.planned.inputs),
        input_bytes=sum(file.bytes for file in group.inputs),
        rows=sum(file.rows for file in group.inputs),
    )
    if isinstance(group.result, GroupFailed):
        return replace(known, outcome="failed", why=group.result.reason)
    if group.result is None:
        return known
    return replace(
        known,
        outcome="committed",
        output_files=len(group.result.files),
        output_bytes=sum(file.bytes for file in group.result.files),
        seconds=group.result.seconds,
        cpu_seconds=group.result.cpu_seconds,
        spilled_bytes=group.result.spilled_bytes,
    )


def _dropped(report: GroupReport, why: str) -> GroupReport:
    return replace(report, outcome="dropped", why=why, output_files=0, output_bytes=0)
