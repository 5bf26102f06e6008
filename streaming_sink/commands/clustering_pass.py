"""What `cluster` does: plans a pass, saves it, executes it or what is pending, and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from planners.clustering.plan import ClusteringPlan
from planners.clustering.policy import PlanStrategy
from planners.clustering.selection import plan_strategy
from streaming_sink import clustering
from streaming_sink.clustering.options import Pass, PassOptions, execution_of, pass_of
from streaming_sink.clustering.scheduling import Scheduled, plan_pass, schedule_pass, why_nothing
from streaming_sink.commands.pass_flags import NUMBERS, SIZES, flag
from streaming_sink.commands.terminal import DONE, FINDINGS, say, say_json
from streaming_sink.durations import duration
from streaming_sink.options.values.tables import KnownTable
from streaming_sink.reports.cluster_report import ClusterReport
from timeline.clock import SYSTEM
from timeline.plans.claims import PATIENCE_SECONDS, Watch
from timeline.plans.instants import Instant, State
from timeline.plans.reservations import Reservations

_OF_THE_EXECUTION = ("memory_bytes", "checksum", "max_commits")
_LOOK_SECONDS = 30.0


@dataclass
class Call:
    """One call of `cluster`: where, and what it has found so far, which is printed as it comes, or at the end
    as JSON.
    """

    table: KnownTable
    as_json: bool
    plan_id: str | None = None
    plan: ClusteringPlan | None = None
    reports: list[ClusterReport] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    """The plans that other executors have."""
    why: str = ""
    """Why there was nothing to do."""

    def pass_options(self, given: dict[str, Any]) -> PassOptions:
        """Return the options that were given, and no others."""
        names = ("strategy", "parameters", "where", *SIZES, *NUMBERS)
        options: dict[str, Any] = {name: value for name in names if (value := given[name]) is not None}
        if given["sort_by"] is not None:
            options["sort_by"] = given["sort_by"].split(",")
        if given["checksum"]:
            options["checksum"] = True
        if select := [_plan_strategy(text) for text in given["select"]]:
            options["select"] = select
        return cast("PassOptions", options)

    def only_plan(self, options: PassOptions) -> int:
        """Plan a pass as it would be executed here, and change nothing."""
        asked, table = pass_of(**options), self.table.open()
        self.plan = plan_pass(table, Reservations(table.store), asked, executes=True)
        self.say(self.plan.explain())
        return DONE

    def schedule(self, options: PassOptions, *, execute: bool) -> int:
        """Plan and save a pass, and execute it if asked to."""
        asked, table = pass_of(**options), self.table.open()
        if execute:
            _check_keys(asked)
        scheduled = schedule_pass(table, Reservations(table.store), asked, executes=execute)
        if not isinstance(scheduled, Scheduled):
            self.why = why_nothing(scheduled)
            self.say(self.why)
            return DONE
        self.plan_id, self.plan = scheduled.plan_id, scheduled.plan
        if not execute:
            self.say(f"{scheduled.plan_id}\n{scheduled.plan.explain()}")
            return DONE
        how = {name: value for name, value in options.items() if name in _OF_THE_EXECUTION}
        return self._execute([scheduled.plan_id], how)

    def execute_pending(self, options: dict[str, Any], wait: str | None) -> int:
        """Execute the plans without a claim and, for as long as --wait, those whose claims are abandoned."""
        for name in options:
            if name not in _OF_THE_EXECUTION:
                raise ValueError(f"--pending executes plans as they were saved: drop {flag(name)}")
        execution_of(**options)  # refuses impossible values before Spark starts
        store, watch, code = self.table.open().store, Watch(SYSTEM), DONE
        ends = SYSTEM.monotonic() + _wait_seconds(wait)
        tried: set[tuple[str, int]] = set()
        while True:
            shown = clustering.show(self.table)
            pending = [it for it in shown if not it.timed_out and (it.plan_id, it.claim) not in tried]
            claimed = [it for it in pending if it.state is State.INFLIGHT]
            ready = [it for it in claimed if watch.is_abandoned(store, it.plan_id, it.claim)]
            ready += [it for it in pending if it.state is State.REQUESTED]
            if ready:
                tried.update((it.plan_id, it.claim) for it in ready)
                code = max(code, self._execute([it.plan_id for it in ready], options, watch))
            elif not claimed or SYSTEM.monotonic() >= ends:
                break
            else:
                SYSTEM.sleep(min(_LOOK_SECONDS, max(0.0, ends - SYSTEM.monotonic())))
        for it in claimed:
            self.held.append(it.plan_id)
            self.say(_held(it, waited=wait is not None))
        if not tried and not claimed:
            self.why = "nothing to do"
            self.say(self.why)
        return code

    def _execute(self, plan_ids: Sequence[str], options: dict[str, Any], watch: Watch | None = None) -> int:
        """Execute plans; FINDINGS where a group was dropped or failed."""
        from pyspark.sql import SparkSession  # the other commands work without it

        session = SparkSession.builder.appName("streaming_sink cluster").getOrCreate()
        code = DONE
        for plan_id in plan_ids:
            report = clustering.execute(session, self.table, plan_id, watch=watch, **options)
            if report is None:
                self.held.append(plan_id)
                self.say(f"clustering {plan_id}: another executor has it")
                continue
            self.reports.append(report)
            self.say(report.line())
            if len(report.committed) < len(report.groups):
                code = FINDINGS
        return code

    def say(self, text: str) -> None:
        if not self.as_json:
            say(text)

    def say_all(self) -> None:
        if self.as_json:
            say_json(
                {
                    "plan_id": self.plan_id,
                    "plan": None if self.plan is None else self.plan.to_dict(),
                    "others": None if self.plan is None else self.plan.others,
                    "has_more": None if self.plan is None else self.plan.has_more,
                    "reports": [report.to_dict() for report in self.reports],
                    "held": self.held,
                    "why": self.why,
                }
            )


def _check_keys(asked: Pass) -> None:
    try:
        asked.check_keys()
    except ValueError:
        raise ValueError(
            "files are encrypted through a client of a key management service, which no option can name; save"
            " the plan by --schedule-only, and give keys= to streaming_sink.clustering.execute in Python"
        ) from None


def _plan_strategy(text: str) -> PlanStrategy:
    name, *terms = text.split(",")
    parameters = {}
    for term in terms:
        key, _, value = term.partition("=")
        if not value.strip().isdecimal():
            raise ValueError(f"--select {text}: {key} takes a whole number, as in {key}=3")
        parameters[key.strip()] = int(value)
    return plan_strategy(name, **parameters)


def _wait_seconds(text: str | None) -> float:
    if text is None:
        return 0.0
    seconds = duration("--wait", text).total_seconds()
    if seconds <= PATIENCE_SECONDS:
        raise ValueError(
            f"a claim is abandoned after {PATIENCE_SECONDS:.0f} seconds without a heartbeat, so --wait must"
            f" be longer: {text}"
        )
    return seconds


def _held(instant: Instant, *, waited: bool) -> str:
    what = "wrote heartbeats" if waited else 'may have died; --wait "10 minutes" finds out, and takes over'
    return f"clustering {instant.plan_id}: another executor has it, which {what}"
