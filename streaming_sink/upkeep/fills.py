"""One pass of fills beside the stream: planned from a head, merged in a Spark job, published as a REPLACE."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from pyiceberg.typedef import Record

from planners.fills import FILES_A_PASS, FILES_AFTER_A_WAIT, FillPlan, PlannedFill, plan_fills
from planners.model import TablePartition, comparable
from streaming_sink.clustering.sort_orders import recorded_sort_order
from streaming_sink.reports.batch_report import FILL
from streaming_sink.reports.maintenance_report import FillReport
from streaming_sink.spark.jobs import collect_results, described
from streaming_sink.table.data_files import data_file, stated_metrics
from streaming_sink.table.file_jobs import file_job
from streaming_sink.table.planned_files import files_to_fold, small_files
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.files.delete_merging import DeletesMerged, MergeOfDeletesSkipped
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.rows.fill_task import Filled, FillSkipped, FillTask
from streaming_sink.upkeep.fill_portions import divide, sharing_files
from streaming_sink.writing.planning import NOTHING_RESERVED
from timeline.changes.changes import Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
from timeline.errors import CommitConflictError, StoreUnavailableError
from timeline.manifests.entries import shared_deletes
from timeline.plans.reservations import Reservations
from timeline.table import Committed, Table
from timeline.versions.head import Head
from timeline.versions.partitioning import specs_without_types

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyspark.sql import SparkSession

    from streaming_sink.options.table_options import SinkOptions

Result = Filled | FillSkipped | DeletesMerged | MergeOfDeletesSkipped
_APP_ID = "fill"


@dataclass(frozen=True)
class PublishedFills:
    """What became of the merges of a pass."""

    version: int | None
    live: tuple[Replace | MergeDeletes, ...]
    lost: tuple[Replace | MergeDeletes, ...]
    """Merges whose files are known to be live in no version, ever."""
    problems: tuple[str, ...]
    """Why they are lost."""
    attempts: int = 0


@dataclass(frozen=True)
class FillPass:
    """A pass that has ended, and what the next ones leave out."""

    report: FillReport
    culprits: frozenset[str] = frozenset()
    """Files that cannot be merged, by their locations."""


def plan_merges(
    head: Head,
    touched: Collection[TablePartition],
    options: SinkOptions,
    reserved: Mapping[str, str],
    unfit: Collection[str] = (),
    waiting: Collection[TablePartition] = (),
    *,
    at_rest: bool = False,
) -> FillPlan:
    """Return the merges and folds that these partitions need, without files that are reserved or known to be
    unfit. `touched`: where rows came to, or were deleted from, since the last pass; `waiting`: where nothing
    is merged now; `at_rest`: nothing follows soon.

    Reads no file but manifests.
    """
    fixed = specs_without_types(head.metadata)
    partitions = {TablePartition(it, comparable(values)) for it, values in touched if it not in fixed}
    partitions -= set(waiting)
    asked = head, partitions, options.sizing.small_file_bytes, reserved
    found = {it.path: it for it in chain(small_files(*asked), files_to_fold(*asked))}
    files = [it for path, it in found.items() if path not in unfit]
    most = FILES_AFTER_A_WAIT if head.version.is_shared else FILES_A_PASS
    sizing = options.sizing
    plan = plan_fills(files, sizing, options.fill_policy, sizing.fold_above, most, at_rest=at_rest)
    fit = (it for it in plan.run_merges if not any(deletes.path in unfit for deletes in it.deletes))
    return replace(plan, run_merges=tuple(fit))


def execute_merges(
    session: SparkSession,
    table: Table,
    plan: FillPlan,
    options: SinkOptions,
    reservations: Reservations,
    tasks: int,
) -> FillPass:
    """Merge what is planned for the table's known head, by so many Spark tasks, and publish what succeeded.

    Raises the error of a failing task, or of a commit whose state is unknown, or that the store refused; then
    the new files, as far as there are any, are left to the orphan cleaner.
    """
    head = table.head
    reserved = reservations.files(head)
    table.ensure_store_is_safe()
    specs, order_ids = head.metadata.specs(), _sort_order_ids(head, plan)
    portions = divide(
        plan,
        tasks,
        {it: partition_sources(head.schema, specs[it]) for it in specs},
        {path: recorded_sort_order(head, order_id) for path, order_id in order_ids.items()},
        sharing_files(head, plan, options.sizing.fold_above),
    )
    with described(session, f"{options.location}: filling {len(plan.fills)} times beside the stream"):
        # The time in the files' names follows the table's, since the garbage fence compares the two (R6).
        ids = FileIds(commit_time(SYSTEM, head), _APP_ID, 0)
        # Which rows go where is in the portions alone.
        needs_ids = head.version.is_shared
        job = replace(
            file_job(table.store, head, ids, options.sizing.max_file_bytes, needs_ids=needs_ids),
            stated=stated_metrics(head, (file.path for fill in plan.fills for file in fill.inputs)),
        )
        task = FillTask(job, portions)
        results: list[Result] = collect_results(session.range(0, len(portions), 1, len(portions)), task)
    skipped = [each for each in results if isinstance(each, FillSkipped | MergeOfDeletesSkipped)]
    changes: list[Replace | MergeDeletes] = [
        _replace(plan.fills[each.number], each, specs, order_ids)
        for each in results
        if isinstance(each, Filled)
    ]
    changes += [_merge_of_deletes(plan, each) for each in results if isinstance(each, DeletesMerged)]
    below = options.sizing.small_file_bytes
    published = commit_merges(table, changes, head.schema.schema_id, below, reservations, reserved)
    delete_lost(table, published)
    replaces = [change for change in published.live if isinstance(change, Replace)]
    merges = [change for change in published.live if isinstance(change, MergeDeletes)]
    added = [file for replace in replaces for file in replace.added]
    report = FillReport(
        table=table.store.location,
        outcome="nothing" if published.version is None else "committed",
        version=published.version,
        attempts=published.attempts,
        input_files=sum(len(replace.removed) for replace in replaces),
        output_files=len(added),
        output_bytes=sum(file.file_size_in_bytes for file in added),
        folded_deletes=sum(len(replace.applied) for replace in replaces),
        merged_deletes=sum(len(merge.removed) for merge in merges),
        written_deletes=sum(len(merge.added) for merge in merges),
        problems=(*(each.reason for each in skipped), *published.problems),
    )
    return FillPass(report, frozenset(each.culprit for each in skipped))


def commit_merges(
    table: Table,
    changes: Sequence[Replace | MergeDeletes],
    schema_id: int,
    open_below_bytes: int,
    reservations: Reservations,
    known: Mapping[str, str] = NOTHING_RESERVED,
) -> PublishedFills:
    """Commit merges as one version without a transaction. A merge is lost if another writer has replaced one
    of its files, or if a plan has reserved one since: the plan's work is worth more, and has applied the
    delete files that it has met. `known`: file → the plan that had reserved it when the merges were planned,
    which delete files are merged beside where they are too many.

    Raises as `Table.commit`, but for conflicts: then no file is known to be lost (R3).
    """
    reserved = reservations.files(table.refresh())
    wanted, lost, problems = [], [], []
    for change in changes:
        files = change.removed if isinstance(change, Replace) else change.data_files
        beside = known if isinstance(change, MergeDeletes) else NOTHING_RESERVED
        if taken := sorted(file for file in files & reserved.keys() if reserved[file] != beside.get(file)):
            lost.append(change)
            problems.append(f"plan {reserved[taken[0]]} has reserved an input since: {taken[0]}")
        else:
            wanted.append(change)
    version, attempts = None, 0
    if wanted:
        try:
            outcome = table.commit(
                wanted, schema_id=schema_id, summary={FILL: "beside"}, open_below_bytes=open_below_bytes
            )
            assert isinstance(outcome, Committed)
            version, attempts = outcome.version, outcome.attempts
            dropped = {it.change: it.reason for it in outcome.dropped}
        except CommitConflictError as conflict:
            dropped = dict.fromkeys(wanted, str(conflict))
        lost += [replace for replace in wanted if replace in dropped]
        problems += dict.fromkeys(dropped.values())
    live = tuple(replace for replace in wanted if replace not in lost)
    return PublishedFills(version, live, tuple(lost), tuple(problems), attempts)


def delete_lost(table: Table, published: PublishedFills) -> None:
    """Delete the files of merges that are lost, best effort: what remains is an orphan."""
    with suppress(StoreUnavailableError):
        table.store.delete(
            [table.store.relative(it.file_path) for lost in published.lost for it in lost.rewritten_files]
        )


def _sort_order_ids(head: Head, plan: FillPlan) -> dict[str, int]:
    """Return the sort orders of the sorted files that are folded, by their locations."""
    files = [file.path for fill in plan.fills for file in fill.inputs if file.sorted]
    known = head.find_all_live(files)
    return {path: live.sort_order_id for path in files if (live := known.get(path)) is not None}


def _replace(
    fill: PlannedFill, filled: Filled, specs: Mapping[int, PartitionSpec], order_ids: Mapping[str, int]
) -> Replace:
    order_id = order_ids.get(fill.inputs[0].path, 0)
    return Replace(
        frozenset(file.path for file in fill.inputs),
        tuple(data_file(file, specs[fill.partition.spec_id], order_id) for file in filled.files),
        frozenset(deletes.path for file in fill.inputs for deletes in file.deletes),
        filled.deleted_rows,
    )


def _merge_of_deletes(plan: FillPlan, merged: DeletesMerged) -> MergeDeletes:
    merge = (plan.run_merges if merged.of_runs else plan.delete_merges)[merged.number]
    spec_id, values = merge.partition
    added = (
        shared_deletes(new.path, new.rows_of, size=new.bytes, spec_id=spec_id, partition=Record(*values))
        for new in merged.files
    )
    return MergeDeletes(
        frozenset(deletes.path for deletes in merge.deletes),
        tuple(added),
        frozenset(merged.forgotten),
        sum(merged.forgotten.values()),
    )
