"""Clustering by the stream itself: a pass after every so many commits, as the head counts them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming_sink.clustering.option_types import check_types
from streaming_sink.clustering.options import Pass, PassOptions, check_names, pass_of
from streaming_sink.clustering.scheduling import Scheduled, schedule_pass, why_nothing
from timeline.plans import instants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from timeline.plans.claims import Watch
    from timeline.plans.reservations import Reservations
    from timeline.table import Table
    from timeline.versions.head import Head

_LOG = logging.getLogger("streaming_sink")


@dataclass(frozen=True, init=False)
class InlineClustering:
    """`IcebergSink(..., clustering=InlineClustering(every_commits=4, sort_by=["session_id"]))`

    After every `every_commits` commits the sink that made the last of them runs one pass, and the next batch
    waits for it. The commits are counted in the table's head, over restarts, and over all sinks that cluster
    it inline. With `schedule_only` the plan is only saved, and `streaming_sink.clustering.execute` or
    `python -m streaming_sink cluster LOCATION --pending` carries it out elsewhere.

    `when_small_files`: back-pressure. A batch after which one of its partitions holds more small files than
    this runs a pass at once, due or not, and waits for it. Small is what is below the limit of filling, or,
    in a sink that does not fill, below that of clustering. Some hundreds are a sound bound.

    A pass that fails is told in the batch's report and in the log, and never raised: the batch is in the
    table. The next due commit tries again. For the other options see `PassOptions`.

    TypeError for an unknown option, ValueError for values that cannot be. Columns are checked at the first
    batch, where the table is known: a ValueError then ends the stream before anything is written.
    """

    every_commits: int
    schedule_only: bool
    when_small_files: int | None
    asked: Pass

    def __init__(
        self,
        *,
        every_commits: int = 4,
        schedule_only: bool = False,
        when_small_files: int | None = None,
        **options: Unpack[PassOptions],
    ) -> None:
        check_names("InlineClustering", options, ("every_commits", "schedule_only", "when_small_files"))
        if type(every_commits) is not int or every_commits < 1:
            raise ValueError(f"every_commits must be a whole number of at least 1: {every_commits!r}")
        check_types({"schedule_only": schedule_only})
        _check_bound(when_small_files, schedule_only)
        object.__setattr__(self, "every_commits", every_commits)
        object.__setattr__(self, "schedule_only", schedule_only)
        object.__setattr__(self, "when_small_files", when_small_files)
        object.__setattr__(self, "asked", pass_of(**options))
        if not schedule_only:
            self.asked.check_keys()

    def is_due(self, head: Head) -> bool:
        """Return whether the commit that made this head is the one after which a pass runs."""
        return head.counted_commits > 0 and head.counted_commits % self.every_commits == 0


class AsyncClustering(InlineClustering):
    """`InlineClustering` whose passes run in a thread beside the stream: no batch waits for one, but where
    there are more than `when_small_files`: for the pass under way, and for one more in the batch itself.

    One pass at a time; a commit that is due meanwhile starts none. What came of a pass is told in the report
    of the next batch. Its tasks share the session's cores with the stream's: for passes that take none of
    them, run `python -m streaming_sink cluster LOCATION` elsewhere.
    """


def _check_bound(when_small_files: object, schedule_only: bool) -> None:
    if when_small_files is None:
        return
    if type(when_small_files) is not int or when_small_files < 1:
        raise ValueError(
            "when_small_files must be a whole number of at least 1, or left out for no back-pressure:"
            f" {when_small_files!r}"
        )
    if schedule_only:
        raise ValueError(
            "when_small_files lets the sink do the work itself, and schedule_only leaves all of it to another"
            f" job; give one of them: when_small_files={when_small_files}, schedule_only=True"
        )


def run_pass(
    asked: InlineClustering, session: SparkSession, table: Table, reservations: Reservations, watch: Watch
) -> str:
    """Finish what dead executors left, run a pass, and return what came of it as one line.

    Never raises for a pass that fails: that is told, logged, and its plan cancelled.
    """
    from streaming_sink.clustering.execute_plan import carry_out, take_over  # need pyspark; options do not

    plan_id = None
    try:
        table.refresh()
        told = [report.line() for report in take_over(session, table, asked.asked.execution, watch)]
        scheduled = schedule_pass(table, reservations, asked.asked)
        if not isinstance(scheduled, Scheduled):
            return "; ".join([*told, f"clustering: {why_nothing(scheduled)}"])
        plan_id = scheduled.plan_id
        if asked.schedule_only:
            return "; ".join([*told, f"clustering {plan_id}: scheduled {len(scheduled.plan.groups)} groups"])
        report = carry_out(session, table, plan_id, asked.asked.execution)
        last = f"clustering {plan_id}: another executor has it" if report is None else report.line()
        return "; ".join([*told, last])
    except Exception as failure:  # noqa: BLE001 - the batch is committed: no failure here is the stream's
        said = f"clustering failed, and is tried again when it is due: {type(failure).__name__}: {failure}"
        _LOG.warning("%s", said, exc_info=failure)
    if plan_id is not None:
        _give_up(table, plan_id)
    return said


def _give_up(table: Table, plan_id: str) -> None:
    try:
        instants.cancel(table, plan_id, reason="its executor failed")
    except Exception as failure:  # noqa: BLE001 - as above; a plan that stays pending times out
        _LOG.warning("clustering plan %s stays pending: %s", plan_id, failure)
