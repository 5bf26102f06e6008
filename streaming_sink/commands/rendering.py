"""What a table holds, as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from planners.printing import span_text
from planners.sizing import count_text, size_text
from streaming_sink.commands.terminal import Figure, Id, say, say_table
from streaming_sink.reading.description import Description, SizeClass
from streaming_sink.reading.files import FileDetails, PartitionDetails
from streaming_sink.reading.mirrors import MirrorDetails
from streaming_sink.reading.plans import PlanDetails
from streaming_sink.reading.quarantined_rows import QuarantineDetails
from streaming_sink.reading.snapshots import SnapshotDetails
from streaming_sink.reading.status import TableStatus
from timeline.properties import NAME_MAPPING, is_protocol


def say_description(of: Description) -> None:
    deletes = f", and {count_text(of.delete_files, 'delete file')}" if of.delete_files else ""
    for name, value in (
        ("table", of.location),
        ("uuid", of.table_uuid),
        ("format", f"Iceberg v{of.format_version}"),
        ("version", f"{of.version}, of {_time(of.updated_ms)}"),
        ("metadata", of.metadata),
        *(("mirror", _mirrored(it)) for it in of.mirrors),
        ("snapshots", f"{of.snapshots:,}"),
        ("rows", f"{of.rows:,}"),
        ("size", f"{size_text(of.bytes)} in {count_text(of.files, 'file')}{deletes}"),
    ):
        say(f"{name:<10}{value}")
    say("")
    say("in DuckDB:")
    say(f"SELECT * FROM iceberg_scan({_quoted(of.metadata)})")
    say("")
    say_table(
        ["id", "column", "type", "required"],
        [(_number(it.id), it.name, it.type, it.required) for it in of.columns],
    )
    say("")
    if of.partition_by:
        say_table(
            ["id", "partition field", "transform", "column"],
            [(_number(it.id), it.name, it.transform, it.source) for it in of.partition_by],
        )
    else:
        say("not partitioned")
    for it in of.specs:
        if not it.is_current:
            files = f"{count_text(it.files, 'file')}, {size_text(it.bytes)}"
            say(f"spec {it.spec_id} before: partitioned by {it.partition_by}; {files}")
    say("")
    say_table(
        ["class", "size of a file", "files", "together"],
        [
            (it.name.replace("_", " "), _limits(it), it.files, Figure(size_text(it.bytes)))
            for it in of.size_classes
        ],
    )
    if of.small_partitions:
        say("\npartitions with most small files:\n")
        say_partitions(of.small_partitions, 0, 0)
    stated = {
        key: value for key, value in of.properties.items() if not is_protocol(key) and key != NAME_MAPPING
    }
    say("")
    say_table(["property", "value"], list(stated.items()))
    say(f"and {len(of.properties) - len(stated)} of the commit protocol, which --json shows")


def say_files(files: Sequence[FileDetails], of: int) -> None:
    if not files:
        say("no file")
        return
    say_table(
        ["size", "rows", "state", "plan", "path"],
        [
            (
                Figure(size_text(it.bytes)),
                it.rows,
                _state(it),
                _id(it.plan_id),
                it.path,
            )
            for it in files
        ],
    )
    _say_left(len(files), of, "file")


def say_partitions(partitions: Sequence[PartitionDetails], of: int, small_below: int) -> None:
    if not partitions:
        say("no partition")
        return
    several = len({it.spec_id for it in partitions}) > 1
    say_table(
        [*(["spec"] if several else []), "partition", "files", "small", "rows", "size", "mean"],
        [
            (
                *([_number(it.spec_id)] if several else []),
                it.partition or "the table",
                it.files,
                it.small_files,
                it.rows,
                Figure(size_text(it.bytes)),
                Figure(size_text(it.mean_bytes)),
            )
            for it in partitions
        ],
    )
    if small_below and partitions:
        say(f"small: below {size_text(small_below)}")
    _say_left(len(partitions), of, "partition")


def say_snapshots(snapshots: Sequence[SnapshotDetails], of: int) -> None:
    if not snapshots:
        say("no snapshot")
        return
    say_table(
        ["snapshot", "time", "version", "operation", "files", "rows", "of"],
        [
            (
                Id(it.snapshot_id),
                _time(it.time_ms),
                _number(it.version),
                it.operation,
                Figure(_change(it.added_files, it.removed_files)),
                Figure(_change(it.added_rows, it.removed_rows)),
                _cause(it),
            )
            for it in snapshots
        ],
    )
    _say_left(len(snapshots), of, "snapshot")


def say_plans(plans: Sequence[PlanDetails]) -> None:
    if not plans:
        say("no plan is pending, and none ended in the last week")
        return
    say_table(
        ["plan", "state", "strategy", "files", "size", "age", "since version"],
        [
            (
                Id(it.plan_id),
                _stage(it),
                it.strategy,
                it.files,
                None if it.bytes is None else Figure(size_text(it.bytes)),
                Figure(span_text(it.age_seconds * 1000)),
                _number(it.since_version),
            )
            for it in plans
        ],
    )


def _cause(of: SnapshotDetails) -> str:
    if of.batch_id is not None:
        return f"batch {of.batch_id} of {of.app_id}"
    if of.rolled_back_to is not None:
        return f"rollback to {of.rolled_back_to}"
    return "" if of.plan_id is None else f"plan {of.plan_id}"


def _stage(of: PlanDetails) -> str:
    taken = f", claimed {of.claims} times" if of.claims > 1 else ""
    overdue = ", timed out" if of.timed_out else ""
    return f"{of.state}{taken}{overdue}"


def say_status(of: TableStatus) -> None:
    say(f"{of.location}: version {of.version}")
    say(
        f"{count_text(of.files, 'file')}, {of.small_files:,} of them small, at most"
        f" {of.most_small_files:,} in a partition; {count_text(of.pending_plans, 'pending plan')}"
    )
    for it in of.mirrors:
        say(f"mirror {_mirrored(it)}")
    for warning in of.warnings:
        say(f"warning: {warning}")
    say("")
    if not of.applications:
        say("no application has committed")
        return
    say_table(
        ["application", "batch", "last commit", "age", "batches/min", "rows/min", "remark"],
        [
            (
                it.app_id if it.delivers_from is None else f"{it.app_id}, delivered from {it.delivers_from}",
                _number(it.batch_id),
                "unknown" if it.committed_ms is None else _time(it.committed_ms),
                None if it.age_seconds is None else Figure(span_text(it.age_seconds * 1000)),
                None if it.batches_per_minute is None else Figure(f"{it.batches_per_minute:,}"),
                None if it.rows_per_minute is None else Figure(f"{it.rows_per_minute:,.0f}"),
                it.last_remark,
            )
            for it in of.applications
        ],
    )


def say_quarantine(of: QuarantineDetails) -> None:
    say(f"{of.location}: {count_text(of.waiting, 'row')} waiting, {of.replayed:,} replayed")
    if of.undelivered:
        say(f"{count_text(of.undelivered, 'row')} and marks are committed, and not delivered yet")
    if of.of_other_tables:
        say(f"{count_text(of.of_other_tables, 'row')} waiting for other tables, which share it")
    if of.oldest_ms is None or of.newest_ms is None:
        return
    say(f"oldest {_time(of.oldest_ms)}, newest {_time(of.newest_ms)}")
    say("")
    say_table(
        ["check", "column", "rows", "such as"],
        [(it.check, it.column, it.rows, "" if it.reason == it.check else it.reason) for it in of.checks],
    )
    say("")
    say_table(
        ["application", "rows", "newest"],
        [(it.app_id, it.rows, _time(it.newest_ms)) for it in of.applications],
    )
    for it in of.samples:
        say("")
        say(f"{it.row_id}: {it.reason}")
        say(f"  {it.row}")


def _mirrored(of: MirrorDetails) -> str:
    if of.fork:
        return f"{of.name}: a fork, which is left as it is"
    if of.version is None or of.behind_seconds is None:
        return f"{of.name}: names no version yet"
    behind = f", {count_text(of.behind or 0, 'version')} and {span_text(of.behind_seconds * 1000)} behind"
    return f"{of.name}: version {of.version}{behind if of.behind else ''}"


def _state(of: FileDetails) -> str:
    states = {"sorted": of.sorted, "encrypted": of.encrypted, "deletes": of.deletes}
    return ", ".join(name for name, holds in states.items() if holds)


def _say_left(shown: int, of: int, noun: str) -> None:
    if of > shown:
        say(f"and {count_text(of - shown, f'more {noun}')}")


def _number(number: int | None) -> Figure | None:
    """Return a number that names something and counts nothing."""
    return None if number is None else Figure(number)


def _id(text: str | None) -> Id | None:
    return None if text is None else Id(text)


def _quoted(text: str) -> str:
    """Return text as SQL spells it."""
    return "'" + text.replace("'", "''") + "'"


def _limits(of: SizeClass) -> str:
    if of.below_bytes is None:
        return f"from {size_text(of.at_least_bytes)}"
    if not of.at_least_bytes:
        return f"below {size_text(of.below_bytes)}"
    return f"{size_text(of.at_least_bytes)} to {size_text(of.below_bytes)}"


def _change(added: int, removed: int) -> str:
    plus, minus = f"+{added:,}" if added else "", f"-{removed:,}" if removed else ""
    return f"{plus} {minus}".strip()


def _time(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
    return at.strftime("%Y-%m-%d %H:%M:%SZ")
