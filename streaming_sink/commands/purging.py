"""The command `purge`: rows of some keys leave the bytes of a table and its second tables."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

import click

from planners.sizing import count_text
from streaming_sink.commands.arguments import also, of_a_table
from streaming_sink.commands.terminal import DONE, FINDINGS, say, say_json
from streaming_sink.commands.zones import SearchedZone, search_zones, zones

if TYPE_CHECKING:
    from streaming_sink.options.values.tables import KnownTable
    from streaming_sink.removal.report import PurgedTable, PurgeReport

_SHOWN = 20
_WIDTH = 110
_LABEL = "  {:<11}"


@click.command()
@of_a_table
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="A key whose rows are to go; one of several columns has commas between them. May be repeated.",
)
@click.option(
    "--keys-file",
    type=click.File("r", encoding="utf-8"),
    help='Keys as JSON objects, one a line, such as {"user_id": 42}; - for stdin.',
)
@also
@zones
@click.option("--dry-run", is_flag=True, help="Only say what there is, and what would happen.")
@click.option("--wait", metavar="AGE", help="Stay until all has left, so long at most, as in '3 hours'.")
def purge(
    table: KnownTable,
    as_json: bool,
    keys: tuple[str, ...],
    keys_file: TextIO | None,
    also: tuple[str, ...],
    zones: tuple[str, ...],
    dry_run: bool,
    wait: str | None,
) -> int:
    """Remove the rows of some keys from the bytes: of the table, its quarantine and its change logs, and of
    staged files of buffer zones that have landed.

    Deletes the rows, rewrites the files that hold them, and expires the snapshots that have the old files:
    time travel to these ends. The old files are deleted 100 versions and the grace period later. A call does
    what can be done now and says what is left until when; call it again then. With --wait it stays, and makes
    a version every ten seconds where no stream does. Streams may go on. Exit code 1: something is left.
    """
    from streaming_sink.durations import duration
    from streaming_sink.removal.purge import Purge
    from streaming_sink.removal.wanted import WantedKeys

    if bool(keys) == (keys_file is not None):
        raise ValueError("name the keys, by --key COLUMN=VALUE or by --keys-file FILE")
    wanted = WantedKeys.parse(keys) if keys_file is None else WantedKeys.read(keys_file)
    most = None if wait is None else duration("--wait", wait)
    job = Purge.open(table, wanted, also)
    before = job.report(dry_run=True)
    if not dry_run:
        if not as_json:
            for purged in before.tables:
                if purged.ends_time_travel is not None:
                    say(_ends(purged, "is about to end"))
        job.run()
        if most is not None:
            sys.stderr.write(f"waiting until all has left, {most} at most\n")
            job.wait(most.total_seconds())
    report = before if dry_run else job.report()
    searched = search_zones(zones, table, wanted, purge=not dry_run)
    is_gone = report.is_gone and not any(each.left for each in searched)
    if as_json:
        say_json({"is_gone": is_gone, "report": report, "zones": searched})
    else:
        for each in searched:
            _say_zone(each)
        _say(report)
    return DONE if is_gone else FINDINGS


def _say_zone(zone: SearchedZone) -> None:
    say(f"buffer zone {zone.location}")
    files = count_text(len(zone.found), "staged file")
    say(f"  found      {count_text(sum(zone.found.values()), 'row')} in {files}")
    say(f"  done       {count_text(len(zone.deleted), 'staged file')} deleted")
    for path in zone.left[:_SHOWN]:
        until = zone.unread.get(
            path, "its rows have landed, and this is run again; one that was rejected is yours to delete"
        )
        say(_wrapped("left", f"{path}, until: {until}"))
    say(_wrapped("sources", f"not looked at, they are their producers': {', '.join(zone.sources)}"))
    say("")


def _say(report: PurgeReport) -> None:
    for table in report.tables:
        say(f"{table.role} {table.location}")
        found = ", ".join(f"{number:,} {kind}" for kind, number in table.found.items())
        say(f"  found      {found or 'nothing'}")
        if report.dry_run:
            if table.ends_time_travel is not None:
                say(f"  history    {_ends(table, 'would end')}")
        else:
            versions = f" in version {', '.join(map(str, table.versions))}" if table.versions else ""
            say(
                f"  done       {count_text(table.deleted_rows, 'row')} deleted,"
                f" {count_text(table.rewritten_files, 'file')} rewritten without"
                f" {count_text(table.delete_files, 'delete file')}{versions}"
            )
            say(
                f"             {count_text(table.expired_snapshots, 'snapshot')} expired,"
                f" {count_text(table.deleted_files, 'file')} and"
                f" {count_text(table.deleted_runs, 'key run')} deleted"
            )
            if table.ends_time_travel is not None:
                say(f"  history    {_ends(table, 'ends')}")
        for problem in table.problems:
            say(_wrapped("problem", problem))
        for each in table.left[:_SHOWN]:
            say(_wrapped("left", f"{each.kind.value} {each.path}, until: {each.until}"))
        if len(table.left) > _SHOWN:
            say(f"  left       and {len(table.left) - _SHOWN:,} more, which --json shows")
        say("")
    if report.is_gone:
        say(f"no row of {count_text(report.keys, 'key')} is left in these tables")
    elif report.dry_run:
        say("nothing was changed")
    else:
        say("rows are left until then: run this again, and `streaming-sink doctor LOCATION --gone` to check")


def _wrapped(name: str, text: str) -> str:
    """Return a text below its name, in lines that no path breaks."""
    indent = " " * len(_LABEL.format(""))
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=_LABEL.format(name),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _ends(table: PurgedTable, ends: str) -> str:
    assert table.ends_time_travel is not None
    first, last = table.ends_time_travel
    which = f"version {first:,}" if first == last else f"versions {first:,} to {last:,}"
    return f"time travel of the {table.role} to {which} {ends}, as their files hold rows of these keys"


COMMANDS = (purge,)
