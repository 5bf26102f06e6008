"""What a landing asks the table's log to commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streaming_sink.landing.source import FittedT, Source
from streaming_sink.landing.stages import CommitRequest, Written
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.batch_report import BatchReport
from streaming_sink.seconds.second_table import SecondTable
from streaming_sink.table.data_files import fill_of
from timeline.changes.changes import Change
from timeline.changes.plan_changes import CountCommit
from timeline.table import Table


def fills_of(written: Written) -> list[Change]:
    """Return the replaces of small files that rows have joined."""
    return [fill_of(merge, written.fitted.target.spec) for merge in written.result.merges]


def changes_beside(
    source: Source[FittedT],
    written: Written,
    table: Table,
    options: SinkOptions,
    seconds: Iterable[SecondTable],
    is_first: bool,
) -> list[Change]:
    """Return the changes that go with the rows into their commit. `is_first`: of this process."""
    beside = fills_of(written)
    if options.clustering is not None:
        beside.append(CountCommit())
    for each in seconds:
        beside += each.changes(table, source.transaction.app_id, written.result)
    if options.retention is not None and source.transaction.epoch is None and is_first:  # of its run
        beside += options.retention.changes(table.head.properties)
    return beside


def request_of(
    source: Source[FittedT],
    written: Written,
    draft: BatchReport,
    options: SinkOptions,
    changes: Sequence[Change],
) -> CommitRequest:
    """Return the request to commit changes under the names of the source."""
    schema_id, below = written.fitted.target.schema.schema_id, options.sizing.small_file_bytes
    summary = {**draft.to_summary(), **source.summary(written)}
    return CommitRequest(tuple(changes), schema_id, source.transaction, summary, below)
