"""Clustering by the stream itself: a pass after every so many commits, which the head counts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planners.values import Value, one_of
from streaming_sink.clustering.options import Pass, PassOptions, check_names, pass_of
from streaming_sink.clustering.scheduling import Scheduled, nothing_to_do, schedule_pass, taken
from streaming_sink.clustering.where import NoPartitionError
from streaming_sink.reports.cluster_report import ClusterReport
from timeline.plans import instants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from streaming_sink.table.foreign_rewrites import ForeignRewrites
    from timeline.plans.claims import Watch
    from timeline.plans.reservations import Reservations
    from timeline.table import Table
    from timeline.versions.head import Head

_LOG = logging.getLogger("streaming_sink")
BESIDE = "beside"
ELSEWHERE = "elsewhere"
RUNS = ("inline", BESIDE, ELSEWHERE)
_EVERY_COMMITS = 4
_DEFAULTS = {"every_commits": _EVERY_COMMITS, "run": "inline", "when_small_files": None}
_OWN = tuple(_DEFAULTS)
_APART = ("strategies", "keys", "select")


@dataclass(frozen=True, init=False, repr=False)
class Clustering(Value):
    """`IcebergSink(..., clustering=Clustering(sort_by=["session_id"], every_commits=4))`

    After every `every_commits` commits the sink that made the last of them runs one pass. The commits are
    counted in the table's head, over restarts, and over all sinks that cluster it.

    `run` says where: "inline", so that the next batch waits for the pass; "beside" the stream, in a thread:
    one pass runs at a time, a commit that is due during a pass starts none, the report of the next batch has
    the result, and its tasks share the session's cores with the stream's; or "elsewhere": the plan is only
    saved, and `streaming_sink.clustering.execute` or `streaming-sink cluster LOCATION --pending` carries it
    out on other cores.

    `when_small_files`: back-pressure. A batch after which one of its partitions holds more small files than
    this runs a pass at once, due or not, and waits for it, and for a running one. A file is small below the
    limit of filling or, in a sink that does not fill, below that of clustering. Some hundreds are sound.

    A failed pass is in the batch's report and in the log, and is never raised: the batch is in the table. The
    next due commit tries again. For the other options see `PassOptions`.

    TypeError for an unknown option, ValueError for impossible values. Columns, and the partition fields of
    `where`, are checked at the first batch, where the table is known: a ValueError then ends the stream
    before anything is written.
    """

    every_commits: int
    run: str
    when_small_files: int | None
    given: Mapping[str, Any]
    """The options of a pass, as they were given."""
    settings: Pass = field(init=False, compare=False)

    def __init__(
        self,
        *,
        every_commits: int = _EVERY_COMMITS,
        run: str = "inline",
        when_small_files: int | None = None,
        given: Mapping[str, Any] | None = None,
        **own: Unpack[PassOptions],
    ) -> None:
        options: dict[str, Any] = {**(given or {}), **own}  # of another one, for `dataclasses.replace`
        check_names("Clustering", options, _OWN)
        if type(every_commits) is not int or every_commits < 1:
            raise ValueError(f"every_commits must be a whole number of at least 1: {every_commits!r}")
        one_of("run", run, RUNS)
        _check_bound(when_small_files, run)
        object.__setattr__(self, "every_commits", every_commits)
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "when_small_files", when_small_files)
        lists = {name: list(value) for name, value in options.items() if isinstance(value, list | tuple)}
        object.__setattr__(self, "given", {**options, **lists})
        object.__setattr__(self, "settings", pass_of(**options))
        if run != ELSEWHERE:
            self.settings.check_keys()

    def __repr__(self) -> str:
        own = {name: getattr(self, name) for name in _OWN}
        said = {name: value for name, value in own.items() if value != _DEFAULTS[name]}
        said |= {name: value for name, value in self.given.items() if name not in _APART}
        return f"Clustering({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON has them, but for `keys`, `select`, `strategies`, and a strategy that is
        no name (`apart`). Sort columns are text.
        """
        own = {name: getattr(self, name) for name in _OWN}
        given = {name: value for name, value in self.given.items() if name not in _APART}
        if "strategy" in self.apart:
            del given["strategy"]
        if "sort_by" in given:
            given["sort_by"] = [str(it) for it in given["sort_by"]]
        return own | given

    @property
    def apart(self) -> list[str]:
        """The names of the options that are given, and that no dict has."""
        odd = ["strategy"] if not isinstance(self.given.get("strategy", ""), str) else []
        return [*odd, *(name for name in _APART if name in self.given)]

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], **apart: Any) -> Clustering:
        """Return the clustering that `to_dict` made a dict of; `apart` has what no dict has."""
        return cls(**stored, **apart)

    def is_due(self, head: Head) -> bool:
        """Return whether the commit that made this head is the one after which a pass runs."""
        return head.counted_commits > 0 and head.counted_commits % self.every_commits == 0


def _check_bound(when_small_files: object, run: str) -> None:
    if when_small_files is None:
        return
    if type(when_small_files) is not int or when_small_files < 1:
        raise ValueError(
            "when_small_files must be a whole number of at least 1, or left out for no back-pressure:"
            f" {when_small_files!r}"
        )
    if run == ELSEWHERE:
        raise ValueError(
            'when_small_files makes the sink run passes, and run="elsewhere" leaves all to another job;'
            f" give one of them: when_small_files={when_small_files}, run={run!r}"
        )


def run_pass(
    clustering: Clustering,
    session: SparkSession,
    table: Table,
    reservations: Reservations,
    watch: Watch,
    rewrites: ForeignRewrites | None = None,
) -> list[ClusterReport]:
    """Take over abandoned plans, run a pass, and return the report of each. `rewrites`: where it leaves room.

    Never raises for a pass that fails: its report and the log have the failure, and its plan is cancelled.
    """
    from streaming_sink.clustering.execution import execute_plan, take_over  # need pyspark; options do not

    settings, location = clustering.settings, table.store.location

    plan_id = None
    reports: list[ClusterReport] = []
    try:
        table.refresh()
        reports += take_over(session, table, settings.execution, watch)
        scheduled = schedule_pass(
            table, reservations, settings, rewrites, executes=clustering.run != ELSEWHERE
        )
        if not isinstance(scheduled, Scheduled):
            return [*reports, nothing_to_do(location, scheduled)]
        plan_id = scheduled.plan_id
        if clustering.run == ELSEWHERE:
            why = f"clustering {plan_id}: scheduled {len(scheduled.plan.groups)} groups"
            report = ClusterReport(table=location, outcome="scheduled", plan_id=plan_id, why=why)
            return [*reports, report]
        executed = execute_plan(session, table, plan_id, settings.execution)
        return [*reports, taken(location, plan_id) if executed is None else executed]
    except NoPartitionError as none_yet:
        return [*reports, ClusterReport(table=location, outcome="nothing", why=f"clustering: {none_yet}")]
    except Exception as failure:  # noqa: BLE001 - the batch is committed: no failure here is the stream's
        reports.append(failed_pass(location, failure))
    if plan_id is not None:
        _cancel(table, plan_id)
    return reports


def failed_pass(location: str, failure: Exception) -> ClusterReport:
    """Return the report of a pass that failed, and log it."""
    why = f"clustering failed, and is tried again when it is due: {type(failure).__name__}: {failure}"
    _LOG.warning("%s", why, exc_info=failure)
    return ClusterReport(table=location, outcome="failed", why=why)


def _cancel(table: Table, plan_id: str) -> None:
    try:
        instants.cancel_plan(table, plan_id, reason="its executor failed")
    except Exception as failure:  # noqa: BLE001 - as above; a plan that stays pending times out
        _LOG.warning("clustering plan %s stays pending: %s", plan_id, failure)
