"""The command line, `python -m streaming_sink COMMAND LOCATION`. No Spark is started, but by `cluster`.

A command is a function of its arguments that says what it found and returns the exit code, and a line in
`_parser` that names it. Credentials come from the environment, as obstore reads it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from streaming_sink.batch.report import history
from streaming_sink.commands.clustering import add_commands
from streaming_sink.commands.terminal import CANNOT, DONE, FINDINGS, KeyValue, say
from streaming_sink.table.cleaning import expire_snapshots, remove_orphan_files
from timeline.diagnosis import doctor
from timeline.errors import TimelineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Raises SystemExit for impossible arguments."""
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
        description="Maintain a table that IcebergSink writes. Exit code 0: done, and all is well; 1: there"
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
    add_commands(partial(_add, commands))
    for command in (expiring, removing):
        command.add_argument("--dry-run", action="store_true", help="only say what would go, and why")
    return parser


def _doctor(given: argparse.Namespace) -> int:
    diagnosis = doctor(given.location, given.storage_options, probe=given.probe)
    say(diagnosis.text())
    return DONE if diagnosis.healthy else FINDINGS


def _history(given: argparse.Namespace) -> int:
    for report in history(given.location, given.storage_options):
        say(report.line())
    return DONE


def _expire(given: argparse.Namespace) -> int:
    report = expire_snapshots(given.location, dry_run=given.dry_run, storage_options=given.storage_options)
    say(str(report))
    return DONE


def _orphans(given: argparse.Namespace) -> int:
    report = remove_orphan_files(
        given.location,
        older_than=given.older_than,
        dry_run=given.dry_run,
        storage_options=given.storage_options,
    )
    say(str(report))
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
        action=KeyValue,
        help="one of the sink's storage_options; may be repeated. Leave secrets in the environment",
    )
    return command
