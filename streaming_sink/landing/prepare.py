"""Prepares a batch for writing: counts its rows where that is needed, and plans where they go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from streaming_sink.keyed.by_key import changes_plan
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.steps import Steps
from streaming_sink.spark.jobs import described
from streaming_sink.spark.settings import safe_shuffle
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.spec import partition_sources
from streaming_sink.writing.persisting import persisted
from streaming_sink.writing.planning import (
    Experience,
    Planned,
    bulk_plan,
    needs_counting,
    plan_batch,
    uncounted_plan,
)
from streaming_sink.writing.profile import Profile, count_rows
from streaming_sink.writing.target import Destination, Target
from timeline.versions.head import Head


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
) -> Profile:
    with steps("profile"), described(rows.sparkSession, f"{options.location}: counting rows"):
        fields = partition_sources(target.schema, target.spec)
        return count_rows(rows, arrow_schema(target.schema), fields, skips_unfit)
