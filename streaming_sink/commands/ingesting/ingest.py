"""The commands of buffered ingestion, `streaming-sink ingest COMMAND ZONE`: each part of it as a process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from planners.printing import span_text
from planners.sizing import count_text, size_text
from streaming_sink.commands.arguments import (
    F,
    Pairs,
    a_size,
    of_a_zone,
    said,
    some_text,
    storage_option,
    zone_argument,
)
from streaming_sink.commands.terminal import DONE, FINDINGS, Id, say, say_json, say_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.zones.ledger import LedgerEntry


@click.group()
def ingest() -> None:
    """Let files wait in a buffer zone, and land them in a table as few large ones."""


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for programs.")


def _text(flag: str, metavar: str, what: str, *name: str, **given: Any) -> Callable[[F], F]:
    help_text = f"{what}; may be repeated." if given.get("multiple") else what
    return click.option(flag, *name, callback=some_text, metavar=metavar, help=help_text, **given)


@ingest.command()
@zone_argument
@storage_option
@_text("--table", "LOCATION", "The table that the zone is for; with --catalog its name there.", required=True)
@_text("--catalog", "NAME", "The configured catalog that has the table, which the zone remembers.")
@_text("--partition-by", "TERM", "Such as day(event_time)", multiple=True)
@_text("--source", "FOLDER", "Where files may lie", "sources", multiple=True)
@click.option("--max-bytes", callback=a_size, metavar="SIZE", help="1GiB, where it is not said.")
@click.option("--max-files", type=click.IntRange(1), help="10000, where it is not said.")
@click.option("--max-age", metavar="TIME", help="5 minutes, where it is not said.")
@click.option("--per-partition/--together", default=None, help="Wait for each partition apart.")
@click.option("--max-waiting", callback=a_size, metavar="SIZE", help="More that waits makes producers wait.")
@click.option(
    "--by-reference/--no-by-reference", default=None, help="Large files that fit stay where they are."
)
@click.option("--audit/--no-audit", default=None, help="Stage items, and count their rows before publishing.")
@_text("--expect", "SQL", "What each row must meet", multiple=True)
@_text("--audit-function", "MODULE:NAME", "A function that gets each StagedItem.")
@_text("--key", "COLUMN", "Rows replace those of their key", multiple=True)
@_text("--sequence-by", "COLUMN", "Of two rows of a key the larger one here counts.")
@_text("--delete-where", "SQL", "Rows that delete their key, such as op = 'D'.")
@_text("--except-column", "COLUMN", "Not for the table", multiple=True)
def create(
    zone: str,
    storage_options: Pairs,
    table: str,
    catalog: str | None,
    partition_by: tuple[str, ...],
    sources: tuple[str, ...],
    key: tuple[str, ...],
    sequence_by: str | None,
    delete_where: str | None,
    except_column: tuple[str, ...],
    by_reference: bool | None,
    audit: bool | None,
    expect: tuple[str, ...],
    audit_function: str | None,
    **rules: Any,
) -> int:
    """Make a buffer zone, or change the options of one: those that are not said stay."""
    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.options.values.tables import CatalogTable
    from streaming_sink.options.values.writes import Upsert
    from streaming_sink.zones.audit import Audit
    from streaming_sink.zones.definition_log import read_definition
    from streaming_sink.zones.zone_options import KEPT, Rules, SourceFolders
    from timeline.stores import open_store

    if not key and (sequence_by or delete_where or except_column):
        raise ValueError("changes by key need the columns of the key: name each of them by --key")
    stored = read_definition(open_store(zone, storage_options))
    changes = {"sequence_by": sequence_by, "delete_where": delete_where, "except_columns": except_column}
    made = BufferZone(
        zone,
        table if catalog is None else CatalogTable(table, catalog, storage_options=storage_options),
        Upsert(key=key, **said(changes)) if key else KEPT,
        rules=replace(Rules() if stored is None else stored.rules_of, **said(rules)),
        sources=replace(
            SourceFolders() if stored is None else stored.source_folders,
            **said({"folders": sources or None, "by_reference": by_reference}),
        ),
        partition_by=partition_by or KEPT,
        audit=Audit(expect, audit_function) if expect or audit_function else KEPT if audit is None else audit,
        storage_options=storage_options,
    )
    say(f"{made.store.location} is the buffer zone of {made.sink_options.location}")
    return DONE


@ingest.command()
@of_a_zone
@click.argument("files", nargs=-1, required=True)
@as_json_option
def push(zone: BufferZone, files: tuple[str, ...], as_json: bool) -> int:
    """Announce FILES that exist; of a folder all files below it are announced."""
    pushed = zone.push(*files)
    if as_json:
        say_json(pushed)
    else:
        say(f"{count_text(pushed.files, 'file')}, {size_text(pushed.bytes)}")
        for name in pushed.missing:
            say(f"there is no such file, and no file below it: {name}")
        if pushed.left_out:
            left_out = count_text(len(pushed.left_out), "file")
            say(f"left out, hidden or of no known format: {left_out}, such as {pushed.left_out[0]}")
    return FINDINGS if pushed.missing else DONE


@ingest.command()
@of_a_zone
@click.argument("folder")
@click.option("--pattern", default="*", show_default=True, help="Of the names of the files.")
def watch(zone: BufferZone, folder: str, pattern: str) -> int:
    """From now on, have every file below FOLDER announced once it is whole."""
    zone.watch(folder, pattern)
    say(f"planners of {zone.store.location} now look at {folder} for {pattern}")
    return DONE


@ingest.command()
@of_a_zone
@as_json_option
def status(zone: BufferZone, as_json: bool) -> int:
    """Show what waits, what is planned, and what landed last.

    Exit code 1 where an item is set apart or held, or the last 100 have rejected a file that no item has
    taken again.
    """
    from streaming_sink.zones.status import status as status_of

    found = status_of(zone)
    if as_json:
        say_json(found)
    else:
        rules = found.rules
        say(f"zone     {found.location}")
        say(f"table    {found.table}")
        say(
            f"rules    {size_text(rules['max_bytes'])}, {count_text(rules['max_files'], 'file')},"
            f" or {span_text(rules['max_age_ms'])}"
        )
        for folder, pattern in found.watched:
            say(f"watches  {folder} for {pattern}")
        for group in found.waiting:
            named = f" of {group.group}" if group.group else ""
            waits = span_text(group.oldest_ms)
            say(f"waiting  {count_text(group.files, 'file')}{named}, {size_text(group.bytes)}, for {waits}")
        for item in found.open_items:
            of = f"{count_text(item.files, 'file')}, {size_text(item.bytes)}"
            say(f"item {item.number:<4} {item.state}: {of}; {item.why}")
            if item.reason:
                say(f"          {item.reason}")
        if found.open_count > len(found.open_items):
            say(f"         {found.open_count:,} work items are not in the table yet")
        for entry in found.rejected:
            say(f"rejected {entry.path}: {entry.why}")
        if found.rejected:
            say("         once what refused them has changed: `streaming-sink ingest reannounce`")
        say(f"landed   {found.landed_items:,} work items")
        if found.lag_ms:
            lag = ", ".join(f"{name} {span_text(value)}" for name, value in found.lag_ms.items())
            say(f"lag      {lag}, of the last {len(found.last_landed):,}")
            say(f"promise  {found.kept:,} of them were planned in time")
        for landed in found.last_landed[:5]:
            say(f"         {landed.line()}")
    return FINDINGS if found.rejected or any(item.reason for item in found.open_items) else DONE


@ingest.command()
@of_a_zone
@as_json_option
@click.option("--file", "path", metavar="PATH", help="Only this file, in all its versions.")
@click.option("--snapshot", type=int, metavar="ID", help="Only the files of this snapshot.")
@click.option("--state", metavar="STATE", help="Such as landed, rejected, held or discarded.")
def ledger(zone: BufferZone, as_json: bool, path: str | None, snapshot: int | None, state: str | None) -> int:
    """Show which file landed in which snapshot, and why others did not."""
    from streaming_sink.tasks.ingest.sources import spell_path
    from streaming_sink.zones.ledger import Ledger

    book = Ledger(zone)
    if path is not None:
        entries: Iterable[LedgerEntry] = book.find(spell_path(path))
    elif snapshot is not None:
        entries = book.files_of(snapshot)
    else:
        entries = book.entries()
    found = [it for it in entries if snapshot in (None, it.snapshot_id) and state in (None, it.state)]
    if as_json:
        say_json(found)
    else:
        rows = [
            (it.path, it.bytes, it.item, it.state, it.version, Id(it.snapshot_id or ""), it.why)
            for it in found
        ]
        say_table(("file", "bytes", "item", "state", "version", "snapshot", "why"), rows)
    return DONE


@ingest.command()
@click.argument("zones", metavar="ZONE...", nargs=-1, required=True)
@storage_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Another one needs a token.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(1, 65535))
@click.option(
    "--token",
    envvar="STREAMING_SINK_TOKEN",
    metavar="TEXT",
    help="What readers must send; better set STREAMING_SINK_TOKEN, since others see arguments.",
)
def serve(zones: tuple[str, ...], storage_options: Pairs, host: str, port: int, token: str | None) -> int:
    """Serve a page and a JSON API that show datasets, commits, lag and failures. Writes nothing."""
    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.serving.server import serve as serve_catalog

    opened = [BufferZone(zone, storage_options=storage_options) for zone in zones]
    for zone in opened:
        zone.definition  # noqa: B018 - a zone that is not there is an error at once
    name = f"[{host}]" if ":" in host else host

    def say_where() -> None:
        say(f"http://{name}:{port}/ shows {len(opened):,} datasets, /docs describes the API")

    serve_catalog(*opened, host=host, port=port, token=token, on_listening=say_where)
    return DONE


@ingest.command()
@of_a_zone
def retry(zone: BufferZone) -> int:
    """Let workers take the work items that were set apart or held again: what is staged is audited again."""
    from streaming_sink.zones.ledger import retry as put_back

    numbers = put_back(zone)
    say(f"{len(numbers):,} work items are free again: {', '.join(map(str, numbers)) or 'none was set apart'}")
    return DONE


@ingest.command()
@of_a_zone
@click.option("--grace", default="1 hour", show_default=True, metavar="TIME", help="How long files stay.")
def clean(zone: BufferZone, grace: str) -> int:
    """Delete staged files whose rows have been in the table for a while."""
    from streaming_sink.zones.cleaning import clean as delete_staged

    cleaned = delete_staged(zone, grace)
    say(f"{cleaned.files:,} staged files of {cleaned.items:,} work items are deleted")
    return DONE
