"""The command line, `python -m streaming_sink COMMAND LOCATION`. No Spark is started, but by `cluster`.

A command is a function of its arguments that says what it found and returns the exit code, and a line in
`_parser` that names it. Credentials come from the environment, as obstore reads it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from planners.clustering_policy import STRATEGIES, plan_strategy
from streaming_sink import clustering
from streaming_sink.cleaning import expire_snapshots, remove_orphan_files
from streaming_sink.clustering.options import PassOptions
from streaming_sink.report import history
from timeline.diagnosis import doctor
from timeline.errors import TimelineError
from timeline.instants import State

DONE, FINDINGS, CANNOT = 0, 1, 2
"""Exit codes: all is well; there is something to repair; could not look, or (argparse's) was misasked."""

_SIZES: tuple[Literal["target_file_bytes", "small_file_bytes", "max_bytes_per_pass", "memory_bytes"], ...] = (
    "target_file_bytes",
    "small_file_bytes",
    "max_bytes_per_pass",
    "memory_bytes",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command and return its exit code. Raises SystemExit for arguments that cannot be."""
    given = _parser().parse_args(arguments)
    try:
        code: int = given.run(given)
    except (TimelineError, ValueError) as refusal:
        sys.stderr.write(f"{given.command}: {refusal}\n")
        return CANNOT
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m streaming_sink",
        description="Look after a table that IcebergSink writes. Exit code 0: done, and all is well; 1: there"
        " is something to repair; 2: the table could not be looked at.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    diagnosing = _add(
        commands, "doctor", _doctor, "look for damage and say how to repair it; changes nothing"
    )
    diagnosing.add_argument(
        "--no-probe",
        dest="probe",
        action="store_false",
        help="do not race creates on the store; the probe's own keys under _timeline/probe/ are all that the"
        " doctor ever writes, and it removes them",
    )
    _add(commands, "history", _history, "print a line for every batch that the table remembers, oldest first")
    expiring = _add(commands, "expire", _expire, "expire old snapshots and delete their files, by the policy")
    removing = _add(commands, "orphans", _orphans, "delete old files of this sink that nothing refers to")
    removing.add_argument(
        "--older-than", default="3 days", metavar="AGE", help='24 hours at least; default "3 days"'
    )
    _add_cluster(commands)
    _add(commands, "plans", _plans, "print a line for every clustering plan, oldest first")
    cancelling = _add(commands, "cancel", _cancel, "withdraw a pending clustering plan, and free its files")
    cancelling.add_argument("plan_id", metavar="PLAN", help="its id, as `plans` prints it")
    for command in (expiring, removing):
        command.add_argument("--dry-run", action="store_true", help="only say what would go, and why")
    return parser


def _doctor(given: argparse.Namespace) -> int:
    diagnosis = doctor(given.location, given.storage_options, probe=given.probe)
    _say(diagnosis.text())
    return DONE if diagnosis.healthy else FINDINGS


def _history(given: argparse.Namespace) -> int:
    for report in history(given.location, given.storage_options):
        _say(report.line())
    return DONE


def _expire(given: argparse.Namespace) -> int:
    report = expire_snapshots(given.location, dry_run=given.dry_run, storage_options=given.storage_options)
    _say(str(report))
    return DONE


def _orphans(given: argparse.Namespace) -> int:
    report = remove_orphan_files(
        given.location,
        older_than=given.older_than,
        dry_run=given.dry_run,
        storage_options=given.storage_options,
    )
    _say(str(report))
    return DONE


def _add_cluster(commands: Any) -> None:
    command = _add(commands, "cluster", _cluster, "put rows that are asked for together into the same files")
    command.add_argument("--sort-by", metavar="COLUMN,...", help='such as "session_id,time desc nulls last"')
    command.add_argument("--strategy", metavar="NAME", help=f"one of {', '.join(STRATEGIES)}")
    command.add_argument(
        "--select",
        default="by_size",
        metavar="NAME",
        help="which files: by_size (default), by_overlap, all, or recent_partitions,look_back=3",
    )
    for name in _SIZES:
        command.add_argument(f"--{name.replace('_', '-')}", metavar="SIZE", help='such as "512MiB"')
    command.add_argument("--checksum", action="store_true", help="read back what was written, and compare")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only print the plan")
    how.add_argument("--schedule-only", action="store_true", help="save the plan, for --pending elsewhere")
    how.add_argument("--pending", action="store_true", help="carry out the saved plans, and make none")


def _cluster(given: argparse.Namespace) -> int:
    if given.pending:
        shown = clustering.show(given.location, storage_options=given.storage_options)
        waiting = [it.plan_id for it in shown if it.state is State.REQUESTED and not it.timed_out]
        return _carry_out(given, waiting)
    options = _pass_options(given)
    if given.dry_run:
        plan = clustering.plan(given.location, storage_options=given.storage_options, **options)
        _say(plan.explain())
        return DONE
    scheduled = clustering.schedule(given.location, storage_options=given.storage_options, **options)
    if scheduled is not None and given.schedule_only:
        _say(f"{scheduled.plan_id}\n{scheduled.plan.explain()}")
        return DONE
    return _carry_out(given, [] if scheduled is None else [scheduled.plan_id])


def _pass_options(given: argparse.Namespace) -> PassOptions:
    name, *parameters = given.select.split(",")
    try:
        chosen = {key: int(value) for key, value in (text.split("=") for text in parameters)}
        options: PassOptions = {"select": plan_strategy(name, **chosen), "checksum": given.checksum}
    except TypeError as missing:
        raise ValueError(f"--select {given.select}: {missing}") from missing
    if given.sort_by:
        options["sort_by"] = given.sort_by.split(",")
    if given.strategy:
        options["strategy"] = given.strategy
    for size in _SIZES:
        if (value := getattr(given, size)) is not None:
            options[size] = value
    return options


def _carry_out(given: argparse.Namespace, plan_ids: Sequence[str]) -> int:
    """Carry out plans; FINDINGS where a group was dropped or failed. Starts Spark, if there is work."""
    if not plan_ids:
        _say("nothing to do")
        return DONE
    from pyspark.sql import SparkSession  # the other commands work where it is not installed

    session = SparkSession.builder.appName("streaming_sink cluster").getOrCreate()
    code = DONE
    for plan_id in plan_ids:
        report = clustering.execute(
            session,
            given.location,
            plan_id,
            memory_bytes=given.memory_bytes or "512MiB",
            checksum=given.checksum,
            storage_options=given.storage_options,
        )
        _say(f"clustering {plan_id}: another executor has it" if report is None else report.line())
        if report is not None and len(report.committed) < len(report.groups):
            code = FINDINGS
    return code


def _plans(given: argparse.Namespace) -> int:
    for instant in clustering.show(given.location, storage_options=given.storage_options):
        since = "" if instant.announced is None else f", since version {instant.announced.version}"
        taken = f", claimed {instant.claim} times" if instant.claim > 1 else ""
        overdue = ", timed out" if instant.timed_out else ""
        _say(f"{instant.plan_id} {instant.state.value}{since}{taken}{overdue}")
    return DONE


def _cancel(given: argparse.Namespace) -> int:
    if not clustering.cancel(given.location, given.plan_id, storage_options=given.storage_options):
        raise ValueError(f"no plan {given.plan_id} is pending; the command `plans` shows those that are")
    _say(f"cancelled {given.plan_id}; its files are free")
    return DONE


def _add(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
    """Add a command that takes a table's location and storage options, which every command does."""
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    command.set_defaults(run=run)
    command.add_argument("location", metavar="LOCATION", help="the table's, as the stream spells it")
    command.add_argument(
        "--option",
        dest="storage_options",
        metavar="KEY=VALUE",
        action=_StorageOption,
        help="one of the sink's storage_options; may be repeated. Leave secrets in the environment",
    )
    return command


class _StorageOption(argparse.Action):
    """Collects KEY=VALUE arguments in a dict; None where there are none."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        key, separator, value = str(values).partition("=")
        if not separator:
            parser.error(f"{option_string} takes KEY=VALUE, not {values!r}")
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), key: value})


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
