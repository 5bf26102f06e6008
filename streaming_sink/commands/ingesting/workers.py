"""The commands that plan and land, `streaming-sink ingest flux|work|dispatch|run ZONE`, and those by which an
operator decides of items and files, `streaming-sink ingest publish|discard|reannounce ZONE`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from planners.sizing import count_text
from streaming_sink.commands.arguments import Pairs, of_a_zone, storage_option
from streaming_sink.commands.ingesting.ingest import ingest
from streaming_sink.commands.terminal import DONE, FINDINGS, say
from streaming_sink.durations import duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.zones.landed import Landed

__all__ = ["ingest"]

_once = click.option("--available-now", is_flag=True, help="Do what there is to do, and end.")


def _seconds(_context: click.Context, parameter: click.Parameter, value: str) -> float:
    try:
        return duration(str(parameter.name), value).total_seconds()
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), param=parameter) from wrong


_patience = click.option(
    "--patience",
    "patience_seconds",
    default="1 minute",
    show_default=True,
    metavar="TIME",
    callback=_seconds,
    help="Without a heartbeat, before a worker is taken to be dead.",
)


@ingest.command()
@of_a_zone
@_once
@click.option("--flush", is_flag=True, help="With --available-now: all that waits is due.")
def flux(zone: BufferZone, available_now: bool, flush: bool) -> int:
    """Decide which files become work items, and record the plans. Needs no Spark."""
    import threading

    from streaming_sink.ingest.running import plan_until, plan_waiting

    if available_now:
        say(f"{plan_waiting(zone, flush=flush):,} work items planned")
    else:
        plan_until(zone, threading.Event())
    return DONE


@ingest.command()
@of_a_zone
@_once
@_patience
@click.option("--name", metavar="NAME", help="Of this worker, in its claims; dispatch gives it.")
def work(zone: BufferZone, available_now: bool, patience_seconds: float, name: str | None) -> int:
    """Land work items that are planned, in a Spark session of this process."""
    from streaming_sink.ingest import running

    landed = _Sum()
    running.work(
        _session(),
        zone,
        until_idle=available_now,
        patience_seconds=patience_seconds,
        name=name,
        on_landed=landed.add,
    )
    landed.end(zone)
    return DONE  # of another code `dispatch` takes the worker to have failed


@ingest.command()
@click.argument("zones", nargs=-1, required=True, metavar="ZONE...")
@storage_option
@_once
@_patience
@click.option(
    "--command",
    metavar="COMMAND",
    help="Of a worker, with {zone} and {worker} in it, such as spark-submit; by default a process here.",
)
@click.option("--most-each", default=1, show_default=True, type=click.IntRange(1), help="Workers of a zone.")
@click.option("--most", default=2, show_default=True, type=click.IntRange(1), help="Workers of all zones.")
def dispatch(
    zones: tuple[str, ...],
    storage_options: Pairs,
    available_now: bool,
    patience_seconds: float,
    command: str | None,
    most_each: int,
    most: int,
) -> int:
    """Start a short-lived worker wherever a work item has none. Exit code 1 where workers have failed."""
    from streaming_sink.ingest.compute import COMMAND
    from streaming_sink.ingest.compute import dispatch as dispatch_workers
    from streaming_sink.ingest.zone import BufferZone

    passed_on = [f"--patience={patience_seconds} seconds"]
    passed_on += [f"--option={key}={value}" for key, value in (storage_options or {}).items()]
    started = dispatch_workers(
        [BufferZone(zone, storage_options=storage_options) for zone in zones],
        command=command or [*COMMAND, *passed_on],
        most_each=most_each,
        most=most,
        available_now=available_now,
        patience_seconds=patience_seconds,
    )
    say(f"{started.workers:,} workers have run, {started.failed:,} of them failed")
    return FINDINGS if started.failed else DONE


@ingest.command()
@of_a_zone
@_once
@_patience
def run(zone: BufferZone, available_now: bool, patience_seconds: float) -> int:
    """Plan and land, in one process. Exit code 1 where files were rejected, and with --available-now where
    work items are set apart or held.
    """
    from streaming_sink.ingest import running

    landed = _Sum()
    running.run(
        _session(),
        zone,
        available_now=available_now,
        patience_seconds=patience_seconds,
        on_landed=landed.add,
    )
    found = landed.end(zone)
    return max(found, _say_stopped(zone)) if available_now else found


@dataclass
class _Sum:
    """What has landed here, added up and said as it comes: a worker may run for months."""

    items: int = 0
    files: int = 0
    rows: int = 0
    rejected: int = 0

    def add(self, item: Landed) -> None:
        say(item.line())
        self.rejected += len(item.rejected)
        if not item.published_before:
            self.items += 1
            self.files += item.files_in
            self.rows += item.rows

    def end(self, zone: BufferZone) -> int:
        """Say the sums; return FINDINGS where files were rejected."""
        landed = f"{count_text(self.files, 'file')}, {count_text(self.rows, 'row')}"
        say(f"{count_text(self.items, 'work item')} landed here: {landed}")
        if not self.rejected:
            return DONE
        where = f"streaming-sink ingest ledger {zone.store.location}"
        say(f"{count_text(self.rejected, 'file')} rejected; why: {where}")
        return FINDINGS


def _say_stopped(zone: BufferZone) -> int:
    """Say how many work items wait for people; return FINDINGS where there are such. A worker looks for none:
    there are many of them, and each would ask for all of the zone.
    """
    from streaming_sink.zones.status import status

    stopped = sum(1 for item in status(zone).open_items if item.reason)
    if not stopped:
        return DONE
    where = f"streaming-sink ingest status {zone.store.location}"
    say(f"{count_text(stopped, 'work item')} set apart or held; why: {where}")
    return FINDINGS


def _session() -> SparkSession:
    from pyspark.sql import SparkSession  # the other commands work without it

    sys.stderr.write("starting Spark\n")
    return SparkSession.builder.appName("streaming-sink ingest").getOrCreate()


_item = click.argument("item", type=click.IntRange(0))


@ingest.command()
@of_a_zone
@_item
def publish(zone: BufferZone, item: int) -> int:
    """Publish what is staged of work item ITEM, against its audit too."""
    from streaming_sink.zones.deciding import publish as publish_item

    say(publish_item(zone, item).line())
    return DONE


@ingest.command()
@of_a_zone
@_item
def discard(zone: BufferZone, item: int) -> int:
    """Never land work item ITEM, staged or not. Its source files stay where they are."""
    from streaming_sink.zones.deciding import discard as discard_item

    discard_item(zone, item)
    say(f"work item {item} is discarded")
    return DONE


@ingest.command()
@of_a_zone
@click.option("--file", "paths", multiple=True, metavar="PATH", help="Only this file; may be repeated.")
def reannounce(zone: BufferZone, paths: tuple[str, ...]) -> int:
    """Announce files that were rejected again, once what refused them has changed."""
    from streaming_sink.zones.deciding import reannounce as announce_again

    announced = announce_again(zone, paths)
    say(f"announced again: {count_text(len(announced.files), 'file')}")
    for path in announced.unknown:
        say(f"whether this one is in the table is not known, so it is not: {path}")
    for entry in announced.others:
        advice = "; write it anew, or push it under another name" if entry.state == "discarded" else ""
        say(f"it is {entry.state}, by work item {entry.item}, and not rejected{advice}: {entry.path}")
    return FINDINGS if announced.unknown else DONE


COMMANDS = (ingest,)
"""The group, with all of its commands."""
