"""The commands `cluster`, `plans` and `cancel`. Only `cluster` starts Spark, and only where there is work."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, cast

from planners.clustering.policy import PlanStrategy
from planners.clustering.selection import plan_strategy
from planners.clustering.strategies import BUILT_IN
from streaming_sink import clustering
from streaming_sink.clustering.options import PassOptions, execution_of, pass_of
from streaming_sink.clustering.scheduling import why_nothing
from streaming_sink.clustering.where import partitions_where
from streaming_sink.commands.terminal import DONE, FINDINGS, KeyValue, say
from streaming_sink.durations import duration
from timeline.clock import SYSTEM
from timeline.plans.claims import PATIENCE_SECONDS, Watch
from timeline.plans.instants import Instant, State
from timeline.stores import open_store
from timeline.table import open_table

SIZES = ("target_file_bytes", "small_file_bytes", "max_group_bytes", "max_bytes_per_pass", "memory_bytes")
NUMBERS = ("max_group_files", "max_groups", "overlap_at_least", "max_commits")
_OF_THE_EXECUTION = ("memory_bytes", "checksum", "max_commits")
_LOOK_SECONDS = 30.0

Add = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_commands(add: Add) -> None:
    """Add the commands by `add`, which takes a name, what runs it and what it does."""
    command = add("cluster", _cluster, "rewrite files so that rows that are queried together share files")
    asked = command.add_argument_group("options of a pass", "See docs/clustering.md.")
    asked.add_argument("--sort-by", metavar="COLUMN,...", help='such as "session_id,time desc nulls last"')
    asked.add_argument("--strategy", metavar="NAME", help=f"one of {', '.join(BUILT_IN)}")
    asked.add_argument(
        "--parameter",
        dest="parameters",
        metavar="KEY=VALUE",
        action=KeyValue,
        help="of the strategy",
    )
    asked.add_argument(
        "--select",
        action="append",
        metavar="NAME",
        help="which files: by_size (default), by_overlap, all, or recent_partitions,look_back=3; of"
        " several, a file has to pass all",
    )
    asked.add_argument(
        "--where",
        metavar="FIELD=VALUE,...",
        help='only these partitions, as their folders are called: "region=eu,region=us,day=2026-01-01"',
    )
    for name in SIZES:
        asked.add_argument(_flag(name), metavar="SIZE", help='such as "512MiB"')
    for name in NUMBERS:
        asked.add_argument(_flag(name), metavar="NUMBER", type=int)
    asked.add_argument(
        "--checksum", action="store_true", help="read the written files back, and compare the rows"
    )
    how = command.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only print the plan")
    how.add_argument("--schedule-only", action="store_true", help="save the plan, for --pending elsewhere")
    how.add_argument("--pending", action="store_true", help="execute the saved plans, and make none")
    command.add_argument(
        "--wait",
        metavar="TIME",
        help='with --pending: wait for so long, such as "10 minutes", while other executors have plans, and'
        f" take over those without a heartbeat for {PATIENCE_SECONDS / 60:.0f} minutes",
    )
    add("plans", _plans, "print a line for every clustering plan, oldest first")
    cancelling = add("cancel", _cancel, "withdraw a pending clustering plan, and free its files")
    cancelling.add_argument("plan_id", metavar="PLAN", help="its id, as `plans` prints it")


def _cluster(given: argparse.Namespace) -> int:
    options = _pass_options(given)
    if given.pending:
        return _pending(given, dict(options))
    if given.wait is not None:
        raise ValueError("--wait waits for other executors; give it with --pending")
    store = given.storage_options
    if given.dry_run:
        say(clustering.plan(given.location, storage_options=store, **options).explain())
        return DONE
    if not given.schedule_only:
        pass_of(**options).check_keys()
    scheduled = clustering.schedule(given.location, storage_options=store, **options)
    if scheduled is None:
        say(why_nothing(clustering.plan(given.location, storage_options=store, **options)))
        return DONE
    if given.schedule_only:
        say(f"{scheduled.plan_id}\n{scheduled.plan.explain()}")
        return DONE
    how = {name: value for name, value in options.items() if name in _OF_THE_EXECUTION}
    return _execute(given, [scheduled.plan_id], how)


def _pass_options(given: argparse.Namespace) -> PassOptions:
    """Return the options that were given, and no others."""
    names = ("strategy", "parameters", *SIZES, *NUMBERS)
    options: dict[str, Any] = {name: value for name in names if (value := getattr(given, name)) is not None}
    if given.sort_by is not None:
        options["sort_by"] = given.sort_by.split(",")
    if given.checksum:
        options["checksum"] = True
    select = [_plan_strategy(text) for text in given.select or ()]
    if given.where is not None:
        head = open_table(given.location, given.storage_options).head
        select = [*(select or [plan_strategy("by_size")]), partitions_where(head, given.where)]
    if select:
        options["select"] = select
    return cast(PassOptions, options)


def _plan_strategy(text: str) -> PlanStrategy:
    name, *terms = text.split(",")
    parameters = {}
    for term in terms:
        key, _, value = term.partition("=")
        if not value.strip().isdecimal():
            raise ValueError(f"--select {text}: {key} takes a whole number, as in {key}=3")
        parameters[key.strip()] = int(value)
    return plan_strategy(name, **parameters)


def _pending(given: argparse.Namespace, options: dict[str, Any]) -> int:
    """Execute the plans without a claim and, for as long as --wait, those whose claims are abandoned."""
    for name in options:
        if name not in _OF_THE_EXECUTION:
            raise ValueError(f"--pending executes plans as they were saved: drop {_flag(name)}")
    execution_of(**options)  # refuses impossible values before Spark starts
    store, watch, code = open_store(given.location, given.storage_options), Watch(SYSTEM), DONE
    ends = SYSTEM.monotonic() + _wait_seconds(given.wait)
    tried: set[tuple[str, int]] = set()
    while True:
        shown = clustering.show(given.location, storage_options=given.storage_options)
        pending = [it for it in shown if not it.timed_out and (it.plan_id, it.claim) not in tried]
        claimed = [it for it in pending if it.state is State.INFLIGHT]
        ready = [it for it in claimed if watch.is_abandoned(store, it.plan_id, it.claim)]
        ready += [it for it in pending if it.state is State.REQUESTED]
        if ready:
            tried.update((it.plan_id, it.claim) for it in ready)
            code = max(code, _execute(given, [it.plan_id for it in ready], options, watch))
        elif not claimed or SYSTEM.monotonic() >= ends:
            break
        else:
            SYSTEM.sleep(min(_LOOK_SECONDS, max(0.0, ends - SYSTEM.monotonic())))
    for it in claimed:
        say(_held(it, waited=given.wait is not None))
    if not tried and not claimed:
        say("nothing to do")
    return code


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


def _execute(
    given: argparse.Namespace, plan_ids: Sequence[str], options: dict[str, Any], watch: Watch | None = None
) -> int:
    """Execute plans; FINDINGS where a group was dropped or failed."""
    from pyspark.sql import SparkSession  # the other commands work without it

    session = SparkSession.builder.appName("streaming_sink cluster").getOrCreate()
    code = DONE
    for plan_id in plan_ids:
        report = clustering.execute(
            session,
            given.location,
            plan_id,
            watch=watch,
            storage_options=given.storage_options,
            **options,
        )
        say(f"clustering {plan_id}: another executor has it" if report is None else report.line())
        if report is not None and len(report.committed) < len(report.groups):
            code = FINDINGS
    return code


def _plans(given: argparse.Namespace) -> int:
    for instant in clustering.show(given.location, storage_options=given.storage_options):
        since = "" if instant.announced is None else f", since version {instant.announced.version}"
        taken = f", claimed {instant.claim} times" if instant.claim > 1 else ""
        overdue = ", timed out" if instant.timed_out else ""
        say(f"{instant.plan_id} {instant.state.value}{since}{taken}{overdue}")
    return DONE


def _cancel(given: argparse.Namespace) -> int:
    if not clustering.cancel(given.location, given.plan_id, storage_options=given.storage_options):
        raise ValueError(f"no plan {given.plan_id} is pending; the command `plans` shows those that are")
    say(f"cancelled {given.plan_id}; its files are free")
    return DONE


def _flag(name: str) -> str:
    spelled = {"parameters": "--parameter", "select": "--select and --where"}
    return spelled.get(name, f"--{name.replace('_', '-')}")
