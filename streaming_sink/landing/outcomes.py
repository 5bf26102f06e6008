"""Builds the report of a batch, by outcome: empty, skipped, written, committed."""

from __future__ import annotations

from dataclasses import fields, replace

from streaming_sink.landing.checking import failed_checks
from streaming_sink.landing.stages import Settled, Written
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.batch_report import BatchReport
from streaming_sink.reports.reporting import Steps
from streaming_sink.table.rescue import RESCUED
from streaming_sink.table.spec import partition_sources
from streaming_sink.upkeep.maintenance import Maintained
from streaming_sink.upkeep.small_files import warning
from streaming_sink.writing.writer import WriteResult
from timeline.table import Committed
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem


def empty(transaction: Transaction | WorkItem, result: WriteResult, steps: Steps) -> BatchReport:
    counted = ", ".join(f"{count:,} {name}" for name, count in _changes(result).items())
    what = f"changes nothing: {counted}" if result.all_rows else "has no rows"
    return BatchReport(
        app_id=transaction.app_id,
        batch_id=transaction.batch,
        outcome="empty",
        why=f"the batch {what}; nothing was published",
        changes=_changes(result),
        milliseconds=steps.milliseconds,
    )


def skipped(
    transaction: Transaction | WorkItem, settled: Settled, maintained: Maintained, steps: Steps
) -> BatchReport:
    return BatchReport(
        app_id=transaction.app_id,
        batch_id=transaction.batch,
        outcome="skipped" if settled.published is None else "committed",
        why="the batch was committed before; this was a replay"
        if settled.published is None
        else "what an earlier try had staged was published",
        version=settled.table.head.number if settled.published is None else settled.published.version,
        maintenance=maintained.reports,
        problem=maintained.problem,
        milliseconds=steps.milliseconds,
    )


def written(written: Written, steps: Steps, writes: int) -> BatchReport:
    """Return the report with the figures that are known before the commit."""
    result, target, planned = written.result, written.fitted.target, written.planned
    why = [f"a fill was skipped: {skipped.reason}" for skipped in result.skipped]
    if target.evolved:
        why.append(target.evolved)
    rescued = sorted({path[0] for path, misfit in target.misfits.items() if misfit.action == "rescue"})
    if rescued:
        why.append(f"what does not fit goes to {RESCUED}, of {', '.join(rescued)}")
    for position, partition_field in enumerate(partition_sources(target.schema, target.spec)):
        if (
            partition_field.source
            and result.new
            and all(file.partition[position] is None for file in result.new)
        ):
            why.append(f"partition field {partition_field.name} is null in every row of the batch")
    return BatchReport(
        app_id=written.ids.app_id,
        batch_id=written.ids.batch,
        outcome="written",
        why="; ".join(dict.fromkeys(why)),
        rows=result.rows,
        new_files=len(result.new),
        new_bytes=sum(file.bytes for file in result.new),
        filled_files=sum(len(merge.inputs) for merge in result.merges),
        merged_files=len(result.merges),
        merged_bytes=sum(merge.merged.bytes for merge in result.merges),
        dropped_fills=len(result.skipped),
        quarantined=result.quarantined,
        dropped=result.dropped,
        failed=failed_checks(written.fitted.rules, result),
        changes=_changes(result),
        planned_by=planned.made_from,
        route=planned.route,
        writes=writes,
        milliseconds=steps.milliseconds,
    )


def _changes(result: WriteResult) -> dict[str, int]:
    """Return what became of the changes, of each kind that there were."""
    counts = result.changes
    counted = {} if counts is None else {each.name: getattr(counts, each.name) for each in fields(counts)}
    return {name: count for name, count in counted.items() if count}


def committed(
    draft: BatchReport,
    commit: Committed,
    maintained: Maintained,
    options: SinkOptions,
    steps: Steps,
) -> BatchReport:
    """Return the report of `written`, completed with the result of the commit."""
    # A key that another writer has declared first is left out too.
    fills = [dropped for dropped in commit.dropped if dropped.change.inputs]
    why = [draft.why, *(f"a fill was dropped: {dropped.reason}" for dropped in fills)]
    if commit.history_cut:
        why.append(
            "snapshots younger than history.expire.max-snapshot-age-ms were expired, because there are"
            " too many"
        )
    return replace(
        draft,
        outcome="committed",
        why="; ".join(text for text in why if text),
        version=commit.version,
        attempts=commit.attempts,
        expired_snapshots=commit.expired_snapshots,
        deleted_files=len(commit.deleted.files),
        deleted_bytes=commit.deleted.bytes,
        dropped_fills=draft.dropped_fills + len(fills),
        maintenance=maintained.reports,
        problem=maintained.problem,
        small_files=maintained.small.files,
        warning=warning(maintained.small, options),
        milliseconds=steps.milliseconds,
    )
