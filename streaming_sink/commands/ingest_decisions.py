"""`streaming-sink ingest publish|discard|reannounce ZONE`: what an operator decides of items and files."""

from __future__ import annotations

import click

from streaming_sink.commands.arguments import Pairs
from streaming_sink.commands.ingest import options, zone_argument
from streaming_sink.commands.ingest_workers import ingest
from streaming_sink.commands.terminal import DONE, FINDINGS, say

_item = click.argument("item", type=click.IntRange(0))


@ingest.command()
@zone_argument
@_item
@options
def publish(zone: str, item: int, storage_options: Pairs) -> int:
    """Publish what is staged of work item ITEM, against its audit too."""
    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.zones.deciding import publish as publish_item

    say(publish_item(BufferZone(zone, storage_options=storage_options), item).line())
    return DONE


@ingest.command()
@zone_argument
@_item
@options
def discard(zone: str, item: int, storage_options: Pairs) -> int:
    """Never land work item ITEM, staged or not. Its source files stay where they are."""
    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.zones.deciding import discard as discard_item

    discard_item(BufferZone(zone, storage_options=storage_options), item)
    say(f"work item {item} is discarded")
    return DONE


@ingest.command()
@zone_argument
@options
@click.option("--file", "paths", multiple=True, metavar="PATH", help="Only this file; may be repeated.")
def reannounce(zone: str, paths: tuple[str, ...], storage_options: Pairs) -> int:
    """Announce files that were rejected again, once what refused them has changed."""
    from streaming_sink.ingest.zone import BufferZone
    from streaming_sink.zones.reannouncing import reannounce as announce_again

    announced = announce_again(BufferZone(zone, storage_options=storage_options), paths)
    say(f"{len(announced.files):,} files are announced again")
    for path in announced.unknown:
        say(f"whether this one is in the table is not known, so it is not: {path}")
    return FINDINGS if announced.unknown else DONE


COMMANDS = (ingest,)
"""The group, with all of its commands."""
