"""Writes the rows of a DataFrame for a landing: counted where needed, planned, and written in one action."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from streaming_sink.checks.row_checks import apply_rules
from streaming_sink.keyed.by_key import changes_plan
from streaming_sink.landing.checking import check_as_counted, sieve_of
from streaming_sink.landing.source import SinkParts
from streaming_sink.landing.stages import Fitted, Written
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.reporting import Steps
from streaming_sink.spark.jobs import described, parallelism
from streaming_sink.spark.settings import safe_shuffle
from streaming_sink.spark.worker_failures import IndexChangedError
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import stated_metrics
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.rows.count_task import RowCounts
from streaming_sink.tasks.rows.failures import REFUSE
from streaming_sink.writing.planning import (
    Experience,
    Planned,
    bulk_plan,
    needs_counting,
    plan_batch,
    uncounted_plan,
)
from streaming_sink.writing.profile import count_rows, persisted
from streaming_sink.writing.target import Destination, Target
from streaming_sink.writing.writer import worker_job, write
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem


@dataclass(frozen=True)
class RowWriting:
    """How the rows of one query are written, and what its last batches have shown."""

    session: SparkSession
    transaction: Transaction | WorkItem
    query_id: str
    experience: Experience

    def write(self, batch: DataFrame, parts: SinkParts, fitted: Fitted, steps: Steps) -> Written:
        """Write the rows as the table's key, the checks and a plan of files say. CommitConflictError where
        other rows were written than counted, or the table's key index has changed.
        """
        target, rules, destination = fitted.target, fitted.rules, parts.destination
        changes = apply_rules(parts.operation.changes(batch, target), rules)
        cores, skips_unfit = parallelism(self.session), rules.unfit != REFUSE
        preparing = prepared(
            changes, target, destination, parts.options, self.experience, cores, steps, skips_unfit
        )
        with preparing as (rows, planned), steps("write"):
            ids = file_ids(fitted, self.transaction)
            keyed = parts.operation.begin(target)
            joined = [file.path for bucket in planned.plan.buckets for file in bucket.inputs]
            stated = {} if target.head is None or not joined else stated_metrics(target.head, joined)
            job = worker_job(
                destination.store,
                target,
                planned.plan,
                planned.routing,
                ids,
                sieve=sieve_of(rules, batch, ids, self.query_id, parts.quarantine, target),
                keys=None if keyed is None else keyed.job,
                needs_ids=target.head is not None and target.head.version.is_shared,
                stated=stated,
            )
            try:
                result = write(rows, job, planned.routing, target.schema)
            except IndexChangedError:
                parts.operation.forget_index()
                raise
            written = Written(fitted, planned, ids, result, keyed)
        check_as_counted(planned, written.result)
        return written

    def learn(self, written: Written, steps: Steps) -> None:
        """Let the next batches be planned by this one, which was committed."""
        if written.result.rows:
            spec_id, cores = written.fitted.target.spec.spec_id, parallelism(self.session)
            self.experience.add(written.result, written.planned, spec_id, steps.seconds("write"), cores)


def file_ids(fitted: Fitted, transaction: Transaction | WorkItem) -> FileIds:
    """Return what the names of a landing's files begin with. Their time follows the table's, since the
    garbage fence compares the two (R6).
    """
    return FileIds(commit_time(SYSTEM, fitted.target.head), transaction.app_id, transaction.batch)


@contextmanager
def prepared(
    batch: DataFrame,
    target: Target,
    destination: Destination,
    options: SinkOptions,
    experience: Experience,
    cores: int,
    steps: Steps,
    skips_unfit: bool = False,
) -> Iterator[tuple[DataFrame, Planned]]:
    """Yield the rows to write, and where they go: as the last batches lead to expect, as counted, or, where
    nothing can be filled, cut by size alone. Write them within the block: it checks the shuffles, the
    batch's own included, and keeps rows that were counted. `skips_unfit`: as `CountTask` has it.
    """
    if options.keys is not None:
        with safe_shuffle(batch.sparkSession):
            yield batch, changes_plan(target.head, options, cores, experience)
        return
    expected = None if options.bulk else experience.expected(target.spec.spec_id)

    def needs_count(head: Head | None) -> bool:
        return needs_counting(expected, head, options)

    counting = needs_count(None) if target.table is None else target.table.on_head(needs_count)
    with safe_shuffle(batch.sparkSession), persisted(batch, counting) as rows:
        known = _counted(rows, target, options, steps, skips_unfit) if counting else expected

        def plan(head: Head | None) -> Planned:
            if options.bulk:
                return bulk_plan(options)
            if known is None:
                return uncounted_plan(options, bool(target.spec.fields), cores)
            reserved = {} if head is None else destination.reservations.files(head)
            return plan_batch(head, target.spec.spec_id, known, options, cores, experience, reserved)

        with steps("plan"):
            planned = plan(None) if target.table is None else target.table.on_head(plan)
        yield rows, planned


def _counted(
    rows: DataFrame, target: Target, options: SinkOptions, steps: Steps, skips_unfit: bool
) -> RowCounts:
    with steps("profile"), described(rows.sparkSession, f"{options.location}: counting rows"):
        fields = partition_sources(target.schema, target.spec)
        return count_rows(rows, arrow_schema(target.schema), fields, skips_unfit)
