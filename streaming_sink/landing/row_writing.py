"""Writes the rows of a DataFrame for a landing: counted where needed, planned, and written in one action."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from streaming_sink.checks.row_checks import apply_rules
from streaming_sink.landing.checking import check_as_counted, sieve_of
from streaming_sink.landing.prepare import prepared
from streaming_sink.landing.source import SinkParts
from streaming_sink.landing.stages import Fitted, Written
from streaming_sink.reports.steps import Steps
from streaming_sink.spark.jobs import parallelism
from streaming_sink.spark.worker_failures import IndexChangedError
from streaming_sink.table.stated_metrics import stated_metrics
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.rows.failures import REFUSE
from streaming_sink.writing.planning import Experience
from streaming_sink.writing.writer import WriteJob, write
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
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
        changes = apply_rules(parts.keys.changes(batch, target), rules)
        cores, skips_unfit = parallelism(self.session), rules.unfit != REFUSE
        preparing = prepared(
            changes, target, destination, parts.options, self.experience, cores, steps, skips_unfit
        )
        with preparing as (rows, planned), steps("write"):
            ids = file_ids(fitted, self.transaction)
            keyed = parts.keys.begin(target)
            joined = [file.path for bucket in planned.plan.buckets for file in bucket.inputs]
            stated = {} if target.head is None or not joined else stated_metrics(target.head, joined)
            job = WriteJob(
                store=destination.store,
                schema=target.schema,
                spec=target.spec,
                properties=target.properties,
                plan=planned.plan,
                routing=planned.routing,
                ids=ids,
                sieve=sieve_of(rules, batch, ids, self.query_id, parts.quarantine, target),
                keys=None if keyed is None else keyed.job,
                needs_ids=target.head is not None and target.head.version.is_shared,
                stated=stated,
            )
            try:
                result = write(rows, job)
            except IndexChangedError:
                parts.keys.forget_index()
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
