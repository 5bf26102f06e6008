"""The commands that look at a table: `describe`, `files`, `partitions`, `snapshots` and `status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streaming_sink.commands.arguments import limited, of_a_table, with_sizing
from streaming_sink.commands.terminal import DONE, FINDINGS, clear, say_either, say_json

if TYPE_CHECKING:
    from planners import FileSizing
    from streaming_sink.options.values.tables import KnownTable
    from streaming_sink.reading.status import TableStatus
    from timeline.table import Table


@click.command()
@of_a_table
@with_sizing
def describe(table: KnownTable, as_json: bool, small: str | None, largest: str) -> int:
    """Describe a table: its schema, properties, and file sizes."""
    from streaming_sink.commands.rendering import say_description
    from streaming_sink.commands.terminal import counting
    from streaming_sink.reading.description import describe as described

    sizing = _sizing(small, largest)
    with counting("manifests read") as on_read:
        description = table.open().on_head(lambda head: described(head, sizing, on_read))
    return say_either(as_json, description, lambda: say_description(description))


@click.command()
@of_a_table
@click.option(
    "--partition",
    metavar="FIELD=VALUE,...",
    help='Only these partitions, as their folders are called: "region=eu,day=2026-01-01".',
)
@click.option(
    "--order",
    type=click.Choice(["largest", "smallest", "path"]),
    default="largest",
    show_default=True,
    help="Which come first.",
)
@limited
def files(
    table: KnownTable,
    as_json: bool,
    partition: str | None,
    order: str,
    limit: int | None,
) -> int:
    """List the data files, with the state of each.

    Whether it is sorted or encrypted, whether deletes may apply to it, and which pending clustering plan has
    it.
    """
    from streaming_sink.clustering.where import partitions_where
    from streaming_sink.commands.rendering import say_files
    from streaming_sink.reading.files import FileDetails, list_files
    from timeline.plans.reservations import Reservations
    from timeline.versions.head import Head

    opened = table.open()

    def look(head: Head) -> list[FileDetails]:
        keep = None if partition is None else partitions_where(head, partition).holds
        return list_files(head, Reservations(opened.store).files(head), keep)

    listed = opened.on_head(look)
    if order == "smallest":
        listed.reverse()
    elif order == "path":
        listed.sort(key=lambda it: it.path)
    return say_either(as_json, listed[:limit], lambda: say_files(listed[:limit], len(listed)))


@click.command()
@of_a_table
@with_sizing
@limited
def partitions(table: KnownTable, as_json: bool, small: str | None, largest: str, limit: int | None) -> int:
    """List the partitions, those with most small files first."""
    from streaming_sink.commands.rendering import say_partitions
    from streaming_sink.reading.files import list_partitions

    below = _sizing(small, largest).small_file_bytes
    listed = table.open().on_head(lambda head: list_partitions(head, below))
    return say_either(as_json, listed[:limit], lambda: say_partitions(listed[:limit], len(listed), below))


@click.command()
@of_a_table
@limited
def snapshots(table: KnownTable, as_json: bool, limit: int | None) -> int:
    """List the snapshots that are kept, newest first."""
    from streaming_sink.commands.rendering import say_snapshots
    from streaming_sink.reading.snapshots import list_snapshots

    listed = list_snapshots(table.open().head)
    return say_either(as_json, listed[:limit], lambda: say_snapshots(listed[:limit], len(listed)))


@click.command()
@of_a_table
@with_sizing
@click.option("--app", "app_id", metavar="APP_ID", help="Only this application.")
@click.option(
    "--max-age",
    metavar="AGE",
    help='Exit with 1 if an application\'s last commit is older, such as "5 minutes".',
)
@click.option(
    "--watch",
    is_flag=True,
    help="Look again and again until interrupted, or until a commit is older than --max-age.",
)
@click.option(
    "--every", metavar="TIME", default="5 seconds", show_default=True, help="How often --watch looks."
)
def status(
    table: KnownTable,
    as_json: bool,
    small: str | None,
    largest: str,
    app_id: str | None,
    max_age: str | None,
    watch: bool,
    every: str,
) -> int:
    """Say when each application committed last, and how fast it is.

    Known from the table alone: a batch that failed left nothing there but the age of the last commit, and a
    batch without rows commits nothing. The ages are by this machine's clock, the rates over an application's
    last 20 batches. Exit code 1 past --max-age, also where no application is known to have committed.
    """
    from streaming_sink.commands.rendering import say_status
    from streaming_sink.durations import duration
    from timeline.clock import SYSTEM

    oldest = None if max_age is None else duration("--max-age", max_age).total_seconds()
    pause = duration("--every", every).total_seconds()
    below = _sizing(small, largest).small_file_bytes
    opened = table.open()
    while True:
        found = _status(opened, below, app_id, SYSTEM.now_ms())
        if watch and not as_json:
            clear()
        if as_json:
            say_json(found, one_line=watch)
        else:
            say_status(found)
        is_late = oldest is not None and not _is_recent(found, oldest)
        if is_late or not watch:
            return FINDINGS if is_late else DONE
        SYSTEM.sleep(pause)


def _status(table: Table, small_below: int, app_id: str | None, now_ms: int) -> TableStatus:
    """Return the status of a table's newest version; of one application alone, if it is given."""
    from dataclasses import replace

    from planners.suggestions import unknown_name
    from streaming_sink.reading.plans import list_plans
    from streaming_sink.reading.status import status_of

    plans = list_plans(table, now_ms)
    found = table.on_head(lambda head: status_of(head, plans, small_below, now_ms))
    if app_id is None:
        return found
    of_it = tuple(it for it in found.applications if it.app_id == app_id)
    if not of_it:
        raise unknown_name("application", app_id, {it.app_id for it in found.applications})
    return replace(found, applications=of_it)


def _is_recent(found: TableStatus, oldest: float) -> bool:
    """Return whether there are applications, and each is known to have committed within so many seconds."""
    ages = [it.age_seconds for it in found.applications]
    return bool(ages) and all(age is not None and age <= oldest for age in ages)


def _sizing(small: str | None, largest: str) -> FileSizing:
    from planners import FileSizing
    from planners.sizing import parse_bytes

    if small is None:
        small = str(parse_bytes(largest) * 5 // 6)
    return FileSizing(max_file_bytes=largest, small_file_bytes=small)


COMMANDS = (describe, status, files, partitions, snapshots)
